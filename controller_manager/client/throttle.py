"""The client's own rate limit: a pure token bucket, and the wait for its turn."""

import asyncio

from controller_manager.api.errors import TooManyRequests
from controller_manager.base.clock import monotonic


class TokenBucket:
    """Holds up to `burst` tokens and gains `rate` per second; may go into debt, which is a queue in time.

    Invariant: no interval of t seconds sees more than `burst + rate * t` tokens fall due.
    """

    def __init__(self, rate: float, burst: int, now: float) -> None:
        self._rate = rate
        self._burst = max(burst, 1)
        self._tokens = float(self._burst)
        self._at = now

    def take(self, now: float) -> float:
        """Take a token; return the seconds until it falls due."""
        self._refill(now)
        self._tokens -= 1.0
        return max(0.0, -self._tokens / self._rate)

    def try_take(self, now: float) -> bool:
        """Take a token if there is one."""
        self._refill(now)
        if self._tokens < 1.0:
            return False
        self._tokens -= 1.0
        return True

    def give_back(self) -> None:
        """Return a token that was taken and not used."""
        self._tokens = min(self._tokens + 1.0, self._burst)

    def _refill(self, now: float) -> None:
        self._tokens = min(self._tokens + max(0.0, now - self._at) * self._rate, self._burst)
        self._at = max(now, self._at)


class Throttle:
    """Lets at most `qps` requests per second pass, `burst` at once; a `qps` of zero or less lets all pass.

    A request that would have to wait longer than `longest` seconds is refused.
    """

    def __init__(self, qps: float, burst: int, *, longest: float = 600.0) -> None:
        self._bucket = TokenBucket(qps, burst, monotonic()) if qps > 0 else None
        self._qps = qps
        self._longest = longest

    async def wait(self) -> float:
        """Wait for our turn; return the seconds it took. Raises `TooManyRequests` when the queue is too long."""
        if self._bucket is None:
            return 0.0
        seconds = self._bucket.take(monotonic())
        if seconds <= 0.0:
            return 0.0
        if seconds > self._longest:
            self._bucket.give_back()
            raise TooManyRequests(f"more requests wait than {self._qps:g} per second clear in {self._longest:g} s")
        try:
            await asyncio.sleep(seconds)
        except asyncio.CancelledError:
            self._bucket.give_back()
            raise
        return seconds
