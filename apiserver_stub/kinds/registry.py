"""The served resources: the built-in ones, and those that are added, changed and removed while the server runs."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

from apiserver_stub.common.flags.features import SELINUX_MOUNT, TOLERATION_COMPARISON
from apiserver_stub.kinds import built_in as built_in_kinds
from apiserver_stub.kinds.gated_fields import GATES, gated_fields
from apiserver_stub.kinds.resource_info import ResourceInfo
from apiserver_stub.kinds.rules.features import POD_SPECS, without_mount_policy
from apiserver_stub.kinds.rules.tolerations import POD_TOLERATIONS, without_comparisons
from apiserver_stub.kinds.strategies.api_services import priority_of, version_rank


@dataclass(frozen=True, slots=True)
class Group:
    """An API group and its versions, the preferred one first."""

    name: str
    versions: tuple[str, ...]


class ResourceChange(NamedTuple):
    """A resource that was added (`before` is None), changed, or removed (`after` is None); names stay the same."""

    before: ResourceInfo | None
    after: ResourceInfo | None

    @property
    def info(self) -> ResourceInfo:
        """Return the newer of the two."""
        found = self.after or self.before
        assert found is not None
        return found

    @property
    def changes_form(self) -> bool:
        """Return whether watches now get objects in another form, or no longer get them. A resource that only begins to
        terminate keeps its form, so that its watches see the deletions.
        """
        return self.before is None or self.after is None or self.before.schema is not self.after.schema


Listener = Callable[[ResourceChange], None]


class ResourceRegistry:
    """The served resources, by group, version and plural name. `generation` counts the changes."""

    def __init__(self, resources: Iterable[ResourceInfo] = ()) -> None:
        self.generation = 0
        self._resources: dict[tuple[str, str, str], ResourceInfo] = {}
        self._in_order: list[ResourceInfo] | None = None  # since the last change
        self._listeners: list[Listener] = []
        for info in resources:
            self.add(info)

    def add(self, info: ResourceInfo) -> None:
        """Serve a resource. It replaces one with the same group, version and plural."""
        key = info.group, info.version, info.plural
        before = self._resources.get(key)
        if before is not info:
            self._resources[key] = info
            self._notify(ResourceChange(before, info))

    def remove(self, info: ResourceInfo) -> None:
        """Stop serving a resource. Do nothing if its group, version and plural is not served."""
        before = self._resources.pop((info.group, info.version, info.plural), None)
        if before is not None:
            self._notify(ResourceChange(before, None))

    def subscribe(self, listener: Listener) -> None:
        """Call `listener` after each later change has taken effect. It must not raise."""
        self._listeners.append(listener)

    def find(self, group: str, version: str, plural: str) -> ResourceInfo | None:
        """Return the resource of an API path."""
        return self._resources.get((group, version, plural))

    def serves(self, info: ResourceInfo) -> bool:
        """Return whether exactly this resource is served: neither changed nor removed since."""
        return self._resources.get((info.group, info.version, info.plural)) is info

    def equivalent_to(self, info: ResourceInfo) -> Sequence[ResourceInfo]:
        """Return the resources with the same objects as `info` (all versions and groups), in order of addition."""
        return [each for each in self._resources.values() if each.storage == info.storage]

    def all(self) -> Iterator[ResourceInfo]:
        """Yield all resources, group by group, the preferred version first."""
        if self._in_order is None:
            groups = {group.name: (rank, group.versions) for rank, group in enumerate(self.groups())}
            self._in_order = sorted(
                self._resources.values(),
                key=lambda k: (groups[k.group][0], groups[k.group][1].index(k.version), k.plural),
            )
        return iter(self._in_order)

    def groups(self) -> tuple[Group, ...]:
        """Return the groups with their versions, in the order clients see them."""
        versions: dict[str, dict[str, None]] = {}
        for group, version, _ in self._resources:
            versions.setdefault(group, {})[version] = None
        names = sorted(versions, key=lambda name: (bool(name), -priority_of(name, "").group, name))
        return tuple(Group(name, tuple(sorted(versions[name], key=version_rank))) for name in names)

    def _notify(self, change: ResourceChange) -> None:
        self.generation += 1
        self._in_order = None
        for listener in self._listeners:
            listener(change)


def _is_stable(info: ResourceInfo) -> bool:
    return version_rank(info.version)[0] == 0


def built_in(
    serves: Callable[[ResourceInfo], bool] = _is_stable, enabled: Callable[[str], bool] = lambda _: True
) -> ResourceRegistry:
    """Return a registry of the built-in resources that are served, by default those of stable versions. Fields of
    disabled features are dropped from their objects.
    """
    features = (*GATES, TOLERATION_COMPARISON, SELINUX_MOUNT)
    off = frozenset(feature for feature in features if not enabled(feature))
    return ResourceRegistry(info for info in _without_gated(off) if serves(info))


@lru_cache(maxsize=8)  # tests start many servers, most with the same features
def _without_gated(off: frozenset[str]) -> Sequence[ResourceInfo]:
    return tuple(_without_features(info, off) for info in built_in_kinds.resources())


def _without_features(info: ResourceInfo, off: frozenset[str]) -> ResourceInfo:
    name = f"{info.plural}.{info.group}".rstrip(".")
    fields, tolerations = gated_fields(name, lambda feature: feature not in off), POD_TOLERATIONS.get(name)
    if fields:
        info = replace(info, strategy=replace(info.strategy, gated=fields))
    if tolerations is not None and TOLERATION_COMPARISON in off:
        info = replace(info, rules=without_comparisons(info.rules, tolerations))
    if name in POD_SPECS and SELINUX_MOUNT in off:
        info = replace(info, rules=without_mount_policy(info.rules, POD_SPECS[name]))
    return info
