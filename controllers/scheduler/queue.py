"""The pods that wait to be scheduled, and when each is looked at; without clock.

where           which pods are there                                left when
active          those that are looked at next, by priority and age  taken
backoff         those that something may have helped, too soon      their pause is over, or, unless there was an error,
                after the last look                                 nothing is active
unschedulable   those for which no node was found                   something happens that may help (`events.py`);
                                                                    after five minutes
gated           those with scheduling gates                         they are without
"""

import heapq
from collections import Counter
from collections.abc import Callable, Iterator

import msgspec

from controller_manager.common.api.core import Pod

from .requirements import Requirements

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 10.0
# Seconds after which an unschedulable pod is retried without an event.
FORGOTTEN = 300.0
ACTIVE, BACKOFF, UNSCHEDULABLE, GATED = "active", "backoff", "unschedulable", "gated"
# Queue events in metrics, in addition to labels of cluster events.
_CAME, _CHANGED, _UNGATED = (
    "UnschedulablePodAdd",
    "UnschedulablePodUpdate",
    "UnschedulablePodUpdatePodSchedulingGatesEliminated",
)
_FAILED, _RESTED, _EARLY, _TIMEOUT = (
    "ScheduleAttemptFailure",
    "BackoffComplete",
    "PopFromBackoffQ",
    "UnschedulableTimeout",
)


class QueuedPod(msgspec.Struct, eq=False):
    """A pending pod. Times are seconds of the process's clock.

    `attempts` counts attempts, `failures` consecutive ones with an error, `unschedulable` consecutive ones without a
    node. `by` are the plugins that rejected nodes.
    """

    pod: Pod
    requirements: Requirements
    since: float
    entered: float
    number: int = 0
    attempts: int = 0
    unschedulable: int = 0
    failures: int = 0
    by: frozenset[str] = frozenset()
    nominated: str = ""
    queue: str = ""
    held: bool = False
    """While preemption is in progress, the pod is not retried."""

    @property
    def uid(self) -> str:
        """Return the uid of the pod."""
        return self.pod.metadata.uid

    @property
    def pause(self) -> float:
        """Return the backoff in seconds."""
        times = self.failures or self.unschedulable
        return min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(times - 1, 10)) if times else 0.0


class SchedulingQueue(msgspec.Struct):
    """All pending pods. Heap entries of removed pods are skipped.

    `_early` has the pods of `_backoff` that are retried sooner if nothing else is active, `_paused` is their number.
    """

    pods: dict[str, QueuedPod] = {}
    incoming: Counter[tuple[str, str]] = msgspec.field(default_factory=Counter)
    """The number of pods added to each queue, by event."""
    _active: list[tuple[int, float, int, QueuedPod]] = []
    _backoff: list[tuple[float, int, QueuedPod]] = []
    _early: list[tuple[int, float, int, QueuedPod]] = []
    _paused: int = 0
    _by_kind: dict[Requirements, dict[str, QueuedPod]] = {}
    _counts: dict[str, int] = msgspec.field(
        default_factory=lambda: dict.fromkeys((ACTIVE, BACKOFF, UNSCHEDULABLE, GATED), 0)
    )
    _number: int = 0

    def add(self, queued: QueuedPod) -> None:
        """Add a new pod, or one that may be tried at once."""
        self.remove(queued.uid)
        self.pods[queued.uid] = queued
        if queued.requirements.gates:
            self._enter(queued, GATED, _CAME)
        else:
            self._activate(queued, _CAME)

    def remove(self, uid: str) -> QueuedPod | None:
        """Remove a pod and return it."""
        queued = self.pods.pop(uid, None)
        if queued is not None:
            self._leave(queued)
        return queued

    def peek(self, now: float) -> QueuedPod | None:
        """Return the next pod, or None."""
        self._end_pauses(now)
        return _first(self._active, ACTIVE) or _first(self._early, BACKOFF)

    def take(self, now: float) -> QueuedPod | None:
        """Return and remove the next pod, or None."""
        found = self.peek(now)
        if found is None:
            return None
        heapq.heappop(self._active if found.queue == ACTIVE else self._early)
        self.incoming[ACTIVE, _EARLY] += found.queue == BACKOFF
        del self.pods[found.uid]
        self._leave(found)
        found.attempts += 1
        return found

    def park(self, queued: QueuedPod, now: float) -> None:
        """Add a pod for which no node was found."""
        self.pods[queued.uid] = queued
        queued.since = now
        queued.unschedulable, queued.failures = queued.unschedulable + 1, 0
        self._enter(queued, UNSCHEDULABLE, _FAILED)

    def fail(self, queued: QueuedPod, now: float) -> None:
        """Add a pod whose binding or attempt failed."""
        self.pods[queued.uid] = queued
        queued.since = now
        queued.failures += 1
        self._pause(queued, _FAILED)

    def change(self, queued: QueuedPod, pod: Pod, asked: Requirements, now: float) -> None:
        """Update a pending pod with new requirements."""
        event = _UNGATED if queued.queue == GATED and not asked.gates else _CHANGED
        self._leave(queued)
        queued.pod, queued.requirements = pod, asked
        if asked.gates:
            self._enter(queued, GATED, event)
        elif queued.since + queued.pause <= now or not queued.attempts:
            self._activate(queued, event)
        else:
            self._pause(queued, event)

    def wake(self, helps: Callable[[QueuedPod], bool], event: str, now: float) -> int:
        """Retry unschedulable pods that an event may help, and return their number.

        `helps` is called once per pod shape.
        """
        woken = 0
        for kind in tuple(self._by_kind.values()):
            cached: dict[frozenset[str], bool] = {}
            for queued in tuple(kind.values()):
                if queued.by not in cached:
                    cached[queued.by] = helps(queued)
                if cached[queued.by] and not queued.held:
                    self.retry(queued, event, now)
                    woken += 1
        return woken

    def retry(self, queued: QueuedPod, event: str, now: float) -> None:
        """Retry an unschedulable pod after its backoff."""
        if queued.queue == UNSCHEDULABLE:
            self._leave(queued)
            if queued.since + queued.pause <= now:
                self._activate(queued, event)
            else:
                self._pause(queued, event)

    def wake_forgotten(self, now: float) -> None:
        """Retry pods that have been unschedulable for long."""
        for queued in self.parked():
            if now - queued.since >= FORGOTTEN and not queued.held:
                self.retry(queued, _TIMEOUT, now)

    def next_time(self, now: float) -> float | None:
        """Return when the queue changes without events; None if never."""
        times = [self._backoff[0][0]] if self._backoff else []
        if self._by_kind:
            times.append(now + FORGOTTEN / 10)
        return min(times, default=None)

    @property
    def has_work(self) -> bool:
        """Return whether `take` would return a pod now."""
        return self._counts[ACTIVE] + self._paused > 0

    def pending(self) -> dict[str, int]:
        """Return the number of pods per queue."""
        return dict(self._counts)

    def parked(self) -> Iterator[QueuedPod]:
        """Yield the unschedulable pods."""
        for kind in tuple(self._by_kind.values()):
            yield from tuple(kind.values())

    def _activate(self, queued: QueuedPod, event: str) -> None:
        self._enter(queued, ACTIVE, event)
        heapq.heappush(self._active, (-queued.requirements.priority, queued.entered, queued.number, queued))

    def _pause(self, queued: QueuedPod, event: str) -> None:
        self._enter(queued, BACKOFF, event)
        until = queued.since + queued.pause
        heapq.heappush(self._backoff, (until, queued.number, queued))
        if not queued.failures:
            heapq.heappush(self._early, (-queued.requirements.priority, until, queued.number, queued))
            if len(self._early) > 2 * self._paused + 1000:
                self._early = [one for one in self._early if _is_in(one[3], one[2], BACKOFF)]
                heapq.heapify(self._early)

    def _enter(self, queued: QueuedPod, queue: str, event: str) -> None:
        self._number += 1
        self.incoming[UNSCHEDULABLE if queue == GATED else queue, event] += 1
        queued.queue, queued.number = queue, self._number
        self._counts[queue] += 1
        self._paused += queue == BACKOFF and not queued.failures
        if queue == UNSCHEDULABLE:
            self._by_kind.setdefault(queued.requirements, {})[queued.uid] = queued

    def _leave(self, queued: QueuedPod) -> None:
        self._counts[queued.queue] -= 1
        self._paused -= queued.queue == BACKOFF and not queued.failures
        if queued.queue == UNSCHEDULABLE:
            kind = self._by_kind[queued.requirements]
            del kind[queued.uid]
            if not kind:
                del self._by_kind[queued.requirements]
        queued.queue = ""

    def _end_pauses(self, now: float) -> None:
        while self._backoff and (
            self._backoff[0][0] <= now or not _is_in(self._backoff[0][2], self._backoff[0][1], BACKOFF)
        ):
            _, number, queued = heapq.heappop(self._backoff)
            if _is_in(queued, number, BACKOFF):
                self._leave(queued)
                self._activate(queued, _RESTED)


def _first(heap: list[tuple[int, float, int, QueuedPod]], queue: str) -> QueuedPod | None:
    """Return the first valid entry of a heap, and drop invalid ones before it."""
    while heap:
        _, _, number, queued = heap[0]
        if _is_in(queued, number, queue):
            return queued
        heapq.heappop(heap)
    return None


def _is_in(queued: QueuedPod, number: int, queue: str) -> bool:
    """Return whether a heap entry is still valid."""
    return queued.queue == queue and queued.number == number
