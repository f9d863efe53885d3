"""The count of changes of a DaemonSet's template, which older clients look for in an annotation."""

from typing import Any

from apiserver_stub.kinds.schema import Tree
from apiserver_stub.kinds.trees import get_in, put_in

_ANNOTATION = "deprecated.daemonset.template.generation"
_PATH = ("metadata", "annotations", _ANNOTATION)
_TEMPLATE = ("spec", "template")


def daemon_set_born(daemon_set: Tree) -> None:
    """It begins with one, unless a count is brought along."""
    _put(daemon_set, max(_count(daemon_set), 1))


def daemon_set_changed(new: Tree, old: Tree, _part: str) -> None:
    """It goes up with each change of the template, and nobody else may set it."""
    changed = get_in(new, _TEMPLATE) != get_in(old, _TEMPLATE)
    _put(new, max(_count(old), 1) + changed)


def _count(daemon_set: Tree) -> int:
    text: Any = get_in(daemon_set, _PATH) or ""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else 0


def _put(daemon_set: Tree, count: int) -> None:
    put_in(daemon_set, _PATH, str(count))
