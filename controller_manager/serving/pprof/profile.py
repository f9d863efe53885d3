"""A profile as a value: what was measured, for which stacks; pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

# A stack as it is found, the innermost frame first: name of the function without its module, file, line, first line.
# (Code objects would do, but to compare and to hash them takes long.)
RawStack = tuple[tuple[str, str, int, int], ...]
# Sorted by name; a number is in nanoseconds.
Labels = tuple[tuple[str, str | int], ...]


class Frame(NamedTuple):
    """A place in a program."""

    function: str
    file: str = ""
    line: int = 0
    first_line: int = 0


Stack = tuple[Frame, ...]


class Sample(NamedTuple):
    """How much of each of the profile's units was seen at a stack, the innermost frame first."""

    stack: Stack
    labels: Labels
    values: tuple[int, ...]


class Unit(NamedTuple):
    """What a column of values counts, and in which unit pprof shows it."""

    type: str
    unit: str


COUNT = "count"
BYTES = "bytes"
NANOSECONDS = "nanoseconds"


@dataclass(frozen=True, slots=True)
class Profile:
    """What one look, or one stretch of time, has shown; `main` is the column that a reader sees first.

    `comments` say what the numbers do not hold. Times are in seconds, `time` since the Unix epoch.
    """

    units: tuple[Unit, ...]
    samples: tuple[Sample, ...] = ()
    comments: tuple[str, ...] = ()
    main: str = ""
    period_unit: Unit | None = None
    period: int = 0
    time: float = 0.0
    duration: float = 0.0

    def since(self, before: "Profile") -> "Profile":
        """What has been added since an earlier look of the same kind; what became less is negative."""
        sums = Sums(len(self.units))
        for sample in self.samples:
            sums.add(sample.stack, sample.labels, *sample.values)
        for sample in before.samples:
            sums.add(sample.stack, sample.labels, *(-value for value in sample.values))
        changed = tuple(sample for sample in sums.samples() if any(sample.values))
        return replace(self, samples=changed)


@dataclass
class Sums:
    """Adds up values by stack and labels."""

    columns: int
    _found: dict[tuple[Stack, Labels], list[int]] = field(default_factory=dict)

    def add(self, stack: Stack, labels: Labels, *values: int) -> None:
        """Add one value for each column."""
        sums = self._found.setdefault((stack, labels), [0] * self.columns)
        for column, value in enumerate(values):
            sums[column] += value

    def samples(self) -> Iterable[Sample]:
        """One sample for each stack with its labels, in order of appearance."""
        return (Sample(stack, labels, tuple(values)) for (stack, labels), values in self._found.items())


def labels_of(values: Mapping[str, str | int]) -> Labels:
    """Labels in the one order that makes equal ones equal; those without text are left out."""
    return tuple(sorted((name, value) for name, value in values.items() if value != ""))
