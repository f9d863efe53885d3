"""What may be done before other work has its turn; counted, since decisions know no clock."""

import math

import msgspec


class TimeSlice(msgspec.Struct):
    """Work that is left, in looks: what it takes to look at a node for the first time, some ten microseconds."""

    left: float = math.inf

    @property
    def is_over(self) -> bool:
        """Return whether it is the turn of others."""
        return self.left <= 0

    def spend(self, looks: float) -> None:
        """So much was done. A piece of work that is begun may be finished."""
        self.left -= looks
