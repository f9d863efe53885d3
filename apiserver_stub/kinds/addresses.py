"""Addresses and ranges in the form almost everybody writes them in, read several times as fast as by `ipaddress`."""

from socket import AF_INET, AF_INET6, inet_ntop, inet_pton
from typing import NamedTuple


class Range(NamedTuple):
    """A range of addresses: its first one, how many bits all of them share, and how many they have."""

    first: int
    length: int
    bits: int

    def lies_within(self, other: "Range") -> bool:
        """Return whether it is a part of another range, and not all of it."""
        if self.bits != other.bits or self.length <= other.length:
            return False
        return (self.first ^ other.first) >> (other.bits - other.length) == 0


def range_of(text: str) -> Range | None:
    """Return the range that a text stands for; None when it stands for none, or is written in an unusual way."""
    address, slash, length = text.partition("/")
    packed = _packed(address)
    if packed is None or not slash or len(length) > 3 or not (length.isascii() and length.isdigit()):
        return None
    first, shared, bits = int.from_bytes(packed), int(length), 8 * len(packed)
    if shared > bits or first & ((1 << bits - shared) - 1):
        return None
    return Range(first, shared, bits)


def is_usual_address(text: str) -> bool:
    """Return whether a text is an address in the one form that is recommended (RFC 5952); some are not recognized."""
    packed = None if ":" in text and "." in text else _packed(text)
    return packed is not None and text == inet_ntop(AF_INET6 if ":" in text else AF_INET, packed)


def is_usual_range(text: str) -> bool:
    """Return whether a text is a range with an address in that form."""
    address, _, length = text.partition("/")
    return is_usual_address(address) and range_of(text) is not None and length == str(int(length))


def _packed(address: str) -> bytes | None:
    try:
        return inet_pton(AF_INET6 if ":" in address else AF_INET, address)
    except (OSError, ValueError):
        return None
