"""What an autoscaler proposed and did in the past, as far as it limits what may be done now; pure.

Times are those of one clock that never runs backwards.
"""

from collections import deque
from collections.abc import Callable


class _Extreme:
    """The most extreme of the values of a period, in memory that does not grow with it."""

    def __init__(self, beats: Callable[[int, int], bool]) -> None:
        # In order of time, and each more extreme than those after it.
        self._values: deque[tuple[float, int]] = deque()
        self._beats = beats

    def note(self, now: float, value: int) -> None:
        while self._values and not self._beats(self._values[-1][1], value):
            self._values.pop()
        self._values.append((now, value))

    def since(self, time: float) -> int | None:
        """The most extreme value after a time, forgetting those before."""
        while self._values and self._values[0][0] <= time:
            self._values.popleft()
        return self._values[0][1] if self._values else None


class Changes:
    """How many replicas were added, or taken away, and when; changes within a second are one."""

    _GRAIN = 1.0

    def __init__(self) -> None:
        self._changes: deque[tuple[float, int]] = deque()

    def note(self, now: float, count: int) -> None:
        """So many more."""
        if self._changes and now - self._changes[-1][0] < self._GRAIN:
            count += self._changes.pop()[1]
        self._changes.append((now, count))

    def since(self, time: float) -> int:
        """How many after a time."""
        return sum(count for at, count in self._changes if at > time)

    def forget(self, time: float) -> None:
        """Drop what was before."""
        while self._changes and self._changes[0][0] <= time:
            self._changes.popleft()


class History:
    """Of one autoscaler, that of `uid`; it begins with the replicas its target had when it was first seen.

    So nothing is scaled down right after a start: what was recommended before it, nobody remembers.
    """

    _LONGEST_PERIOD = 1800.0  # of policies, as the API allows
    _LONGEST_WINDOW = 3600.0  # of scaling up, too

    def __init__(self, uid: str, now: float, replicas: int) -> None:
        self.uid = uid
        self.added = Changes()
        self.removed = Changes()
        self._highest = _Extreme(lambda one, other: one > other)
        self._lowest = _Extreme(lambda one, other: one < other)
        self.recommended(now, replicas)

    def recommended(self, now: float, replicas: int) -> None:
        """That is what metrics recommend."""
        self._highest.note(now, replicas)
        self._lowest.note(now, replicas)
        self._lowest.since(now - self._LONGEST_WINDOW)  # nobody may ever ask, and recommendations may rise for years

    def highest(self, now: float, window: float, replicas: int) -> int:
        """The highest of `replicas` and what was recommended in so many seconds."""
        past = self._highest.since(now - window)
        return replicas if past is None else max(past, replicas)

    def lowest(self, now: float, window: float, replicas: int) -> int:
        """The lowest of the same."""
        past = self._lowest.since(now - window)
        return replicas if past is None else min(past, replicas)

    def scaled(self, now: float, before: int, after: int) -> None:
        """The target was told to have `after` replicas."""
        if after > before:
            self.added.note(now, after - before)
        else:
            self.removed.note(now, before - after)
        for changes in (self.added, self.removed):
            changes.forget(now - self._LONGEST_PERIOD)

    def change(self, now: float, period: float) -> int:
        """By how many replicas the target grew in so many seconds; negative if it shrank."""
        return self.added.since(now - period) - self.removed.since(now - period)
