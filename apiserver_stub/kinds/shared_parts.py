"""Parts, which are the values of top-level fields, that an object has in common with the stored one it takes the place
of. What is stored fits its schema and has its defaults; so a part that is the same is shared, and not looked at again.
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
_OF_TEXTS = frozenset({"labels", "annotations", "finalizers", "managedFields"})  # what equals these is of texts, too


def may_share(kind: ResourceInfo) -> bool:
    """Return whether the parts of objects of a kind are complete by themselves."""
    return kind.part_defaults is not None


def share(tree: Tree, stored: Tree, kind: ResourceInfo) -> None:
    """Put the stored part in the place of each that is equal to it, types included."""
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
    """Return a copy to change at will, all but the parts that are shared and the entries of managed fields."""
    return {
        name: part if part is stored.get(name, _MISSING) else _own_metadata(part) if name == "metadata" else _own(part)
        for name, part in tree.items()
    }


def fit_others(tree: Tree, stored: Tree, kind: ResourceInfo) -> Report:
    """Fit all parts that are not shared to the schema of their kind, of metadata what is another there, and fill in
    their defaults, in place. The metadata is the object's own afterwards.
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
    """Return what is not in the metadata of the stored object, which fits."""
    return {
        name: value
        for name, value in metadata.items()
        if (before := stored.get(name, _MISSING)) is not value
        and not ((type(value) is str or name in _OF_TEXTS) and value == before)
    }


def _take(fitted: Tree, names: set[str], tree: Tree) -> None:
    """Put what was fitted into a tree, of which those names were; others have come where there was nothing."""
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
    except TypeError:  # numbers that YAML may have, and JSON has not
        return deep_copy(value)
