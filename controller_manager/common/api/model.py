"""The base of every typed object: frozen, camel-cased, and without loss of unknown fields."""

from collections.abc import Mapping
from copy import copy
from functools import cache, partial
from typing import Any, Self, dataclass_transform

import msgspec
from msgspec.structs import force_setattr

from controller_manager.common.api.decode import Decoder
from controller_manager.common.base.errors import OUR_PACKAGES

_FIELD: Any = type(msgspec.field())


class _ModelMeta(msgspec.StructMeta):
    """Makes all subclasses keyword-only, which msgspec does not inherit, and lets models of authors send default
    values.

    The defaults of our own models are those of the server, so values equal to the default are omitted. The defaults of
    an author may differ: msgspec never omits a field whose default has a factory other than list, dict and set.
    """

    def __new__(mcls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **config: Any) -> Any:
        config.setdefault("kw_only", True)
        made = super().__new__(mcls, name, bases, namespace, **config)
        if "omit_defaults" in config or made.__module__.partition(".")[0] in OUR_PACKAGES:
            return made
        fields = [field for field in made.__struct_fields__ if field in namespace]  # without ClassVars
        sent = {field: _always_sent(namespace[field]) for field in fields}
        return super().__new__(mcls, name, bases, {**namespace, **sent}, **config) if sent else made


def _always_sent(default: Any) -> Any:
    """Return the default of a field in a form that msgspec does not omit; None still means absent."""
    field = default if isinstance(default, _FIELD) else msgspec.field(default=default)
    value, factory = field.default, field.default_factory
    if factory is not msgspec.NODEFAULT:
        return msgspec.field(default_factory=partial(factory), name=field.name)
    if value is None or value is msgspec.NODEFAULT or isinstance(value, msgspec.Raw):
        return default
    return msgspec.field(default_factory=partial(copy, value), name=field.name)


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(msgspec.field,))
class Model(msgspec.Struct, metaclass=_ModelMeta, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """A value within an object, with the fields we interpret.

    In models outside of this project, None means that a field is absent, and all other values are sent, even if they
    equal the default; `omit_defaults=True` omits them. A field without a default is required.
    """


EMPTY_RAW = msgspec.Raw()
"""The default of a field with raw JSON: absent. Another empty `Raw` cannot be encoded."""


class OwnerReference(Model):
    """`metadata.ownerReferences[]`, complete."""

    api_version: str
    kind: str
    name: str
    uid: str
    controller: bool | None = None
    block_owner_deletion: bool | None = None


class ObjectMeta(Model):
    """`metadata`: the fields we interpret; the others stay in the object's `raw`.

    A client drops `managed_fields` from responses: they are often a third of an object and unused, and servers keep
    them if an update omits them (KEP-555).
    """

    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: int | None = None
    labels: Mapping[str, str] | None = None
    annotations: Mapping[str, str] | None = None
    finalizers: tuple[str, ...] = ()
    owner_references: tuple[OwnerReference, ...] = ()
    managed_fields: msgspec.Raw = EMPTY_RAW


class Object(Model):
    """A Kubernetes object: its interpreted fields, and in `raw` the JSON it was decoded from. In responses, `raw` is
    without `metadata.managedFields`, which an update may omit.

    `raw` is empty for an object created in code or by a metadata-only informer. It is never sent.
    """

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    raw: bytes = msgspec.field(default=b"", name="$raw")

    @classmethod
    def decode(cls, data: bytes, *, keep: bool = True) -> Self:
        """Decode JSON like `Decoder`; `keep` stores the bytes so that an update keeps unknown fields.

        Raises `msgspec.ValidationError` with the path of a field of the wrong type.
        """
        found: Self = _decoder(cls).decode(data)
        if keep:
            force_setattr(found, "raw", data)
        return found

    def encode(self) -> bytes:
        """Return the interpreted fields as JSON, without `raw`."""
        return msgspec.json.encode(msgspec.structs.replace(self, raw=b"") if self.raw else self)


def controller_of(obj: Object) -> OwnerReference | None:
    """Return the reference to the controlling owner of `obj`, or None."""
    return next((reference for reference in obj.metadata.owner_references if reference.controller), None)


class PartialObject(Object):
    """An object of any kind with type and metadata only."""


class BareObject(PartialObject):
    """The same without labels and annotations, which may hold whole manifests: a client drops them."""


@cache
def _decoder(cls: type[Object]) -> Decoder[Any]:
    return Decoder(cls)
