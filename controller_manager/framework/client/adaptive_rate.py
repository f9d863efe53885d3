"""A rate of requests that follows the answers of the server: halved when it refuses for want of room, raised again step
by step while it does not (additive increase, multiplicative decrease); pure, the caller passes the time.

    answer                                      the rate
    429, a second after it was halved last      half of it, not below `FLOOR` of the ceiling: many requests meet the
                                                same trouble
    any other, a second after the last 429      `STEP` of the ceiling more, not above the ceiling
      and after it was raised last
"""

# Of the ceiling: the least that the rate falls to, so that nobody starves, and what it rises by.
FLOOR, STEP = 0.05, 0.02
# Seconds between two changes of the rate in one direction.
PACE = 1.0


class AdaptiveRate:
    """`rate` is in requests a second, from `FLOOR * ceiling` to `ceiling`, where it begins."""

    def __init__(self, ceiling: float) -> None:
        if ceiling <= 0:
            raise ValueError(f"a rate must be above 0, not {ceiling:g}")
        self.ceiling = self.rate = ceiling
        self._halved = self._raised = self._refused = float("-inf")

    def answered(self, status: int, now: float) -> bool:
        """Take in the status of an answer; return whether the rate is another one now."""
        before = self.rate
        if status == 429:
            self._refused = now
            if now - self._halved >= PACE:
                self._halved = now
                self.rate = max(before / 2, FLOOR * self.ceiling)
        elif before < self.ceiling and now - max(self._raised, self._refused) >= PACE:
            self._raised = now
            self.rate = min(before + STEP * self.ceiling, self.ceiling)
        return self.rate != before
