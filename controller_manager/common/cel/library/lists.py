"""List functions of Kubernetes: isSorted, sum, min, max and indexOf."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

from controller_manager.common.cel.library import (
    Function,
    Library,
    Overload,
    no_such_overload,
)
from controller_manager.common.cel.library.costs import (
    hashable_alike,
    search_estimate,
    traverse,
)
from controller_manager.common.cel.library.operators import added
from controller_manager.common.cel.types import (
    BOOL,
    BYTES,
    DOUBLE,
    DURATION,
    INT,
    STRING,
    TIMESTAMP,
    UINT,
    ListType,
    Type,
    TypeParameter,
)
from controller_manager.common.cel.values import (
    INT_MAX,
    Duration,
    EvaluationError,
    Timestamp,
    Uint,
    compare_numbers,
    equal,
)

ORDERED = frozenset({int, float, bool, Uint, str, bytes, Duration, Timestamp})  # Python types of ordered values
_NUMBERS = frozenset({int, float, Uint})
COMPARABLE = {
    "int": INT, "uint": UINT, "double": DOUBLE, "bool": BOOL, "duration": DURATION, "timestamp": TIMESTAMP,
    "string": STRING, "bytes": BYTES,
}  # fmt: skip
_ZEROS: dict[str, Any] = {"int": 0, "uint": Uint(0), "double": 0.0, "duration": Duration(0)}


def compare(left: Any, right: Any) -> int | None:
    """Return -1, 0 or 1, or None for values without an order: NaN, and values of different types."""
    if type(left) in _NUMBERS and type(right) in _NUMBERS:
        return None if left != left or right != right else compare_numbers(left, right)
    if type(left) is not type(right):
        return None
    return -1 if left < right else int(left > right)


def _require_order(value: Any) -> None:
    if type(value) not in ORDERED:
        raise no_such_overload()


def is_sorted(values: list[Any]) -> bool:
    """Return whether no element is greater than the next. Raises EvaluationError for elements without an order."""
    if hashable_alike(values):
        return all(one <= other for one, other in pairwise(values))
    for index, value in enumerate(values):
        _require_order(value)
        if index and compare(values[index - 1], value) == 1:
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
            if compare(found, value) == worse:
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


_A = TypeParameter("A")
_LIST_OF_A = ListType(_A)


def _templated(id_: str, types: dict[str, Type], result: Type | None, implementation: Any) -> tuple[Overload, ...]:
    """Return an overload for lists of each type; the result has the element type by default."""
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
        "list_{0}_sum_{0}", {name: COMPARABLE[name] for name in _ZEROS}, None, lambda name: _sum_from(_ZEROS[name])
    )


LISTS = Library(
    "kubernetes.lists",
    (
        Function("isSorted", _templated("list_{0}_is_sorted_bool", COMPARABLE, BOOL, is_sorted), traverse),
        Function("sum", _summable(), traverse),
        Function("max", _templated("list_{0}_max_{0}", COMPARABLE, None, _best("max", -1)), traverse),
        Function("min", _templated("list_{0}_min_{0}", COMPARABLE, None, _best("min", 1)), traverse),
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
