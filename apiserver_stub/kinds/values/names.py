"""Formats of names, labels, keys and addresses. A check returns the problems, one per line, or an empty string."""

import re
from collections.abc import Callable
from functools import lru_cache, wraps
from socket import AF_INET, AF_INET6, inet_ntop, inet_pton
from typing import Literal, NamedTuple

# Addresses and ranges in their usual form, parsed several times faster than by `ipaddress`.


class AddressRange(NamedTuple):
    """An address range: its first address, the prefix length, and the bits of an address."""

    first: int
    length: int
    bits: int

    def lies_within(self, other: "AddressRange") -> bool:
        """Return whether this range is a proper part of another range."""
        if self.bits != other.bits or self.length <= other.length:
            return False
        return (self.first ^ other.first) >> (other.bits - other.length) == 0


def range_of(text: str) -> AddressRange | None:
    """Return the range that a text means. None if it is invalid or has an unusual form."""
    address, slash, length = text.partition("/")
    packed = _packed(address)
    if packed is None or not slash or len(length) > 3 or not (length.isascii() and length.isdigit()):
        return None
    first, shared, bits = int.from_bytes(packed), int(length), 8 * len(packed)
    if shared > bits or first & ((1 << bits - shared) - 1):
        return None
    return AddressRange(first, shared, bits)


def is_usual_address(text: str) -> bool:
    """Return whether a text is an address in canonical form (RFC 5952). Some canonical addresses are not recognized."""
    packed = None if ":" in text and "." in text else _packed(text)
    return packed is not None and text == inet_ntop(AF_INET6 if ":" in text else AF_INET, packed)


def is_usual_range(text: str) -> bool:
    """Return whether a text is a range whose address has that form."""
    address, _, length = text.partition("/")
    return is_usual_address(address) and range_of(text) is not None and length == str(int(length))


def _packed(address: str) -> bytes | None:
    try:
        return inet_pton(AF_INET6 if ":" in address else AF_INET, address)
    except (OSError, ValueError):
        return None


# The formats of names, labels and keys.

_LABEL_LIMIT = 63
_SUBDOMAIN_LIMIT = 253
_PORT_NAME_LIMIT = 15
_REMEMBERED = 253  # maximum length of a cached text

_LABEL_FORM = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_OLD_LABEL_FORM = "[a-z]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN_FORM = rf"{_LABEL_FORM}(\.{_LABEL_FORM})*"
_KEY_FORM = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_DATA_KEY_FORM = "[-._a-zA-Z0-9]+"

Check = Callable[[str], str]


def _remembered(check: Check) -> Check:
    """Cache the results of a check for short texts. Many objects have the same names and labels."""
    known = lru_cache(maxsize=4096)(check)

    @wraps(check)
    def checked(text: str) -> str:
        return known(text) if len(text) <= _REMEMBERED else check(text)

    return checked


_LABEL = re.compile(_LABEL_FORM, re.ASCII)
_OLD_LABEL = re.compile(_OLD_LABEL_FORM, re.ASCII)
_SUBDOMAIN = re.compile(_SUBDOMAIN_FORM, re.ASCII)
_LOOSE_SUBDOMAIN = re.compile(r"[a-z0-9_]([-a-z0-9_]*[a-z0-9_])?(\.[a-z0-9_]([-a-z0-9_]*[a-z0-9_])?)*", re.ASCII)
_QUALIFIED = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?", re.ASCII)
_DATA_KEY = re.compile(_DATA_KEY_FORM, re.ASCII)
_PORT_NAME = re.compile(r"[-a-z0-9]+", re.ASCII)
_LETTER = re.compile("[a-z]")
_ENV_NAME = re.compile(r"[ -<>-~]+")
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


def _rule(what: str, examples: str, form: str) -> str:
    return f"{what} (e.g. {examples}, regex used for validation is '{form}')"


_LABEL_RULE = _rule(
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end "
    "with an alphanumeric character",
    "'my-name',  or '123-abc'", _LABEL_FORM,
)  # fmt: skip
_OLD_LABEL_RULE = _rule(
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, "
    "and end with an alphanumeric character",
    "'my-name',  or 'abc-123'", _OLD_LABEL_FORM,
)  # fmt: skip
_SUBDOMAIN_RULE = _rule(
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start "
    "and end with an alphanumeric character",
    "'example.com'", _SUBDOMAIN_FORM,
)  # fmt: skip
QUALIFIED_RULE = _rule(
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    "character",
    "'MyName',  or 'my.name',  or '123-abc'", _KEY_FORM,
)  # fmt: skip
_VALUE_RULE = _rule(
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character",
    "'MyValue',  or 'my_value',  or '12345'", f"({_KEY_FORM})?",
)  # fmt: skip
_DATA_KEY_RULE = _rule(
    "a valid config key must have only letters, digits, '-', '_' or '.'",
    "'key.name'", _DATA_KEY_FORM,
)  # fmt: skip


def _too_long(limit: int, unit: str = "characters") -> str:
    return f"must be no more than {limit} {unit}"


@_remembered
def label(name: str) -> str:
    """Check a DNS label (RFC 1123)."""
    return _dns(name, _LABEL_LIMIT, _LABEL, _LABEL_RULE)


@_remembered
def old_label(name: str) -> str:
    """Check a DNS label of RFC 1035, which starts with a letter."""
    return _dns(name, _LABEL_LIMIT, _OLD_LABEL, _OLD_LABEL_RULE)


@_remembered
def subdomain(name: str) -> str:
    """Check a DNS subdomain (RFC 1123)."""
    return _dns(name, _SUBDOMAIN_LIMIT, _SUBDOMAIN, _SUBDOMAIN_RULE)


@_remembered
def loose_subdomain(name: str) -> str:
    """Check a DNS subdomain whose labels may contain underscores."""
    return _dns(name, _SUBDOMAIN_LIMIT, _LOOSE_SUBDOMAIN, _SUBDOMAIN_RULE)


def host(name: str) -> str:
    """Check a DNS subdomain whose first label may be a wildcard."""
    why = subdomain(name.removeprefix("*."))
    return f"a wildcard DNS-1123 subdomain must start with '*.': {why}" if why and "*" in name else why


def _dns(name: str, limit: int, form: re.Pattern[str], rule: str) -> str:
    return problems(len(name) > limit and _too_long(limit), not form.fullmatch(name) and rule)


def problems(*found: str | Literal[False]) -> str:
    """Join problems into one text. Empty and False values are skipped."""
    return "\n".join(one for one in found if one) if any(found) else ""


def path_segment(name: str) -> str:
    """Check text that is used as one segment of a URL path."""
    if name in (".", ".."):
        return f"may not be '{name}'"
    bad = next((mark for mark in "/%" if mark in name), "")
    return f"may not contain '{bad}'" if bad else ""


@_remembered
def qualified(name: str) -> str:
    """Check a label or annotation key: a name of at most 63 characters with an optional subdomain prefix and slash."""
    prefix, slash, rest = name.rpartition("/")
    if slash and "/" in prefix:
        rule = QUALIFIED_RULE.removeprefix("name part ")
        return f"a valid label key {rule} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
    of_prefix = (subdomain(prefix) if prefix else "must be non-empty") if slash else ""
    return problems(
        *(f"prefix part {why}" for why in of_prefix.splitlines()),
        not rest and "name part must be non-empty",
        len(rest) > _LABEL_LIMIT and f"name part {_too_long(_LABEL_LIMIT, 'bytes')}",
        not _QUALIFIED.fullmatch(rest) and QUALIFIED_RULE,
    )


def domain_prefixed(name: str) -> str:
    """Check a qualified name with its domain, such as `example.com/name`."""
    return qualified(name) or ("" if "/" in name else 'must be a domain-prefixed path (such as "acme.io/foo")')


@_remembered
def label_value(value: str) -> str:
    """Check the value of a label."""
    return problems(
        len(value) > _LABEL_LIMIT and _too_long(_LABEL_LIMIT, "bytes"),
        value != "" and not _QUALIFIED.fullmatch(value) and _VALUE_RULE,
    )


def data_key(key: str) -> str:
    """Check a key of a ConfigMap or Secret."""
    return problems(
        len(key) > _SUBDOMAIN_LIMIT and _too_long(_SUBDOMAIN_LIMIT),
        not _DATA_KEY.fullmatch(key) and _DATA_KEY_RULE,
        key == "." and "must not be '.'",
        key.startswith("..") and "must not be '..' or start with '..'",
    )


def port_name(name: str) -> str:
    """Check the name of a container's port (RFC 6335)."""
    return problems(
        len(name) > _PORT_NAME_LIMIT and _too_long(_PORT_NAME_LIMIT),
        not _PORT_NAME.fullmatch(name) and "must have only lower case letters, digits and '-'",
        not _LETTER.search(name) and "must contain at least one letter (a-z)",
        "--" in name and "must not contain '--'",
        name != name.strip("-") and "must not begin or end with '-'",
    )


def env_name(name: str) -> str:
    """Check the name of an environment variable."""
    if _ENV_NAME.fullmatch(name):
        return ""
    return "a valid environment variable name must have only printable ASCII characters other than '='"


def identifier(name: str) -> str:
    """Check an identifier as in programming languages."""
    return "" if _IDENTIFIER.fullmatch(name) else "must be letters, digits or '_', and not begin with a digit"
