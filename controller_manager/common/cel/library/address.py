"""IP addresses as in Go's `netip`: no leading zeros, and Go's error messages."""

import re
from ipaddress import IPv4Address, IPv6Address

import msgspec

from controller_manager.common.base.log.formats import quote

_MARK = re.compile("[.:%]")
_FIELD = re.compile("[0-9a-fA-F]*")
_IPV4_MAPPED = 0xFFFF


class Address(msgspec.Struct, frozen=True):
    """An address: its number, its number of bits (32 or 128), and its zone."""

    number: int
    bits: int
    zone: str = ""

    @property
    def is_mapped(self) -> bool:
        """Return whether this is an IPv4-mapped IPv6 address."""
        return self.bits == 128 and self.number >> 32 == _IPV4_MAPPED

    def begins_with(self, prefix: int, length: int) -> bool:
        """Return whether the first `length` bits equal those of `prefix`."""
        return self.number >> (self.bits - length) == prefix

    def __str__(self) -> str:
        """Return the address in its canonical form (RFC 5952)."""
        return str(IPv4Address(self.number) if self.bits == 32 else IPv6Address(self.number))


def parse_address(text: str) -> Address:
    """Parse an address. Raises ValueError with the message of Go."""
    first = _MARK.search(text)
    if first is None:
        raise _malformed(text, "unable to parse IP")
    if first[0] == "%":
        raise _malformed(text, "missing IPv6 address")
    return _ipv6(text) if first[0] == ":" else Address(_ipv4(text, text), 32)


def _malformed(text: str, reason: str, at: str = "") -> ValueError:
    return ValueError(f"ParseAddr({quote(text)}): {reason}{f' (at {quote(at)})' if at else ''}")


def _ipv4(text: str, fields: str) -> int:
    """Return the number of four fields, which are a whole text or its end."""
    value, digits, number, count = 0, 0, 0, 0
    for index, character in enumerate(fields):
        if "0" <= character <= "9":
            if digits == 1 and value == 0:
                raise _malformed(text, "IPv4 field has octet with leading zero")
            value, digits = value * 10 + int(character), digits + 1
            if value > 255:
                raise _malformed(text, "IPv4 field has value >255")
        elif character == ".":
            if index in (0, len(fields) - 1) or fields[index - 1] == ".":
                raise _malformed(text, "IPv4 field must have at least one digit", fields[index:])
            if count == 3:
                raise _malformed(text, "IPv4 address too long")
            number, count, value, digits = number << 8 | value, count + 1, 0, 0
        else:
            raise _malformed(text, "unexpected character", fields[index:])
    if count < 3:
        raise _malformed(text, "IPv4 address too short")
    return number << 8 | value


def _ipv6(text: str) -> Address:
    rest, percent, zone = text.partition("%")
    if percent and not zone:
        raise _malformed(text, "zone must be a non-empty string")
    fields: list[int] = []
    ellipsis = None
    if rest.startswith("::"):
        ellipsis, rest = 0, rest[2:]
        if not rest:
            return Address(0, 128, zone)
    while len(fields) < 8:
        digits = _hexadecimal(text, rest)
        if rest[len(digits) : len(digits) + 1] == ".":
            fields += _embedded(text, rest, len(fields), ellipsis is not None)
            rest = ""
            break
        fields.append(int(digits, 16))
        rest = rest[len(digits) :]
        if not rest:
            break
        if rest[0] != ":":
            raise _malformed(text, "unexpected character, want colon", rest)
        if len(rest) == 1:
            raise _malformed(text, "colon must be followed by more characters", rest)
        rest = rest[1:]
        if rest[0] == ":":
            if ellipsis is not None:
                raise _malformed(text, "multiple :: in address", rest)
            ellipsis, rest = len(fields), rest[1:]
            if not rest:
                break
    if rest:
        raise _malformed(text, "trailing garbage after address", rest)
    return Address(_expanded(text, fields, ellipsis), 128, zone)


def _hexadecimal(text: str, rest: str) -> str:
    found = _FIELD.match(rest)
    assert found is not None
    if len(found[0]) > 4:
        raise _malformed(text, "each group must have 4 or less digits", rest)
    if not found[0]:
        raise _malformed(text, "each colon-separated field must have at least one digit", rest)
    return found[0]


def _embedded(text: str, rest: str, before: int, ellipsis: bool) -> tuple[int, int]:
    """Return the last two fields, written as an IPv4 address."""
    if not ellipsis and before != 6:
        raise _malformed(text, "embedded IPv4 address must replace the final 2 fields of the address", rest)
    if before > 6:
        raise _malformed(text, "too many hex fields to fit an embedded IPv4 at the end of the address", rest)
    return divmod(_ipv4(text, rest), 0x10000)


def _expanded(text: str, fields: list[int], ellipsis: int | None) -> int:
    missing = 8 - len(fields)
    if missing and ellipsis is None:
        raise _malformed(text, "address string too short")
    if ellipsis is not None:
        if not missing:
            raise _malformed(text, "the :: must expand to at least one field of zeros")
        fields[ellipsis:ellipsis] = [0] * missing
    number = 0
    for field in fields:
        number = number << 16 | field
    return number
