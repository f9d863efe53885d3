"""The controllers of a replica that shares them with others: each controller or shard runs while this replica holds
its lock, and is created again for the next run.
"""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from functools import partial

from controller_manager.app.election import Election, LockSpec
from controller_manager.app.state import LockState
from controller_manager.common.api.coordination import Lease
from controller_manager.common.base import clock
from controller_manager.common.base.runtime import Runtime
from controller_manager.framework.cache.informers import Informers, ShardInformers
from controller_manager.framework.client.events import EventWriter
from controller_manager.framework.controller.runner import Controller, ControllerState, Phase
from controller_manager.framework.controller.spec import Mapped

_FLUSH_EVENTS = 2.0  # seconds to write the last events when it stops
# Maximum seconds to wait for informers to sync before this replica joins.
_FILLING = 30.0


class Writes:
    """Whether a controller may write, and when its last write without a response ended."""

    def __init__(self, may_write: Callable[[], bool]) -> None:
        self.may_write = may_write
        self.unanswered_at = float("-inf")

    def unanswered(self) -> None:
        """Record a write that ended without a response and may still arrive."""
        self.unanswered_at = clock.monotonic()


# Creates the controller of a lock, with the informers of its shard if it has one.
Make = Callable[[LockSpec, Writes, ShardInformers | None], Controller]


class SharedController:
    """The work under one lock.

    The controller of a whole lock also exists before it runs, so that its informers stay synced. The controller of a
    shard exists only while it runs, so that this replica does not hold the objects of other replicas' shards.
    """

    def __init__(self, lock: LockSpec, make: Make, informers: Informers, writes: Writes) -> None:
        self.lock = lock
        self.spec = lock.spec
        self.name = lock.name
        self._make = make
        self._informers = informers
        self._writes = writes
        self._of_shard: ShardInformers | None = None
        self._ready = self._made() if lock.shard is None else None
        self._running: Controller | None = None
        self._stop = asyncio.Event()
        # Seconds to wait before the start, and seconds in which a write without a response may still arrive.
        self.wait = 0.0
        self.settling = 0.0

    def state(self) -> ControllerState:
        """Return the current state."""
        one = self._running or self._ready
        return one.state() if one is not None else ControllerState(self.lock.name, Phase.STANDBY)

    @property
    def is_failing(self) -> bool:
        """Whether it is in the phase CRASHED, or has failing or spinning keys."""
        one = self._running or self._ready
        return one is not None and one.is_failing

    def busy_with(self, within: float = 0.0) -> list[str]:
        """Describe the pending work, including keys that are due within `within` seconds."""
        return [] if self._running is None else self._running.busy_with(within)

    async def run(self) -> None:
        """Run the controller until `stop`."""
        self._stop.clear()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stop.wait(), self.wait)
            return
        self._running, self._ready = self._ready or self._made(), None
        try:
            await self._running.run()
        finally:
            self._running = None
            if self._of_shard is not None:
                self._of_shard.close()
                self._of_shard = None
        if self.lock.shard is None:
            self._ready = self._made()

    def stop(self) -> None:
        """Make `run` return after running reconciles have finished."""
        self._stop.set()
        if self._running is not None:
            self._running.stop()

    def settled(self) -> float:
        """Return the monotonic time after which none of its writes can still arrive."""
        return self._writes.unanswered_at + self.settling

    def _made(self) -> Controller:
        if self.lock.shard is not None:
            whole = [one.resource.name for one in self.spec.watches if isinstance(one, Mapped) and one.whole]
            self._of_shard = ShardInformers(self._informers, self.lock.shard, whole)
        return self._make(self.lock, self._writes, self._of_shard)


class SharedGroup:
    """All shared controllers, whether this replica runs them or not."""

    def __init__(
        self,
        election: Election,
        locks: Sequence[LockSpec],
        make: Make,
        informers: Informers,
        events: EventWriter,
        interval: float,
        runtime: Runtime,
    ) -> None:
        # Set while this replica takes part.
        self.leading = asyncio.Event()
        self._interval = interval
        self._next_start = 0.0
        self._informers = informers
        self._events = events
        self._recorder = events.recorder(runtime.name)
        families = {lock.name: lock.family for lock in locks}
        self._election = election.shared(families, self._begin)
        timings = election.timings
        self.controllers = tuple(
            SharedController(lock, make, informers, Writes(partial(self._election.leads, lock.name))) for lock in locks
        )
        self._by_lock = {one.lock.name: one for one in self.controllers}
        for one in self.controllers:
            one.settling = timings.lease - timings.renew

    def may_write(self) -> bool:
        """Return whether any of these controllers may write right now."""
        return self._election.alive()

    def overdue(self) -> bool:
        """Return whether controllers run although this replica may no longer act."""
        return self._election.joined and self.leading.is_set() and not self._election.alive()

    async def run(self) -> None:
        """Take part until `stop`, then release all locks. Raises LeadershipLost after all work has ended."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_FILLING):
                for informer in self._informers.required:
                    await informer.synced()
        self.leading.set()
        try:
            await self._election.run()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._events.flush(), _FLUSH_EVENTS)
        finally:
            self.leading.clear()

    def stop(self) -> None:
        """Make `run` return after running reconciles have finished and all locks are released."""
        self._election.stop()

    def states(self) -> tuple[LockState, ...]:
        """Return the known holders of all locks."""
        return tuple(map(self._state, self.controllers))

    def _state(self, one: SharedController) -> LockState:
        lock, known = one.lock.name, self._election
        holder = known.membership.holder(lock)
        return LockState(str(known.key(lock)), holder, known.since(lock), known.leads(lock), (lock,))

    def _begin(self, lock: str, lease: Lease) -> SharedController:
        """Return the controller of an acquired lock; starts are at least the interval apart."""
        self._recorder.normal(lease, "LeaderElection", f"{self._election.me} became leader")
        now = clock.monotonic()
        start = max(now, self._next_start)
        self._next_start = start + self._interval
        one = self._by_lock[lock]
        one.wait = start - now
        return one
