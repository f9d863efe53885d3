"""The client's own rate limit: the wait for a request's turn."""

import asyncio

from controller_manager.api.errors import TooManyRequests
from controller_manager.base.bucket import TokenBucket
from controller_manager.base.clock import monotonic


class Throttle:
    """Lets at most `qps` requests per second pass, `burst` at once; a `qps` of zero or less lets all pass.

    A request that would have to wait longer than `longest` seconds is refused.
    """

    def __init__(self, qps: float, burst: int, *, longest: float = 600.0) -> None:
        self._bucket = TokenBucket(qps, burst) if qps > 0 else None
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
            self._bucket.release()
            raise TooManyRequests(f"more requests wait than {self._qps:g} per second clear in {self._longest:g} s")
        try:
            await asyncio.sleep(seconds)
        except asyncio.CancelledError:
            self._bucket.release()
            raise
        return seconds
