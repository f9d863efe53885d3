"""Default classes of objects that name none: the plugins DefaultStorageClass and DefaultIngressClass.

An annotation marks a class as the default. Of several, the newest applies; of those with equal creation time, the first
by name.
"""

from collections.abc import Iterable, Sequence

import msgspec

from apiserver_stub.admission.chain import AdmissionPlugin, Attributes, Rule
from apiserver_stub.admission.parts import AdmissionParts
from apiserver_stub.kinds.values.trees import get_in, put_in
from apiserver_stub.watch_cache.cache import WatchCache
from apiserver_stub.watch_cache.row import Row
from controller_manager.common.api.platform import GROUP_DOMAIN, PLATFORM_DOMAIN

_STORAGE, _NETWORKING = f"storage.{GROUP_DOMAIN}", f"networking.{GROUP_DOMAIN}"
_STORAGE_DEFAULT = (
    f"storageclass.{PLATFORM_DOMAIN}/is-default-class",
    f"storageclass.beta.{PLATFORM_DOMAIN}/is-default-class",
)
_INGRESS_DEFAULT = (f"ingressclass.{PLATFORM_DOMAIN}/is-default-class",)
_CLAIM_CLASS, _INGRESS_CLASS = ("spec", "storageClassName"), ("spec", "ingressClassName")
CLAIM_CLASS_ANNOTATION = f"volume.beta.{PLATFORM_DOMAIN}/storage-class"
_INGRESS_CLASS_ANNOTATION = f"{PLATFORM_DOMAIN}/ingress.class"


class _Metadata(msgspec.Struct, gc=False, frozen=True, rename="camel"):
    creation_timestamp: str = ""
    annotations: dict[str, str] | None = None


class _Annotated(msgspec.Struct, gc=False, frozen=True):
    metadata: _Metadata


_STORED = msgspec.json.Decoder(_Annotated)


class DefaultClass:
    """The default class of a resource, marked by one of these annotations. Cached until classes change."""

    def __init__(self, store: WatchCache, resource: str, annotations: Sequence[str]) -> None:
        self._store = store
        self._resource = resource
        self._annotations = annotations
        self._known = (-1, "")

    @property
    def name(self) -> str:
        """The name of the default class, or an empty string."""
        changes = self._store.history(self._resource).end
        if self._known[0] != changes:
            self._known = changes, default_of(self._store.snapshot(self._resource).items(), self._annotations)
        return self._known[1]


def default_of(rows: Iterable[Row], annotations: Sequence[str]) -> str:
    """Return the name of the default class, or an empty string."""
    name, since = "", ""
    for row in rows:  # sorted by name
        metadata = _STORED.decode(row.data).metadata
        present = metadata.annotations or {}
        if any(present.get(each) == "true" for each in annotations) and metadata.creation_timestamp > since:
            name, since = row.name, metadata.creation_timestamp
    return name


def default_storage_class(parts: AdmissionParts) -> AdmissionPlugin:
    """Return the plugin DefaultStorageClass."""
    default = DefaultClass(parts.store, f"storageclasses.{_STORAGE}", _STORAGE_DEFAULT)

    async def admit(attributes: Attributes) -> None:
        claim = attributes.tree
        annotations = get_in(claim, ("metadata", "annotations")) or {}
        if CLAIM_CLASS_ANNOTATION not in annotations and get_in(claim, _CLAIM_CLASS) is None and default.name:
            put_in(claim, _CLAIM_CLASS, default.name)

    rule = Rule(admit, ("create",), ("persistentvolumeclaims",))
    return AdmissionPlugin("DefaultStorageClass", mutating=(rule,))


def default_ingress_class(parts: AdmissionParts) -> AdmissionPlugin:
    """Return the plugin DefaultIngressClass."""
    default = DefaultClass(parts.store, f"ingressclasses.{_NETWORKING}", _INGRESS_DEFAULT)

    async def admit(attributes: Attributes) -> None:
        ingress = attributes.tree
        annotations = get_in(ingress, ("metadata", "annotations")) or {}
        if _INGRESS_CLASS_ANNOTATION not in annotations and get_in(ingress, _INGRESS_CLASS) is None and default.name:
            put_in(ingress, _INGRESS_CLASS, default.name)

    rule = Rule(admit, ("create",), (f"ingresses.{_NETWORKING}",))
    return AdmissionPlugin("DefaultIngressClass", mutating=(rule,))
