"""Errors in words for logs and pages, and the one that ends a start."""


class CannotStart(Exception):
    """The process cannot start; the message is one sentence for whoever started it, naming the flag or the file."""


def words(value: object) -> str:
    """Return any value in words; an error with its type."""
    return describe(value) if isinstance(value, BaseException) else str(value)


def describe(error: BaseException) -> str:
    """Return what went wrong first, with its type: the message of a KeyError, for one, is only the key."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    text = str(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
