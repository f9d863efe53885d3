"""The fields an object of its type always has, filled in by functions made from a schema."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from apiserver_stub.kinds.schema import Node

# Changes a value in place. Doing it twice changes nothing more.
Fill = Callable[[Any], None]


def leave(_value: Any) -> None:
    """What fills where no field is always there."""


def filler(node: "Node") -> Fill:
    """What gives all objects in a value that fits `node` the fields that are always there; `leave` without any."""
    elements = node.items or node.values
    if elements is not None:
        return leave if elements.fill is leave else _each(elements.fill)
    always = tuple((name, field.default) for name, field in node.fields.items() if field.default is not None)
    inner = tuple((name, field.fill) for name, field in node.fields.items() if field.fill is not leave)
    return _object(always, inner) if always or inner else leave


def _each(fill: Fill) -> Fill:
    def fill_each(elements: Any) -> None:
        for element in elements.values() if type(elements) is dict else elements:
            fill(element)

    return fill_each


def _object(always: tuple[tuple[str, Any], ...], inner: tuple[tuple[str, Fill], ...]) -> Fill:
    def fill_object(tree: Any) -> None:
        for name, empty in always:
            if name not in tree:
                tree[name] = empty.copy() if type(empty) is list else empty
        for name, fill in inner:
            if name in tree:
                fill(tree[name])

    return fill_object
