"""Stacks of running code as plain values: names of functions and files, without variables."""

from types import FrameType
from typing import NamedTuple

DEEPEST = 256
"""Maximum number of frames of a stack; the innermost are kept."""


class StackFrame(NamedTuple):
    """A place in a program; `function` is the name without its module, `first_line` the line of its definition."""

    function: str
    file: str = ""
    line: int = 0
    first_line: int = 0


Stack = tuple[StackFrame, ...]
"""The innermost frame comes first."""


def place_of(frame: FrameType) -> StackFrame:
    """Return the current place of a frame."""
    code = frame.f_code
    return StackFrame(code.co_qualname, code.co_filename, frame.f_lineno or code.co_firstlineno, code.co_firstlineno)


def running_stack(frame: FrameType | None, *, within: FrameType | None = None) -> Stack:
    """Return the stack that ends in `frame`; with `within`, only up to that frame."""
    found: list[StackFrame] = []
    while frame is not None and len(found) < DEEPEST:
        found.append(place_of(frame))
        if frame is within:
            break
        frame = frame.f_back
    return tuple(found)
