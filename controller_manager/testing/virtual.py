"""An asyncio event loop with virtual time: when no task can run, time jumps to the next timer."""

import asyncio
import random
import selectors
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Executor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import Context
from datetime import UTC, datetime
from functools import cache
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Any, Protocol, TypeVar, TypeVarTuple, Unpack

from controller_manager.common.base.random import Random
from controller_manager.testing.loop_watch import LIMIT

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


@cache
def random_state_of(seed: int) -> Any:
    """Return the initial `random_state` of a loop with that seed."""
    return random.Random(seed).getstate()  # noqa: S311 - reproducible on purpose


_FEW_TIMERS = 128  # cancelled timers are not removed below this number of timers
_SELDOM = 64  # turns of an idle loop between two polls of its own pipe
EPOCH = datetime(2026, 1, 1, tzinfo=UTC).timestamp()


class AllBlockedError(RuntimeError):
    """All tasks are blocked and there is no timer: a deadlock."""


class Report(Protocol):
    """A report about the events before a failure of a test."""

    def text(self, about: str = "") -> str:
        """Return the lines, only those related to the text `about` if there are any."""


_Events = list[tuple[selectors.SelectorKey, int]]


class _HousekeepingTimer(asyncio.TimerHandle):
    """A timer that is suspended while housekeeping is held."""

    def __init__(self, when: float, *what: Any) -> None:
        super().__init__(when, *what)
        self.due = when

    def when(self) -> float:
        """Return when it is due, without the delay of a current suspension."""
        return self.due


class _Timers:
    """The timers of a loop, ordered by due time, then by creation.

    asyncio's own heap compares timer objects, which took an eighth of the time of a whole cluster.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._numbers = count()
        self._tidy_at = _FEW_TIMERS
        self._held: list[tuple[float, _HousekeepingTimer]] | None = None  # with the time since when each is held

    def add(self, due: float, timer: asyncio.TimerHandle) -> None:
        """Add a timer. Cancelled timers are removed when they are due, or when the heap has doubled."""
        if len(self._heap) >= self._tidy_at:
            self._heap = [entry for entry in self._heap if not entry[2].cancelled()]
            heapify(self._heap)
            self._tidy_at = max(_FEW_TIMERS, 2 * len(self._heap))
        heappush(self._heap, (due, next(self._numbers), timer))

    def add_housekeeping(self, due: float, timer: _HousekeepingTimer, now: float) -> None:
        """Add a housekeeping timer."""
        if self._held is None:
            self.add(due, timer)
        else:
            self._held.append((now, timer))

    def hold(self, now: float) -> None:
        """Suspend all housekeeping timers until `release`."""
        kept = [entry for entry in self._heap if not isinstance(entry[2], _HousekeepingTimer)]
        self._held = [(now, timer) for _, _, timer in sorted(self._heap) if isinstance(timer, _HousekeepingTimer)]
        heapify(kept)
        self._heap = kept

    def release(self, now: float) -> None:
        """Resume the suspended timers; each is delayed by the time it was held."""
        held, self._held = self._held or (), None
        for since, timer in held:
            timer.due += now - since
            if not timer.cancelled():
                self.add(timer.due, timer)

    def next_due(self) -> float | None:
        """Return when the next timer is due; None without timers."""
        heap = self._heap
        while heap and heap[0][2].cancelled():
            heappop(heap)
        return heap[0][0] if heap else None

    def take(self, now: float) -> _Events:
        """Remove and return the due timers, in the form of events of readable files."""
        heap, due, new, read = self._heap, [], tuple.__new__, selectors.EVENT_READ
        while heap and heap[0][0] <= now:
            timer = heappop(heap)[2]
            if not timer.cancelled():
                due.append((new(selectors.SelectorKey, (0, 0, read, (timer, None))), read))
        return due


class _JumpingSelector(selectors.DefaultSelector):
    """Polls files without waiting, and lets the loop's clock jump instead of sleeping."""

    loop: "VirtualLoop"
    timers: _Timers
    _files = 0

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        key = super().register(fileobj, events, data)
        self._files += 1
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        key = super().unregister(fileobj)
        self._files -= 1
        return key

    def select(self, timeout: float | None = None) -> _Events:
        loop = self.loop
        loop.turns += 1
        # If only the loop's own pipe is registered, poll it rarely: it is needed for signals, not for threads' calls.
        is_due = self._files > 1 or loop.hears_signals or (timeout is None and not loop.turns % _SELDOM)
        events = super().select(0) if is_due else []
        if not events and timeout is None:
            events = self._wait()
        due = self.timers.take(loop.time())
        return events + due if events else due

    def _wait(self) -> _Events:
        """Wait for threads and processes, or jump to the next timer, because no task can run."""
        loop = self.loop
        if loop.threads_busy:
            return super().select(None)
        if loop.is_patient and (events := super().select(LIMIT)):
            return events
        loop.is_patient = False
        due = self.timers.next_due()
        if due is None:
            if events := super().select(0):
                return events
            raise AllBlockedError(loop.describe_blocked())
        loop.jump_to(due)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop with virtual time, wall clock and seeded random numbers. Time stands still while executors work."""

    def __init__(self, seed: int = 0) -> None:
        self._now = 0.0
        self.epoch = EPOCH
        """The wall time at loop time 0, in seconds since the Unix epoch. Assign it to set the wall clock."""
        self.timeline: Report | None = None
        """The recorded events of the clusters of the loop."""
        self.threads_busy = 0
        self.is_patient = False
        """Whether to wait for a child process. False once it has sent nothing for `LIMIT` real seconds."""
        self._processes = 0
        self.turns = 0
        self.hears_signals = False
        selector = _JumpingSelector()
        selector.loop, selector.timers = self, _Timers()
        self._timers = selector.timers
        self._set = selector.timers.add
        self._holders = self._needs = 0  # number of callers that hold housekeeping, and that need it nevertheless
        super().__init__(selector)
        self._source = random.Random(seed)  # noqa: S311 - reproducible on purpose
        self.random = Random(self._source)

    def time(self) -> float:
        """Return the virtual seconds since the loop was created."""
        return self._now

    def wall_time(self) -> float:
        """Return the virtual seconds since the Unix epoch; a loop starts at the beginning of 2026 by default."""
        return self.epoch + self._now

    @property
    def random_state(self) -> Any:
        """The state of the random generator, which determines all further random numbers."""
        return self._source.getstate()

    @random_state.setter
    def random_state(self, state: Any) -> None:
        self._source.setstate(state)

    def jump(self, seconds: float) -> None:
        """Advance the time by `seconds` at once, even if timers are due in between."""
        self._now += seconds

    def jump_to(self, due: float) -> None:
        """Set the time to exactly the due time of a timer; with rounding errors a task might wait again, forever."""
        self._now = max(self._now, due)

    def add_signal_handler(self, sig: int, callback: Callable[[Unpack[Ts]], object], *args: *Ts) -> None:
        """As in asyncio. From now on, signals are polled before each jump."""
        super().add_signal_handler(sig, callback, *args)
        self.hears_signals = True

    def call_later(
        self, delay: float, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """As in asyncio."""
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """As in asyncio, but timers with the same due time keep their order."""
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        self._set(when, timer)
        return timer

    def call_housekeeping_at(
        self, when: float, callback: Callable[[Unpack[Ts]], object], *args: *Ts
    ) -> asyncio.TimerHandle:
        """As `call_at`, for housekeeping, which `housekeeping_held` can suspend."""
        timer = _HousekeepingTimer(when, callback, args, self)
        self._timers.add_housekeeping(when, timer, self._now)
        return timer

    @contextmanager
    def housekeeping_held(self) -> Iterator[None]:
        """Suspend housekeeping timers, except while `housekeeping_needed` is active."""
        self._count(holders=1)
        try:
            yield
        finally:
            self._count(holders=-1)

    @contextmanager
    def housekeeping_needed(self) -> Iterator[None]:
        """Run housekeeping timers even while they are held, to recover from a fault."""
        self._count(needs=1)
        try:
            yield
        finally:
            self._count(needs=-1)

    def _count(self, holders: int = 0, needs: int = 0) -> None:
        was_held = self._holders and not self._needs
        self._holders += holders
        self._needs += needs
        is_held = self._holders and not self._needs
        if is_held and not was_held:
            self._timers.hold(self._now)
        elif was_held and not is_held:
            self._timers.release(self._now)

    def describe_blocked(self) -> str:
        """Return a sentence with the names of all waiting tasks."""
        names = sorted(task.get_name() for task in asyncio.all_tasks(self))
        return f"nothing can make progress any more; {len(names)} tasks wait: {', '.join(names)}"

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[Unpack[Ts]], T], *args: *Ts
    ) -> "asyncio.Future[T]":
        """As in asyncio; virtual time stands still until the work is done."""
        future = super().run_in_executor(executor, func, *args)
        self.threads_busy += 1
        future.add_done_callback(self._thread_done)
        return future

    def hold_time(self) -> None:
        """Stop virtual time while a thread works."""
        self.threads_busy += 1

    def release_time(self) -> None:
        """Resume virtual time when the thread has finished."""
        self.threads_busy -= 1

    @contextmanager
    def process_running(self) -> Iterator[None]:
        """Prevent jumps of time while a child process works, unless it hangs."""
        self._processes += 1
        self.is_patient = True
        try:
            yield
        finally:
            self._processes -= 1
            self.is_patient = self._processes > 0

    async def shutdown_default_executor(self, *timeout: float | None) -> None:  # Python 3.12 brought the timeout
        """As in asyncio. Virtual time stands still until the threads are joined."""
        self.threads_busy += 1
        try:
            await super().shutdown_default_executor(*timeout)
        finally:
            self.threads_busy -= 1

    def _thread_done(self, _: "asyncio.Future[T]") -> None:
        self.threads_busy -= 1


def housekeeping_held() -> AbstractContextManager[None]:
    """Return `VirtualLoop.housekeeping_held` of the running loop. Raises RuntimeError if it is not virtual."""
    loop = asyncio.get_running_loop()
    if not isinstance(loop, VirtualLoop):
        raise RuntimeError("only in virtual time one can go without housekeeping")
    return loop.housekeeping_held()


def housekeeping_needed() -> AbstractContextManager[None]:
    """Return `VirtualLoop.housekeeping_needed` of the running loop; it has no effect on a real loop."""
    loop = asyncio.get_running_loop()
    return loop.housekeeping_needed() if isinstance(loop, VirtualLoop) else nullcontext()


def run(work: Coroutine[Any, Any, T], *, seed: int = 0) -> T:
    """Run `work` to its end on a new virtual loop."""
    with asyncio.Runner(loop_factory=lambda: VirtualLoop(seed)) as runner:
        return runner.run(work)
