"""Quantities with the limits of Go's arithmetic: 64-bit integers where possible, decimals otherwise."""

import re
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, ClassVar

from controller_manager.common.api.quantity import Quantity
from controller_manager.common.cel.library import Function, Library, Overload, no_such_overload
from controller_manager.common.cel.library.costs import nominal, nominal_estimate, scan, scan_estimate
from controller_manager.common.cel.types import BOOL, DOUBLE, INT, STRING, Kind, Type
from controller_manager.common.cel.values import INT_MAX, INT_MIN, EvaluationError, Opaque

_PARTS = re.compile(r"([+-]?)0*+([0-9]*+)(?:\.([0-9]*+))?([eEinumkKMGTP]*+[+-]?[0-9]*+)", re.ASCII)
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {f"{letter}i": 10 * power for power, letter in enumerate("KMGTPE", 1)}
_EXPONENT = re.compile("[eE]([+-]?[0-9]{1,5})")
_NANO = -9
_FAST_DIGITS, _FAST_BINARY_DIGITS = 18, 15
_MOST_DIGITS, _MOST_EXPONENT = 1000, 10_000  # longer numbers are useless, and slow to process

_FORMAT = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
_SUFFIX = "unable to parse quantity's suffix"
_NUMERIC = "unable to parse numeric part of quantity"


@dataclass(frozen=True, slots=True, eq=False)
class QuantityValue(Opaque):
    """A quantity, `unscaled` times ten to the power of `scale`, with its family of suffixes.

    `small` numbers fit the integers that Go uses; only those are integers in expressions. `text` is the parsed text if
    it is canonical. Sums are `computed`: Kubernetes has another type for them, which `==` does not accept on the right.
    """

    type: ClassVar[Type] = Type(Kind.STRUCT, "kubernetes.Quantity")

    unscaled: int
    scale: int
    family: str
    small: bool
    text: str = ""
    computed: bool = False

    def equals(self, other: Any) -> bool:
        """Return the value of `self == other` in an expression. Raises EvaluationError except for parsed quantities."""
        if not isinstance(other, QuantityValue) or other.computed:
            raise no_such_overload()
        return self == other

    def __str__(self) -> str:
        """Return the canonical text."""
        return self.text or str(Quantity(self._number(), self.family))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, QuantityValue) and compare(self, other) == 0

    def __hash__(self) -> int:
        return hash(self._number())

    def _number(self) -> Decimal:
        digits = tuple(map(int, str(abs(self.unscaled))))
        return Decimal((int(self.unscaled < 0), digits, self.scale))

    def at(self, scale: int) -> int:
        """Return the number in units of a power of ten not greater than its own."""
        return int(self.unscaled * 10 ** (self.scale - scale))


def parse(text: str) -> QuantityValue:
    """Parse a quantity. Raises EvaluationError."""
    if not text:
        raise EvaluationError(_FORMAT)
    found = _PARTS.fullmatch(text)
    if found is None:
        raise EvaluationError(_FORMAT)
    sign, digits, fraction = found[1], found[2] or "0", found[3] or ""
    if len(digits) + len(fraction) > _MOST_DIGITS:
        raise EvaluationError(_NUMERIC)
    family, exponent = _interpreted(found[4])
    small = _small(sign, digits, fraction, family, exponent, text)
    return small or _large(int(f"{sign}{digits}{fraction}"), len(fraction), family, exponent)


def _interpreted(suffix: str) -> tuple[str, int]:
    """Return the family of a suffix, and the power of ten or two."""
    if suffix in _DECIMAL:
        return "decimal", _DECIMAL[suffix]
    if suffix in _BINARY:
        return "binary", _BINARY[suffix]
    found = _EXPONENT.fullmatch(suffix)
    if found is None or abs(int(found[1])) > _MOST_EXPONENT:
        raise EvaluationError(_SUFFIX)
    return "exponent", int(found[1])


def _small(sign: str, digits: str, fraction: str, family: str, exponent: int, text: str) -> QuantityValue | None:
    """Return the quantity if a 64-bit integer certainly holds it, judged by the number of digits."""
    if family == "binary":
        scale, factor = 0, 1 << exponent
        if fraction or _FAST_BINARY_DIGITS - len(digits) - exponent * 3 // 10 - 1 < 0:
            return None
    else:
        scale, factor = exponent - len(fraction), 1
        if _FAST_DIGITS - len(digits) - len(fraction) < 0 or scale < _NANO:
            return None
    shifted = digits + fraction
    value = int(shifted)
    if family == "binary":
        canonical = value & 0x07 != 0
    else:
        canonical = scale % 3 == 0 and not shifted.endswith("000") and shifted[0] != "0"
    if text == "0":
        canonical = True
    number = value * factor
    return QuantityValue(-number if sign == "-" else number, scale, family, True, text if canonical else "")


def _large(unscaled: int, places: int, family: str, exponent: int) -> QuantityValue:
    """Return the quantity as decimal: rounded away from zero to billionths; binary ones are limited to 64 bits."""
    sign, number, scale = (-1 if unscaled < 0 else 1), abs(unscaled), -places
    if family == "binary":
        number <<= exponent
    else:
        scale += exponent
    if number:
        shift = scale - _NANO
        number, scale = number * 10**shift if shift >= 0 else -(-number // 10**-shift), _NANO
    if family == "binary":
        if number > INT_MAX * 10**-scale:
            number, scale = INT_MAX, 0
        family = "decimal" if 0 < number < 10**-scale else family
    return QuantityValue(sign * number, scale, family, False)


def is_quantity(text: str) -> bool:
    """Return whether a text is a quantity."""
    try:
        parse(text)
    except EvaluationError:
        return False
    return True


def compare(one: QuantityValue, other: QuantityValue) -> int:
    """Return -1, 0 or 1."""
    scale = min(one.scale, other.scale)
    left, right = one.at(scale), other.at(scale)
    return (left > right) - (left < right)


def add(one: QuantityValue, other: QuantityValue | int) -> QuantityValue:
    """Return the sum, in the family of the first nonzero operand."""
    if isinstance(other, int):
        other = QuantityValue(other, 0, "exponent", small=True)
    family = one.family if one.unscaled else other.family
    small = one.small and other.small
    if small and not (one.unscaled and other.unscaled):
        rest = one if one.unscaled or not other.unscaled else other
        return QuantityValue(rest.unscaled, rest.scale, family, small=True, computed=True)
    scale = min(one.scale, other.scale)
    parts = one.at(scale), other.at(scale)
    total = sum(parts)
    fits = all(INT_MIN <= part <= INT_MAX for part in (*parts, total))
    return QuantityValue(total, scale, family, small and fits, computed=True)


def subtract(one: QuantityValue, other: QuantityValue | int) -> QuantityValue:
    """Return the difference."""
    if isinstance(other, int):
        other = QuantityValue(other, 0, "exponent", small=True)
    return add(one, QuantityValue(-other.unscaled, other.scale, other.family, other.small))


def _integer(quantity: QuantityValue) -> int | None:
    if not quantity.small or quantity.scale < 0:
        return None
    value = quantity.at(0)
    return value if INT_MIN <= value <= INT_MAX else None


def _as_integer(quantity: QuantityValue) -> int:
    value = _integer(quantity)
    if value is None:
        raise EvaluationError("cannot convert value to integer")
    return value


def _as_approximate_float(quantity: QuantityValue) -> float:
    try:
        base = float(quantity.unscaled)
    except OverflowError:
        return float("inf") if quantity.unscaled > 0 else float("-inf")
    return base * float(f"1e{quantity.scale}") if quantity.scale else base


def _method(name: str, id_: str, result: Type, implementation: Any, *others: Type) -> Overload:
    return Overload(
        id_, (QuantityValue.type, *others), result, implementation, receiver=True, estimate=nominal_estimate
    )


def _nominal(name: str, *overloads: tuple[str, Type, Any, tuple[Type, ...]]) -> Function:
    return Function(
        name, tuple(_method(name, id_, result, apply, *others) for id_, result, apply, others in overloads), nominal
    )


def _parse(name: str, id_: str, result: Type, implementation: Any) -> Function:
    return Function(name, (Overload(id_, (STRING,), result, implementation, estimate=scan_estimate()),), scan())


def _sign(quantity: QuantityValue) -> int:
    return (quantity.unscaled > 0) - (quantity.unscaled < 0)


_QUANTITY = QuantityValue.type

QUANTITIES = Library(
    "kubernetes.quantity",
    (
        _parse("quantity", "string_to_quantity", _QUANTITY, parse),
        _parse("isQuantity", "is_quantity_string", BOOL, is_quantity),
        Function("sign", (Overload("quantity_sign", (_QUANTITY,), INT, _sign, estimate=nominal_estimate),), nominal),
        _nominal("isGreaterThan", ("quantity_is_greater_than", BOOL, lambda a, b: compare(a, b) > 0, (_QUANTITY,))),
        _nominal("isLessThan", ("quantity_is_less_than", BOOL, lambda a, b: compare(a, b) < 0, (_QUANTITY,))),
        _nominal("compareTo", ("quantity_compare_to", INT, compare, (_QUANTITY,))),
        _nominal("asApproximateFloat", ("quantity_get_float", DOUBLE, _as_approximate_float, ())),
        _nominal("asInteger", ("quantity_get_int", INT, _as_integer, ())),
        _nominal("isInteger", ("quantity_is_integer", BOOL, lambda quantity: _integer(quantity) is not None, ())),
        _nominal("add", ("quantity_add", _QUANTITY, add, (_QUANTITY,)), ("quantity_add_int", _QUANTITY, add, (INT,))),
        _nominal(
            "sub",
            ("quantity_sub", _QUANTITY, subtract, (_QUANTITY,)),
            ("quantity_sub_int", _QUANTITY, subtract, (INT,)),
        ),
    ),
)
