"""Warnings as values of `Warning` headers (RFC 7234, section 5.5), of bounded length."""

from collections.abc import Iterable, Iterator

_LONGEST = 4096  # characters of all texts together
_SHORTENED = 256  # characters left of each text when together they are too long


def warning_values(texts: Iterable[str]) -> tuple[str, ...]:
    """A value for each of the texts, which are told once; when they are too long, their beginnings, as many as there is
    room for.
    """
    plain = list(dict.fromkeys(_plain(text) for text in texts if text))
    if sum(map(len, plain)) > _LONGEST:
        plain = list(_as_many_as_fit(plain))
    return tuple('299 - "{}"'.format(text.replace("\\", "\\\\").replace('"', '\\"')) for text in plain)


def _plain(text: str) -> str:
    """Only what is safe in a header: clients read others as another alphabet, or break the line at them."""
    return "".join(c if c.isprintable() else " " for c in text).encode("ascii", "backslashreplace").decode()


def _as_many_as_fit(texts: Iterable[str]) -> Iterator[str]:
    room = _LONGEST
    for text in texts:
        room -= len(text[:_SHORTENED])
        if room < 0:
            return
        yield text[:_SHORTENED]
