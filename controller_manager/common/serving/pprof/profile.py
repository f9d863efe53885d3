"""A profile as a value: samples of measured units by stack. It is pure."""

import sys
from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from controller_manager.common.base.stacks import Stack, StackFrame

SampleLabels = tuple[tuple[str, str], ...]
"""Names and values, sorted."""
_REST = (StackFrame("(other stacks)"),)
COUNT = "count"
BYTES = "bytes"
NANOSECONDS = "nanoseconds"


class Modules:
    """The modules loaded at creation, by file."""

    def __init__(self) -> None:
        # Not with `getattr`: some modules load others when a missing attribute is requested.
        files = ((name, getattr(module, "__dict__", {}).get("__file__")) for name, module in tuple(sys.modules.items()))
        self._by_file = {file: name for name, file in files if isinstance(file, str)}

    def name(self, frame: StackFrame) -> str:
        """Return a function name with its module, or with the file name if the file is not a loaded module."""
        return f"{self.of(frame.file) or PurePath(frame.file).stem}.{frame.function}" if frame.file else frame.function

    def of(self, file: str) -> str:
        """Return the module of a file; empty if there is none."""
        return self._by_file.get(file, "")


class Sample(NamedTuple):
    """The values of each unit of the profile at a stack, the innermost frame first."""

    stack: Stack
    labels: SampleLabels
    values: tuple[int, ...]


class Unit(NamedTuple):
    """The name of a column of values, and its unit in pprof."""

    type: str
    unit: str


class Profile(msgspec.Struct, frozen=True):
    """The samples of one moment or of a period of time; `main` is the default column.

    `comments` explain the limits of the numbers. `period` is the CPU time in nanoseconds between two samples, for
    profiles with a timer. Other times are in seconds, `time` since the Unix epoch.
    """

    units: tuple[Unit, ...]
    samples: tuple[Sample, ...]
    comments: tuple[str, ...] = ()
    main: str = ""  # empty: the last column
    period: int = 0
    time: float = 0.0
    duration: float = 0.0

    def since(self, before: "Profile") -> "Profile":
        """Return the difference to an earlier profile of the same kind; decreases are negative."""
        sums = Tally(len(self.units))
        for sample in self.samples:
            sums.add(sample.stack, sample.labels, *sample.values)
        for sample in before.samples:
            sums.add(sample.stack, sample.labels, *(-value for value in sample.values))
        return replace(self, samples=tuple(sample for sample in sums.samples() if any(sample.values)))


class Tally:
    """Sums `columns` values by stack and labels, for at most `most` of them; further values are summed together."""

    def __init__(self, columns: int, most: float = float("inf")) -> None:
        self._most = most
        self._found: dict[tuple[Stack, SampleLabels], list[int]] = {}
        self._rest = [0] * columns

    def add(self, stack: Stack, labels: SampleLabels, *values: int) -> None:
        """Add one value per column."""
        sums = self._found.get((stack, labels))
        if sums is None:
            full = len(self._found) >= self._most
            sums = self._rest if full else self._found.setdefault((stack, labels), [0] * len(self._rest))
        for column, value in enumerate(values):
            sums[column] += value

    def total(self, column: int) -> int:
        """Return the sum of a column."""
        return self._rest[column] + sum(sums[column] for sums in self._found.values())

    def samples(self) -> Iterator[Sample]:
        """Yield one sample per stack and labels, in order of appearance."""
        for (stack, labels), values in self._found.items():
            yield Sample(stack, labels, tuple(values))
        if any(self._rest):
            yield Sample(_REST, (), tuple(self._rest))


def labels_of(values: Mapping[str, str]) -> SampleLabels:
    """Return non-empty labels in sorted order, so that equal label sets are equal."""
    return tuple(sorted((name, value) for name, value in values.items() if value != ""))
