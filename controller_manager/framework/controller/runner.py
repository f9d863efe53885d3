"""A declared controller as it runs: put together, kept running and counted, from the start to the stop of its process.

    phase      left when                                    then
    standby    this replica leads and its turn has come     waiting
    waiting    its informers have read everything           running
    running    it is asked to stop                          stopped
    any        it fails                                     crashed, and after a pause waiting again

A pause is twice as long as the one before it, at most `LONGEST_PAUSE`; a run that lasted longer than that makes them
short again, and is taken for recovery.
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
from controller_manager.common.options import Options
from controller_manager.framework.cache import Shard
from controller_manager.framework.controller.cache_barrier import CacheBarrier
from controller_manager.framework.controller.spec import Add, Context, ControllerSpec, Mapped, Reconciler, Source
from controller_manager.framework.controller.watches import EventHandler
from controller_manager.framework.work import ControlLoop, LoopState, Priority, Requeue, WorkMetrics
from controller_manager.framework.work.failures import Acted


class Phase(StrEnum):
    """A phase in the life of a controller."""

    STANDBY = "standby"
    """Another replica leads, or its turn to start has not come."""
    WAITING = "waiting"
    """Its informers have not read everything yet."""
    RUNNING = "running"
    CRASHED = "crashed"
    """It failed and will be started again."""
    STOPPED = "stopped"
    ELSEWHERE = "elsewhere"
    """Leader migration gives it to another component."""


class ControllerState(msgspec.Struct, frozen=True):
    """One controller: in its phase since so many `seconds`; `restarts` counts its crashes since the process began.

    `crash` is what ended it last, so many `crash_seconds` ago, empty if nothing ever did; `failing_seconds` is how long
    it has been failing without a recovery in between, 0 while it is well. `waits_for` are the local copies that are not
    complete, and why. `work` is there while it runs. `component` is who runs it instead, if it is elsewhere.
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
    """The past of one controller as far as it matters."""

    def __init__(self, now: float) -> None:
        self.phase, self._since = Phase.STANDBY, now
        self._restarts = 0
        self._crash, self._crashed_at = "", 0.0
        # Since when it has been failing without a recovery in between; None while it is well.
        self._failing_since: float | None = None

    def enter(self, phase: Phase, now: float) -> None:
        """It is in that phase from now on."""
        self.phase, self._since = phase, now

    def crash(self, error: BaseException, now: float) -> None:
        """It failed, and will be started again."""
        if self._failing_since is None or self._has_recovered(now):
            self._failing_since = now
        self._restarts += 1
        self._crash, self._crashed_at = describe(error), now
        self.enter(Phase.CRASHED, now)

    def state(self, name: str, now: float, waits_for: tuple[str, ...], work: LoopState | None) -> ControllerState:
        """Everything about the controller at a time, with what others know about it."""
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
    "1 while the controller runs in this process: the replica leads, and it is not waiting or crashed.",
    "gauge",
    ("manager", "name"),
)
_RESTARTS = Family("controller_restarts_total", "Crashes of the controller itself.", "counter", ("controller",))

# Seconds that what runs has to finish in when a controller stops.
_GRACE = 5.0


class Controller:
    """One controller of this process; making it declares its informers, so that they fill before it runs.

    `metrics` are those of all controllers of the process. With a `shard` it works for the keys of that alone, and is
    called `name`.
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
        with contextlib.suppress(ValueError):  # a clash of names is a failure of this controller alone, once it runs
            self._add_indexes()
        self._life = Lifecycle(clock.monotonic())
        self._loop: ControlLoop[Hashable] | None = None
        self._handler: EventHandler | None = None
        self._stopped = False
        self._stopping: asyncio.Future[None] | None = None  # while it runs, of when it is asked to stop

    async def run(self) -> None:
        """Work until `stop`. A crash ends this controller alone: after a pause it starts anew, with all objects."""
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
        """Start nothing more; `run` returns once what runs has finished or had its time."""
        self._stopped = True
        if self._stopping is not None and not self._stopping.done():
            self._stopping.set_result(None)

    def state(self) -> ControllerState:
        """Return how it fares now."""
        work = self._loop.state() if self._loop is not None else None
        if work is not None and self._barrier.apart:
            work = replace(work, acted=(*work.acted, *self._acted_apart()))
        return self._life.state(self.name, clock.monotonic(), self.waits_for, work)

    @property
    def is_failing(self) -> bool:
        """Return whether it has crashed and not started again, or one of its keys failed or spun when it ran last."""
        loop = self._loop
        return self._life.phase is Phase.CRASHED or (loop is not None and bool(loop.failed or loop.spinning))

    def busy_with(self, within: float = 0.0) -> list[str]:
        """Return in words what it has to do now, or within so many seconds."""
        return [] if self._loop is None else self._loop.busy_with(within)

    @property
    def waits_for(self) -> tuple[str, ...]:
        """The informers it can't start without, by name, and what keeps them."""
        missing = [one for one in dict.fromkeys(self._watched) if not one.is_synced]
        told = ((str(one.selection), one.reflector.last_error) for one in missing)
        return tuple(f"{selection} ({error})" if error else selection for selection, error in told)

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
        """Yield what was written by no run of a key, as by what works on many keys at a time."""
        now = clock.monotonic()
        for at, write in self._barrier.apart:
            yield Acted(str(write.key), now - at, (), (str(write),), 1)

    @property
    def _queue(self) -> str:
        """What metrics call its queue: that of a shard is another one for each."""
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
    """Order work only for keys, of objects of a resource, that belong to the shard."""
    if isinstance(key, Key) and shard.has(resource, key):
        loop.add(key, cause, priority, after=after)


class Observed(Protocol):
    """A controller as it is looked at."""

    def state(self) -> ControllerState:
        """Return how it fares now."""


class ControllerMetrics(Collector):
    """Read from the controllers of the process `manager` at scrape time."""

    def __init__(self, controllers: Sequence[Observed], manager: str) -> None:
        self._controllers = controllers
        self._manager = manager

    def collect(self) -> Iterable[Metric]:
        """One sample of each family per controller; called by the registry."""
        states = [controller.state() for controller in self._controllers]
        running = [((self._manager, one.name), float(one.phase is Phase.RUNNING)) for one in states]
        restarts = [((one.name,), float(one.restarts)) for one in states]
        return (Shown(_RUNNING, running), Shown(_RESTARTS, restarts))
