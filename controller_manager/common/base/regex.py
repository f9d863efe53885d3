"""Regular expressions in Go's syntax (RE2). Matching takes time linear in the text for every expression.

Use it for expressions of users; our own use `re`. RE2 has no back-references and no look-around. The Unicode
classes `ASCII`, `Assigned`, `Cn` and `LC` of Go are not supported.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import lru_cache
from typing import Any

import re2

_MAX_DEPTH = 1000
_MAX_MEMORY = 2 * 2**20  # limits the compile time of the worst expressions to a tenth of a second
_REASONS = {
    "no argument for repetition operator": "missing argument to repetition operator",
    "bad repetition operator": "invalid nested repetition operator",
    "invalid repetition size": "invalid repeat count",
    "invalid perl operator": "invalid or unsupported Perl syntax",
    "invalid named capture group": "invalid named capture",
    "missing ]": "missing closing ]",
    "missing )": "missing closing )",
    "trailing \\": "trailing backslash at end of expression",
    "pattern too large - compile failed": "expression too large",
}
"""Go's words for an error of RE2, where they differ."""

_CATEGORIES = {
    "other": "C", "control": "Cc", "cntrl": "Cc", "format": "Cf", "privateuse": "Co", "surrogate": "Cs",
    "letter": "L", "lowercaseletter": "Ll", "modifierletter": "Lm", "otherletter": "Lo", "titlecaseletter": "Lt",
    "uppercaseletter": "Lu", "mark": "M", "combiningmark": "M", "spacingmark": "Mc", "enclosingmark": "Me",
    "nonspacingmark": "Mn", "number": "N", "decimalnumber": "Nd", "digit": "Nd", "letternumber": "Nl",
    "othernumber": "No", "punctuation": "P", "punct": "P", "connectorpunctuation": "Pc", "dashpunctuation": "Pd",
    "closepunctuation": "Pe", "finalpunctuation": "Pf", "initialpunctuation": "Pi", "otherpunctuation": "Po",
    "openpunctuation": "Ps", "symbol": "S", "currencysymbol": "Sc", "modifiersymbol": "Sk", "mathsymbol": "Sm",
    "othersymbol": "So", "separator": "Z", "lineseparator": "Zl", "paragraphseparator": "Zp", "spaceseparator": "Zs",
}  # fmt: skip
"""Long names of categories (Unicode, PropertyValueAliases.txt), without separators and in lower case."""

_PROPERTY = re.compile(r"(\\[pP]\{\^?)([^}]*)\}")
_TOKENS = re.compile(
    r"""\\Q(?:(?!\\E).)*(?:\\E)? | \[\^?\]?(?:\[:\^?\w+:\]|\\.|[^\]\\])*\]? | \\.
    | \(\?P?<(?P<name>[^>]*)> | [()]""",
    re.VERBOSE | re.DOTALL,
)
"""Quoted text, a class, an escape, the head of a named group, a parenthesis."""


class Regex:
    """A compiled expression. It finds the leftmost matches, without groups."""

    __slots__ = ("_compiled", "_quick", "pattern")

    def __init__(self, pattern: str) -> None:
        """Raises ValueError, with the message of Go, if the expression is invalid or needs more than 2 MiB."""
        _refuse_what_go_refuses(pattern)
        self.pattern = pattern
        try:
            self._compiled = _compile(pattern)
        except re2.error as error:
            raise ValueError(_in_words_of_go(error.args[0].decode("utf-8", "replace"), pattern)) from None
        self._quick: Callable[[bytes], object] | None = None  # made when first needed

    def matches(self, text: str) -> bool:
        """Return whether the expression matches anywhere in the text."""
        raw = _encode(text)
        if self._quick is None:
            self._quick = _quick_search(self._compiled)
        return bool(self._quick(raw)) or self._compiled.search(raw) is not None

    def find(self, text: str) -> str | None:
        """Return the first match, or None."""
        found = self._compiled.search(_encode(text))
        return None if found is None else found.group().decode()

    def find_all(self, text: str, limit: int = -1) -> list[str]:
        """Return the non-overlapping matches, at most `limit` of them unless it is negative."""
        found: list[str] = []
        if limit != 0:
            for match in self._matches(_encode(text)):
                found.append(match)
                if len(found) == limit:
                    break
        return found

    def _matches(self, raw: bytes) -> Iterator[str]:
        at, end = 0, -1
        while at <= len(raw) and (match := self._compiled.search(raw, at)) is not None:
            start, stop = match.span()
            if start != stop or start != end:  # no empty match directly after another match
                yield raw[start:stop].decode()
            at = end = stop
            if start == stop:
                at += 1
                while raw[at : at + 1] and raw[at] & 0xC0 == 0x80:  # within a character
                    at += 1


@lru_cache(maxsize=512)
def compile_regex(pattern: str) -> Regex:
    """Return the compiled expression from a cache of 512. Raises ValueError like `Regex`."""
    return Regex(pattern)


def _options() -> Any:
    options = re2.Options()
    options.never_capture = True  # groups are not needed, and matching is faster without them
    options.log_errors = False
    options.max_mem = _MAX_MEMORY
    return options


def _quick_search(compiled: Any) -> Callable[[bytes], object]:
    """Return a search that is twice as fast for most texts: an RE2 set with this expression, which does not locate the
    match. Some large expressions cannot be in a set, and a set may run out of memory and find nothing.
    """
    found = re2.Set.SearchSet(_options())
    found.Add(compiled.pattern)
    try:
        found.Compile()
    except re2.error:
        return compiled.search  # type: ignore[no-any-return]
    return found.Match  # type: ignore[no-any-return]


def _compile(pattern: str) -> Any:
    options = _options()
    try:
        return re2.compile(_encode(pattern), options)
    except re2.error:
        renamed = _PROPERTY.sub(_rename, pattern)
        if renamed == pattern:
            raise
        with suppress(re2.error):  # else the first error stands
            return re2.compile(_encode(renamed), options)
        raise


def _rename(found: re.Match[str]) -> str:
    """Return a Unicode class with RE2's name: Go also accepts long names and ignores case and separators."""
    words = re.split("[ _-]+", found[2])
    name = _CATEGORIES.get("".join(words).lower(), "_".join(word.capitalize() for word in words))
    return f"{found[1]}{name}}}"


def _refuse_what_go_refuses(pattern: str) -> None:
    """Raises ValueError for an expression that RE2 accepts and Go does not."""
    if "\\" not in pattern and "(" not in pattern:
        return
    depth = 0
    for token in _TOKENS.finditer(pattern):
        name = token["name"]
        if name is not None and not re.fullmatch(r"\w+", name, re.ASCII):
            raise ValueError(_refusal("invalid named capture", token[0]))
        if token[0] == r"\C":
            raise ValueError(_refusal("invalid escape sequence", token[0]))
        depth += token[0].startswith("(") - (token[0] == ")")
        if depth >= _MAX_DEPTH:
            raise ValueError(_refusal("expression nests too deeply", pattern))


def _encode(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:  # half of a surrogate pair, which Go reads as U+FFFD
        return re.sub("[\ud800-\udfff]", "\ufffd", text).encode()


def _in_words_of_go(message: str, pattern: str) -> str:
    reason, _, part = message.partition(": ")
    if reason == "pattern too large - compile failed":
        part = pattern
    elif part.startswith(("(?<=", "(?<!")):  # Go parses it as the start of a group name
        reason, part = "invalid named capture group", pattern[pattern.index(part) :]
    return _refusal(_REASONS.get(reason, reason), part)


def _refusal(reason: str, part: str) -> str:
    return f"error parsing regexp: {reason}: `{part}`"
