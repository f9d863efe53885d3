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
# Seconds after which a pod is looked at again though nothing has happened that may help.
FORGOTTEN = 300.0
ACTIVE, BACKOFF, UNSCHEDULABLE, GATED = "active", "backoff", "unschedulable", "gated"
# Why pods come to a queue, by the names that metrics have for it, beside the labels of events.
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
    """A pod that waits; times are seconds of the process's clock. `attempts` counts looks, `failures` those that ended
    in an error, and `unschedulable` those that found no node, one after the other. `by` is who rejected nodes.
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
    """While room is being made for it, it is not looked at."""

    @property
    def uid(self) -> str:
        """Return the uid of the pod."""
        return self.pod.metadata.uid

    @property
    def pause(self) -> float:
        """Return the seconds from the last look to the next one."""
        times = self.failures or self.unschedulable
        return min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(times - 1, 10)) if times else 0.0


class SchedulingQueue(msgspec.Struct):
    """All pods that wait. Entries of heaps whose pods have left are passed over; `_early` has those of `_backoff` that
    are looked at sooner if nothing else is to be done, `_paused` of them.
    """

    pods: dict[str, QueuedPod] = {}
    incoming: Counter[tuple[str, str]] = msgspec.field(default_factory=Counter)
    """How many pods came to which queue, and why."""
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
        """A pod is new, or may be looked at at once."""
        self.remove(queued.uid)
        self.pods[queued.uid] = queued
        if queued.requirements.gates:
            self._enter(queued, GATED, _CAME)
        else:
            self._activate(queued, _CAME)

    def remove(self, uid: str) -> QueuedPod | None:
        """A pod waits no longer; return it."""
        queued = self.pods.pop(uid, None)
        if queued is not None:
            self._leave(queued)
        return queued

    def peek(self, now: float) -> QueuedPod | None:
        """Return the pod that is next; None if there is none now."""
        self._end_pauses(now)
        return _first(self._active, ACTIVE) or _first(self._early, BACKOFF)

    def take(self, now: float) -> QueuedPod | None:
        """Return the pod that is next, and let it go; None if there is none now."""
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
        """No node was found for a pod."""
        self.pods[queued.uid] = queued
        queued.since = now
        queued.unschedulable, queued.failures = queued.unschedulable + 1, 0
        self._enter(queued, UNSCHEDULABLE, _FAILED)

    def fail(self, queued: QueuedPod, now: float) -> None:
        """A pod could not be brought to its node."""
        self.pods[queued.uid] = queued
        queued.since = now
        queued.failures += 1
        self._pause(queued, _FAILED)

    def change(self, queued: QueuedPod, pod: Pod, asked: Requirements, now: float) -> None:
        """A pod that waits asks for something else now."""
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
        """Have pods looked at again that an event may help, by its label; `helps` is asked for one of each kind. Return
        how many.
        """
        woken = 0
        for kind in tuple(self._by_kind.values()):
            told: dict[frozenset[str], bool] = {}
            for queued in tuple(kind.values()):
                if queued.by not in told:
                    told[queued.by] = helps(queued)
                if told[queued.by] and not queued.held:
                    self.retry(queued, event, now)
                    woken += 1
        return woken

    def retry(self, queued: QueuedPod, event: str, now: float) -> None:
        """Have one pod that is parked looked at again, when its pause is over."""
        if queued.queue == UNSCHEDULABLE:
            self._leave(queued)
            if queued.since + queued.pause <= now:
                self._activate(queued, event)
            else:
                self._pause(queued, event)

    def wake_forgotten(self, now: float) -> None:
        """Have pods looked at again for which nothing has happened for long."""
        for queued in self.parked():
            if now - queued.since >= FORGOTTEN and not queued.held:
                self.retry(queued, _TIMEOUT, now)

    def next_time(self, now: float) -> float | None:
        """Return when there is something to do if nothing happens; None if never."""
        times = [self._backoff[0][0]] if self._backoff else []
        if self._by_kind:
            times.append(now + FORGOTTEN / 10)
        return min(times, default=None)

    @property
    def has_work(self) -> bool:
        """Return whether `take` would return a pod now."""
        return self._counts[ACTIVE] + self._paused > 0

    def pending(self) -> dict[str, int]:
        """Return how many pods wait where."""
        return dict(self._counts)

    def parked(self) -> Iterator[QueuedPod]:
        """The pods for which no node was found."""
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
    """Return the first pod of a heap that is still in that queue; entries before it go."""
    while heap:
        _, _, number, queued = heap[0]
        if _is_in(queued, number, queue):
            return queued
        heapq.heappop(heap)
    return None


def _is_in(queued: QueuedPod, number: int, queue: str) -> bool:
    """Return whether an entry of a heap still stands for a pod."""
    return queued.queue == queue and queued.number == number
