"""The control loop: works on several keys of its queue at once; the outcome decides when a key comes back."""

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Hashable, Sequence
from contextvars import ContextVar
from reprlib import repr as short_repr
from typing import Generic, NamedTuple, TypeVar

import msgspec

from controller_manager.common.api import errors
from controller_manager.common.base import clock
from controller_manager.common.base.errors import describe
from controller_manager.common.base.log import Logger
from controller_manager.common.base.tasks import Tasks, is_being_cancelled
from controller_manager.framework.work.failures import Acted, Due, Failures, LoopState, Running
from controller_manager.framework.work.metrics import WorkMetrics
from controller_manager.framework.work.queue import Exponential, Priority, QueueEntry, WorkQueue
from controller_manager.framework.work.spinning import SPINNING, ShortRequeues

K = TypeVar("K", bound=Hashable)

# Errors of the world outside, of which the message says all; any other error is logged with its traceback.
_EXPECTED = (errors.ApiError, OSError)


class Requeue(msgspec.Struct, frozen=True):
    """Outcome of a reconcile: all is well, look at this key again after so many seconds.

    Less than `SHORTEST_REQUEUE` is delayed like a retry: 5 ms at first, doubled with each such run in a row.
    """

    after: float


STALE_CACHE = Requeue(30.0)
"""Outcome of a reconcile that asked the server, which knows of what the local copy lacks: if that goes before the copy
hears of it, no change ever tells.
"""


class TerminalError(Exception):
    """Outcome of a reconcile: trying again is of no use before something changes; says why."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class LoopRun(NamedTuple):
    """A run of a control loop: of which one, on which key, and what woke it."""

    loop: str
    key: Hashable
    causes: tuple[str, ...]


_run: ContextVar[LoopRun | None] = ContextVar("run", default=None)


def current_run() -> LoopRun | None:
    """Return the run that this task, or one that started it, is part of."""
    return _run.get()


Handle = Callable[[K], Awaitable[Requeue | None]]
# Called with a key after each run of it; calls its second argument once what the run wrote has been seen.
WhenSeen = Callable[[K, Callable[[], None]], None]
# The first writes of the last run of a key, in words, and how many there were.
Written = Callable[[K], tuple[Sequence[object], int]]
# A key is held back for that at most so many seconds.
LONGEST_HOLD = 10.0
# So many of the keys that are due later are told to people.
_NEXT = 20
# And so many of those that fail.
_FAILING = 100
# A key fails once so many runs in a row ended with a conflict; fewer are normal.
_CONFLICTS = 8
# And so many of the last runs that changed something.
_ACTED = 5


class ControlLoop(Generic[K]):
    """Calls `handle(key)` for every added key, for at most `workers` keys at once and never twice at once for one key.

    Outcomes of `handle`: `None` done; `Requeue(after)`; raised `TerminalError`; raised `errors.Conflict`, which is
    normal and tried again; any other exception, which is logged, counted and tried again. Tries are spaced by the
    queue's limits, and so are requeues shorter than `SHORTEST_REQUEUE`. Any other return value is a `TypeError`.

    With `when_seen`, as a `CacheBarrier` has it, a key does not run again before what its last run wrote has been seen,
    or `LONGEST_HOLD` has passed; then it runs once more when that has been seen. `written` tells what a run wrote.
    In metrics its queue is called `queue`, or as the loop. `retry_delays` are the first and the longest (seconds).
    `where` is the file and line of the author's function, for messages.
    """

    def __init__(
        self,
        name: str,
        handle: Handle[K],
        metrics: WorkMetrics,
        log: Logger,
        *,
        workers: int = 1,
        when_seen: WhenSeen[K] | None = None,
        written: Written[K] | None = None,
        queue: str = "",
        retry_delays: tuple[float, float] = (0.005, 1000.0),
        where: str = "",
    ) -> None:
        self.name = name
        self.where = where
        self.queue = queue or name
        self.workers = workers
        self._handle = handle
        self._log = log
        self._when_seen = when_seen
        self._written = written
        self._queue: WorkQueue[K] = WorkQueue(Exponential(*retry_delays))
        # A key that the queue calls running is in _running, and then, if need be, in _held: with the entry of that
        # run, and in _timers unless what it wrote was seen at once.
        self._running: dict[K, tuple[float, QueueEntry[K]]] = {}
        self._held: dict[K, QueueEntry[K]] = {}
        self._timers: dict[K, asyncio.TimerHandle] = {}
        # Set whenever the loop should look at the queue again.
        self._wake = asyncio.Event()
        self._last_error, self._last_error_at = "", 0.0
        self._failures: Failures[K] = Failures()
        self._requeues: ShortRequeues[K] = ShortRequeues()
        self._done: Counter[str] = Counter()
        # When, with which entry, and what was written.
        self._acted: deque[tuple[float, QueueEntry[K], Sequence[object], int]] = deque(maxlen=_ACTED)
        self._waited = metrics.waited.of(self.queue)
        self._worked = metrics.worked.of(self.queue)
        self._took = metrics.took.of(name)
        self._metrics = metrics
        metrics.follow(self)

    def add(self, key: K, cause: str = "", priority: Priority = Priority.NORMAL, *, after: float = 0.0) -> None:
        """Have `key` worked on because of `cause`, now or `after` so many seconds."""
        self._queue.add_after(key, clock.monotonic(), after, cause, priority)
        self._wake.set()

    def stop(self) -> None:
        """Start nothing more; `run` returns once what runs has finished."""
        self._queue.close()
        self._wake.set()

    async def run(self, *, grace: float = 5.0) -> None:
        """Work until `stop`; then what runs may finish within `grace` seconds. Cancelling ends everything at once."""
        try:
            async with Tasks() as tasks:
                while not self._queue.closed:
                    self._start_ready(tasks)
                    await self._sleep()
                await self._drain(grace)
        finally:
            for timer in self._timers.values():
                timer.cancel()

    def state(self) -> LoopState:
        """Return what this loop is doing now."""
        now = clock.monotonic()
        return LoopState(
            name=self.name,
            workers=self.workers,
            ready=self.depth,
            delayed=self._queue.delayed,
            running=tuple(Running(str(key), now - at, entry.causes) for key, (at, entry) in self._running.items()),
            next=tuple(
                Due(str(one.key), one.at - now, one.failures, one.causes) for one in self._queue.upcoming(_NEXT)
            ),
            failing=self._failures.state(now, _FAILING),
            failing_keys=len(self._failures),
            failing_more=self._failures.is_incomplete(now),
            last_error=self._last_error,
            last_error_seconds=now - self._last_error_at if self._last_error else 0.0,
            outcomes=dict(self._done),
            failures_in_a_row=self._failures.in_a_row,
            acted=tuple(
                Acted(str(entry.key), now - at, entry.causes, tuple(map(str, writes)), count)
                for at, entry, writes, count in self._acted
            ),
            spinning=self._requeues.state(_FAILING),
            where=self.where,
        )

    @property
    def depth(self) -> int:
        """Keys that are ready."""
        return len(self._queue)

    @property
    def adds(self) -> int:
        """Keys let in since the start."""
        return self._queue.adds

    @property
    def retries(self) -> int:
        """Keys that came back after a failure since the start."""
        return self._queue.retries

    @property
    def failing(self) -> int:
        """Keys whose last run failed and which are tried again."""
        return self._failures.retried

    @property
    def failed(self) -> int:
        """Keys whose last run failed, those that were given up too."""
        return len(self._failures)

    @property
    def spinning(self) -> int:
        """Return how many keys ask again and again to run at once."""
        return self._requeues.spinning

    def busy_with(self, within: float = 0.0) -> list[str]:
        """Return in words what is to be done now, or is due within so many seconds."""
        busy = [f"{self.name} with {key}" for key in self._running]
        if self.depth:
            busy.append(f"{self.name} with {self.depth} keys more")
        due = self._queue.next_deadline() if within > 0 else None
        if due is not None and due <= clock.monotonic() + within:
            busy += [f"{self.name} with {one.key}, which is due" for one in self._queue.upcoming(1)]
        return busy

    def ages(self) -> list[float]:
        """Seconds each key being worked on has taken so far."""
        now = clock.monotonic()
        return [now - at for at, _ in self._running.values()]

    def _start_ready(self, tasks: Tasks) -> None:
        now = clock.monotonic()
        while len(self._running) < self.workers and (entry := self._queue.take(now)) is not None:
            self._running[entry.key] = (now, entry)
            self._waited.observe(entry.waited)
            tasks.start(self._work(entry), name=f"{self.name} {entry.key}")

    async def _sleep(self) -> None:
        """Wait until something was added or finished, or a delayed key is due."""
        due = self._queue.next_deadline() if len(self._running) < self.workers else None
        timer = asyncio.get_running_loop().call_at(due, self._wake.set) if due is not None else None
        try:
            await self._wake.wait()
        finally:
            if timer is not None:
                timer.cancel()
        self._wake.clear()

    async def _drain(self, grace: float) -> None:
        try:
            async with asyncio.timeout(grace):
                while self._running:
                    await self._wake.wait()
                    self._wake.clear()
        except TimeoutError:
            self._log.warning("stopping what has not finished in time", keys=[str(key) for key in self._running])

    async def _work(self, entry: QueueEntry[K]) -> None:
        started = clock.monotonic()
        _run.set(LoopRun(self.name, entry.key, entry.causes))  # for this task alone
        try:
            outcome = await self._attempt(entry.key)
        finally:
            del self._running[entry.key]
            seconds = clock.monotonic() - started
            self._worked.observe(seconds)
            self._took.observe(seconds)
            self._wake.set()
        self._conclude(entry, outcome)
        if self._written is not None:
            writes, count = self._written(entry.key)
            if count:
                self._acted.appendleft((clock.monotonic(), entry, writes, count))
        if self._when_seen is None:
            self._queue.done(entry.key)
        else:
            self._hold_back(entry, self._when_seen)

    def _hold_back(self, entry: QueueEntry[K], when_seen: WhenSeen[K]) -> None:
        """Hold the key back until what its run wrote has been seen: mostly at once, since most runs write nothing."""
        key = entry.key
        self._held[key] = entry
        when_seen(key, lambda: self._release(entry))
        if self._held.get(key) is entry:
            self._timers[key] = asyncio.get_running_loop().call_later(LONGEST_HOLD, self._release_unseen, entry)

    def _release(self, entry: QueueEntry[K]) -> None:
        key = entry.key
        if self._held.get(key) is not entry:
            # It is late. What was done meanwhile rests on an older state, and no change may tell: what was written may
            # be gone by now, and never have been seen.
            self.add(key, "what was written came back late")
            return
        del self._held[key]
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()
        self._queue.done(key)
        self._wake.set()

    def _release_unseen(self, entry: QueueEntry[K]) -> None:
        self._log.warning("what was written has not come back; going on without", key=str(entry.key))
        self._metrics.unsettled[self.name] += 1
        self._release(entry)

    async def _attempt(self, key: K) -> Requeue | Exception | None:
        try:
            outcome = await self._handle(key)
            if outcome is None or isinstance(outcome, Requeue):
                return outcome
            return TypeError(f"reconcile returned {short_repr(outcome)}; return None or Requeue(seconds)")
        except asyncio.CancelledError as error:
            if is_being_cancelled():
                raise
            return RuntimeError(f"something it waited for was cancelled: {error or 'no reason given'}")
        except errors.InvalidName as error:
            return TerminalError(error.message)
        except Exception as error:  # noqa: BLE001 - whatever an author's code raises is an outcome: see _conclude
            return error

    def _conclude(self, entry: QueueEntry[K], outcome: Requeue | Exception | None) -> None:
        key, now = entry.key, clock.monotonic()
        log, about = self._log, {"key": key, "causes": entry.causes}
        if not isinstance(outcome, Requeue):
            self._requeues.forget(key)
        match outcome:
            case None:
                self._failures.forget(key)
                self._queue.forget(key)
                self._count("done")
                log.debug("reconciled", **about)
            case Requeue(after=seconds):
                self._failures.forget(key)
                self._queue.forget(key)
                seconds = self._requeues.delay(key, seconds, entry.causes)
                self._queue.add_after(key, now, seconds, "requeued")
                self._count("requeue")
                log.debug("reconciled", **about, again_after=seconds)
                if (runs := self._requeues.runs(key)) == SPINNING:
                    log.warning("reconcile asks to run again at once, delaying", **about, runs=runs, where=self.where)
            case TerminalError(reason=reason):
                self._failures.note(key, outcome, now, entry.causes, where=self.where)
                self._queue.forget(key)
                self._count("give_up")
                log.warning("gave up until something changes", **about, reason=reason)
            case errors.Conflict():
                seconds = self._queue.retry(key, now, "conflict")
                if self._queue.failures(key) >= _CONFLICTS:
                    self._failures.note(key, outcome, now, entry.causes, seconds, self.where)
                self._count("conflict")
                log.debug("the object changed meanwhile", **about, again_after=seconds, error=outcome)
            case _:
                seconds = self._queue.retry(key, now, "error")
                self._failures.note(key, outcome, now, entry.causes, seconds, self.where)
                self._count("error")
                self._last_error, self._last_error_at = f"{key}: {describe(outcome)}", now
                trace = None if isinstance(outcome, _EXPECTED) else outcome
                log.warning("reconcile failed", **about, again_after=seconds, error=outcome, exc_info=trace)

    def _count(self, outcome: str) -> None:
        self._done[outcome] += 1
        self._metrics.outcomes[self.name, outcome] += 1
