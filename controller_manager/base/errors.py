"""Errors in words, for logs and pages."""


def words(value: object) -> str:
    """Any value in words; an error with its type."""
    return describe(value) if isinstance(value, BaseException) else str(value)


def describe(error: BaseException) -> str:
    """What went wrong first, with its type: the message of a KeyError, for one, is only the key."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    text = str(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
