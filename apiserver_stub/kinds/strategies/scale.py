"""The `scale` subresource: reads and writes the replica count and the selector of any kind by their paths."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeVar

from apiserver_stub.common.error_list import go_number
from apiserver_stub.kinds.values.trees import get_in, put_in
from controller_manager.common.api.tree import Tree

T = TypeVar("T")
_OBJECT = "map[string]interface {}"
_GO_TYPES: Mapping[type, str] = MappingProxyType({
    bool: "bool", int: "int64", float: "float64", str: "string", list: "[]interface {}", type(None): "<nil>",
})  # fmt: skip
_CARRIED = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")


@dataclass(frozen=True, slots=True)
class ScalePaths:
    """The paths that the `scale` subresource reads. The selector may be an object, a map or a string, and its path may
    be empty.

    If `strict`, an object without a number at `spec` has no scale, and zero replicas are left out of the Scale.
    """

    spec: tuple[str, ...] = ("spec", "replicas")
    status: tuple[str, ...] = ("status", "replicas")
    selector: tuple[str, ...] = ("spec", "selector")
    strict: bool = False


def typed_in(tree: Any, path: Sequence[str], expected: type[T]) -> T | None:
    """Return the value at a path, None if it is absent. Raises TypeError, with Go's message, if it or a parent has the
    wrong type.
    """
    for depth, name in enumerate(path):
        if tree is None:
            return None
        if type(tree) is not dict:
            raise TypeError(_type_error(path[: depth + 1], tree, "map[string]interface{}"))
        if name not in tree:
            return None
        tree = tree[name]
    if type(tree) is not expected:
        raise TypeError(_type_error(path, tree, _GO_TYPES[expected]))
    return tree


def _type_error(path: Sequence[str], value: Any, expected: str) -> str:
    found = _GO_TYPES.get(type(value), _OBJECT)
    return f".{'.'.join(path)} accessor error: {_printed(value)} is of the type {found}, expected {expected}"


def _printed(value: Any) -> str:
    """Format a value like Go's `%v`."""
    match value:
        case None:
            return "<nil>"
        case bool():
            return "true" if value else "false"
        case float():
            return go_number(value)
        case list():
            return f"[{' '.join(map(_printed, value))}]"
        case dict():
            return f"map[{' '.join(f'{name}:{_printed(value[name])}' for name in sorted(value))}]"
    return str(value)


def to_scale(tree: Tree, paths: ScalePaths) -> Tree:
    """Return the Scale (autoscaling/v1) of an object."""
    status: Tree = {"replicas": get_in(tree, paths.status) or 0}
    selector = selector_text(get_in(tree, paths.selector)) if paths.selector else ""
    if selector:
        status["selector"] = selector
    replicas = get_in(tree, paths.spec) or 0
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {name: tree["metadata"][name] for name in _CARRIED if name in tree["metadata"]},
        "spec": {"replicas": replicas} if replicas or not paths.strict else {},
        "status": status,
    }


def from_scale(tree: Tree, scale: Tree, paths: ScalePaths) -> Tree:
    """Return a copy of the object with the replica count of the Scale."""
    scaled = dict(tree)
    put_in(scaled, paths.spec, get_in(scale, ("spec", "replicas")) or 0)
    return scaled


def selector_text(selector: Any) -> str:
    """Return a selector as text. The input is text, a map of labels or a LabelSelector."""
    if isinstance(selector, str):
        return selector
    if not isinstance(selector, dict):
        return ""
    if "matchLabels" not in selector and "matchExpressions" not in selector:
        return ",".join(f"{key}={value}" for key, value in sorted(selector.items()))
    terms = [(key, f"{key}={value}") for key, value in selector.get("matchLabels", {}).items()]
    terms += [(e.get("key", ""), _expression(e)) for e in selector.get("matchExpressions", ())]
    return ",".join(text for _, text in sorted(terms))


def _expression(raw: Tree) -> str:
    key, operator, values = raw.get("key", ""), raw.get("operator"), sorted(raw.get("values", ()))
    match operator:
        case "Exists":
            return str(key)
        case "DoesNotExist":
            return f"!{key}"
        case _:
            return f"{key} {'in' if operator == 'In' else 'notin'} ({','.join(values)})"
