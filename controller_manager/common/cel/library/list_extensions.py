"""List functions of cel-go's extension `lists`, version 3: slices, sorting and distinct elements."""

from collections.abc import Callable
from functools import cmp_to_key
from typing import Any

from controller_manager.common.cel.library import (
    STRING_TRAVERSAL,
    UNBOUNDED,
    CallEstimate,
    Function,
    Library,
    Overload,
    fixed,
    no_such_overload,
)
from controller_manager.common.cel.library.costs import (
    Arguments,
    Operands,
    hashable_alike,
    list_cost,
    list_estimate,
    require_affordable,
)
from controller_manager.common.cel.library.lists import COMPARABLE, ORDERED, compare
from controller_manager.common.cel.types import (
    DYN,
    INT,
    Kind,
    ListType,
    Type,
    TypeParameter,
)
from controller_manager.common.cel.values import (
    Duration,
    EvaluationError,
    Timestamp,
    equal,
    size_of,
    type_of,
)

_FEW = 12  # lists up to this size use insertion sort, which determines the error for incomparable elements
_T = TypeParameter("T")
_LIST = ListType(_T)


def _range(count: int) -> list[int]:
    require_affordable(count)
    return list(range(count))


def _slice(values: list[Any], start: int, end: int) -> list[Any]:
    asked = f"cannot slice({start}, {end}), "
    if start < 0 or end < 0:
        raise EvaluationError(f"{asked}negative indexes not supported")
    if start > end:
        raise EvaluationError(f"{asked}start index must be less than or equal to end index")
    if len(values) < end:
        raise EvaluationError(f"{asked}list is length {len(values)}")
    return list(values[start:end])


def _flatten(values: Any, depth: Any = 1) -> list[Any]:
    """Return the elements of nested lists down to a depth."""
    if not isinstance(values, list) or type(depth) is not int:
        arguments = type_of(depth).name if depth != 1 or type(depth) is not int else ""
        name = "map(dyn, dyn)" if isinstance(values, dict) else type_of(values).name
        raise EvaluationError(f"no such overload: {name}.flatten({arguments})")
    if depth < 0:
        raise EvaluationError("level must be non-negative")
    flat = list(values)
    while depth > 0 and any(isinstance(value, list) for value in flat):
        flat = [item for value in flat for item in (value if isinstance(value, list) else (value,))]
        require_affordable(len(flat))
        depth -= 1
    return flat


def _distinct(values: list[Any]) -> list[Any]:
    """Return the elements without duplicates of earlier ones."""
    require_affordable(2 * len(values) ** 2)
    if hashable_alike(values):
        return list(dict.fromkeys(values))
    found: list[Any] = []
    for value in values:
        if not any(equal(value, other) for other in found):
            found.append(value)
    return found


def _sort(values: Any) -> list[Any]:
    if not isinstance(values, list):
        raise no_such_overload("" if isinstance(values, str | Timestamp | Duration) else "sort")
    return _sort_by_keys(values, values)


def _sort_by_keys(values: Any, keys: Any) -> list[Any]:
    """Return the elements sorted by the parallel list of keys; the sort is stable."""
    if not isinstance(values, list) or not isinstance(keys, list):
        raise no_such_overload()
    if len(values) != len(keys):
        raise EvaluationError(
            "@sortByAssociatedKeys() expected a list of the same size as the associated keys list, but got "
            f"{len(values)} and {len(keys)} elements respectively"
        )
    require_affordable(2 * len(values) ** 2)
    if keys and type(keys[0]) not in ORDERED:
        raise EvaluationError("list elements must be comparable")
    if any(type(key) is not type(keys[0]) for key in keys):
        raise EvaluationError("list elements must have the same type")
    return [values[index] for index in _sorted_indices(keys)]


def _sorted_indices(keys: list[Any]) -> list[int]:
    def compared(one: int, other: int) -> int:
        return compare(keys[one], keys[other]) or 0

    if len(keys) > _FEW:
        return sorted(range(len(keys)), key=cmp_to_key(compared))
    order: list[int] = []
    for index, key in enumerate(keys):
        at = index
        while at > 0 and compare(key, keys[order[at - 1]]) == -1:
            at -= 1
        order.insert(at, index)
    return order


def _output_cost(arguments: Arguments, result: Any) -> int:
    return list_cost(size_of(result))


def _flatten_cost(arguments: Arguments, result: Any) -> int:
    return list_cost(size_of(arguments[0]), float(arguments[1]) if len(arguments) > 1 else 1.0)


def _compare_cost(keys: int) -> Callable[[Arguments, Any], int]:
    """Return the cost of comparing the elements of an argument with each other."""

    def cost(arguments: Arguments, result: Any) -> int:
        values = arguments[keys]
        textual = isinstance(values, list) and values and type(values[0]) in (str, bytes)
        return list_cost(size_of(values) ** 2, 2.0 + (STRING_TRAVERSAL if textual else 0.0))

    return cost


def _slice_estimate(operands: Operands) -> CallEstimate:
    start, end = _literal(operands, 1, 0), _literal(operands, 2, operands[0].size.max)
    return list_estimate(fixed((end - start) % 2**64))


def _range_estimate(operands: Operands) -> CallEstimate:
    return list_estimate(fixed(_literal(operands, 0, UNBOUNDED)))


def _reverse_estimate(operands: Operands) -> CallEstimate:
    return list_estimate(operands[0].size)


def _flatten_estimate(operands: Operands) -> CallEstimate:
    return list_estimate(operands[0].size, float(_literal(operands, 1, UNBOUNDED)) if len(operands) > 1 else 1.0)


def _distinct_estimate(operands: Operands) -> CallEstimate:
    return list_estimate(operands[0].size.times(operands[0].size), 2.0)


def _sort_estimate(keys: int, of: Type) -> Callable[[Operands], CallEstimate]:
    factor = 2.0 + (STRING_TRAVERSAL if of.kind in (Kind.STRING, Kind.BYTES) else 0.0)
    return lambda operands: list_estimate(operands[keys].size.times(operands[keys].size), factor)


def _literal(operands: Operands, index: int, otherwise: int) -> int:
    value = operands[index].literal
    return max(value, 0) if type(value) is int else otherwise


def _sortings() -> tuple[Function, ...]:
    """Return the sort functions; their overloads are named like the types in the checker."""
    types = tuple(COMPARABLE.values())
    return (
        Function(
            "sort",
            tuple(
                Overload(
                    f"list_{of.name}_sort",
                    (ListType(of),),
                    ListType(of),
                    _sort,
                    True,
                    _compare_cost(0),
                    _sort_estimate(0, of),
                )
                for of in types
            ),
            implementation=_sort,
        ),
        Function(
            "@sortByAssociatedKeys",
            tuple(
                Overload(
                    f"list_{of.name}_sortByAssociatedKeys",
                    (_LIST, ListType(of)),
                    _LIST,
                    _sort_by_keys,
                    True,
                    _compare_cost(1),
                    _sort_estimate(1, of),
                )
                for of in types
            ),
            implementation=_sort_by_keys,
        ),
    )


LIST_EXTENSIONS = Library(
    "cel.lib.ext.lists",
    (
        Function(
            "slice", (Overload("list_slice", (_LIST, INT, INT), _LIST, _slice, True, _output_cost, _slice_estimate),)
        ),
        Function(
            "flatten",
            (
                Overload("list_flatten", (ListType(_LIST),), _LIST, _flatten, True, _flatten_cost, _flatten_estimate),
                Overload(
                    "list_flatten_int",
                    (ListType(DYN), INT),
                    ListType(DYN),
                    _flatten,
                    True,
                    _flatten_cost,
                    _flatten_estimate,
                ),
            ),
            guarded=False,
        ),
        *_sortings(),
        Function(
            "lists.range",
            (Overload("lists_range", (INT,), ListType(INT), _range, False, _output_cost, _range_estimate),),
        ),
        Function(
            "reverse",
            (
                Overload(
                    "list_reverse", (_LIST,), _LIST, lambda values: values[::-1], True, _output_cost, _reverse_estimate
                ),
            ),
        ),
        Function(
            "distinct",
            (Overload("list_distinct", (_LIST,), _LIST, _distinct, True, _compare_cost(0), _distinct_estimate),),
        ),
    ),
)
