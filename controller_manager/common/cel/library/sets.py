"""Set functions for lists, as in cel-go's extension `sets`."""

from collections.abc import Callable
from typing import Any

from controller_manager.common.cel.library import CallEstimate, Function, Library, Overload
from controller_manager.common.cel.library.costs import ONE, Arguments, Operands, hashable_alike, require_affordable
from controller_manager.common.cel.types import BOOL, ListType, TypeParameter
from controller_manager.common.cel.values import equal, size_of


def contains(values: list[Any], part: list[Any]) -> bool:
    """Return whether every element of `part` is in the list."""
    require_affordable(len(values) * len(part))
    if hashable_alike(values, part):
        return set(part) <= set(values)
    return all(any(equal(item, value) for value in values) for item in part)


def equivalent(left: list[Any], right: list[Any]) -> bool:
    """Return whether two lists contain the same elements."""
    return contains(left, right) and contains(right, left)


def intersects(left: list[Any], right: list[Any]) -> bool:
    """Return whether two lists have a common element."""
    require_affordable(len(left) * len(right))
    if hashable_alike(left, right):
        return not set(left).isdisjoint(right)
    return any(equal(item, value) for item in left for value in right)


def _overload(name: str, implementation: Callable[..., bool], factor: float) -> Function:
    def cost(arguments: Arguments, result: Any) -> int:
        return 1 + int(size_of(arguments[0]) * size_of(arguments[1]) * factor)

    def estimate(operands: Operands) -> CallEstimate:
        return CallEstimate(operands[0].size.times(operands[1].size).scaled(factor).plus(ONE))

    overload = Overload(f"list_sets_{name}_list", (_LIST, _LIST), BOOL, implementation, cost=cost, estimate=estimate)
    return Function(f"sets.{name}", (overload,))


_LIST = ListType(TypeParameter("T"))

SETS = Library(
    "cel.lib.ext.sets",
    (
        _overload("contains", contains, 1.0),
        _overload("equivalent", equivalent, 2.0),
        _overload("intersects", intersects, 1.0),
    ),
)
