"""Token bucket rate limiter. It is pure: callers pass the time."""


class TokenBucket:
    """Holds up to `burst` tokens and gains `rate` per second. The balance may be negative: callers then wait in turn.

    Invariant: no interval of t seconds sees more than `burst + rate * t` tokens fall due.
    """

    def __init__(self, rate: float, burst: int) -> None:
        self._rate = rate
        self._burst = max(burst, 1)
        self._tokens = float(self._burst)
        # Time of the last refill; a full bucket needs no clock.
        self._at: float | None = None

    def set_rate(self, rate: float, now: float) -> None:
        """Gain `rate` tokens per second from now on. Callers that already wait keep their wait time."""
        self._refill(now)
        self._rate = rate

    def take(self, now: float) -> float:
        """Take a token; return the seconds until it falls due."""
        self._refill(now)
        self._tokens -= 1.0
        return max(0.0, -self._tokens / self._rate)

    def try_take(self, now: float) -> bool:
        """Take a token and return True if one is available."""
        self._refill(now)
        if self._tokens < 1.0:
            return False
        self._tokens -= 1.0
        return True

    def release(self) -> None:
        """Return an unused token to the bucket."""
        self._tokens = min(self._tokens + 1.0, self._burst)

    def _refill(self, now: float) -> None:
        gained = max(0.0, now - self._at) * self._rate if self._at is not None else 0.0
        self._tokens = min(self._tokens + gained, self._burst)
        self._at = max(now, self._at) if self._at is not None else now
