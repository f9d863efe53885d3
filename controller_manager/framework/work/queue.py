"""A work queue: unique keys with delays, rate-limited retries and two priorities; pure, the caller passes the time.

A key is idle, ready or running. In addition it may be due later:

    idle     add   -> ready
    ready    add   -> ready           the same entry, with the added cause and the higher priority of the two
    ready    take  -> running         not returned again before `done`
    running  add   -> running, dirty
    running  done  -> idle, or ready if it is dirty
    any      due   -> as by add       at the time of `add_after` or `retry`; the earliest time wins
"""

import heapq
from collections import OrderedDict
from collections.abc import Hashable, Iterable
from enum import IntEnum
from typing import Generic, TypeVar

import msgspec

from controller_manager.common.base.bucket import TokenBucket

K = TypeVar("K", bound=Hashable)

# A low-priority entry is taken after at most this number of normal ones, so that it does not starve.
NORMAL_IN_A_ROW = 16
# Retries per second of all keys together, and the burst.
RETRY_RATE, RETRY_BURST = 10.0, 100
# An entry stores this number of causes and counts the rest.
CAUSES_KEPT = 8


class Exponential(msgspec.Struct, frozen=True):
    """Exponential backoff: `first` seconds after the first failure, doubled with each further one, up to `longest`."""

    first: float = 0.005
    longest: float = 1000.0

    def delay(self, failures: int) -> float:
        """Return the seconds to wait after `failures` (one or more) failures in a row."""
        if failures > 60:  # avoid an overflow of 2.0 ** failures
            return self.longest
        return min(self.first * 2.0 ** (failures - 1), self.longest)


class Priority(IntEnum):
    """Priority of a key. `LOW` is for keys that probably need no work: objects of a first listing, and resyncs."""

    LOW = 0
    NORMAL = 1


class QueueEntry(msgspec.Struct, Generic[K], frozen=True):
    """A key taken from the queue, with its causes, its priority and the seconds it waited."""

    key: K
    causes: tuple[str, ...]
    priority: Priority
    waited: float


class DelayedItem(msgspec.Struct, Generic[K], frozen=True):
    """A key that is due later, with its time, its failures in a row, and its causes."""

    key: K
    at: float
    failures: int
    causes: tuple[str, ...]


class _Waiting:
    """A waiting key: since when, its priority, and its causes (`unnamed` counts those that are not stored)."""

    __slots__ = ("causes", "priority", "since", "unnamed")

    def __init__(self, since: float, priority: Priority) -> None:
        self.since = since
        self.priority = priority
        self.causes: list[str] = []
        self.unnamed = 0

    def because(self, causes: Iterable[str], unnamed: int = 0) -> None:
        for cause in causes:
            if cause and cause not in self.causes:
                if len(self.causes) < CAUSES_KEPT:
                    self.causes.append(cause)
                else:
                    unnamed += 1
        self.unnamed += unnamed

    def described(self) -> tuple[str, ...]:
        return (*self.causes, f"and {self.unnamed} more") if self.unnamed else tuple(self.causes)


class WorkQueue(Generic[K]):
    """The queue, as in the table of the module. `adds` and `retries` count new entries and retries after failures."""

    def __init__(self, backoff: Exponential | None = None, bucket: TokenBucket | None = None) -> None:
        self._backoff = backoff or Exponential()
        self._bucket = bucket or TokenBucket(RETRY_RATE, RETRY_BURST)
        # A key is in at most one of the two lanes and _dirty; it is in _dirty only while it is in _processing,
        # and never in a lane while it is in _processing.
        self._low: OrderedDict[K, _Waiting] = OrderedDict()
        self._normal: OrderedDict[K, _Waiting] = OrderedDict()
        self._dirty: dict[K, _Waiting] = {}
        self._processing: dict[K, Priority] = {}
        # _delayed has one item per key. _heap has an item for each, and stale ones whose ordinal is not in _delayed.
        self._delayed: dict[K, tuple[float, int, _Waiting]] = {}
        self._heap: list[tuple[float, int, K]] = []
        self._ordinal = 0
        # A key is in _failures from its first failure until `forget`.
        self._failures: dict[K, int] = {}
        self._normal_in_a_row = 0
        self._closed = False
        self.adds = 0
        self.retries = 0

    def __len__(self) -> int:
        """Return the number of ready keys."""
        return len(self._low) + len(self._normal)

    @property
    def delayed(self) -> int:
        """The number of keys that are due later."""
        return len(self._delayed)

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    def add(self, key: K, now: float, cause: str = "", priority: Priority = Priority.NORMAL) -> None:
        """Make `key` ready, or mark it to run again if it is running. A closed queue ignores the call."""
        waiting = self._waiting(key, now, priority)
        if waiting is not None:
            waiting.because((cause,))

    def add_after(
        self, key: K, now: float, seconds: float, cause: str = "", priority: Priority = Priority.NORMAL
    ) -> None:
        """Add `key` after `seconds`, or earlier if it is already due earlier."""
        if seconds <= 0:
            self.add(key, now, cause, priority)
        elif not self._closed:
            self._delay(key, now + seconds, cause, priority)

    def retry(self, key: K, now: float, cause: str = "") -> float:
        """Add `key` again after a failure, with backoff, rate limit and its priority; return the delay in seconds."""
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        self.retries += 1
        seconds = max(self._backoff.delay(failures), self._bucket.take(now))
        self.add_after(key, now, seconds, cause, self._processing.get(key, Priority.NORMAL))
        return seconds

    def failures(self, key: K) -> int:
        """Return the number of failures in a row of `key`."""
        return self._failures.get(key, 0)

    def forget(self, key: K) -> None:
        """Reset the failure count of `key`."""
        self._failures.pop(key, None)

    def take(self, now: float) -> QueueEntry[K] | None:
        """Return the next key, which is running until `done`; None if no key is ready or the queue is closed."""
        self._admit_due(now)
        lane = self._next_lane()
        if self._closed or not lane:
            return None
        key, waiting = lane.popitem(last=False)
        self._processing[key] = waiting.priority
        return QueueEntry(key, waiting.described(), waiting.priority, max(0.0, now - waiting.since))

    def done(self, key: K) -> None:
        """Record that the run of `key` has ended. The key is ready at once if it was added in the meantime."""
        del self._processing[key]
        again = self._dirty.pop(key, None)
        if again is not None:
            self._lane(again.priority)[key] = again

    def upcoming(self, count: int) -> list[DelayedItem[K]]:
        """Return the first `count` delayed keys, in the order of their times."""
        first = heapq.nsmallest(count, self._delayed.items(), key=lambda item: item[1][:2])
        return [
            DelayedItem(key, due, self._failures.get(key, 0), waiting.described()) for key, (due, _, waiting) in first
        ]

    def next_deadline(self) -> float | None:
        """Return when the next delayed key is due; None if no key is delayed."""
        while self._heap and self._is_stale(self._heap[0]):
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def close(self) -> None:
        """Close the queue: no key can be added or taken. Running keys may finish."""
        self._closed = True

    def _lane(self, priority: Priority) -> OrderedDict[K, _Waiting]:
        return self._normal if priority is Priority.NORMAL else self._low

    def _next_lane(self) -> OrderedDict[K, _Waiting]:
        if self._low and (not self._normal or self._normal_in_a_row >= NORMAL_IN_A_ROW):
            self._normal_in_a_row = 0
            return self._low
        self._normal_in_a_row = self._normal_in_a_row + 1 if self._low else 0
        return self._normal

    def _waiting(self, key: K, now: float, priority: Priority) -> _Waiting | None:
        """Return the waiting entry of `key`, created if needed; None if the queue is closed."""
        if self._closed:
            return None
        running = key in self._processing
        waiting = self._dirty.get(key) if running else self._normal.get(key) or self._low.get(key)
        if waiting is None:
            self.adds += 1
            waiting = _Waiting(now, priority)
            place = self._dirty if running else self._lane(priority)
            place[key] = waiting
        elif priority > waiting.priority:
            waiting.priority = priority
            if self._low.pop(key, None) is not None:
                self._normal[key] = waiting
        return waiting

    def _delay(self, key: K, due: float, cause: str, priority: Priority) -> None:
        found = self._delayed.get(key)
        waiting = found[2] if found else _Waiting(due, priority)
        waiting.because((cause,))
        waiting.priority = max(priority, waiting.priority)
        if found and found[0] <= due:
            return
        self._ordinal += 1
        waiting.since = due
        self._delayed[key] = (due, self._ordinal, waiting)
        heapq.heappush(self._heap, (due, self._ordinal, key))
        self._sweep()

    def _admit_due(self, now: float) -> None:
        while (due := self.next_deadline()) is not None and due <= now:
            _, _, key = heapq.heappop(self._heap)
            _, _, delayed = self._delayed.pop(key)
            waiting = self._waiting(key, due, delayed.priority)
            if waiting is not None:
                waiting.because(delayed.causes, delayed.unnamed)

    def _is_stale(self, item: tuple[float, int, K]) -> bool:
        current = self._delayed.get(item[2])
        return current is None or current[1] != item[1]

    def _sweep(self) -> None:
        """Drop stale items once they are the majority, to limit the size of the heap."""
        if len(self._heap) > 2 * len(self._delayed) + 32:
            self._heap = [(due, number, key) for key, (due, number, _) in self._delayed.items()]
            heapq.heapify(self._heap)
