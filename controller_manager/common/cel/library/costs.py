"""What calls of the libraries cost: at run time by the sizes of values, and statically by those that are declared.

Both are part of the API: the one ends evaluations, the other decides which rules a definition may have.
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
LONGEST_TEXT = 2**24  # characters that a function makes at most


def constant(cost: int) -> RuntimeCost:
    """Return the cost of calls that all cost the same."""
    return lambda arguments, result: cost


def constant_estimate(cost: int) -> CallEstimator:
    """Return the estimate of calls that all cost the same."""
    estimate = CallEstimate(fixed(cost))
    return lambda operands: estimate


nominal, nominal_estimate = constant(1), constant_estimate(1)


def scan_cost(size: float) -> int:
    """Return the cost of looking at each of so many characters once."""
    return math.ceil(size * STRING_TRAVERSAL)


def scan(times: int = 1) -> RuntimeCost:
    """Return the cost of looking at the text that is the first argument so many times."""
    return lambda arguments, result: scan_cost(size_of(arguments[0]) * times)


def scan_estimate(times: int = 1) -> CallEstimator:
    """Return the estimate of looking at the text that is the first operand so many times."""
    return lambda operands: CallEstimate(operands[0].size.scaled(times * STRING_TRAVERSAL))


def same_size_estimate(operands: Operands) -> CallEstimate:
    """Return the estimate of looking at a text once, for a result that is as long."""
    return CallEstimate(operands[0].size.scaled(STRING_TRAVERSAL), operands[0].size)


def traverse(arguments: Arguments, result: Any) -> int:
    """Return the cost of looking at every part of the first argument."""
    return traversal_cost(arguments[0])


def search_estimate(operands: Operands) -> CallEstimate:
    """Return the estimate of looking for something in a list, or in a text."""
    target = operands[0]
    if not target.type.parameters:
        return CallEstimate(target.size.scaled(STRING_TRAVERSAL))
    each = ONE
    if target.type.parameters[0].kind in (Kind.STRING, Kind.BYTES):
        each = each.plus(target.element_size.scaled(STRING_TRAVERSAL))
    return CallEstimate(target.size.times(each))


def match_cost(length: int, pattern: int) -> int:
    """Return the cost of matching a regular expression with a text, by the lengths of both."""
    return scan_cost(1.0 + length) * math.ceil(pattern * REGEX_LENGTH)


def match_estimate(text: Estimate, pattern: Estimate) -> Estimate:
    """Return the estimate of matching a regular expression with a text, by the sizes of both."""
    return text.plus(ONE).scaled(STRING_TRAVERSAL).times(pattern.scaled(REGEX_LENGTH))


def list_cost(size: int, factor: float = 1.0) -> int:
    """Return the cost of a call that makes a list and does `factor` for each of `size` elements."""
    return int(size * factor) + 1 + LIST_BASE


def list_estimate(size: Estimate, factor: float = 1.0) -> CallEstimate:
    """Return the estimate of a call that makes a list of a size and does `factor` for each element."""
    return CallEstimate(size.scaled(factor).plus(ONE).plus(fixed(LIST_BASE)), size)


def hashable_alike(*lists: list[Any]) -> bool:
    """Tell whether lists have nothing but texts, or nothing but integers: then Python finds what CEL finds equal."""
    types = {kind for values in lists for kind in set(map(type, values))}
    return types <= {str} or types <= {int}


def require_affordable(cost: float) -> None:
    """Raises CostExceeded if a call would cost more than an evaluation may: before it is done."""
    if cost > RUNTIME_LIMIT:
        raise CostExceeded


def require_short(length: int) -> None:
    """Raises CostExceeded if a text would have more than 16,777,216 characters: before it is made."""
    if length > LONGEST_TEXT:
        raise CostExceeded
