"""How long to wait before another try of one key; pure."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Exponential:
    """`first` seconds after the first failure, doubling with each one more, never above `longest`."""

    first: float = 0.005
    longest: float = 1000.0

    def delay(self, failures: int) -> float:
        """Seconds to wait after `failures` (one or more) failures in a row."""
        if failures > 60:  # 2.0 ** failures would overflow long after the bound is reached
            return self.longest
        return min(self.first * 2.0 ** (failures - 1), self.longest)
