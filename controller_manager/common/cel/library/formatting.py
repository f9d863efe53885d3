"""`format` of cel-go's extension `strings`, version 2: fills the clauses of a template with values from a list.

Numbers are written like Go's printer for American English: with commas between thousands, and exponents in
superscript.
"""

import math
from collections.abc import Callable
from typing import Any, TypeVar

from controller_manager.common.base.log.formats import quote
from controller_manager.common.cel.library.conversions import to_string
from controller_manager.common.cel.library.costs import require_short
from controller_manager.common.cel.types import Kind
from controller_manager.common.cel.values import Duration, EvaluationError, Timestamp, type_of

T = TypeVar("T")
Clause = tuple[str, int | None]  # the letter, and the precision

_PRECISION = 6
_MOST_DIGITS = 1074  # after the decimal point of a double
_TIMES_TEN = "\u00d710"
_SUPERSCRIPT = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")
_SPECIAL = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_INTEGERS = frozenset({Kind.INT, Kind.UINT})
_SIMPLE = frozenset(
    {
        Kind.LIST, Kind.MAP, Kind.INT, Kind.UINT, Kind.DOUBLE, Kind.BOOL, Kind.STRING,
        Kind.TIMESTAMP, Kind.BYTES, Kind.DURATION, Kind.TYPE, Kind.NULL,
    }
)  # fmt: skip
_TAKES: dict[str, tuple[frozenset[Kind], str]] = {
    "s": (
        _SIMPLE,
        (
            "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, durations, "
            "and timestamps"
        ),
    ),
    "d": (_INTEGERS, "decimal clause can only be used on integers"),
    "f": (frozenset({Kind.DOUBLE, Kind.STRING}), "fixed-point clause can only be used on doubles"),
    "e": (frozenset({Kind.DOUBLE, Kind.STRING}), "scientific clause can only be used on doubles"),
    "b": (_INTEGERS | {Kind.BOOL}, "only integers and bools can be formatted as binary"),
    "x": (
        _INTEGERS | {Kind.STRING, Kind.BYTES},
        "only integers, byte buffers, and strings can be formatted as hex",
    ),
    "o": (_INTEGERS, "octal clause can only be used on integers"),
}
"""The kinds of values for each clause, and the error for others."""


def takes(clause: Clause, kind: Kind) -> bool:
    """Return whether a clause accepts a kind of values; texts are checked at run time."""
    return kind is Kind.DYN or kind in _TAKES[clause[0].lower()][0]


def not_taken(clause: Clause, type_name: str) -> EvaluationError:
    """Return the error for a value type that a clause does not accept."""
    return _failed(f"{_TAKES[clause[0].lower()][1]}, was given {type_name}")


def interpolate(template: str, argument: Callable[[int], T], count: int, write: Callable[[Clause, T], str]) -> str:
    """Return the template with each clause replaced by the next of `count` arguments.

    Raises EvaluationError for an invalid clause, and for too many clauses. `argument` raises it for an index out of
    range; a check of the template alone returns a placeholder for any index.
    """
    text = template.encode("utf-8", "surrogatepass")
    written, at, index, length = bytearray(), 0, 0, 0
    while (start := text.find(b"%", at)) >= 0:
        written += text[at:start]
        if text[start + 1 : start + 2] == b"%":
            written += b"%"
            at = start + 2
            continue
        value = argument(index)
        if start + 1 >= len(text):
            raise EvaluationError("unexpected end of string")
        if index >= count:
            raise EvaluationError(f"index {index} out of range")
        clause, at = _clause(text, start + 1)
        filled = write(clause, value)
        require_short(length := length + len(filled))
        written += filled.encode("utf-8", "surrogatepass")
        index += 1
    return (written + text[at:]).decode("utf-8", "surrogatepass")


def _clause(text: bytes, at: int) -> tuple[Clause, int]:
    precision = None
    if text[at : at + 1] == b".":
        end = at + 1
        while text[end : end + 1].isdigit():
            end += 1
        if end >= len(text):
            raise _malformed("error while parsing precision: could not find end of precision specifier")
        precision, at = _number(text[at + 1 : end].decode()), end
    letter = chr(text[at])
    if letter.lower() not in _TAKES or (letter.isupper() and letter != "X"):
        raise _malformed(f'unrecognized formatting clause "{letter}"')
    return (letter, precision), at + 1


def _number(digits: str) -> int:
    if not digits or len(digits) > 19 or int(digits) >= 2**63:
        reason = "value out of range" if digits.strip("0") else "invalid syntax"
        raise _malformed(
            "error while parsing precision: error while converting precision to integer: "
            f'strconv.Atoi: parsing "{digits}": {reason}'
        )
    return int(digits)


def _malformed(reason: str) -> EvaluationError:
    return EvaluationError(f"could not parse formatting clause: {reason}")


def format_text(template: str, values: list[Any]) -> str:
    """Return the template with its clauses filled. Raises EvaluationError."""

    def argument(index: int) -> Any:
        if index >= len(values):
            raise EvaluationError(f"index {index} out of range")
        return values[index]

    return interpolate(template, argument, len(values), _write)


def _write(clause: Clause, value: Any) -> str:
    letter, precision = clause
    kind = type_of(value).kind
    wrong = not_taken(clause, type_of(value).name)
    if not takes(clause, kind) or kind is Kind.DYN:
        raise wrong
    if letter == "s":
        return _string(value)
    if letter in "fe":
        if kind is Kind.STRING and value not in _SPECIAL:
            raise wrong
        return _double(letter, precision, _SPECIAL[value] if kind is Kind.STRING else value)
    if letter in "xX" and kind in (Kind.STRING, Kind.BYTES):
        found = str((value.encode("utf-8", "surrogatepass") if kind is Kind.STRING else value).hex())
        return found.upper() if letter == "X" else found
    return format(int(value), letter)


def _double(letter: str, precision: int | None, value: float) -> str:
    width = (_PRECISION if precision is None else precision) if letter == "e" else 0
    require_short(width)
    if not math.isfinite(value):
        return ("NaN" if math.isnan(value) else "∞" if value > 0 else "-∞").rjust(width)
    value = value or 0.0  # no negative zero
    if letter == "e":  # cel-go uses the precision as width here
        mantissa, _, exponent = f"{value:.6e}".partition("e")
        return f"{mantissa}{_TIMES_TEN}{str(_two_digits(int(exponent))).translate(_SUPERSCRIPT)}".rjust(width)
    digits = _PRECISION if precision is None else precision
    text = f"{value:,.{min(digits, _MOST_DIGITS)}f}"
    if digits < 256:
        return text
    whole, _, fraction = text.partition(".")  # Go's printer stores the minimum number of digits in a byte
    fraction = fraction.rstrip("0").ljust(digits % 256, "0")
    return f"{whole}.{fraction}" if fraction else whole


def _two_digits(exponent: int) -> str:
    return f"{'-' * (exponent < 0)}{abs(exponent):02d}"


def _string(value: Any) -> str:
    """Return a value in the format of `%s`."""
    if value is None:
        return "null"
    if isinstance(value, list):
        return f"[{', '.join(map(_literal, value))}]"
    if isinstance(value, dict):
        pairs = sorted(((_key(key), _literal(item)) for key, item in value.items()), key=lambda pair: pair[0])
        return f"{{{', '.join(f'{key}:{item}' for key, item in pairs)}}}"
    try:
        return to_string(value)
    except EvaluationError as error:
        raise _failed(f"could not convert argument {quote(error.message)} to string") from None


def _failed(reason: str) -> EvaluationError:
    return EvaluationError(f"error during formatting: {reason}")


def _key(key: Any) -> str:
    if isinstance(key, str | bool | int):
        return _literal(key)
    raise _failed(f"no formatting function for map key of type {type_of(key).name}")


def _literal(value: Any) -> str:
    """Return a value as element of a list or map."""
    match value:
        case str():
            return quote(value)
        case bytes():
            return f"b{quote(_string(value))}"
        case float():
            return f"{value:.{_PRECISION}f}" if math.isfinite(value) else quote(_string(value))
        case Timestamp():
            return f"timestamp({quote(_string(value))})"
        case Duration():
            return f"duration({quote(_string(value))})"
    if type_of(value).kind not in _SIMPLE:
        raise _failed(f"no formatting function for {type_of(value).name}")
    return _string(value)
