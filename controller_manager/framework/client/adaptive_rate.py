"""An adaptive request rate: additive increase, multiplicative decrease on 429; pure, the caller passes the time.

response                                    the rate
429, at least a second after the last       is halved, but not below `FLOOR` of the ceiling; the pause is needed
  halving                                   because one overload rejects many requests
any other, at least a second after the      rises by `STEP` of the ceiling, but not above the ceiling
  last 429 and the last increase
"""

# Fractions of the ceiling: the minimum rate, so that no client starves, and the increment.
FLOOR, STEP = 0.05, 0.02
# Seconds between two changes of the rate in one direction.
PACE = 1.0


class AdaptiveRate:
    """`rate` is in requests per second, between `FLOOR * ceiling` and `ceiling`. It starts at `ceiling`."""

    def __init__(self, ceiling: float) -> None:
        if ceiling <= 0:
            raise ValueError(f"a rate must be above 0, not {ceiling:g}")
        self.ceiling = self.rate = ceiling
        self._halved = self._raised = self._refused = float("-inf")

    def answered(self, status: int, now: float) -> bool:
        """Record the status of a response; return whether the rate has changed."""
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
