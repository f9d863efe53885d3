"""Reading and writing plain trees by path; no knowledge of kinds."""

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
    """Set the value at `path`, making objects on the way but never changing one that is there; None removes it.

    Objects on the way are copied, so that a subtree shared with another tree stays as it is.
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
    """Return a copy that shares no object and no array with `value`."""
    if type(value) is dict:
        return {name: deep_copy(item) if type(item) in _CONTAINERS else item for name, item in value.items()}
    if type(value) is list:
        return [deep_copy(item) if type(item) in _CONTAINERS else item for item in value]
    return value


def with_integers(value: Any) -> Any:
    """Return a tree with integers in the place of floats without a fraction that fit 64 bits, as Go writes them."""
    kind = type(value)
    if kind is dict:
        return {name: with_integers(inner) for name, inner in value.items()}
    if kind is list:
        return [with_integers(inner) for inner in value]
    return int(value) if kind is float and value.is_integer() and abs(value) < _NO_INTEGERS_FROM else value


def equal(one: Any, other: Any) -> bool:
    """Return whether two JSON values are equal. Python takes true for 1, JSON does not."""
    return bool(one == other) and (identical(one, other) or _has_same_booleans(one, other))


def identical(one: Any, other: Any) -> bool:
    """Return whether two JSON values are equal and of the same types: 1.0 is another value than 1."""
    return bool(one == other) and _ENCODER.encode(one) == _ENCODER.encode(other)


def _has_same_booleans(one: Any, other: Any) -> bool:
    if type(one) is dict:
        return all(_has_same_booleans(value, other[name]) for name, value in one.items())
    if type(one) is list:
        return all(map(_has_same_booleans, one, other))
    return (type(one) is bool) is (type(other) is bool)


def same_but(ignored: Collection[str], one: Tree, other: Tree) -> bool:
    """Tell whether two objects agree in all top-level fields but the ignored ones. Those that they share are equal: to
    compare an object with itself takes as long as with a copy.
    """
    for name, value in one.items():
        before = other.get(name, _MISSING)
        if value is not before and name not in ignored and not identical(value, before):
            return False
    return (other.keys() - one.keys()).issubset(ignored)


def dicts(value: Any) -> Sequence[tuple[int, Tree]]:
    """Return the objects of an array with their indexes; none if it is no array."""
    if not isinstance(value, list):
        return ()
    return [(i, item) for i, item in enumerate(value) if isinstance(item, dict)]
