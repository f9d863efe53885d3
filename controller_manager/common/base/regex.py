"""Regular expressions in the syntax of Go (RE2): matching takes time linear in the text, whatever the expression.

For expressions of users; our own are written for `re`. RE2 has neither back-references nor look-around. Of the Unicode
classes that Go has of its own, `ASCII`, `Assigned`, `Cn` and `LC` are not known.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import lru_cache
from typing import Any

import re2

_MAX_DEPTH = 1000
_MAX_MEMORY = 2 * 2**20  # with it the worst expressions take a tenth of a second to compile
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
"""How Go calls what RE2 finds wrong, where the two differ."""

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
"""Long names of categories (Unicode, PropertyValueAliases.txt), without what their comparison leaves out."""

_PROPERTY = re.compile(r"(\\[pP]\{\^?)([^}]*)\}")
_TOKENS = re.compile(
    r"""\\Q(?:(?!\\E).)*(?:\\E)? | \[\^?\]?(?:\[:\^?\w+:\]|\\.|[^\]\\])*\]? | \\.
    | \(\?P?<(?P<name>[^>]*)> | [()]""",
    re.VERBOSE | re.DOTALL,
)
"""Quoted text, a class, an escape, the head of a named group, a parenthesis."""


class Regex:
    """A compiled expression, for texts; what it finds are whole matches, leftmost first."""

    __slots__ = ("_compiled", "_quick", "pattern")

    def __init__(self, pattern: str) -> None:
        """Raises ValueError, in words of Go, if the expression is wrong, or needs more than 2 MiB."""
        _refuse_what_go_refuses(pattern)
        self.pattern = pattern
        try:
            self._compiled = _compile(pattern)
        except re2.error as error:
            raise ValueError(_in_words_of_go(error.args[0].decode("utf-8", "replace"), pattern)) from None
        self._quick: Callable[[bytes], object] | None = None  # made when first needed

    def matches(self, text: str) -> bool:
        """Tell whether the expression is found anywhere in the text."""
        raw = _encode(text)
        if self._quick is None:
            self._quick = _quick_search(self._compiled)
        return bool(self._quick(raw)) or self._compiled.search(raw) is not None

    def find(self, text: str) -> str | None:
        """Return the first match, or None."""
        found = self._compiled.search(_encode(text))
        return None if found is None else found.group().decode()

    def find_all(self, text: str, limit: int = -1) -> list[str]:
        """Return the matches that do not overlap, at most `limit` of them unless it is negative."""
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
            if start != stop or start != end:  # no empty match directly behind another
                yield raw[start:stop].decode()
            at = end = stop
            if start == stop:
                at += 1
                while raw[at : at + 1] and raw[at] & 0xC0 == 0x80:  # within a character
                    at += 1


@lru_cache(maxsize=512)
def compile_regex(pattern: str) -> Regex:
    """Return the compiled expression, one of the last 512. Raises ValueError as `Regex` does."""
    return Regex(pattern)


def _options() -> Any:
    options = re2.Options()
    options.never_capture = True  # finds the same, without looking for the groups
    options.log_errors = False
    options.max_mem = _MAX_MEMORY
    return options


def _quick_search(compiled: Any) -> Callable[[bytes], object]:
    """Return what finds most matches in half the time: a set of this expression alone, which does not look where they
    are. It cannot be made of some large ones, and may run out of memory and find nothing.
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
    """Return a class of Unicode as RE2 calls it: Go takes long names too, and does not look at case and separators."""
    words = re.split("[ _-]+", found[2])
    name = _CATEGORIES.get("".join(words).lower(), "_".join(word.capitalize() for word in words))
    return f"{found[1]}{name}}}"


def _refuse_what_go_refuses(pattern: str) -> None:
    """Raises ValueError for what is right in the syntax of C++ alone."""
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
    elif part.startswith(("(?<=", "(?<!")):  # Go takes it for the beginning of a name
        reason, part = "invalid named capture group", pattern[pattern.index(part) :]
    return _refusal(_REASONS.get(reason, reason), part)


def _refusal(reason: str, part: str) -> str:
    return f"error parsing regexp: {reason}: `{part}`"
