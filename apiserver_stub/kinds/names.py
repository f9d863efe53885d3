"""The forms names, labels, keys and addresses may have; each check returns what is wrong, or an empty text."""

import re
from ipaddress import ip_address

LABEL_LIMIT = 63
SUBDOMAIN_LIMIT = 253
PORT_RANGE = "must be between 1 and 65535, inclusive"

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", re.ASCII)
_OLD_LABEL = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?", re.ASCII)
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", re.ASCII)
_LABEL_RULE = "must be an RFC 1123 label: lower-case letters, digits and '-', with a letter or digit at either end"
_OLD_LABEL_RULE = (
    "must be an RFC 1035 label: lower-case letters, digits and '-', beginning with a letter, no '-' at the end"
)
_SUBDOMAIN_RULE = (
    "must be an RFC 1123 subdomain: labels of lower-case letters, digits and '-', joined by '.', "
    "with a letter or digit at either end"
)
_QUALIFIED = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?", re.ASCII)
_KEY = re.compile(r"[-._a-zA-Z0-9]+", re.ASCII)
_PORT_NAME = re.compile(r"(?=.*[a-z])[a-z0-9]+(-[a-z0-9]+)*", re.ASCII)
_SCHEDULE = re.compile(r"@(yearly|annually|monthly|weekly|daily|midnight|hourly|every \S+)|\S+( +\S+){4}", re.ASCII)


def label(name: str) -> str:
    """A DNS label (RFC 1123)."""
    return _dns(name, LABEL_LIMIT, _LABEL, _LABEL_RULE)


def old_label(name: str) -> str:
    """A DNS label of RFC 1035, which begins with a letter."""
    return _dns(name, LABEL_LIMIT, _OLD_LABEL, _OLD_LABEL_RULE)


def subdomain(name: str) -> str:
    """A DNS subdomain (RFC 1123)."""
    return _dns(name, SUBDOMAIN_LIMIT, _SUBDOMAIN, _SUBDOMAIN_RULE)


def _dns(name: str, limit: int, form: re.Pattern[str], rule: str) -> str:
    if len(name) > limit:
        return f"must be no more than {limit} characters"
    return "" if form.fullmatch(name) else rule


def path_segment(name: str) -> str:
    """Anything that can stand between two slashes of a path."""
    if name in (".", ".."):
        return f"may not be {name!r}"
    bad = next((mark for mark in "/%" if mark in name), "")
    return f"may not contain {bad!r}" if bad else ""


def qualified(name: str) -> str:
    """A label or annotation key: a name of 63 characters, optionally behind a subdomain and a slash."""
    prefix, slash, rest = name.rpartition("/")
    if slash and (not prefix or subdomain(prefix)):
        return "the part before '/' must be an RFC 1123 subdomain"
    if len(rest) > LABEL_LIMIT:
        return f"the name part must be no more than {LABEL_LIMIT} characters"
    if _QUALIFIED.fullmatch(rest):
        return ""
    return "the name part must be letters, digits, '-', '_' or '.', with a letter or digit at either end"


def label_value(value: str) -> str:
    """The value of a label."""
    if len(value) > LABEL_LIMIT:
        return f"must be no more than {LABEL_LIMIT} characters"
    if not value or _QUALIFIED.fullmatch(value):
        return ""
    return "a label's value must be letters, digits, '-', '_' or '.', with a letter or digit at either end, or empty"


def data_key(key: str) -> str:
    """A key of a ConfigMap or Secret."""
    if len(key) > SUBDOMAIN_LIMIT:
        return f"must be no more than {SUBDOMAIN_LIMIT} characters"
    if not _KEY.fullmatch(key):
        return "a key must be letters, digits, '-', '_' or '.'"
    return "may not be or begin with '..'" if key == "." or key.startswith("..") else ""


def port_name(name: str) -> str:
    """The name of a container's port (RFC 6335)."""
    if len(name) > 15:
        return "must be no more than 15 characters"
    if _PORT_NAME.fullmatch(name):
        return ""
    return "must be lower-case letters, digits and single '-' within, with at least one letter"


def env_name(name: str) -> str:
    """The name of an environment variable."""
    plain = name.isascii() and name.isprintable() and "=" not in name
    return "" if plain else "must be printable ASCII characters other than '='"


def address(text: str) -> str:
    """An IP address."""
    try:
        ip_address(text)
    except ValueError:
        return "must be an IP address, such as 10.9.8.7 or 2001:db8::ffff"
    return ""


def schedule(text: str) -> str:
    """The schedule of a CronJob, as far as its shape goes."""
    return "" if _SCHEDULE.fullmatch(text.strip()) else "must be five fields or a macro such as @daily"
