"""Functions that find parts of texts by regular expressions (RE2)."""

from controller_manager.base.regex import Regex, compile_regex
from controller_manager.cel.library import CallEstimate, Estimate, Function, Library, Overload
from controller_manager.cel.library.costs import Arguments, Operands, match_cost, match_estimate
from controller_manager.cel.types import INT, STRING, ListType
from controller_manager.cel.values import EvaluationError, size_of


def find(text: str, pattern: str) -> str:
    """Return the first match, or an empty text."""
    return _compiled(pattern).find(text) or ""


def find_all(text: str, pattern: str, limit: int = -1) -> list[str]:
    """Return all matches, at most `limit` unless it is negative."""
    return _compiled(pattern).find_all(text, limit)


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
