"""Runs a declared controller: builds it, restarts it after crashes, and reports its state.

    phase      until                                           next phase
    standby    this replica leads and it is started            waiting
    waiting    its informers are synced                        running
    running    it is asked to stop                             stopped
    any        it fails                                        crashed, and after a pause waiting again

Each pause is twice as long as the previous one, at most `LONGEST_PAUSE`. A run that lasts longer than `LONGEST_PAUSE`
counts as recovery and resets the pause.
"""

import asyncio
import contextlib
from collections.abc import Hashable, Iterable, Iterator, Sequence
from enum import StrEnum
from functools import cache, partial
from typing import Any, Protocol, cast

import msgspec
from msgspec.structs import replace
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from controller_manager.common.api.resource import Key, Resource
from controller_manager.common.base import clock
from controller_manager.common.base.errors import definition_of, describe
from controller_manager.common.base.metrics import Family, Shown
from controller_manager.common.base.tasks import Tasks, keep_running
from controller_manager.common.options.flag import Options
from controller_manager.framework.cache.shard import Shard
from controller_manager.framework.controller.cache_barrier import CacheBarrier
from controller_manager.framework.controller.spec import Add, Context, ControllerSpec, Mapped, Reconciler, Source
from controller_manager.framework.controller.watches import EventHandler
from controller_manager.framework.work.failures import Acted, LoopState
from controller_manager.framework.work.loop import ControlLoop, Requeue
from controller_manager.framework.work.metrics import WorkMetrics
from controller_manager.framework.work.queue import Priority


class Phase(StrEnum):
    """A phase in the life of a controller."""

    STANDBY = "standby"
    """Another replica leads, or it has not been started yet."""
    WAITING = "waiting"
    """Its informers are not synced yet."""
    RUNNING = "running"
    CRASHED = "crashed"
    """It failed and will be restarted."""
    STOPPED = "stopped"
    ELSEWHERE = "elsewhere"
    """Leader migration gives it to another component."""


class ControllerState(msgspec.Struct, frozen=True):
    """The state of one controller. `seconds` is the time in its phase, `restarts` its crashes since the process start.

    `crash` is the error of its last crash, `crash_seconds` ago; empty if it never crashed. `failing_seconds` is the
    time since its first crash without a recovery, 0 if it is healthy. `waits_for` are the informers that are not
    synced, with their errors. `work` is set while it runs. `component` runs it instead, in the phase ELSEWHERE.
    """

    name: str
    phase: Phase
    seconds: float = 0.0
    restarts: int = 0
    crash: str = ""
    crash_seconds: float = 0.0
    failing_seconds: float = 0.0
    waits_for: tuple[str, ...] = ()
    work: LoopState | None = None
    component: str = ""


LONGEST_PAUSE = 60.0


class Lifecycle:
    """The phases and crashes of one controller."""

    def __init__(self, now: float) -> None:
        self.phase, self._since = Phase.STANDBY, now
        self._restarts = 0
        self._crash, self._crashed_at = "", 0.0
        # The time of the first crash without a recovery since; None if it is healthy.
        self._failing_since: float | None = None

    def enter(self, phase: Phase, now: float) -> None:
        """Enter a phase."""
        self.phase, self._since = phase, now

    def crash(self, error: BaseException, now: float) -> None:
        """Record a crash; the controller will be restarted."""
        if self._failing_since is None or self._has_recovered(now):
            self._failing_since = now
        self._restarts += 1
        self._crash, self._crashed_at = describe(error), now
        self.enter(Phase.CRASHED, now)

    def state(self, name: str, now: float, waits_for: tuple[str, ...], work: LoopState | None) -> ControllerState:
        """Return the state of the controller; the caller passes its name, missing informers and work."""
        well = self._failing_since is None or self._has_recovered(now)
        return ControllerState(
            name=name,
            phase=self.phase,
            seconds=now - self._since,
            restarts=self._restarts,
            crash=self._crash,
            crash_seconds=now - self._crashed_at if self._crash else 0.0,
            failing_seconds=0.0 if well or self._failing_since is None else now - self._failing_since,
            waits_for=waits_for,
            work=work,
        )

    def _has_recovered(self, now: float) -> bool:
        return self.phase is Phase.RUNNING and now - self._since > LONGEST_PAUSE


_RUNNING = Family(
    "running_managed_controllers",
    "1 while the controller runs in this process, 0 while it stands by, waits for its informers or has crashed.",
    "gauge",
    ("manager", "name"),
)
_RESTARTS = Family("controller_restarts_total", "Number of crashes of the controller.", "counter", ("controller",))

# Seconds that running reconciles have to finish when a controller stops.
_GRACE = 5.0


class Controller:
    """One controller of this process. The constructor requests its informers, so that they can sync before it runs.

    `metrics` are shared by all controllers of the process. With a `shard`, it reconciles only the keys of that shard,
    under the name `name`.
    """

    def __init__(
        self,
        spec: ControllerSpec[Any],
        context: Context,
        options: Options,
        metrics: WorkMetrics,
        *,
        shard: Shard | None = None,
        name: str = "",
    ) -> None:
        self.spec = spec
        self.name = name or spec.name
        self._shard = shard
        unechoed = (watch.resource.name for watch in spec.watches if isinstance(watch, Mapped) and not watch.echoes)
        self._barrier = CacheBarrier(context.informers, unechoed)
        client = context.client.derive(on_write=self._barrier.note, known_version=self._barrier.known_version)
        self._context = replace(context, client=client)
        self._options = options
        self._metrics = metrics
        self._watched = [context.informers.get(watch.resource, fields=watch.fields) for watch in spec.watches]
        with contextlib.suppress(ValueError):  # a duplicate index name makes only this controller fail, once it runs
            self._add_indexes()
        self._life = Lifecycle(clock.monotonic())
        self._loop: ControlLoop[Hashable] | None = None
        self._handler: EventHandler | None = None
        self._stopped = False
        self._stopping: asyncio.Future[None] | None = None  # while it runs; done once it is asked to stop

    async def run(self) -> None:
        """Run until `stop`. A crash affects only this controller: it restarts after a pause, with all objects."""
        if self._stopped:
            return
        self._stopping = asyncio.get_running_loop().create_future()
        work = keep_running(
            self._run_once,
            self._context.log,
            name=self.name,
            longest_pause=LONGEST_PAUSE,
            on_failure=lambda error: self._life.crash(error, clock.monotonic()),
        )
        try:
            async with Tasks() as tasks:
                working = tasks.start(work, name=f"run {self.name}")
                await asyncio.wait((working, self._stopping), return_when=asyncio.FIRST_COMPLETED)
                if self._loop is not None:
                    self._loop.stop()
                    await asyncio.wait((working,), timeout=_GRACE + 1.0)
        finally:
            self._life.enter(Phase.STOPPED, clock.monotonic())

    def stop(self) -> None:
        """Stop taking keys; `run` returns once running reconciles have finished or the grace period is over."""
        self._stopped = True
        if self._stopping is not None and not self._stopping.done():
            self._stopping.set_result(None)

    def state(self) -> ControllerState:
        """Return the current state as plain data."""
        work = self._loop.state() if self._loop is not None else None
        if work is not None and self._barrier.apart:
            work = replace(work, acted=(*work.acted, *self._acted_apart()))
        return self._life.state(self.name, clock.monotonic(), self.waits_for, work)

    @property
    def is_failing(self) -> bool:
        """Whether it is in the phase CRASHED, or has failing or spinning keys."""
        loop = self._loop
        return self._life.phase is Phase.CRASHED or (loop is not None and bool(loop.failed or loop.spinning))

    def busy_with(self, within: float = 0.0) -> list[str]:
        """Describe the pending work, including keys that are due within `within` seconds."""
        return [] if self._loop is None else self._loop.busy_with(within)

    @property
    def waits_for(self) -> tuple[str, ...]:
        """The informers that are not synced yet, with their last errors."""
        missing = [one for one in dict.fromkeys(self._watched) if not one.is_synced]
        errors = ((str(one.selection), one.reflector.last_error) for one in missing)
        return tuple(f"{selection} ({error})" if error else selection for selection, error in errors)

    async def _run_once(self) -> None:
        self._life.enter(Phase.WAITING, clock.monotonic())
        self._add_indexes()
        reconciler = self.spec.reconciler(self._context, self._options)
        for informer in self._watched:
            await informer.synced()
        self._loop = loop = ControlLoop(
            self.name,
            partial(self._reconcile, reconciler),
            self._metrics,
            self._context.log,
            workers=self.spec.workers(self._options),
            when_seen=self._barrier.when_seen,
            written=self._barrier.written,
            queue=self._queue,
            retry_delays=self.spec.retry_delays,
            where=definition_of(type(reconciler).reconcile),
        )
        by = self.spec.sharded_by
        add: Add = loop.add if self._shard is None or by is None else partial(_add_within, self._shard, by, loop)
        self._handler = handler = EventHandler(
            self.spec.watches, self._context.informers, self._options, add, self._barrier.is_echo
        )
        self._life.enter(Phase.RUNNING, clock.monotonic())
        try:
            async with Tasks() as tasks:
                tasks.start(handler.run(), name=f"watches {self.name}")
                if _is_source(type(reconciler)):
                    tasks.start(cast("Source", reconciler).run(add), name=f"source {self.name}")
                await loop.run(grace=_GRACE)
        finally:
            self._loop = self._handler = None
            self._barrier.clear()

    def _acted_apart(self) -> Iterator[Acted]:
        """Yield the writes outside of runs, for example of batches for many keys."""
        now = clock.monotonic()
        for at, write in self._barrier.apart:
            yield Acted(str(write.key), now - at, (), (str(write),), 1)

    @property
    def _queue(self) -> str:
        """The name of its queue in metrics; each shard has its own."""
        queue = self.spec.queue
        return f"{queue}{self.name.removeprefix(self.spec.name)}" if queue else ""

    def _add_indexes(self) -> None:
        for watch, informer in zip(self.spec.watches, self._watched, strict=True):
            informer.add_indexes(watch.indexes)

    async def _reconcile(self, reconciler: Reconciler[Any], key: Hashable) -> Requeue | None:
        handler = self._handler
        if handler is not None:
            handler.began(key)
        with self._barrier.noting(key):
            try:
                return await reconciler.reconcile(key)
            finally:
                if handler is not None:
                    handler.ended(key)


@cache
def _is_source(kind: type[object]) -> bool:
    return issubclass(kind, Source)


def _add_within(
    shard: Shard,
    resource: Resource[Any],
    loop: ControlLoop[Hashable],
    key: Hashable,
    cause: str = "",
    priority: Priority = Priority.NORMAL,
    *,
    after: float = 0.0,
) -> None:
    """Add a key only if it belongs to the shard."""
    if isinstance(key, Key) and shard.has(resource, key):
        loop.add(key, cause, priority, after=after)


class Observed(Protocol):
    """What the collector reads of a controller."""

    def state(self) -> ControllerState:
        """Return the current state."""


class ControllerMetrics(Collector):
    """Metrics of the controllers of the process `manager`, read at scrape time."""

    def __init__(self, controllers: Sequence[Observed], manager: str) -> None:
        self._controllers = controllers
        self._manager = manager

    def collect(self) -> Iterable[Metric]:
        """Return one sample of each family per controller; called by the registry."""
        states = [controller.state() for controller in self._controllers]
        running = [((self._manager, one.name), float(one.phase is Phase.RUNNING)) for one in states]
        restarts = [((one.name,), float(one.restarts)) for one in states]
        return (Shown(_RUNNING, running), Shown(_RESTARTS, restarts))
