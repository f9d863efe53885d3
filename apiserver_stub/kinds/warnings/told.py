"""Texts of warnings, each behind the place it is about."""

from typing import Any

from apiserver_stub.kinds.error_list import FieldPath, render
from apiserver_stub.kinds.schema import Tree
from controller_manager.api.quantity import parse


def tell(at: FieldPath, text: str) -> str:
    """A warning about a place."""
    return f"{render(at)}: {text}"


def annotation(tree: Tree, name: str) -> Any:
    """The annotation of an object or a template; None without it."""
    return (tree.get("metadata", {}).get("annotations") or {}).get(name)


def fractional(amounts: Any, names: tuple[str, ...], at: FieldPath) -> list[str]:
    """Amounts of bytes that are no whole number."""
    if not amounts:
        return []
    return [
        tell((at, f"[{name}]"), f"{amounts[name]} is a fraction of a byte; use a whole number")
        for name in names
        if name in amounts and _is_fraction(amounts[name])
    ]


def _is_fraction(text: str) -> bool:
    # Most amounts end in a digit or a unit that can't be a fraction.
    return text.endswith(("m", "u", "n")) and parse(text).number % 1 != 0
