"""Error descriptions for logs and pages, with the line of code that raised the error; and the error `CannotStart`."""

from collections.abc import Callable, Iterable
from traceback import walk_tb
from types import FrameType
from typing import Any

OUR_PACKAGES = frozenset(("controller_manager", "apiserver_stub"))


class CannotStart(Exception):
    """The process cannot start. The message is one sentence for the user that names the flag or the file."""


def words(value: object) -> str:
    """Return a value as text; an error includes its type."""
    return describe(value) if isinstance(value, BaseException) else str(value)


def describe(error: BaseException) -> str:
    """Return the first error with its type. The type is needed: the message of a KeyError is only the key."""
    error = _first(error)
    text = str(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def author_line(error: BaseException) -> str:
    """Return `file:line in function` of the innermost frame of author code in a traceback, or an empty string.

    The author's package is that of the first frame that is not ours.
    """
    return _author_line(walk_tb(_first(error).__traceback__)) or _author_line(walk_tb(error.__traceback__))


def is_ours(frame: FrameType) -> bool:
    """Return whether a frame runs code of the framework or the API server."""
    return _package(frame) in OUR_PACKAGES


def line_of(frame: FrameType, line: int | None = None) -> str:
    """Return `file:line in function` of a frame."""
    code = frame.f_code
    return f"{code.co_filename}:{line or frame.f_lineno} in {code.co_qualname}"


def definition_of(function: Callable[..., Any]) -> str:
    """Return `file:line in function` of where a function is defined; empty if it is not defined in Python."""
    code = getattr(function, "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno} in {code.co_qualname}" if code is not None else ""


def _first(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _author_line(frames: Iterable[tuple[FrameType, int]]) -> str:
    found, package = "", ""
    for frame, line in frames:
        if not package and not is_ours(frame):
            package = _package(frame)
        if package and _package(frame) == package:
            found = line_of(frame, line)
    return found


def _package(frame: FrameType) -> str:
    name: str = frame.f_globals.get("__name__", "")
    return name.partition(".")[0]
