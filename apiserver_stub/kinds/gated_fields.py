"""Fields of disabled features. A write drops them unless the stored object already uses the feature."""

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

from apiserver_stub.common.flags.features import (
    COORDINATED_ELECTION,
    CROSS_NAMESPACE_SOURCES,
    LIST_ATTRIBUTES,
    NODE_ALLOCATABLE,
    POD_CERTIFICATES,
    PROJECTED_BUNDLES,
    STATEFUL_MAX_UNAVAILABLE,
    STOP_SIGNALS,
    VOLUME_LIMITS,
    WORKLOADS,
)
from controller_manager.common.api.tree import Tree

Fields = Mapping[str, Any]
"""The feature gates of fields: the name of a field maps to the fields below it (also in list items) or to its gate. `*`
stands for each key of a map.
"""

_GONE = ""  # the gate of removed fields, which is never enabled
_CONTAINERS: Fields = MappingProxyType({"lifecycle": {"stopSignal": STOP_SIGNALS}})
_POD_SPEC: Fields = MappingProxyType({
    "containers": _CONTAINERS, "initContainers": _CONTAINERS, "ephemeralContainers": _CONTAINERS,
    "schedulingGroup": WORKLOADS,
    "volumes": {"projected": {"sources": {
        "clusterTrustBundle": PROJECTED_BUNDLES, "podCertificate": POD_CERTIFICATES,
    }}},
})  # fmt: skip
_LISTS: Fields = MappingProxyType(dict.fromkeys(("bools", "ints", "strings", "versions"), LIST_ATTRIBUTES))
_POD: Fields = MappingProxyType({"spec": _POD_SPEC})
_WORKLOAD: Fields = MappingProxyType({"spec": {"template": _POD}})
FIELDS: Mapping[str, Fields] = MappingProxyType({
    "pods": _POD,
    "podtemplates": {"template": _POD},
    **dict.fromkeys(
        ("replicationcontrollers", "daemonsets.apps", "deployments.apps", "replicasets.apps", "jobs.batch"), _WORKLOAD
    ),
    "cronjobs.batch": {"spec": {"jobTemplate": _WORKLOAD}},
    "statefulsets.apps": {"spec": {
        "template": _POD, "updateStrategy": {"rollingUpdate": {"maxUnavailable": STATEFUL_MAX_UNAVAILABLE}},
    }},
    "persistentvolumeclaims": {"spec": {"dataSourceRef": {"namespace": CROSS_NAMESPACE_SOURCES}}},
    "leases.coordination.k8s.io": {"spec": dict.fromkeys(("strategy", "preferredHolder"), COORDINATED_ELECTION)},
    "csidrivers.storage.k8s.io": {"spec": {"preventPodSchedulingIfMissing": VOLUME_LIMITS}},
    "resourceslices.resource.k8s.io": {"spec": {"devices": {
        "nodeAllocatableResourceMappings": NODE_ALLOCATABLE, "attributes": {"*": _LISTS},
    }}},
    "nodes": {"spec": {"configSource": _GONE}, "status": {"config": _GONE}},
})  # fmt: skip
"""The gated fields by kind."""


def _features(fields: Fields) -> Iterator[str]:
    for inner in fields.values():
        yield from (inner,) if isinstance(inner, str) else _features(inner)


GATES = frozenset(_features(FIELDS)) - {_GONE}
"""The feature gates of all gated fields."""

# Parents that are removed with a dropped field: always, or only if they are then empty.
_WITH_ALL, _WITH_NOTHING_LEFT = frozenset({"dataSourceRef"}), frozenset({"lifecycle"})


def gated_fields(name: str, enabled: Callable[[str], bool]) -> Fields:
    """Return the fields of a kind whose features are disabled."""
    return _gated(FIELDS.get(name, {}), enabled)


def _gated(fields: Fields, enabled: Callable[[str], bool]) -> Fields:
    rest = {
        name: inner if isinstance(inner, str) else _gated(inner, enabled)
        for name, inner in fields.items()
        if not (isinstance(inner, str) and inner and enabled(inner))
    }
    return {name: inner for name, inner in rest.items() if inner or inner == _GONE}


def drop_gated(fields: Fields, new: Tree, old: Tree | None = None) -> None:
    """Drop gated fields from a new object, or from an update if the old object does not use their feature. Parts shared
    with the old object are not changed.
    """
    if old is not None:
        fields = {name: inner for name, inner in fields.items() if new.get(name) is not old.get(name)}
    if not _has_any(fields, new):  # the usual case
        return
    found = list(_found(fields, new))
    used = {feature for _, feature in _found(fields, old)} if old is not None else frozenset()
    for (*path, holder, name), feature in found:
        if feature not in used:
            _drop(path, holder, name)


def _has_any(fields: Fields, tree: Any) -> bool:
    every = fields.get("*")
    for name, inner in fields.items() if every is None else [(name, every) for name in tree]:
        value = tree.get(name)
        if value is None:
            continue
        if type(inner) is str:
            return True
        if type(value) is not list:
            if _has_any(inner, value):
                return True
            continue
        for one in value:
            if _has_any(inner, one):
                return True
    return False


def _found(fields: Fields, tree: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], str]]:
    """Yield the gated fields in a tree: the objects and names on the path to each, and its feature gate."""
    every = fields.get("*")
    for name, inner in fields.items() if every is None else [(name, every) for name in tree]:
        value = tree.get(name)
        if value is None:
            continue
        if type(inner) is str:
            yield (*path, tree, name), inner
            continue
        for one in value if type(value) is list else (value,):
            yield from _found(inner, one, (*path, tree, name))


def _drop(path: list[Any], holder: Tree, name: str) -> None:
    holder.pop(name, None)
    if path and (path[-1] in _WITH_ALL or (path[-1] in _WITH_NOTHING_LEFT and not holder)):
        path[-2].pop(path[-1], None)
