"""Limits the work before other coroutines run, by counting instead of a clock."""

import math

import msgspec


class TimeSlice(msgspec.Struct):
    """The remaining work, in units of one uncached filter check (some ten microseconds)."""

    left: float = math.inf

    @property
    def is_over(self) -> bool:
        """Return whether the slice is used up."""
        return self.left <= 0

    def spend(self, looks: float) -> None:
        """Count work. Work that has begun may be finished."""
        self.left -= looks
