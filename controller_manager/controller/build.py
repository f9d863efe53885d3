"""A declared controller put together: its informers, its loop and its reconciler, kept running."""

import asyncio
import contextlib
from collections.abc import Callable, Hashable
from dataclasses import replace
from functools import partial
from typing import Any

from controller_manager.base import clock
from controller_manager.base.tasks import Tasks, keep_running
from controller_manager.client import Write
from controller_manager.controller.consistency import OwnWrites, note_write, noting_writes, when_seen
from controller_manager.controller.lifecycle import LONGEST_PAUSE, Lifecycle
from controller_manager.controller.spec import Context, ControllerSpec, Mapped, Reconciler, Source
from controller_manager.controller.state import ControllerState, Phase
from controller_manager.controller.watches import EventHandler
from controller_manager.options import Options
from controller_manager.work import ControlLoop, Requeue, WorkMetrics

# Seconds that what runs has to finish in when a controller stops.
_GRACE = 5.0


class Controller:
    """One controller of this process; making it declares its informers, so that they fill before it runs.

    `metrics` are those of all controllers of the process.
    """

    def __init__(self, spec: ControllerSpec[Any], context: Context, options: Options, metrics: WorkMetrics) -> None:
        self.spec = spec
        unechoed = (watch.resource.name for watch in spec.watches if isinstance(watch, Mapped) and not watch.echoes)
        self._echoes = OwnWrites(frozenset(unechoed))
        self._context = replace(context, client=context.client.derive(on_write=self._note))
        self._options = options
        self._metrics = metrics
        self._watched = [context.informers.get(watch.resource, fields=watch.fields) for watch in spec.watches]
        with contextlib.suppress(ValueError):  # a clash of names is a failure of this controller alone, once it runs
            self._add_indexes()
        self._life = Lifecycle(clock.monotonic())
        self._loop: ControlLoop[Hashable] | None = None
        self._feed: EventHandler | None = None
        self._stop = asyncio.Event()
        # What the last run of a key wrote, from the end of the run until its loop asks for it.
        self._written: dict[Hashable, list[Write]] = {}

    async def run(self) -> None:
        """Work until `stop`. A crash ends this controller alone: after a pause it starts anew, with all objects."""
        if self._stop.is_set():
            return
        work = keep_running(
            self._run_once,
            self._context.log,
            name=self.spec.name,
            longest_pause=LONGEST_PAUSE,
            on_failure=lambda error: self._life.crash(error, clock.monotonic()),
        )
        try:
            async with Tasks() as tasks:
                working = tasks.start(work, name=f"run {self.spec.name}")
                stopping = tasks.start(self._stop.wait(), name=f"stop {self.spec.name}")
                await asyncio.wait((working, stopping), return_when=asyncio.FIRST_COMPLETED)
                if self._loop is not None:
                    self._loop.stop()
                    await asyncio.wait((working,), timeout=_GRACE + 1.0)
        finally:
            self._life.enter(Phase.STOPPED, clock.monotonic())

    def stop(self) -> None:
        """Start nothing more; `run` returns once what runs has finished or had its time."""
        self._stop.set()

    def state(self) -> ControllerState:
        """How it fares now."""
        work = self._loop.state() if self._loop is not None else None
        return self._life.state(self.spec.name, clock.monotonic(), self.waits_for, work)

    @property
    def waits_for(self) -> tuple[str, ...]:
        """The informers it can't start without, by name, and what keeps them."""
        missing = (one.state() for one in dict.fromkeys(self._watched) if not one.is_synced)
        return tuple(f"{one.selection} ({one.last_error})" if one.last_error else one.selection for one in missing)

    async def _run_once(self) -> None:
        self._life.enter(Phase.WAITING, clock.monotonic())
        self._add_indexes()
        reconciler = self.spec.reconciler(self._context, self._options)
        for informer in self._watched:
            await informer.synced()
        self._loop = loop = ControlLoop(
            self.spec.name,
            partial(self._reconcile, reconciler),
            self._metrics,
            self._context.log,
            workers=self.spec.workers(self._options),
            cache_barrier=self._hold_back,
            queue=self.spec.queue,
        )
        self._feed = feed = EventHandler(
            self.spec.watches, self._context.informers, self._options, loop.add, self._echoes.is_one
        )
        self._life.enter(Phase.RUNNING, clock.monotonic())
        try:
            async with Tasks() as tasks:
                tasks.start(feed.run(), name=f"feed {self.spec.name}")
                if isinstance(reconciler, Source):
                    tasks.start(reconciler.run(loop.add), name=f"source {self.spec.name}")
                await loop.run(grace=_GRACE)
        finally:
            self._loop = self._feed = None
            self._written.clear()

    def _note(self, write: Write) -> None:
        note_write(write)
        self._echoes.expect(write)

    def _add_indexes(self) -> None:
        for watch, informer in zip(self.spec.watches, self._watched, strict=True):
            informer.add_indexes(watch.indexes)

    async def _reconcile(self, reconciler: Reconciler[Any], key: Hashable) -> Requeue | None:
        feed = self._feed
        if feed is not None:
            feed.began(key)
        with noting_writes() as writes:
            try:
                return await reconciler.reconcile(key)
            finally:
                self._written[key] = list(writes.values())
                if feed is not None:
                    feed.ended(key)

    def _hold_back(self, key: Hashable, done: Callable[[], None]) -> None:
        when_seen(self._context.informers, self._written.pop(key), done)
