"""Warnings of addresses and ranges that are written in an unusual way."""

from ipaddress import IPv4Address, IPv6Address, ip_address, ip_interface

from apiserver_stub.kinds.addresses import is_usual_address, is_usual_range
from apiserver_stub.kinds.error_list import FieldPath
from apiserver_stub.kinds.warnings.told import tell

MOST = 200
"""How many addresses of one list are looked at: there is no room to warn of more."""


def of_address(text: str, at: FieldPath) -> list[str]:
    """An address that is not in the form everybody writes it in."""
    if is_usual_address(text):
        return []
    try:
        found = ip_address(_plain(text))
    except ValueError:
        return []
    usual = str(_unmapped(found))
    if usual == text:
        return []
    if isinstance(found, IPv4Address) or found.ipv4_mapped:
        return [tell(at, f'"{text}" is no standard form of an IP address: use "{usual}"')]
    return [tell(at, f'the canonical form (RFC 5952) of the IPv6 address "{text}" is "{usual}"')]


def of_range(text: str, at: FieldPath) -> list[str]:
    """A range with bits behind its prefix, or one that is not in the form everybody writes it in."""
    if is_usual_range(text):
        return []
    address, _, length = text.partition("/")
    try:
        found = ip_interface(f"{_plain(address)}/{length.lstrip('0') or '0'}")
    except ValueError:
        return []
    whole, told = found.network, []
    if found.ip != whole.network_address:
        single = f"{found.ip}/{found.ip.max_prefixlen}"
        told.append(tell(at, f'"{text}" could mean "{whole}" or "{single}"'))
    if _plain(address) != address or length != str(whole.prefixlen) or _unmapped(found.ip) != found.ip:
        told.append(tell(at, f'"{text}" is no standard form of a CIDR: use "{whole}"'))
    if not told and text != str(whole):
        told.append(tell(at, f'the canonical form (RFC 5952) of the IPv6 CIDR "{text}" is "{whole}"'))
    return told


def _plain(address: str) -> str:
    """Without zeros in front of the numbers of an IPv4 address, and spaces around."""
    if ":" in address:
        return address
    return ".".join(part.lstrip("0") or "0" for part in address.split("."))


def _unmapped(address: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address
