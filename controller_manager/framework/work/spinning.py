"""Keys whose reconcile repeatedly asks to be requeued at once: their delay and number of runs; pure."""

from collections.abc import Hashable, Sequence
from typing import Generic, TypeVar

import msgspec

from controller_manager.framework.work.queue import Exponential

K = TypeVar("K", bound=Hashable)

SHORTEST_REQUEUE = 0.01
"""Seconds. A shorter `Requeue` is delayed by 5 ms, doubled with each such run in a row (see `ShortRequeues`)."""
SPINNING = 5
"""A key is spinning after this number of runs in a row with a requeue shorter than `SHORTEST_REQUEUE`."""


class Spinning(msgspec.Struct, frozen=True):
    """A key whose last `runs` runs all asked to be requeued at once, with the causes of the first of them."""

    key: str
    runs: int
    causes: tuple[str, ...]


class ShortRequeues(Generic[K]):
    """The keys whose last run asked for a requeue shorter than `SHORTEST_REQUEUE`.

    `longest` is the longest delay in seconds. The first delay is 5 ms even for controllers whose first retry is much
    later, because such a run succeeded and often asked for the rest of a time that was almost over.
    """

    def __init__(self, longest: float) -> None:
        self._backoff = Exponential(longest=longest)
        self._keys: dict[K, tuple[int, tuple[str, ...]]] = {}

    def delay(self, key: K, seconds: float, causes: tuple[str, ...]) -> float:
        """Return the seconds until the next run of a key whose run, with these `causes`, asked for `seconds`."""
        if seconds >= SHORTEST_REQUEUE:
            self.forget(key)
            return seconds
        runs, first_causes = self._keys.get(key, (0, causes))
        self._keys[key] = (runs + 1, first_causes)
        return max(self._backoff.delay(runs + 1), seconds)

    def runs(self, key: K) -> int:
        """Return the number of runs in a row that asked for a shorter requeue."""
        return self._keys.get(key, (0, ()))[0]

    def forget(self, key: K) -> None:
        """Reset a key after a run with another outcome."""
        self._keys.pop(key, None)

    @property
    def spinning(self) -> int:
        """The number of spinning keys."""
        return sum(runs >= SPINNING for runs, _ in self._keys.values())

    def state(self, most: int) -> tuple[Spinning, ...]:
        """Return at most `most` spinning keys, those with the most runs first."""
        spinning: Sequence[Spinning] = [
            Spinning(str(key), runs, causes) for key, (runs, causes) in self._keys.items() if runs >= SPINNING
        ]
        return tuple(sorted(spinning, key=lambda one: -one.runs)[:most])
