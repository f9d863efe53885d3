"""Stacks of running code and of waiting coroutines, and the names of the places in them."""

import gc
import sys
from collections.abc import Iterator
from pathlib import PurePath
from types import CodeType, FrameType, FunctionType
from typing import Any

from controller_manager.serving.pprof.profile import Frame, Labels, RawStack, Stack, Sums

DEEPEST = 256  # frames kept of a stack, the innermost
_REST = (Frame("(more stacks than are kept apart)"),)

# Where a suspended coroutine, generator or asynchronous generator keeps its frame and what it waits for.
_SUSPENDED = (("cr_frame", "cr_await"), ("gi_frame", "gi_yieldfrom"), ("ag_frame", "ag_await"))
# Steps between two coroutines, such as `__anext__()`, that tell only the garbage collector what they hold.
_MOST_STEPS = 4


def running_stack(frame: FrameType | None, *, within: FrameType | None = None) -> RawStack:
    """The stack that ends in `frame`; with `within`, only down to that frame."""
    found: list[tuple[str, str, int, int]] = []
    while frame is not None and len(found) < DEEPEST:
        found.append(_place(frame))
        if frame is within:
            break
        frame = frame.f_back
    return tuple(found)


def waiting_stack(work: Any) -> RawStack:
    """The stack of a suspended coroutine: each coroutine waits for the next; innermost first, as all stacks are."""
    found = [_place(frame) for frame in _await_chain(work)]
    return tuple(reversed(found[-DEEPEST:]))


def _place(frame: FrameType) -> tuple[str, str, int, int]:
    code = frame.f_code
    return code.co_qualname, code.co_filename, frame.f_lineno or code.co_firstlineno, code.co_firstlineno


def _await_chain(work: Any) -> Iterator[FrameType]:
    seen = 0
    while work is not None and seen < 4 * DEEPEST:
        frame, waits_for = _suspended(work)
        if frame is not None:
            yield frame
        work = _next_suspended(waits_for)
        seen += 1


def _suspended(work: Any) -> tuple[FrameType | None, Any]:
    for frame, waits_for in _SUSPENDED:
        if hasattr(work, frame):
            return getattr(work, frame), getattr(work, waits_for)
    return None, None


def _next_suspended(waits_for: Any) -> Any:
    """The coroutine or generator that `waits_for` is, or stands for; None at the end of a chain."""
    for _ in range(_MOST_STEPS):
        if waits_for is None or any(hasattr(waits_for, frame) for frame, _ in _SUSPENDED):
            return waits_for
        if type(waits_for).__module__ != "builtins":  # a future, or something of its kind: nobody further to ask
            return None
        held = gc.get_referents(waits_for)
        waits_for = next((one for one in held if _is_link(one)), None)
    return None


def _is_link(one: Any) -> bool:
    kind = type(one)
    return any(hasattr(kind, frame) for frame, _ in _SUSPENDED) or kind.__name__ in (
        "coroutine_wrapper",
        "async_generator_asend",
        "async_generator_athrow",
        "anext_awaitable",
    )


class Places:
    """Gives frames their names: function and module, from those that are loaded when it is made."""

    def __init__(self) -> None:
        self._modules = dict(_files_of_modules())
        # By file: first line, last line and name of its functions.
        self._functions: dict[str, list[tuple[int, int, str]]] = {}

    def stack(self, raw: RawStack) -> Stack:
        """A stack with names."""
        return tuple(Frame(f"{self.module(file)}.{function}", file, line, first) for function, file, line, first in raw)

    def line(self, file: str, line: int) -> Frame:
        """The function that a line of a file belongs to."""
        if file not in self._functions:
            self._functions[file] = sorted(_functions_of(sys.modules.get(self.module(file)), file))
        around = [one for one in self._functions[file] if one[0] <= line <= one[1]]
        if not around:
            return Frame(f"{self.module(file)}:{line}", file, line, line)
        first, _, name = around[-1]  # sorted, so that the innermost is the last
        return Frame(f"{self.module(file)}.{name}", file, line, first)

    def module(self, file: str) -> str:
        """The module that a file holds; for one that is no module's, the name of the file."""
        return self._modules.get(file) or PurePath(file).stem


class Tally:
    """Adds up `columns` values by stack and labels, of at most `most` of them; what else comes is added up together."""

    def __init__(self, columns: int, most: int) -> None:
        self._most = most
        self._found: dict[tuple[RawStack, Labels], list[int]] = {}
        self._rest = [0] * columns

    def add(self, stack: RawStack, labels: Labels, *values: int) -> None:
        """Add one value for each column."""
        sums = self._found.get((stack, labels))
        if sums is None:
            full = len(self._found) >= self._most
            sums = self._rest if full else self._found.setdefault((stack, labels), [0] * len(self._rest))
        for column, value in enumerate(values):
            sums[column] += value

    def total(self, column: int) -> int:
        """The sum of one column."""
        return self._rest[column] + sum(sums[column] for sums in self._found.values())

    def sums(self) -> Sums:
        """The same with names, which takes a while."""
        places, sums = Places(), Sums(len(self._rest))
        for (stack, labels), values in self._found.items():
            sums.add(places.stack(stack), labels, *values)
        if any(self._rest):
            sums.add(_REST, (), *self._rest)
        return sums


def _functions_of(module: Any, file: str) -> Iterator[tuple[int, int, str]]:
    """First line, last line and name of each function of a module, those of its classes and of functions included.

    What has no name is left out: a line alone does not tell it from the function around it.
    """
    found = [code for value in tuple(vars(module).values()) for code in _codes(value)] if module is not None else []
    while found:
        code = found.pop()
        if code.co_filename == file and not code.co_name.startswith("<"):
            lines = [line for _, _, line in code.co_lines() if line is not None]
            yield code.co_firstlineno, max(lines, default=code.co_firstlineno), code.co_qualname
        found += [inner for inner in code.co_consts if isinstance(inner, CodeType)]


def _codes(value: object) -> Iterator[CodeType]:
    """The code of a function, and of what a class holds, out of property, class method and decorator."""
    match value:
        case FunctionType():
            yield value.__code__
            yield from _codes(vars(value).get("__wrapped__"))
        case classmethod() | staticmethod():
            yield from _codes(value.__func__)
        case property():
            yield from _codes(value.fget)
        case type():
            members = tuple(vars(value).values())
            yield from (code for member in members if not isinstance(member, type) for code in _codes(member))


def _files_of_modules() -> Iterator[tuple[str, str]]:
    for name, module in tuple(sys.modules.items()):
        file = vars(module).get("__file__") if hasattr(module, "__dict__") else None
        if isinstance(file, str):
            yield file, name
