"""JSON merge patch (RFC 7386): members of the patch replace those of the object, and null removes them."""

from typing import Any

from apiserver_stub.patch.copies import copied
from controller_manager.api.errors import BadRequest

Tree = dict[str, Any]


def apply(tree: Tree, patch: object) -> Tree:
    """The object `tree` with the decoded patch document merged in; it shares unchanged parts with `tree`, and nothing
    with the patch."""
    if not isinstance(patch, dict):
        raise BadRequest("a merge patch of an object is an object")
    return _merge(tree, patch)


def _merge(target: Any, patch: Tree) -> Tree:
    merged = target.copy() if type(target) is dict else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        elif type(value) is dict:
            merged[name] = _merge(merged.get(name), value)
        else:
            merged[name] = copied(value)
    return merged
