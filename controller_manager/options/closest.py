"""What somebody may have meant by a name that nobody knows."""

from collections.abc import Iterable


def did_you_mean(name: str, known: Iterable[str], prefix: str = "") -> str:
    """A half-sentence with the known name that is most alike, `prefix` before it; empty if none is."""
    import difflib  # only a mistake needs it

    close = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    return f"; did you mean {prefix}{close[0]}?" if close else ""
