"""Text functions of cel-go's extension `strings`, version 2; positions count characters."""

import math
from typing import Any

from controller_manager.common.cel.library import (
    STRING_TRAVERSAL,
    UNBOUNDED,
    CallEstimate,
    CallEstimator,
    Estimate,
    Function,
    Library,
    Overload,
    fixed,
)
from controller_manager.common.cel.library.costs import (
    LONGEST_TEXT,
    Arguments,
    Operands,
    require_short,
    same_size_estimate,
    scan,
    scan_cost,
    scan_estimate,
    search_estimate,
    traverse,
)
from controller_manager.common.cel.library.formatting import format_text
from controller_manager.common.cel.shown import shown
from controller_manager.common.cel.types import DYN, INT, STRING, ListType, Type
from controller_manager.common.cel.values import EvaluationError, size_of

_LOWER = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}
_UPPER = {code: code - 32 for code in range(ord("a"), ord("z") + 1)}
_SPACE = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))
_QUOTED = {
    ord(character): written
    for character, written in {
        "\a": r"\a", "\b": r"\b", "\f": r"\f", "\n": r"\n", "\r": r"\r", "\t": r"\t", "\v": r"\v",
        "\\": r"\\", '"': r"\"",
    }.items()
}  # fmt: skip


def char_at(text: str, index: int) -> str:
    """Return a character; an empty text at the end of the text."""
    _require_index(index, text)
    return text[index : index + 1]


def index_of(text: str, part: str, start: int = 0) -> int:
    """Return the position of the first match from `start` on, or -1."""
    if not part:
        return start
    if start < 0:
        raise EvaluationError(f"index out of range: {start}")
    return text.find(part, start)


def last_index_of(text: str, part: str, start: int | None = None) -> int:
    """Return the position of the last match at or before `start`, or -1."""
    if start is None:
        return text.rfind(part)
    if not part:
        return start
    if start < 0:
        raise EvaluationError(f"index out of range: {start}")
    return -1 if start >= len(text) else text.rfind(part, 0, start + len(part))


def replace(text: str, old: str, new: str, limit: int = -1) -> str:
    """Return the text with parts replaced, at most `limit` unless it is negative."""
    if len(text) * (1 + len(new)) > LONGEST_TEXT:
        found = text.count(old) if limit < 0 else min(text.count(old), limit)
        require_short(len(text) + found * (len(new) - len(old)))
    return text.replace(old, new, max(limit, -1))


def split(text: str, separator: str, limit: int = -1) -> list[str]:
    """Return the parts between separators, the rest in the last of `limit`; characters for an empty separator."""
    if limit == 0:
        return []
    if separator:
        return text.split(separator, limit - 1 if limit > 0 else -1)
    if limit < 0 or limit >= len(text):
        return list(text)
    return [*text[: limit - 1], text[limit - 1 :]]


def substring(text: str, start: int, end: int | None = None) -> str:
    """Return the characters from `start` to before `end`."""
    if end is None:
        _require_index(start, text)
        return text[start:]
    if start > end:
        raise EvaluationError(f"invalid substring range. start: {start}, end: {end}")
    _require_index(start, text)
    _require_index(end, text)
    return text[start:end]


def trim(text: str) -> str:
    """Return the text without Unicode white space at its ends."""
    return text.strip(_SPACE)


def quote(text: str) -> str:
    """Return the text as a literal in double quotes."""
    return f'"{text.translate(_QUOTED)}"'


def join(texts: list[Any], separator: str = "") -> str:
    """Return the texts joined by a separator."""
    for text in texts:
        if not isinstance(text, str):
            raise EvaluationError(f"join: invalid input: {shown(text)}")
    require_short(sum(map(len, texts)) + len(separator) * len(texts))
    return separator.join(texts)


def _require_index(index: int, text: str) -> None:
    if index < 0 or index > len(text):
        raise EvaluationError(f"index out of range: {index}")


def _join_cost(arguments: Arguments, result: Any) -> int:
    return scan_cost(size_of(result) * 2)


def _join_estimate(operands: Operands) -> CallEstimate:
    texts = operands[0].size
    size = texts.times(operands[0].element_size) if operands[0].type.parameters else fixed(0)
    if len(operands) > 1:
        separators = Estimate(max(texts.min - 1, 0), max(texts.max - 1, 0))
        size = size.plus(operands[1].size.times(separators))
    return CallEstimate(size.scaled(STRING_TRAVERSAL), size)


def _quote_estimate(operands: Operands) -> CallEstimate:
    size = operands[0].size
    most = (size.max * 2 + 2) % 2**64  # 0 for an unbounded text, as in cel-go
    return CallEstimate(size.scaled(STRING_TRAVERSAL), Estimate(size.min + 2, most))


def _split_estimate(operands: Operands) -> CallEstimate:
    size = operands[0].size
    limit = operands[2].literal if len(operands) > 2 else None
    most = limit % 2**64 if type(limit) is int else size.max
    return CallEstimate(size.scaled(2 * STRING_TRAVERSAL), Estimate(0, most))


def _replace_estimate(operands: Operands) -> CallEstimate:
    text, old, new = (operand.size for operand in operands[:3])
    cost = text.scaled(2 * STRING_TRAVERSAL)
    most = _replaced(text.max, shortest=old.min == 0, by=old.min, kept=new.max <= old.min)
    least = _replaced(text.min, shortest=old.max == 0, by=old.max, kept=old.max <= new.min)
    times, kept = Estimate(least[0], most[0]), Estimate(least[1], most[1])
    return CallEstimate(cost, times.times(new).plus(kept))


def _replaced(size: int, *, shortest: bool, by: int, kept: bool) -> tuple[int, int]:
    """Return the number of replacements in a text of a size, and the size of the rest of the text."""
    if shortest:  # an empty text matches around every character
        return min(size + 1, UNBOUNDED), size
    return (0, size) if kept else (min(math.ceil(float(size) / float(by)), UNBOUNDED), 0)


def _method(
    id_: str, arguments: tuple[Type, ...], result: Type, implementation: Any, estimate: CallEstimator | None = None
) -> Overload:
    return Overload(id_, arguments, result, implementation, receiver=True, estimate=estimate)


_TEXTS = ListType(STRING)

STRINGS = Library(
    "cel.lib.ext.strings",
    (
        Function("charAt", (_method("string_char_at_int", (STRING, INT), STRING, char_at),)),
        Function(
            "indexOf",
            (
                _method("string_index_of_string", (STRING, STRING), INT, index_of, search_estimate),
                _method("string_index_of_string_int", (STRING, STRING, INT), INT, index_of, search_estimate),
            ),
            traverse,
        ),
        Function(
            "lastIndexOf",
            (
                _method("string_last_index_of_string", (STRING, STRING), INT, last_index_of, search_estimate),
                _method("string_last_index_of_string_int", (STRING, STRING, INT), INT, last_index_of, search_estimate),
            ),
            traverse,
        ),
        Function(
            "lowerAscii",
            (
                _method(
                    "string_lower_ascii", (STRING,), STRING, lambda text: text.translate(_LOWER), same_size_estimate
                ),
            ),
            scan(),
        ),
        Function(
            "upperAscii",
            (
                _method(
                    "string_upper_ascii", (STRING,), STRING, lambda text: text.translate(_UPPER), same_size_estimate
                ),
            ),
            scan(),
        ),
        Function(
            "replace",
            (
                _method("string_replace_string_string", (STRING,) * 3, STRING, replace, _replace_estimate),
                _method("string_replace_string_string_int", (*(STRING,) * 3, INT), STRING, replace, _replace_estimate),
            ),
            scan(2),
        ),
        Function(
            "split",
            (
                _method("string_split_string", (STRING, STRING), _TEXTS, split, _split_estimate),
                _method("string_split_string_int", (STRING, STRING, INT), _TEXTS, split, _split_estimate),
            ),
            scan(2),
        ),
        Function(
            "substring",
            (
                _method("string_substring_int", (STRING, INT), STRING, substring, same_size_estimate),
                _method("string_substring_int_int", (STRING, INT, INT), STRING, substring, same_size_estimate),
            ),
            scan(),
        ),
        Function("trim", (_method("string_trim", (STRING,), STRING, trim, same_size_estimate),), scan()),
        Function(
            "format",
            (
                Overload(
                    "string_format",
                    (STRING, ListType(DYN)),
                    STRING,
                    format_text,
                    receiver=True,
                    cost=scan(),
                    estimate=scan_estimate(),
                    ordered=True,
                ),
            ),
        ),
        Function(
            "strings.quote",
            (Overload("strings_quote", (STRING,), STRING, quote, cost=scan(), estimate=_quote_estimate),),
        ),
        Function(
            "join",
            (
                _method("list_join", (_TEXTS,), STRING, join, _join_estimate),
                _method("list_join_string", (_TEXTS, STRING), STRING, join, _join_estimate),
            ),
            _join_cost,
        ),
    ),
)
