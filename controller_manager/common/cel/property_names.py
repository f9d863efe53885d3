"""Property names in CEL, where dots, dashes and keywords must be escaped."""

from __future__ import annotations

import re
from functools import lru_cache

_WORDS = "true false null in as break const continue else for function if import let loop package namespace return var"
KEYWORDS = frozenset({*_WORDS.split(), "void", "while"})
_ESCAPED = {"__": "__underscores__", ".": "__dot__", "-": "__dash__", "/": "__slash__"}
_UNESCAPED = {"underscores": "__", "dot": ".", "dash": "-", "slash": "/"}
_SPECIAL = re.compile("__|[-./]")
_NAME = re.compile("[A-Za-z_./-][A-Za-z0-9_./-]*")
_SEQUENCE = re.compile("_{2}([^_]+)_{2}")


@lru_cache(4096)
def escaped(name: str) -> str | None:
    """Return the escaped name of a property; None if expressions cannot access it."""
    if not _NAME.fullmatch(name):
        return None
    if name in KEYWORDS:
        return f"__{name}__"
    return _SPECIAL.sub(lambda found: _ESCAPED[found[0]], name)


def unescaped(name: str) -> str | None:
    """Return the property of an escaped name; None for an invalid name."""
    if (keyword := _SEQUENCE.fullmatch(name)) and keyword[1] in KEYWORDS:
        return keyword[1]
    if any(found[1] not in _UNESCAPED for found in _SEQUENCE.finditer(name)):
        return None
    return _SEQUENCE.sub(lambda found: _UNESCAPED[found[1]], name)
