"""Stacks of running code as plain values: names of functions and files, never the value of a variable."""

from types import FrameType
from typing import NamedTuple

DEEPEST = 256
"""Frames kept of a stack, the innermost."""


class StackFrame(NamedTuple):
    """A place in a program; `function` is its name without its module, `first_line` where it begins."""

    function: str
    file: str = ""
    line: int = 0
    first_line: int = 0


Stack = tuple[StackFrame, ...]
"""The innermost frame first."""


def place_of(frame: FrameType) -> StackFrame:
    """Return where a frame is now."""
    code = frame.f_code
    return StackFrame(code.co_qualname, code.co_filename, frame.f_lineno or code.co_firstlineno, code.co_firstlineno)


def running_stack(frame: FrameType | None, *, within: FrameType | None = None) -> Stack:
    """The stack that ends in `frame`; with `within`, only down to that frame."""
    found: list[StackFrame] = []
    while frame is not None and len(found) < DEEPEST:
        found.append(place_of(frame))
        if frame is within:
            break
        frame = frame.f_back
    return tuple(found)
