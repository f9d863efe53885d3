"""The control loop: reconciles several keys of its queue concurrently and requeues them according to the outcome."""

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

# External errors, logged by message only. Any other error is logged with its traceback.
_EXPECTED = (errors.ApiError, OSError)


class Requeue(msgspec.Struct, frozen=True):
    """Outcome of a reconcile: success; reconcile this key again after `after` seconds.

    Values below `SHORTEST_REQUEUE` are delayed: by 5 ms at first, doubled with each such run in a row, at most by the
    longest retry delay of the controller.
    """

    after: float


STALE_CACHE = Requeue(30.0)
"""Outcome of a reconcile that found an object on the server that the cache does not have yet.

If the object is deleted before the cache observes it, no change event would ever wake the key.
"""


class TerminalError(Exception):
    """Outcome of a reconcile: not retried until something changes, for the given reason."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class LoopRun(NamedTuple):
    """A run of a control loop: the name of the loop, the key, and the causes."""

    loop: str
    key: Hashable
    causes: tuple[str, ...]


_run: ContextVar[LoopRun | None] = ContextVar("run", default=None)


def current_run() -> LoopRun | None:
    """Return the run that this task, or the task that started it, belongs to; None outside a run."""
    return _run.get()


Handle = Callable[[K], Awaitable[Requeue | None]]
# Called with a key after each of its runs; calls its second argument once the cache has observed the run's writes.
WhenSeen = Callable[[K, Callable[[], None]], None]
# Returns the first writes of the last run of a key, and the number of all its writes.
Written = Callable[[K], tuple[Sequence[object], int]]
# Maximum time in seconds that a key waits for the cache to observe its writes.
LONGEST_HOLD = 10.0
# Maximum numbers in the reported state: delayed keys, …
_NEXT = 20
# … failing keys, …
_FAILING = 100
# A key counts as failing after this number of conflicts in a row; fewer are normal.
_CONFLICTS = 8
# … and runs that wrote something.
_ACTED = 5


class ControlLoop(Generic[K]):
    """Calls `handle(key)` for every added key: at most `workers` keys at once, and never the same key concurrently.

    Outcomes of `handle`: `None` for done; `Requeue(after)`; raised `TerminalError`; raised `errors.Conflict`, which is
    normal and retried; any other exception, which is logged, counted and retried. Retries are delayed by the queue's
    backoff, requeues shorter than `SHORTEST_REQUEUE` by `ShortRequeues`. Any other return value is reported as a
    `TypeError`.

    With `when_seen` (see `CacheBarrier`), a key does not run again until the cache has observed the writes of its last
    run, or `LONGEST_HOLD` has passed; in the latter case it runs once more when they are observed. `written` returns
    the writes of a run. `queue` is the queue's name in metrics, by default the name of the loop. `retry_delays` are the
    first and the longest delay of retries (seconds); the longest also limits the delay of short requeues. `where` is
    the file and line of the author's function, for messages.
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
        # A key that is running for the queue is first in _running. After its run it is in _held, with the entry of the
        # run, and in _timers, until the cache has observed its writes.
        self._running: dict[K, tuple[float, QueueEntry[K]]] = {}
        self._held: dict[K, QueueEntry[K]] = {}
        self._timers: dict[K, asyncio.TimerHandle] = {}
        # Set when the loop should check the queue again.
        self._wake = asyncio.Event()
        self._last_error, self._last_error_at = "", 0.0
        self._failures: Failures[K] = Failures()
        self._requeues: ShortRequeues[K] = ShortRequeues(retry_delays[1])
        self._done: Counter[str] = Counter()
        # The last runs that wrote something: time, queue entry, first writes, number of writes.
        self._acted: deque[tuple[float, QueueEntry[K], Sequence[object], int]] = deque(maxlen=_ACTED)
        self._waited = metrics.waited.of(self.queue)
        self._worked = metrics.worked.of(self.queue)
        self._took = metrics.took.of(name)
        self._metrics = metrics
        metrics.follow(self)

    def add(self, key: K, cause: str = "", priority: Priority = Priority.NORMAL, *, after: float = 0.0) -> None:
        """Add `key` to the queue because of `cause`, at once or `after` seconds later."""
        self._queue.add_after(key, clock.monotonic(), after, cause, priority)
        self._wake.set()

    def stop(self) -> None:
        """Stop taking keys; `run` returns once the running reconciles have finished."""
        self._queue.close()
        self._wake.set()

    async def run(self, *, grace: float = 5.0) -> None:
        """Reconcile keys until `stop`, then let running reconciles finish within `grace` seconds.

        Cancellation ends everything at once.
        """
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
        """Return the current state of this loop as plain data."""
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
        """Number of ready keys."""
        return len(self._queue)

    @property
    def adds(self) -> int:
        """Number of keys added since the start."""
        return self._queue.adds

    @property
    def retries(self) -> int:
        """Number of retries since the start."""
        return self._queue.retries

    @property
    def failing(self) -> int:
        """Number of keys whose last run failed and that are retried."""
        return self._failures.retried

    @property
    def failed(self) -> int:
        """Number of keys whose last run failed, including those that were given up."""
        return len(self._failures)

    @property
    def spinning(self) -> int:
        """Number of keys that repeatedly ask to be requeued at once."""
        return self._requeues.spinning

    def busy_with(self, within: float = 0.0) -> list[str]:
        """Describe the pending work, including the next key that is due within `within` seconds."""
        busy = [f"{self.name} with {key}" for key in self._running]
        if self.depth:
            busy.append(f"{self.name} with {self.depth} keys more")
        due = self._queue.next_deadline() if within > 0 else None
        if due is not None and due <= clock.monotonic() + within:
            busy += [f"{self.name} with {one.key}, which is due" for one in self._queue.upcoming(1)]
        return busy

    def ages(self) -> list[float]:
        """Return for each running key the seconds since its start."""
        now = clock.monotonic()
        return [now - at for at, _ in self._running.values()]

    def _start_ready(self, tasks: Tasks) -> None:
        now = clock.monotonic()
        while len(self._running) < self.workers and (entry := self._queue.take(now)) is not None:
            self._running[entry.key] = (now, entry)
            self._waited.observe(entry.waited)
            tasks.start(self._work(entry), name=f"{self.name} {entry.key}")

    async def _sleep(self) -> None:
        """Wait until a key was added, a run finished, or a delayed key is due."""
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
        _run.set(LoopRun(self.name, entry.key, entry.causes))  # only in this task
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
        """Hold the key until the cache has observed the run's writes; often at once, as most runs write nothing."""
        key = entry.key
        self._held[key] = entry
        when_seen(key, lambda: self._release(entry))
        if self._held.get(key) is entry:
            self._timers[key] = asyncio.get_running_loop().call_later(LONGEST_HOLD, self._release_unseen, entry)

    def _release(self, entry: QueueEntry[K]) -> None:
        key = entry.key
        if self._held.get(key) is not entry:
            # The key was already released by the timeout, so later runs may have used an older state. Run it again:
            # there may be no change event, if the written object was deleted before the cache observed it.
            self.add(key, "what was written came back late")
            return
        del self._held[key]
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()
        self._queue.done(key)
        self._wake.set()

    def _release_unseen(self, entry: QueueEntry[K]) -> None:
        self._log.warning("cache has not observed our write in time; releasing key", key=str(entry.key))
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
        except Exception as error:  # noqa: BLE001 - any exception of an author's code is an outcome: see _conclude
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
