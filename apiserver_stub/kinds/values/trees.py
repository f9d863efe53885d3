"""Read and write plain trees by path. Nothing here depends on a kind."""

from collections.abc import Collection, Sequence
from typing import Any

import msgspec

from controller_manager.common.api.tree import Tree

_MISSING = object()
_CONTAINERS = frozenset({dict, list})

_ENCODER = msgspec.json.Encoder(order="sorted")
_NO_INTEGERS_FROM = 2.0**63


def get_in(tree: Any, path: Sequence[str]) -> Any:
    """Return the value at `path`, or None."""
    for name in path:
        if type(tree) is not dict:
            return None
        tree = tree.get(name)
    return tree


def put_in(tree: Tree, path: Sequence[str], value: Any) -> None:
    """Set the value at `path` and create missing objects. None removes the value.

    Objects on the path are copied, so a subtree shared with another tree is not changed.
    """
    *parents, last = path
    for name in parents:
        inner = tree.get(name)
        if value is None and not isinstance(inner, dict):
            return
        inner = tree[name] = dict(inner) if isinstance(inner, dict) else {}
        tree = inner
    if value is None:
        tree.pop(last, None)
    else:
        tree[last] = value


def deep_copy(value: Any) -> Any:
    """Return a copy that shares no object or array with `value`."""
    if type(value) is dict:
        return {name: deep_copy(item) if type(item) in _CONTAINERS else item for name, item in value.items()}
    if type(value) is list:
        return [deep_copy(item) if type(item) in _CONTAINERS else item for item in value]
    return value


def with_integers(value: Any) -> Any:
    """Return the tree with floats that have no fraction and fit 64 bits replaced by integers, as Go encodes them."""
    kind = type(value)
    if kind is dict:
        return {name: with_integers(inner) for name, inner in value.items()}
    if kind is list:
        return [with_integers(inner) for inner in value]
    return int(value) if kind is float and value.is_integer() and abs(value) < _NO_INTEGERS_FROM else value


def equal(one: Any, other: Any) -> bool:
    """Return whether two JSON values are equal. In Python True equals 1, in JSON it does not."""
    return bool(one == other) and (identical(one, other) or _has_same_booleans(one, other))


def identical(one: Any, other: Any) -> bool:
    """Return whether two JSON values are equal and have the same types: 1.0 and 1 differ."""
    return bool(one == other) and _ENCODER.encode(one) == _ENCODER.encode(other)


def _has_same_booleans(one: Any, other: Any) -> bool:
    if type(one) is dict:
        return all(_has_same_booleans(value, other[name]) for name, value in one.items())
    if type(one) is list:
        return all(map(_has_same_booleans, one, other))
    return (type(one) is bool) is (type(other) is bool)


def same_but(ignored: Collection[str], one: Tree, other: Tree) -> bool:
    """Return whether two objects have equal top-level fields, except for the ignored ones. Shared values are equal and
    not compared.
    """
    for name, value in one.items():
        before = other.get(name, _MISSING)
        if value is not before and name not in ignored and not identical(value, before):
            return False
    return (other.keys() - one.keys()).issubset(ignored)


def dicts(value: Any) -> Sequence[tuple[int, Tree]]:
    """Return the objects in an array with their indexes. Empty if it is not an array."""
    if not isinstance(value, list):
        return ()
    return [(i, item) for i, item in enumerate(value) if isinstance(item, dict)]
