"""A profile as a value: what was measured, for which stacks; pure."""

import sys
from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from controller_manager.common.base.stacks import Stack, StackFrame

SampleLabels = tuple[tuple[str, str], ...]
"""Names with values, sorted."""
_REST = (StackFrame("(more stacks than are kept apart)"),)
COUNT = "count"
BYTES = "bytes"
NANOSECONDS = "nanoseconds"


class Modules:
    """The modules that are loaded when this is made, by their files."""

    def __init__(self) -> None:
        # Not by `getattr`: there are modules that load others when they are asked for what they do not have.
        files = ((name, getattr(module, "__dict__", {}).get("__file__")) for name, module in tuple(sys.modules.items()))
        self._by_file = {file: name for name, file in files if isinstance(file, str)}

    def name(self, frame: StackFrame) -> str:
        """A function with its module; for a file that is no module's, with the name of the file."""
        return f"{self.of(frame.file) or PurePath(frame.file).stem}.{frame.function}" if frame.file else frame.function

    def of(self, file: str) -> str:
        """The module that a file holds; empty if there is none."""
        return self._by_file.get(file, "")


class Sample(NamedTuple):
    """The amount of each of the profile's units that was seen at a stack, the innermost frame first."""

    stack: Stack
    labels: SampleLabels
    values: tuple[int, ...]


class Unit(NamedTuple):
    """The type of a column of values, and the unit in which pprof shows it."""

    type: str
    unit: str


class Profile(msgspec.Struct, frozen=True):
    """The samples of one look, or of one stretch of time; `main` is the column that a reader sees first.

    `comments` say what the numbers do not hold. `period` is the CPU time in nanoseconds between two samples, where that
    is how they are taken. Other times are in seconds, `time` since the Unix epoch.
    """

    units: tuple[Unit, ...]
    samples: tuple[Sample, ...]
    comments: tuple[str, ...] = ()
    main: str = ""  # the last, if empty
    period: int = 0
    time: float = 0.0
    duration: float = 0.0

    def since(self, before: "Profile") -> "Profile":
        """Return what has been added since an earlier look of the same kind; what became less is negative."""
        sums = Tally(len(self.units))
        for sample in self.samples:
            sums.add(sample.stack, sample.labels, *sample.values)
        for sample in before.samples:
            sums.add(sample.stack, sample.labels, *(-value for value in sample.values))
        return replace(self, samples=tuple(sample for sample in sums.samples() if any(sample.values)))


class Tally:
    """Adds up `columns` values by stack and labels, of at most `most` of them; what else comes is added up together."""

    def __init__(self, columns: int, most: float = float("inf")) -> None:
        self._most = most
        self._found: dict[tuple[Stack, SampleLabels], list[int]] = {}
        self._rest = [0] * columns

    def add(self, stack: Stack, labels: SampleLabels, *values: int) -> None:
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

    def samples(self) -> Iterator[Sample]:
        """One for each stack with its labels, in order of appearance."""
        for (stack, labels), values in self._found.items():
            yield Sample(stack, labels, tuple(values))
        if any(self._rest):
            yield Sample(_REST, (), tuple(self._rest))


def labels_of(values: Mapping[str, str]) -> SampleLabels:
    """Labels in the one order that makes equal ones equal; those without text are left out."""
    return tuple(sorted((name, value) for name, value in values.items() if value != ""))
