"""Costs of library calls: at run time from the sizes of values, and static estimates from declared sizes.

Both are part of the API: run-time costs end evaluations, and estimates limit the rules of a definition.
"""

import math
from typing import Any

from controller_manager.common.cel.library import (
    LIST_BASE,
    REGEX_LENGTH,
    STRING_TRAVERSAL,
    CallEstimate,
    CallEstimator,
    Estimate,
    Operand,
    RuntimeCost,
    fixed,
)
from controller_manager.common.cel.types import Kind
from controller_manager.common.cel.values import RUNTIME_LIMIT, CostExceeded, size_of, traversal_cost

Arguments = tuple[Any, ...]
Operands = tuple[Operand, ...]
ONE = fixed(1)
LONGEST_TEXT = 2**24  # maximum characters of a function's result


def constant(cost: int) -> RuntimeCost:
    """Return a constant run-time cost."""
    return lambda arguments, result: cost


def constant_estimate(cost: int) -> CallEstimator:
    """Return a constant estimate."""
    estimate = CallEstimate(fixed(cost))
    return lambda operands: estimate


nominal, nominal_estimate = constant(1), constant_estimate(1)


def scan_cost(size: float) -> int:
    """Return the cost of visiting a number of characters once."""
    return math.ceil(size * STRING_TRAVERSAL)


def scan(times: int = 1) -> RuntimeCost:
    """Return the cost of visiting the text in the first argument `times` times."""
    return lambda arguments, result: scan_cost(size_of(arguments[0]) * times)


def scan_estimate(times: int = 1) -> CallEstimator:
    """Return the estimate of visiting the text in the first operand `times` times."""
    return lambda operands: CallEstimate(operands[0].size.scaled(times * STRING_TRAVERSAL))


def same_size_estimate(operands: Operands) -> CallEstimate:
    """Return the estimate of visiting a text once, for a result of the same size."""
    return CallEstimate(operands[0].size.scaled(STRING_TRAVERSAL), operands[0].size)


def traverse(arguments: Arguments, result: Any) -> int:
    """Return the cost of visiting every part of the first argument."""
    return traversal_cost(arguments[0])


def search_estimate(operands: Operands) -> CallEstimate:
    """Return the estimate of a search in a list or text."""
    target = operands[0]
    if not target.type.parameters:
        return CallEstimate(target.size.scaled(STRING_TRAVERSAL))
    each = ONE
    if target.type.parameters[0].kind in (Kind.STRING, Kind.BYTES):
        each = each.plus(target.element_size.scaled(STRING_TRAVERSAL))
    return CallEstimate(target.size.times(each))


def match_cost(length: int, pattern: int) -> int:
    """Return the cost of matching a regular expression, from the lengths of text and pattern."""
    return scan_cost(1.0 + length) * math.ceil(pattern * REGEX_LENGTH)


def match_estimate(text: Estimate, pattern: Estimate) -> Estimate:
    """Return the estimate of matching a regular expression, from the sizes of text and pattern."""
    return text.plus(ONE).scaled(STRING_TRAVERSAL).times(pattern.scaled(REGEX_LENGTH))


def list_cost(size: int, factor: float = 1.0) -> int:
    """Return the cost of a call that creates a list with `factor` per element."""
    return int(size * factor) + 1 + LIST_BASE


def list_estimate(size: Estimate, factor: float = 1.0) -> CallEstimate:
    """Return the estimate of a call that creates a list with `factor` per element."""
    return CallEstimate(size.scaled(factor).plus(ONE).plus(fixed(LIST_BASE)), size)


def hashable_alike(*lists: list[Any]) -> bool:
    """Return whether lists contain only texts or only integers: then Python's equality is that of CEL."""
    types = {kind for values in lists for kind in set(map(type, values))}
    return types <= {str} or types <= {int}


def require_affordable(cost: float) -> None:
    """Raise CostExceeded before a call that would exceed the cost limit of an evaluation."""
    if cost > RUNTIME_LIMIT:
        raise CostExceeded


def require_short(length: int) -> None:
    """Raise CostExceeded before creating a text of more than 16,777,216 characters."""
    if length > LONGEST_TEXT:
        raise CostExceeded
