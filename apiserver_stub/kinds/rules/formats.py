"""Formats of addresses, paths, ports, schedules and time zones. Each check returns the error or an empty text."""

import re
from ipaddress import ip_address, ip_interface, ip_network
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from apiserver_stub.common.error_list import ErrorList, FieldPath
from apiserver_stub.kinds.rules.combine import NameRule, ValueRule, between, both, form
from apiserver_stub.kinds.values import names
from apiserver_stub.kinds.values.names import is_usual_address, range_of

PORT = between(1, 65535)
NOT_NEGATIVE = "must be greater than or equal to 0"
_PERCENT = re.compile("[0-9]+%", re.ASCII)
_HEADER = re.compile("[-A-Za-z0-9]+", re.ASCII)
_PERCENT_RULE = (
    "a valid percent string must be a number followed by '%' "
    "(e.g. '1%' or '93%', regex used for validation is '[0-9]+%')"
)
_IP_RULE = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
_CIDR_RULE = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"


def address(text: str) -> str:
    """Check an IP address of either family."""
    if _is_usual_v4(text):
        return ""
    try:
        found = ip_address(text)
    except ValueError:
        return _IP_RULE
    if "%" in text:
        return _IP_RULE
    return "must not be an IPv4-mapped IPv6 address" if found.version == 6 and found.ipv4_mapped else ""


def family(text: str) -> str:
    """Return `IPv4` or `IPv6` for an address or a network. Empty if it is neither."""
    if _is_usual_v4(text):
        return "IPv4"
    try:
        return f"IPv{ip_interface(text).version}"
    except ValueError:
        return ""


def _is_usual_v4(text: str) -> bool:
    return ":" not in text and is_usual_address(text)


def network(text: str) -> str:
    """Check an address range in CIDR notation."""
    _, slash, length = text.rpartition("/")
    if range_of(text) is None or ":" in text:
        try:
            found = ip_network(text)
        except ValueError:
            return _network_problem(text)
        if not slash or "%" in text:
            return _CIDR_RULE
        if found.version == 6 and found.network_address.ipv4_mapped:
            return "must not have an IPv4-mapped IPv6 address"
    return "must not have leading zeros in the prefix length" if length != "0" and length.startswith("0") else ""


def _network_problem(text: str) -> str:
    if "/" in text and text.rpartition("/")[2].isdigit() and family(text):
        return "must not have bits set beyond the prefix length"
    return _CIDR_RULE


def port_if_any(value: Any, at: FieldPath, errors: ErrorList) -> None:
    """Check a port. Zero means that none is set."""
    if value:
        PORT(value, at, errors)


def port_or_name(value: Any, at: FieldPath, errors: ErrorList) -> None:
    """Check a port number or a port name."""
    if type(value) is int:
        PORT(value, at, errors)
    elif why := names.port_name(value):
        errors.malformed(at, value, why)


def amount(value: Any, at: FieldPath, errors: ErrorList) -> None:
    """Check a count or a percentage."""
    if type(value) is int:
        if value < 0:
            errors.invalid(at, value, NOT_NEGATIVE)
    elif not _PERCENT.fullmatch(value):
        errors.invalid(at, value, _PERCENT_RULE)


def _no_more_than_all(value: Any, at: FieldPath, errors: ErrorList) -> None:
    """Check that a percentage is at most 100."""
    if type(value) is str and _PERCENT.fullmatch(value) and len(value) < 20 and int(value[:-1]) > 100:
        errors.invalid(at, value, "must not be greater than 100%")


SHARE: ValueRule = both(amount, _no_more_than_all)
"""A count, or a percentage of at most 100."""


def is_none(value: Any) -> bool:
    """Return whether a count or percentage is zero. Other values count as zero."""
    return value in (None, 0) or (type(value) is str and (not _PERCENT.fullmatch(value) or value.strip("0") == "%"))


def header(name: str) -> str:
    """Check the name of an HTTP header."""
    if _HEADER.fullmatch(name):
        return ""
    return "a valid HTTP header must have only letters, digits or '-' (e.g. 'X-Header-Name')"


def absolute(path: str) -> str:
    """Check a path that starts at the root."""
    return "" if path.startswith("/") else "must be an absolute path"


def no_backsteps(path: str) -> str:
    """Check a path without `..`."""
    return "must not contain '..'" if ".." in path.replace("\\", "/").split("/") else ""


def descending(path: str) -> str:
    """Check a relative path without `..`."""
    return names.problems(path.startswith("/") and "must be a relative path", no_backsteps(path))


def lower_subdomain(name: str) -> str:
    """Check a driver name: a DNS subdomain of at most 63 characters, ignoring case."""
    return "must be no more than 63 characters" if len(name) > 63 else names.subdomain(name.lower())


ADDRESS: ValueRule = form(address)
NETWORK: ValueRule = form(network)
LABEL: ValueRule = form(names.label)
SUBDOMAIN: ValueRule = form(names.subdomain)
QUALIFIED: ValueRule = form(names.qualified)


def prefixed(check: NameRule) -> NameRule:
    """Return a check for a name prefix. A trailing dash is allowed."""
    return lambda text: check(text[:-1] + "a" if len(text) > 1 and text.endswith("-") else text)


_MACRO = re.compile(r"@(yearly|annually|monthly|weekly|daily|midnight|hourly|every ([0-9.]+(ns|us|µs|ms|s|m|h))+)")
_LONGEST_IN_MESSAGE = 300  # maximum characters of a schedule in a message
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
# Minute, hour, day, month, day of the week: bounds and names of the values, starting with the lowest.
_SCHEDULE: tuple[tuple[int, int, tuple[str, ...]], ...] = (
    (0, 59, ()), (0, 23, ()), (1, 31, ()), (1, 12, _MONTHS), (0, 6, _DAYS),
)  # fmt: skip


def schedule(text: str) -> str:
    """Check the schedule of a CronJob: five fields, or a macro."""
    if "TZ" in text:
        return "cannot use TZ or CRON_TZ in schedule, use timeZone field instead"
    if text.startswith("@"):
        return "" if _MACRO.fullmatch(text) else f"unrecognized descriptor: {text}"
    parts = text.split()
    if len(parts) != len(_SCHEDULE):
        return f"expected exactly 5 fields, found {len(parts)}: [{' '.join(parts)[:_LONGEST_IN_MESSAGE]}]"
    bad = [part for part, row in zip(parts, _SCHEDULE, strict=True) if not _listed(part, *row)]
    return f"failed to parse: {', '.join(bad)[:_LONGEST_IN_MESSAGE]}" if bad else ""


def _listed(text: str, low: int, high: int, words: tuple[str, ...]) -> bool:
    return all(_times(part, low, high, words) for part in set(text.split(",")))


def _times(text: str, low: int, high: int, words: tuple[str, ...]) -> bool:
    """Return whether one term of a field, such as `mon-fri` or `10-50/5`, is valid."""
    span, slash, step = text.partition("/")
    if slash and not (step.isascii() and step.isdigit() and int(step[:9]) > 0):
        return False
    if span in ("*", "?"):
        return True
    first, dash, last = span.partition("-")
    bounds = [_time(part, low, words) for part in ((first, last) if dash else (first,))]
    return all(low <= bound <= high for bound in bounds) and bounds == sorted(bounds)


def _time(text: str, low: int, words: tuple[str, ...]) -> int:
    if text.isascii() and text.isdigit():
        return int(text[:9])
    return words.index(text.lower()) + low if text.lower() in words else -1


def time_zone(name: str) -> str:
    """Check a time zone of the IANA database."""
    if name.lower() == "local":
        return "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones"
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return f"unknown time zone {name}"
    return ""
