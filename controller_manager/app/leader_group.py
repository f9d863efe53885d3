"""The controllers under one lock: started in order when this process leads, stopped before it releases the lock."""

import asyncio
import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from controller_manager.app.state import LockState
from controller_manager.common.base.runtime import Runtime
from controller_manager.common.base.tasks import Tasks
from controller_manager.framework.client.events import EventWriter
from controller_manager.framework.controller.runner import Controller
from controller_manager.framework.leader.elector import Elector

_FLUSH_EVENTS = 2.0  # seconds to write the last events when it stops


class LeaderGroup:
    """Controllers, started `interval` seconds apart, and their lock. Without an `elector` they need no lock."""

    def __init__(
        self,
        elector: Elector | None,
        controllers: Sequence[Controller],
        events: EventWriter,
        interval: float,
        runtime: Runtime,
    ) -> None:
        self.controllers = controllers
        # Set while the controllers run or start.
        self.leading = asyncio.Event()
        self._elector = elector
        self._events = events
        self._recorder = events.recorder(runtime.name)
        self._interval = interval
        self._log = runtime.log("manager")
        self._stop = asyncio.Event()

    def may_write(self) -> bool:
        """Return whether these controllers may write right now."""
        return self.leading.is_set() if self._elector is None else self._elector.leads()

    def overdue(self) -> bool:
        """Return whether the controllers run although leadership has expired and the elector has not stopped them."""
        return self.leading.is_set() and not self.may_write()

    async def run(self) -> None:
        """Wait for leadership, run the controllers until `stop`, then release the lock.

        Raises LeadershipLost after leadership was lost and all work has ended.
        """
        await (self._lead() if self._elector is None else self._elector.run(self._lead))

    def stop(self) -> None:
        """Make `run` return, if the controllers run, after running reconciles and the last events are done."""
        self._stop.set()

    def states(self) -> tuple[LockState, ...]:
        """Return the known holder of the lock."""
        return (self._state(),)

    def _state(self) -> LockState:
        names = tuple(controller.spec.name for controller in self.controllers)
        if self._elector is None:
            return LockState("", "", "", self.may_write(), names)
        record = self._elector.record
        since = record.acquired if record and record.holder else ""
        return LockState(str(self._elector.key), self._elector.holder, since, self.may_write(), names)

    async def _lead(self) -> None:
        """Run the controllers until `stop`. Cancellation ends them at once."""
        self.leading.set()
        try:
            with self._reporting_leadership():
                async with Tasks() as tasks:
                    running: list[asyncio.Task[Any]] = []
                    tasks.start(self._start_controllers(tasks, running), name="start the controllers")
                    await self._stop.wait()
                    for controller in self.controllers:
                        controller.stop()
                    if running:
                        await asyncio.wait(running)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._events.flush(), _FLUSH_EVENTS)
        finally:
            self.leading.clear()

    async def _start_controllers(self, tasks: Tasks, running: list[asyncio.Task[Any]]) -> None:
        for controller in self.controllers:
            if running:
                await asyncio.sleep(self._interval)
            name = controller.spec.name
            self._log.info("starting a controller", controller=name, waits_for=controller.waits_for)
            running.append(tasks.start(controller.run(), name=name))

    @contextlib.contextmanager
    def _reporting_leadership(self) -> Iterator[None]:
        """Record events on the lease when it is acquired and released, but not after a loss of leadership."""
        lease = self._elector.lease if self._elector is not None else None
        if self._elector is None or lease is None:
            yield
            return
        me = self._elector.me
        self._recorder.normal(lease, "LeaderElection", f"{me} became leader")
        yield
        self._recorder.normal(lease, "LeaderElection", f"{me} stopped leading")
