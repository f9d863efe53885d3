"""Quantities: resource amounts with suffixes, parsed, compared and written in canonical form.

A text is a decimal number with a suffix of one of three families: decimal (`100m`, `2k`, `5G`), binary (`64Mi`) or an
exponent (`12e6`). The canonical text has no fraction and the largest suffix of its family that allows this. Numbers
that no suffix can express are rounded away from zero to billionths.
"""

import re
from collections.abc import Mapping
from decimal import ROUND_UP, Context, Decimal
from functools import lru_cache
from types import MappingProxyType
from typing import NamedTuple

_LARGEST = Decimal(2**63 - 1)
_BILLIONTHS = -9
_LONGEST = 128  # characters of a text
_EXACT = Context(prec=4 * _LONGEST, Emin=-9999, Emax=9999)
_TEXT = re.compile(r"([+-]?)([0-9]+(?:\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]{1,3})?", re.ASCII)
_DECIMAL: Mapping[str, int] = MappingProxyType(
    {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
)
_BINARY: Mapping[str, int] = MappingProxyType({f"{letter}i": 1024**n for n, letter in enumerate("KMGTPE", 1)})
_OF_EXPONENT: Mapping[int, str] = MappingProxyType({exponent: suffix for suffix, exponent in _DECIMAL.items()})


class Quantity(NamedTuple):
    """An exact number, and its family of suffixes: `decimal`, `binary` or `exponent`."""

    number: Decimal
    family: str = "decimal"

    def __str__(self) -> str:
        """Return the canonical text."""
        if not self.number:
            return "0"
        if self.family == "binary" and abs(self.number) >= 1024 and _is_whole(self.number):
            return _binary_text(int(self.number))
        return _decimal_text(self.number, self.family == "exponent")


@lru_cache(maxsize=4096)  # most containers use the same quantities
def parse(text: str) -> Quantity:
    """Return the quantity of a text. Raises `ValueError`."""
    found = _TEXT.fullmatch(text) if len(text) <= _LONGEST else None
    if found is None:
        raise ValueError(f"{text!r} is no quantity, such as 100m or 1.5Gi")
    sign, digits, suffix = found.groups(default="")
    number = Decimal(sign + digits)
    if suffix in _BINARY:
        number = _EXACT.multiply(number, _BINARY[suffix])
        return Quantity(max(-_LARGEST, min(_LARGEST, _round_up(number))), "binary")
    if suffix in _DECIMAL:
        return Quantity(_round_up(_EXACT.scaleb(number, _DECIMAL[suffix])))
    return Quantity(_round_up(_EXACT.scaleb(number, int(suffix[1:]))), "exponent")


def canonical(text: str, places: int = 9) -> str:
    """Return the canonical text of a quantity, rounded up to `places` decimals. Raises like
    `parse`.
    """
    quantity = parse(text)
    return str(quantity._replace(number=_round_up(quantity.number, -places)))


def add(one: Quantity, other: Quantity) -> Quantity:
    """Return the sum, in the family of the first nonzero operand."""
    return Quantity(_EXACT.add(one.number, other.number), one.family if one.number else other.family)


def _round_up(number: Decimal, exponent: int = _BILLIONTHS) -> Decimal:
    """Return the number rounded away from zero to a power of ten."""
    found = number.as_tuple().exponent
    if isinstance(found, int) and found >= exponent:
        return number
    return number.quantize(Decimal((0, (1,), exponent)), ROUND_UP, _EXACT)


def _is_whole(number: Decimal) -> bool:
    return number == number.to_integral_value()


def _binary_text(whole: int) -> str:
    suffix, factor = max(
        ((suffix, factor) for suffix, factor in _BINARY.items() if whole % factor == 0),
        key=lambda pair: pair[1],
        default=("", 1),
    )
    return f"{whole // factor}{suffix}"


def _decimal_text(number: Decimal, as_exponent: bool) -> str:
    """Return digits without trailing zeros, and the suffix; its exponent is a multiple of three."""
    sign, digits, found = number.as_tuple()
    assert isinstance(found, int)
    bare = "".join(map(str, digits)).rstrip("0")
    exponent = found + len(digits) - len(bare)
    nearest = exponent - exponent % 3
    if not as_exponent:
        nearest = min(nearest, _DECIMAL["E"])
    suffix = (f"e{nearest}" if nearest else "") if as_exponent else _OF_EXPONENT[nearest]
    return f"{'-' * sign}{bare}{'0' * (exponent - nearest)}{suffix}"
