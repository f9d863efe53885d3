"""Functions that find matches of regular expressions (RE2)."""

from controller_manager.common.base.regex import Regex, compile_regex
from controller_manager.common.cel.library import CallEstimate, Estimate, Function, Library, Overload
from controller_manager.common.cel.library.costs import Arguments, Operands, match_cost, match_estimate
from controller_manager.common.cel.types import INT, STRING, ListType
from controller_manager.common.cel.values import CostExceeded, EvaluationError, size_of

_MOST_MATCHES = 100_000  # matches of a short pattern have almost no cost


def find(text: str, pattern: str) -> str:
    """Return the first match, or an empty text."""
    return _compiled(pattern).find(text) or ""


def find_all(text: str, pattern: str, limit: int = -1) -> list[str]:
    """Return all matches, at most `limit` unless it is negative. Raises CostExceeded for more than 100,000."""
    most = limit if 0 <= limit <= _MOST_MATCHES else _MOST_MATCHES + 1
    found = _compiled(pattern).find_all(text, most)
    if len(found) > _MOST_MATCHES:
        raise CostExceeded
    return found


def _compiled(pattern: str) -> Regex:
    try:
        return compile_regex(pattern)
    except ValueError as error:
        raise EvaluationError(f"Illegal regex: {error}") from None


def _cost(arguments: Arguments, result: object) -> int:
    return match_cost(size_of(arguments[0]), size_of(arguments[1]))


def _estimate(operands: Operands) -> CallEstimate:
    text, pattern = operands[0].size, operands[1].size
    return CallEstimate(match_estimate(text, pattern), Estimate(0, text.max))


_TEXTS = ListType(STRING)

REGEX = Library(
    "kubernetes.regex",
    (
        Function(
            "find", (Overload("string_find_string", (STRING, STRING), STRING, find, True, estimate=_estimate),), _cost
        ),
        Function(
            "findAll",
            (
                Overload("string_find_all_string", (STRING, STRING), _TEXTS, find_all, True, estimate=_estimate),
                Overload(
                    "string_find_all_string_int", (STRING, STRING, INT), _TEXTS, find_all, True, estimate=_estimate
                ),
            ),
            _cost,
        ),
    ),
)
