"""Share unchanged parts (values of top-level fields) of an object with the stored object that it replaces.

A stored part already fits its schema and has its defaults, so a shared part is not checked again.
"""

from typing import Any

import orjson

from apiserver_stub.kinds.fit import fit_tree
from apiserver_stub.kinds.resource_info import ResourceInfo
from apiserver_stub.kinds.schema.clean import Report
from apiserver_stub.kinds.schema.schema_types import fitting, takes
from apiserver_stub.kinds.values.trees import deep_copy
from controller_manager.common.api.tree import Tree

_MISSING = object()
_CONTAINERS = frozenset({dict, list})
_ONLY_STRINGS = frozenset({"labels", "annotations", "finalizers", "managedFields"})  # equality suffices here


def may_share(kind: ResourceInfo) -> bool:
    """Return whether each part of an object of this kind can be completed on its own."""
    return kind.part_defaults is not None


def share(tree: Tree, stored: Tree, kind: ResourceInfo) -> None:
    """Replace each part that is equal to the stored part, types included, by the stored part."""
    fields = kind.schema.fields
    for name, part in tree.items():
        known = stored.get(name)
        if (
            part is not known
            and type(part) in _CONTAINERS
            and part == known
            and (orjson.dumps(part) == orjson.dumps(known) or (name in fields and takes(fitting(fields[name]), part)))
        ):
            tree[name] = known


def detached(tree: Tree, stored: Tree) -> Tree:
    """Return a copy that may be changed, except for shared parts and the entries of managed fields."""
    return {
        name: part if part is stored.get(name, _MISSING) else _own_metadata(part) if name == "metadata" else _own(part)
        for name, part in tree.items()
    }


def fit_others(tree: Tree, stored: Tree, kind: ResourceInfo) -> Report:
    """Fit all parts that are not shared to their schema and set their defaults, in place.

    Only changed fields of the metadata are checked. Afterwards the object has its own copy of the metadata.
    """
    others = {name: part for name, part in tree.items() if part is not stored.get(name, _MISSING)}
    names, metadata = set(others), others.get("metadata")
    changed = _changed(metadata, stored.get("metadata") or {}) if type(metadata) is dict else {}
    changed_names = set(changed)
    if type(metadata) is dict:
        others["metadata"] = changed
    report = fit_tree(others, kind.schema)
    if report.wrong:
        return report
    if type(metadata) is dict:
        own = others["metadata"] = metadata.copy()
        _take(changed, changed_names, own)
    _take(others, names, tree)
    for name, fill in (kind.part_defaults or {}).items():
        if tree.get(name, _MISSING) is not stored.get(name):
            fill(tree)
    if "metadata" not in names and "metadata" in tree:
        tree["metadata"] = dict(tree["metadata"])
    return report


def _changed(metadata: Tree, stored: Tree) -> Tree:
    """Return the fields of the metadata that differ from the stored object."""
    return {
        name: value
        for name, value in metadata.items()
        if (before := stored.get(name, _MISSING)) is not value
        and not ((type(value) is str or name in _ONLY_STRINGS) and value == before)
    }


def _take(fitted: Tree, names: set[str], tree: Tree) -> None:
    """Put the fitted parts into the tree and remove those of `names` that were dropped. Parts that the tree already had
    and that are not in `names` stay.
    """
    for name in names - fitted.keys():
        del tree[name]
    for name, part in fitted.items():
        if name in names or name not in tree:
            tree[name] = part


def _own_metadata(part: Any) -> Any:
    if type(part) is not dict:
        return part
    return {
        name: value if type(value) not in _CONTAINERS or name == "managedFields" else _own(value)
        for name, value in part.items()
    }


def _own(value: Any) -> Any:
    if type(value) not in _CONTAINERS:
        return value
    if type(value) is dict and _CONTAINERS.isdisjoint(map(type, value.values())):
        return value.copy()
    try:
        return orjson.loads(orjson.dumps(value))
    except TypeError:  # numbers that YAML allows and JSON does not
        return deep_copy(value)
