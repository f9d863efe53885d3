"""Functions for IP addresses and CIDR blocks, without zones and IPv4-mapped addresses."""

import math
import re
from dataclasses import dataclass
from typing import Any, ClassVar

from controller_manager.common.base.log.formats import quote
from controller_manager.common.cel.library import (
    STRING_TRAVERSAL,
    CallEstimate,
    CallEstimator,
    Estimate,
    Function,
    Library,
    Overload,
    RuntimeCost,
    no_such_overload,
)
from controller_manager.common.cel.library.address import Address, parse_address
from controller_manager.common.cel.library.costs import (
    ONE,
    Arguments,
    Operands,
    nominal,
    nominal_estimate,
    scan,
    scan_cost,
    scan_estimate,
)
from controller_manager.common.cel.types import BOOL, INT, STRING, OpaqueType, Type
from controller_manager.common.cel.values import EvaluationError, Opaque, size_of


@dataclass(frozen=True, slots=True)
class IP(Opaque):
    """An IP address."""

    type: ClassVar[Type] = OpaqueType("net.IP")

    address: Address

    def __str__(self) -> str:
        """Return the address in its canonical form."""
        return str(self.address)

    @property
    def length(self) -> int:  # type: ignore[override]
        """Return the number of bytes."""
        return self.address.bits // 8


@dataclass(frozen=True, slots=True)
class CIDR(Opaque):
    """A CIDR block: an address in it, and the length of its prefix."""

    type: ClassVar[Type] = OpaqueType("net.CIDR")

    address: Address
    prefix: int

    def __str__(self) -> str:
        """Return the address and the prefix length."""
        return f"{self.address}/{self.prefix}"

    @property
    def length(self) -> int:  # type: ignore[override]
        """Return the number of bytes of the prefix."""
        return math.ceil(self.prefix / 8)

    def masked(self) -> "CIDR":
        """Return the block with its first address."""
        host = self.address.bits - self.prefix
        return CIDR(Address(self.address.number >> host << host, self.address.bits), self.prefix)

    def holds(self, address: Address) -> bool:
        """Return whether an address of the same family is in the block."""
        host = self.address.bits - self.prefix
        return address.bits == self.address.bits and address.number >> host == self.address.number >> host


def parse_ip(text: str) -> IP:
    """Parse an address. Raises EvaluationError."""
    try:
        address = parse_address(text)
    except ValueError as error:
        raise EvaluationError(f"IP Address {quote(text)} parse error during conversion from string: {error}") from None
    if address.zone:
        raise EvaluationError(f"IP address {quote(text)} with zone value is not allowed")
    if address.is_mapped:
        raise EvaluationError(f"IPv4-mapped IPv6 address {quote(text)} is not allowed")
    return IP(address)


def parse_cidr(text: str) -> CIDR:
    """Parse a CIDR block. Raises EvaluationError."""
    context = "network address parse error during conversion from string: "
    try:
        address, prefix = _prefix(text)
    except ValueError as error:
        raise EvaluationError(f"{context}{context}netip.ParsePrefix({quote(text)}): {error}") from None
    if address.is_mapped:
        raise EvaluationError(f"{context}IPv4-mapped IPv6 address {quote(text)} is not allowed")
    return CIDR(address, prefix)


def _prefix(text: str) -> tuple[Address, int]:
    before, slash, after = text.rpartition("/")
    if not slash:
        raise ValueError("no '/'")
    address = parse_address(before)
    if address.zone:
        raise ValueError("IPv6 zones cannot be present in a prefix")
    if not re.fullmatch("0|[1-9][0-9]{0,17}", after):
        raise ValueError(f"bad bits after slash: {quote(after)}")
    if int(after) > address.bits:
        raise ValueError("prefix length out of range")
    return address, int(after)


def _is(parse: Any) -> Any:
    def holds(text: str) -> bool:
        try:
            parse(text)
        except EvaluationError:
            return False
        return True

    return holds


def _is_unspecified(ip: IP) -> bool:
    return ip.address.number == 0


def _is_loopback(ip: IP) -> bool:
    return ip.address.begins_with(127, 8) if ip.address.bits == 32 else ip.address.number == 1


def _is_link_local_multicast(ip: IP) -> bool:
    if ip.address.bits == 32:
        return ip.address.begins_with(0xE00000, 24)
    return ip.address.begins_with(0xFF, 8) and ip.address.number >> 112 & 0x0F == 0x02


def _is_link_local_unicast(ip: IP) -> bool:
    return ip.address.begins_with(0xA9FE, 16) if ip.address.bits == 32 else ip.address.begins_with(0x3FA, 10)


def _is_multicast(ip: IP) -> bool:
    return ip.address.begins_with(0xE, 4) if ip.address.bits == 32 else ip.address.begins_with(0xFF, 8)


def _is_global_unicast(ip: IP) -> bool:
    if ip.address.bits == 32 and ip.address.number == 0xFFFFFFFF:
        return False
    return not (_is_unspecified(ip) or _is_loopback(ip) or _is_multicast(ip) or _is_link_local_unicast(ip))


def _contains_ip(block: CIDR, ip: IP | str) -> bool:
    if isinstance(ip, str):
        try:
            ip = parse_ip(ip)
        except EvaluationError:
            raise no_such_overload() from None
    return block.holds(ip.address)


def _contains_cidr(block: CIDR, other: CIDR | str) -> bool:
    if isinstance(other, str):
        other = parse_cidr(other)
    return block.holds(other.address) and block.prefix <= other.prefix


def _contains_cost(*, block: bool, parses: bool = False) -> RuntimeCost:
    def cost(arguments: Arguments, result: Any) -> int:
        size = size_of(arguments[0])
        total = scan_cost(2 * size) + (scan_cost(size) + 1 if block else 0)
        return total + (scan_cost(size_of(arguments[1])) if parses else 0)

    return cost


_ADDRESS_SIZE = Estimate(4, 16)


def _contains_estimate(*, block: bool, parses: bool) -> CallEstimator:
    base = _ADDRESS_SIZE.plus(_ADDRESS_SIZE).scaled(STRING_TRAVERSAL)
    if block:
        base = base.plus(_ADDRESS_SIZE.scaled(STRING_TRAVERSAL)).plus(ONE)

    def estimate(operands: Operands) -> CallEstimate:
        return CallEstimate(base.plus(operands[1].size.scaled(STRING_TRAVERSAL)) if parses else base)

    return estimate


def _contains(name: str, id_: str, of: Type, implementation: Any, *, block: bool) -> Function:
    def overload(id_: str, argument: Type) -> Overload:
        parses = argument is STRING
        cost, estimate = _contains_cost(block=block, parses=parses), _contains_estimate(block=block, parses=parses)
        return Overload(id_, (CIDR.type, argument), BOOL, implementation, True, cost, estimate)

    same = "cidr_contains_ip_ip" if not block else "cidr_contains_cidr"
    return Function(name, (overload(id_, STRING), overload(same, of)), _contains_cost(block=block))


def _method(name: str, id_: str, of: Type, result: Type, implementation: Any) -> Function:
    overload = Overload(id_, (of,), result, implementation, receiver=True, estimate=nominal_estimate)
    return Function(name, (overload,), nominal)


def _parse(name: str, id_: str, result: Type, implementation: Any, times: int = 1) -> Function:
    overload = Overload(id_, (STRING,), result, implementation, estimate=scan_estimate(times))
    return Function(name, (overload,), scan(times))


IPS = Library(
    "kubernetes.net.ip",
    (
        _parse("ip", "string_to_ip", IP.type, parse_ip),
        _method("family", "ip_family", IP.type, INT, lambda ip: 4 if ip.address.bits == 32 else 6),
        _parse("ip.isCanonical", "ip_is_canonical", BOOL, lambda text: str(parse_ip(text)) == text, 2),
        _method("isUnspecified", "ip_is_unspecified", IP.type, BOOL, _is_unspecified),
        _method("isLoopback", "ip_is_loopback", IP.type, BOOL, _is_loopback),
        _method("isLinkLocalMulticast", "ip_is_link_local_multicast", IP.type, BOOL, _is_link_local_multicast),
        _method("isLinkLocalUnicast", "ip_is_link_local_unicast", IP.type, BOOL, _is_link_local_unicast),
        _method("isGlobalUnicast", "ip_is_global_unicast", IP.type, BOOL, _is_global_unicast),
        _parse("isIP", "is_ip", BOOL, _is(parse_ip)),
        Function("string", (Overload("ip_to_string", (IP.type,), STRING, str),)),
    ),
    (IP.type,),
)

CIDRS = Library(
    "kubernetes.net.cidr",
    (
        _parse("cidr", "string_to_cidr", CIDR.type, parse_cidr),
        _contains("containsIP", "cidr_contains_ip_string", IP.type, _contains_ip, block=False),
        _contains("containsCIDR", "cidr_contains_cidr_string", CIDR.type, _contains_cidr, block=True),
        Function(
            "ip",
            (
                Overload(
                    "cidr_ip", (CIDR.type,), IP.type, lambda block: IP(block.address), True, nominal, nominal_estimate
                ),
            ),
        ),
        _method("prefixLength", "cidr_prefix_length", CIDR.type, INT, lambda block: block.prefix),
        _method("masked", "cidr_masked", CIDR.type, CIDR.type, CIDR.masked),
        _parse("isCIDR", "is_cidr", BOOL, _is(parse_cidr)),
        Function("string", (Overload("cidr_to_string", (CIDR.type,), STRING, str),)),
    ),
    (CIDR.type,),
)
