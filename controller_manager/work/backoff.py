"""How long to wait before another try: exponential per key, a token bucket over all; both pure, given the time."""

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


class TokenBucket:
    """At most `burst` at once and `rate` a second for long; a caller who comes early is told how long to wait."""

    def __init__(self, rate: float = 10.0, burst: int = 100) -> None:
        self._rate = rate
        self._burst = burst
        # Below zero when tokens of the future are promised already.
        self._tokens = float(burst)
        self._at: float | None = None

    def reserve(self, now: float) -> float:
        """Take one token; return the seconds until it is there (0 when it is there now)."""
        if self._at is not None:
            self._tokens = min(self._burst, self._tokens + (now - self._at) * self._rate)
        self._at = now
        self._tokens -= 1.0
        return max(0.0, -self._tokens / self._rate)
