"""Functions of lists: those of Kubernetes, and those of cel-go's extension `lists` in its version 3."""

from collections.abc import Callable
from functools import cmp_to_key
from itertools import pairwise
from typing import Any

from controller_manager.cel.library import (
    STRING_TRAVERSAL,
    UNBOUNDED,
    CallEstimate,
    Function,
    Library,
    Overload,
    fixed,
)
from controller_manager.cel.library.costs import (
    Arguments,
    Operands,
    hashable_alike,
    list_cost,
    list_estimate,
    require_affordable,
    search_estimate,
    traverse,
)
from controller_manager.cel.library.standard import added, no_overload
from controller_manager.cel.types import (
    BOOL,
    BYTES,
    DOUBLE,
    DURATION,
    DYN,
    INT,
    STRING,
    TIMESTAMP,
    UINT,
    Kind,
    ListType,
    Type,
    TypeParameter,
)
from controller_manager.cel.values import (
    INT_MAX,
    Duration,
    EvaluationError,
    Timestamp,
    Uint,
    compare_numbers,
    equal,
    size_of,
    type_of,
)

_FEW = 12  # so many elements are sorted by insertion, which shows where some of them cannot be compared
_ORDERED = frozenset({int, float, bool, Uint, str, bytes, Duration, Timestamp})
_NUMBERS = frozenset({int, float, Uint})
_COMPARABLE = {
    "int": INT, "uint": UINT, "double": DOUBLE, "bool": BOOL, "duration": DURATION, "timestamp": TIMESTAMP,
    "string": STRING, "bytes": BYTES,
}  # fmt: skip
_ZEROS: dict[str, Any] = {"int": 0, "uint": Uint(0), "double": 0.0, "duration": Duration(0)}


def _compare(left: Any, right: Any) -> int | None:
    """Return -1, 0 or 1, or None for values of which none is greater: NaN, and values of different types."""
    if type(left) in _NUMBERS and type(right) in _NUMBERS:
        return None if left != left or right != right else compare_numbers(left, right)
    if type(left) is not type(right):
        return None
    return -1 if left < right else int(left > right)


def _require_order(value: Any) -> None:
    if type(value) not in _ORDERED:
        no_overload()


def is_sorted(values: list[Any]) -> bool:
    """Tell whether no element is greater than the next. Raises EvaluationError for elements without an order."""
    if hashable_alike(values):
        return all(one <= other for one, other in pairwise(values))
    for index, value in enumerate(values):
        _require_order(value)
        if index and _compare(values[index - 1], value) == 1:
            return False
    return True


def _sum_from(zero: Any) -> Callable[[list[Any]], Any]:
    def total(values: list[Any]) -> Any:
        if hashable_alike(values, [zero]) and sum(map(abs, values)) <= INT_MAX:
            return sum(values)
        result = zero
        for value in values:
            result = added(result, value)
        return result

    return total


def _best(name: str, worse: int) -> Callable[[list[Any]], Any]:
    def best(values: list[Any]) -> Any:
        if not values:
            raise EvaluationError(f"{name} called on empty list")
        if hashable_alike(values):
            return max(values) if worse < 0 else min(values)
        found = values[0]
        for value in values:
            _require_order(value)
            if _compare(found, value) == worse:
                found = value
        return found

    return best


def index_of(values: list[Any], item: Any) -> int:
    """Return the index of the first equal element, or -1."""
    if hashable_alike(values, [item]):
        return values.index(item) if item in values else -1
    return next((index for index, value in enumerate(values) if equal(value, item)), -1)


def last_index_of(values: list[Any], item: Any) -> int:
    """Return the index of the last equal element, or -1."""
    return next((index for index in reversed(range(len(values))) if equal(values[index], item)), -1)


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
    """Return the elements of lists within a list, down to a depth."""
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
    """Return the elements that are equal to none before them."""
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
        no_overload("" if isinstance(values, str | Timestamp | Duration) else "sort")
    return _sort_by_keys(values, values)


def _sort_by_keys(values: Any, keys: Any) -> list[Any]:
    """Return the elements in the order of the keys beside them; what has equal keys keeps its order."""
    if not isinstance(values, list) or not isinstance(keys, list):
        no_overload()
    if len(values) != len(keys):
        raise EvaluationError(
            "@sortByAssociatedKeys() expected a list of the same size as the associated keys list, but got "
            f"{len(values)} and {len(keys)} elements respectively"
        )
    require_affordable(2 * len(values) ** 2)
    if keys and type(keys[0]) not in _ORDERED:
        raise EvaluationError("list elements must be comparable")
    if any(type(key) is not type(keys[0]) for key in keys):
        raise EvaluationError("list elements must have the same type")
    return [values[index] for index in _sorted_indices(keys)]


def _sorted_indices(keys: list[Any]) -> list[int]:
    def compared(one: int, other: int) -> int:
        return _compare(keys[one], keys[other]) or 0

    if len(keys) > _FEW:
        return sorted(range(len(keys)), key=cmp_to_key(compared))
    order: list[int] = []
    for index, key in enumerate(keys):
        at = index
        while at > 0 and _compare(key, keys[order[at - 1]]) == -1:
            at -= 1
        order.insert(at, index)
    return order


def _output_cost(arguments: Arguments, result: Any) -> int:
    return list_cost(size_of(result))


def _flatten_cost(arguments: Arguments, result: Any) -> int:
    return list_cost(size_of(arguments[0]), float(arguments[1]) if len(arguments) > 1 else 1.0)


def _compare_cost(keys: int) -> Callable[[Arguments, Any], int]:
    """Return the cost of comparing the elements of an argument with one another."""

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


_T, _A = TypeParameter("T"), TypeParameter("A")
_LIST, _LIST_OF_A = ListType(_T), ListType(_A)


def _templated(id_: str, types: dict[str, Type], result: Type | None, implementation: Any) -> tuple[Overload, ...]:
    """Return an overload for lists of each of the types, whose result is of that type unless it is said."""
    return tuple(
        Overload(
            id_.format(name), (ListType(of),), result or of,
            implementation(name) if id_.startswith("list_{0}_sum") else implementation,
            receiver=True, estimate=search_estimate,
        )
        for name, of in types.items()
    )  # fmt: skip


def _summable() -> tuple[Overload, ...]:
    return _templated(
        "list_{0}_sum_{0}", {name: _COMPARABLE[name] for name in _ZEROS}, None, lambda name: _sum_from(_ZEROS[name])
    )


LISTS = Library(
    "kubernetes.lists",
    (
        Function("isSorted", _templated("list_{0}_is_sorted_bool", _COMPARABLE, BOOL, is_sorted), traverse),
        Function("sum", _summable(), traverse),
        Function("max", _templated("list_{0}_max_{0}", _COMPARABLE, None, _best("max", -1)), traverse),
        Function("min", _templated("list_{0}_min_{0}", _COMPARABLE, None, _best("min", 1)), traverse),
        Function(
            "indexOf",
            (Overload("list_a_index_of_int", (_LIST_OF_A, _A), INT, index_of, True, estimate=search_estimate),),
            traverse,
        ),
        Function(
            "lastIndexOf",
            (
                Overload(
                    "list_a_last_index_of_int", (_LIST_OF_A, _A), INT, last_index_of, True, estimate=search_estimate
                ),
            ),
            traverse,
        ),
    ),
)


def _sortings() -> tuple[Function, ...]:
    """Return the functions whose overloads are named as the checker calls their types."""
    types = tuple(_COMPARABLE.values())
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
