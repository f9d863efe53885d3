"""String formats in schemas of custom resources, as go-openapi/strfmt and Go parse them."""

import re
from collections.abc import Callable, Mapping
from datetime import date
from functools import cache
from ipaddress import AddressValueError, IPv4Address, IPv6Address
from types import MappingProxyType

from controller_manager.common.base.regex import compile_regex

_HOST = (
    r"^([a-zA-Z0-9\p{S}\p{L}]((-?[a-zA-Z0-9\p{S}\p{L}]{0,62})?)"
    r"|([a-zA-Z0-9\p{S}\p{L}](([a-zA-Z0-9-\p{S}\p{L}]{0,61}[a-zA-Z0-9\p{S}\p{L}])?)(\.)){1,}([a-zA-Z\p{L}]){2,63})$"
)
_TIME = re.compile(r"([0-9]{2}):([0-9]{2}):([0-9]{2})(.[0-9]+)?(z|([+-][0-9]{2}:[0-9]{2}))")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_GO_DURATION = re.compile(r"[+-]?(0|(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+)")
_PART = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)")
_SECONDS = MappingProxyType({"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1, "m": 60, "h": 3600})
_LONGEST_DURATION = 2**63 / 1e9
_AMOUNT = re.compile(r"[0-9]+\s*([A-Za-zµ]+)")
# Duration units in Scala's notation. The last of each row may have a suffix.
_UNITS = (
    ("ns", "nano"), ("us", "µs", "micro"), ("ms", "milli"), ("s", "sec"), ("m", "min"), ("h", "hr", "hour"),
    ("d", "day"), ("w", "wk", "week"),
)  # fmt: skip
_LETTERS = r"A-Za-z0-9!#$%&'*+/=?^_`{|}~\-\x80-\U0010ffff"
_ATOM = f"[{_LETTERS}]+"
_QUOTED = r'"([^"\\\x00-\x1f\x7f]|\\[^\x00-\x1f\x7f])*"'
_ADDRESS = rf"({_ATOM}(\.{_ATOM})*|{_QUOTED})@({_ATOM}(\.{_ATOM})*|\[[0-9a-fA-F.:]+\])"
_MAC = re.compile(
    r"([0-9a-fA-F]{2}([:-]))(?:[0-9a-fA-F]{2}\2){4}[0-9a-fA-F]{2}"
    r"|([0-9a-fA-F]{2}([:-]))(?:[0-9a-fA-F]{2}\4){6}[0-9a-fA-F]{2}"
    r"|([0-9a-fA-F]{2}([:-]))(?:[0-9a-fA-F]{2}\6){18}[0-9a-fA-F]{2}"
    r"|[0-9a-fA-F]{4}(\.[0-9a-fA-F]{4}){2}|[0-9a-fA-F]{4}(\.[0-9a-fA-F]{4}){3}|[0-9a-fA-F]{4}(\.[0-9a-fA-F]{4}){9}"
)
_CARD = re.compile(
    r"4[0-9]{12}(?:[0-9]{3})?|5[1-5][0-9]{14}|6(?:011|5[0-9][0-9])[0-9]{12}|3[47][0-9]{13}"
    r"|3(?:0[0-5]|[68][0-9])[0-9]{11}|(?:2131|1800|35[0-9]{3})[0-9]{11}"
)
_SHORT_NAME = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_BYTE = r"(0|[1-9][0-9]?|1[0-9][0-9]?|2[0-4][0-9]|25[0-5])"

Format = Callable[[str], bool]


@cache
def _mail_forms() -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Return the patterns of a mail address, alone and after a name. They are slow to compile."""
    return (
        re.compile(rf"\s*{_ADDRESS}\s*"),
        re.compile(rf"([{_LETTERS}.\s]|{_QUOTED})*<\s*{_ADDRESS}\s*>\s*"),
    )


def _like(form: str, longest: int = -1) -> Format:
    whole = re.compile(form).fullmatch
    if longest < 0:
        return lambda text: whole(text) is not None
    return lambda text: len(text) <= longest and whole(text) is not None


def is_date(text: str) -> bool:
    """Return whether a text is an RFC 3339 full-date."""
    if not _DATE.fullmatch(text):
        return False
    try:
        date.fromisoformat(text if text[:4] != "0000" else f"2000{text[4:]}")
    except ValueError:
        return False
    return True


def is_date_time(text: str) -> bool:
    """Return whether a text is a date and time, ignoring case. Seconds are at most 59."""
    parts = text.lower().split("t")
    if len(text) < 4 or len(parts) < 2 or not is_date(parts[0]):
        return False
    found = _TIME.fullmatch(parts[1])
    return found is not None and found[1] <= "23" and found[2] <= "59" and found[3] <= "59"


def is_duration(text: str) -> bool:
    """Return whether a text is a duration in Go's or Scala's notation."""
    if _GO_DURATION.fullmatch(text):
        length = sum(float(number) * _SECONDS[unit] for number, unit in _PART.findall(text))
        if length < _LONGEST_DURATION:
            return True
    return any(_is_unit(unit.lower()) for unit in _AMOUNT.findall(text))


def _is_unit(word: str) -> bool:
    return any(word in row or word.startswith(row[-1]) for row in _UNITS)


def _address(text: str) -> IPv4Address | IPv6Address | None:
    """Return an IP address. Leading zeros in IPv4 numbers are ignored."""
    try:
        if ":" in text:
            return None if "%" in text else IPv6Address(text)
        if not re.fullmatch(r"[0-9]+(\.[0-9]+){3}", text):
            return None
        return IPv4Address(".".join(part.lstrip("0") or "0" for part in text.split(".")))
    except AddressValueError:
        return None


def _is_cidr(text: str) -> bool:
    address, slash, length = text.partition("/")
    found = _address(address)
    if found is None or not slash or not re.fullmatch("[0-9]{1,9}", length):
        return False
    return int(length) <= found.max_prefixlen


def _is_uri(text: str) -> bool:
    """Return whether a text is an absolute URI or an absolute path."""
    from controller_manager.common.cel.library.url import problem  # loads CEL only when needed

    return not problem(text)


def _is_host(text: str) -> bool:
    if not compile_regex(_HOST).matches(text) or len(text.encode()) > 255:
        return False
    return all(len(part.encode()) <= 63 for part in text.split("."))


def _is_card(text: str) -> bool:
    digits = re.sub("[^0-9]+", "", text)
    if not _CARD.fullmatch(digits):
        return False
    doubled = [2 * int(digit) for digit in digits[-2::-2]]
    return (sum(map(int, digits[-1::-2])) + sum(n % 10 + n // 10 for n in doubled)) % 10 == 0


def _is_isbn10(text: str) -> bool:
    digits = re.sub(r"[\s-]+", "", text)
    if not re.fullmatch("[0-9]{9}[0-9X]", digits):
        return False
    return sum((i + 1) * (10 if digit == "X" else int(digit)) for i, digit in enumerate(digits)) % 11 == 0


def _is_isbn13(text: str) -> bool:
    digits = re.sub(r"[\s-]+", "", text)
    if not re.fullmatch("[0-9]{13}", digits):
        return False
    return sum((1, 3)[i % 2] * int(digit) for i, digit in enumerate(digits)) % 10 == 0


def _uuid(version: str, variant: str = "") -> Format:
    third, fourth = (f"{first}[0-9a-f]{{3}}" if first else "[0-9a-f]{4}" for first in (version, variant))
    return _like(f"(?i:[0-9a-f]{{8}}-?[0-9a-f]{{4}}-?{third}-?{fourth}-?[0-9a-f]{{12}})")


FORMATS: Mapping[str, Format] = MappingProxyType({
    "bsonobjectid": _like("[0-9a-fA-F]{24}"),
    "byte": _like("([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})"),
    "cidr": _is_cidr,
    "creditcard": _is_card,
    "date": is_date,
    "datetime": is_date_time,
    "duration": is_duration,
    "email": lambda text: any(form.fullmatch(text) for form in _mail_forms()),
    "hexcolor": _like("#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6})"),
    "hostname": _is_host,
    "ipv4": lambda text: "." in text and _address(text) is not None,
    "ipv6": lambda text: ":" in text and _address(text) is not None,
    "isbn": lambda text: _is_isbn10(text) or _is_isbn13(text),
    "isbn10": _is_isbn10,
    "isbn13": _is_isbn13,
    "k8slongname": _like(rf"{_SHORT_NAME}(\.{_SHORT_NAME})*", 253),
    "k8sshortname": _like(_SHORT_NAME, 63),
    "mac": lambda text: _MAC.fullmatch(text) is not None,
    "password": lambda _text: True,
    "rgbcolor": _like(rf"rgb\(\s*{_BYTE}\s*,\s*{_BYTE}\s*,\s*{_BYTE}\s*\)"),
    "ssn": lambda text: len(text) == 11 and re.fullmatch("[0-9]{3}[- ]?[0-9]{2}[- ]?[0-9]{4}", text) is not None,
    "uri": _is_uri,
    "uuid": _uuid(""),
    "uuid3": _uuid("3"),
    "uuid4": _uuid("4", "[89ab]"),
    "uuid5": _uuid("5", "[89ab]"),
})  # fmt: skip
"""The check of each format, by name without dashes."""


def format_of(name: str) -> Format | None:
    """Return the check of a format by its name in a schema. None if it is unknown and therefore ignored."""
    return FORMATS.get(name.replace("-", ""))
