"""Quantities as whole thousandths, which can be added up and divided; pure.

Divisions and conversions round as those of the ecosystem do, so that the same metrics give the same replicas.
"""

import math
from decimal import ROUND_UP, Decimal

from controller_manager.api.quantity import Quantity, parse

LARGEST = 2**63 - 1
MOST_REPLICAS = 2**31 - 1  # the most that a count or a percentage can be in the API
# By suffix: thousandths are so many times the digits, divided by the second number.
_SUFFIXES = {
    "n": (1, 10**6),
    "u": (1, 10**3),
    "m": (1, 1),
    "k": (10**6, 1),
    "M": (10**9, 1),
    "G": (10**12, 1),
    "Ki": (1000 * 2**10, 1),
    "Mi": (1000 * 2**20, 1),
    "Gi": (1000 * 2**30, 1),
}


def milli(quantity: str | int | float) -> int:
    """The thousandths of a quantity, rounded away from zero. Raises ValueError when it is none."""
    text = quantity if isinstance(quantity, str) else str(quantity)
    if text.isdecimal():
        return min(LARGEST, int(text) * 1000)
    digits = text.rstrip("numkMGKi")
    known = _SUFFIXES.get(text[len(digits) :]) if digits.isdecimal() else None
    if known is None:
        return _exactly(text)
    return min(LARGEST, -(-int(digits) * known[0] // known[1]))


def _exactly(text: str) -> int:
    thousandths = parse(text).number * 1000
    return max(-LARGEST, min(LARGEST, int(thousandths.to_integral_value(ROUND_UP))))


def approximate(quantity: str | int | float) -> float:
    """A quantity as the product of its digits and a power of ten, which is how the ecosystem makes a fraction of one.

    Raises ValueError when it is none.
    """
    number = parse(str(quantity)).number
    exponent = min(0, int(number.as_tuple().exponent))
    return int(number.scaleb(-exponent)) * 10.0**exponent


def amount(thousandths: int, resource: str = "") -> str:
    """The canonical quantity: of memory with binary suffixes, as metrics servers tell it, else with decimal ones."""
    return str(Quantity(Decimal(thousandths).scaleb(-3), "binary" if resource == "memory" else "decimal"))


def quotient(one: int, other: int) -> int:
    """The whole part of a division, rounded towards zero."""
    whole = abs(one) // abs(other)
    return whole if (one < 0) == (other < 0) else -whole


def replicas_of(number: float) -> int:
    """A number of pods, rounded up, as far as an API object can tell it."""
    return MOST_REPLICAS if number > MOST_REPLICAS else max(-MOST_REPLICAS, math.ceil(number))
