"""The kinds that are served: the built-in ones from data, and those added while the server runs."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Any

from apiserver_stub.kinds.convert import autoscaler_from_v2, autoscaler_to_v2, event_from_core, event_to_core, fitted
from apiserver_stub.kinds.data import load
from apiserver_stub.kinds.enums import lay_enums
from apiserver_stub.kinds.fields import SELECTABLE
from apiserver_stub.kinds.resource_info import Convert, ResourceInfo, ScalePaths, Subresource
from apiserver_stub.kinds.schema import Schema, Schemas, Tree
from apiserver_stub.kinds.strategies import strategy_of

# The order in which clients see, and so prefer, the groups; others follow by name.
_ORDER = (
    "", "apiregistration.k8s.io", "apps", "events.k8s.io", "authentication.k8s.io", "authorization.k8s.io",
    "autoscaling", "batch", "certificates.k8s.io", "networking.k8s.io", "policy", "rbac.authorization.k8s.io",
    "storage.k8s.io", "admissionregistration.k8s.io", "apiextensions.k8s.io", "scheduling.k8s.io",
    "coordination.k8s.io", "node.k8s.io", "discovery.k8s.io", "flowcontrol.apiserver.k8s.io", "resource.k8s.io",
)  # fmt: skip
_RANK = MappingProxyType({group: rank for rank, group in enumerate(_ORDER)})
# Kinds that are a view of rows stored as another: (group, version, plural) -> storage, the other kind, in, out.
_VIEWS: Mapping[tuple[str, str, str], tuple[str, str, Convert, Convert]] = MappingProxyType({
    ("events.k8s.io", "v1", "events"): ("events", "/v1/Event", event_to_core, event_from_core),
    ("autoscaling", "v1", "horizontalpodautoscalers"): (
        "horizontalpodautoscalers.autoscaling", "autoscaling/v2/HorizontalPodAutoscaler",
        autoscaler_to_v2, autoscaler_from_v2,
    ),
})  # fmt: skip
# Kinds that are acts: creating one does what creating the subresource of an object does, which the body names.
_ACTS: Mapping[tuple[str, str, str], tuple[str, str]] = MappingProxyType({("", "v1", "bindings"): ("pods", "binding")})


@dataclass(frozen=True, slots=True)
class Group:
    """An API group and its versions, the preferred one first."""

    name: str
    versions: tuple[str, ...]


class Kinds:
    """What is served, by group, version and plural name. `bodies` are definitions that are no resource themselves."""

    def __init__(
        self,
        kinds: Iterable[ResourceInfo] = (),
        bodies: Mapping[str, str] | None = None,
        schemas: Schemas | None = None,
    ) -> None:
        self._kinds: dict[tuple[str, str, str], ResourceInfo] = {}
        self._bodies = bodies or {}
        self._schemas = schemas or Schemas({})
        for kind in kinds:
            self.add(kind)

    def add(self, kind: ResourceInfo) -> None:
        """Serve a kind; it takes the place of one with the same group, version and plural."""
        self._kinds[kind.group, kind.version, kind.plural] = kind

    def remove(self, kind: ResourceInfo) -> None:
        """Serve a kind no longer; harmless when it is not served."""
        self._kinds.pop((kind.group, kind.version, kind.plural), None)

    def find(self, group: str, version: str, plural: str) -> ResourceInfo | None:
        """The kind behind a path of the API."""
        return self._kinds.get((group, version, plural))

    def all(self) -> Iterator[ResourceInfo]:
        """Every kind, group by group and the preferred version first."""
        groups = {group.name: (rank, group.versions) for rank, group in enumerate(self.groups())}
        yield from sorted(
            self._kinds.values(), key=lambda k: (groups[k.group][0], groups[k.group][1].index(k.version), k.plural)
        )

    def groups(self) -> tuple[Group, ...]:
        """The groups with their versions, in the order clients see them."""
        versions: dict[str, dict[str, None]] = {}
        for group, version, _ in self._kinds:
            versions.setdefault(group, {})[version] = None
        names = sorted(versions, key=lambda name: (_RANK.get(name, len(_RANK)), name))
        return tuple(Group(name, tuple(sorted(versions[name], key=_preference))) for name in names)

    def body(self, group: str, version: str, kind: str) -> Schema | None:
        """The schema of what a request may carry besides resources: Scale, Eviction, DeleteOptions, TokenRequest."""
        name = self._bodies.get(f"{group}/{version}/{kind}")
        return self._schemas.node(name) if name else None


def built_in() -> Kinds:
    """Every built-in kind, its schema resolved when first needed; servers in one process share the rows."""
    return Kinds(*_facts())


@cache
def _facts() -> tuple[tuple[ResourceInfo, ...], Mapping[str, str], Schemas]:
    data = load("schema.json")
    lay_enums(data["definitions"])
    schemas, bodies = Schemas(data["definitions"]), data["kinds"]
    return tuple(_kind(raw, schemas, bodies) for raw in load("resources.json")), bodies, schemas


def _kind(raw: Tree, schemas: Schemas, bodies: Mapping[str, str]) -> ResourceInfo:
    group, version, plural = raw["group"], raw["version"], raw["plural"]
    name = f"{plural}.{group}" if group else plural
    storage, stored_as, inward, outward = _VIEWS.get((group, version, plural), (name, "", None, None))
    subresources = {s["name"]: _subresource(s, group, version) for s in raw.get("subresources", ())}
    return ResourceInfo(
        group=group,
        version=version,
        kind=raw["kind"],
        plural=plural,
        singular=raw["singular"],
        namespaced=raw["namespaced"],
        verbs=frozenset(raw["verbs"]),
        storage=storage,
        schema=schemas.node(bodies[f"{group}/{version}/{raw['kind']}"]),
        strategy=strategy_of(name, subresources),
        short_names=tuple(raw.get("shortNames", ())),
        categories=tuple(raw.get("categories", ())),
        subresources=subresources,
        scale=ScalePaths() if "scale" in subresources else None,
        fields=SELECTABLE.get(name, {}),
        to_storage=fitted(inward, schemas.node(bodies[stored_as])) if inward else None,
        from_storage=outward,
        persisted="get" in raw["verbs"],
        acts_on=_ACTS.get((group, version, plural), ("", "")),
    )


def _subresource(raw: dict[str, Any], group: str, version: str) -> Subresource:
    return Subresource(
        raw["name"], raw["kind"], raw.get("group", group), raw.get("version", version), frozenset(raw["verbs"])
    )


def _preference(version: str) -> tuple[int, int, int, str]:
    """Stable before beta before alpha, then the higher number, as clients expect versions to be ranked."""
    number, _, rest = version.removeprefix("v").partition("beta" if "beta" in version else "alpha")
    if not version.startswith("v") or not number.isdigit() or not (rest.isdigit() or rest == ""):
        return (3, 0, 0, version)
    stage = 0 if version[1:].isdigit() else 1 if "beta" in version else 2
    return (stage, -int(number), -int(rest or 0), version)
