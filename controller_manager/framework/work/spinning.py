"""Keys whose reconcile asks again and again to run at once: how long they wait, and since how many runs; pure."""

from collections.abc import Hashable, Sequence
from typing import Generic, TypeVar

import msgspec

from controller_manager.framework.work.queue import Exponential

K = TypeVar("K", bound=Hashable)

SHORTEST_REQUEUE = 0.01
"""Seconds. A `Requeue` that asks for less is delayed like a retry: 5 ms, doubled with each such run in a row."""
SPINNING = 5
"""A key spins once so many runs in a row asked for less than `SHORTEST_REQUEUE`."""
_BACKOFF = Exponential()


class Spinning(msgspec.Struct, frozen=True):
    """A key whose last `runs` runs each asked to run again at once, and the causes of the first of them."""

    key: str
    runs: int
    causes: tuple[str, ...]


class ShortRequeues(Generic[K]):
    """The keys whose last run asked for a requeue shorter than `SHORTEST_REQUEUE`."""

    def __init__(self) -> None:
        self._keys: dict[K, tuple[int, tuple[str, ...]]] = {}

    def delay(self, key: K, seconds: float, causes: tuple[str, ...]) -> float:
        """Return the seconds until the next run of a key whose run, woken by `causes`, asked for `seconds`."""
        if seconds >= SHORTEST_REQUEUE:
            self.forget(key)
            return seconds
        runs, first_causes = self._keys.get(key, (0, causes))
        self._keys[key] = (runs + 1, first_causes)
        return max(_BACKOFF.delay(runs + 1), seconds)

    def runs(self, key: K) -> int:
        """Return how many runs in a row asked for less."""
        return self._keys.get(key, (0, ()))[0]

    def forget(self, key: K) -> None:
        """Note that the last run of a key ended otherwise."""
        self._keys.pop(key, None)

    @property
    def spinning(self) -> int:
        """Return how many keys spin."""
        return sum(runs >= SPINNING for runs, _ in self._keys.values())

    def state(self, most: int) -> tuple[Spinning, ...]:
        """Return the keys that spin, at most so many, the longest first."""
        spinning: Sequence[Spinning] = [
            Spinning(str(key), runs, causes) for key, (runs, causes) in self._keys.items() if runs >= SPINNING
        ]
        return tuple(sorted(spinning, key=lambda one: -one.runs)[:most])
