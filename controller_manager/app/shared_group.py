"""The controllers of a replica that shares them with others: each, or each shard of one, runs while this replica has
its lock, and is made anew for the next time.
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
from controller_manager.framework.cache import Informers, ShardInformers
from controller_manager.framework.client.events import EventWriter
from controller_manager.framework.controller import Mapped
from controller_manager.framework.controller.runner import Controller, ControllerState, Phase

_FLUSH_EVENTS = 2.0  # seconds the last events get at a stop
# Seconds that local copies have to be filled in before others are asked to hand over.
_FILLING = 30.0


class Writes:
    """Whether a controller may write, and when one of its writes ended without an answer."""

    def __init__(self, may_write: Callable[[], bool]) -> None:
        self.may_write = may_write
        self.unanswered_at = float("-inf")

    def unanswered(self) -> None:
        """A write ended without an answer, and may arrive yet."""
        self.unanswered_at = clock.monotonic()


# Makes the controller of a lock; its informers are those of its shard, if it is one.
Make = Callable[[LockSpec, Writes, ShardInformers | None], Controller]


class SharedController:
    """What is done under one lock. Its controller is there while it runs, and before that unless it is a shard: local
    copies of all objects stay warm, those of shards that others have are not kept.
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
        # Seconds to wait before it starts, and those in which a write without an answer may arrive.
        self.wait = 0.0
        self.settling = 0.0

    def state(self) -> ControllerState:
        """Return how it fares now."""
        one = self._running or self._ready
        return one.state() if one is not None else ControllerState(self.lock.name, Phase.STANDBY)

    @property
    def is_failing(self) -> bool:
        """Return whether it has crashed and not started again, or one of its keys failed or spun when it ran last."""
        one = self._running or self._ready
        return one is not None and one.is_failing

    def busy_with(self, within: float = 0.0) -> list[str]:
        """Return in words what it has to do now, or within so many seconds."""
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
        """Have `run` end: what the controller works on is finished."""
        self._stop.set()
        if self._running is not None:
            self._running.stop()

    def settled(self) -> float:
        """Return the monotonic time (seconds) from when no write of it can still arrive."""
        return self._writes.unanswered_at + self.settling

    def _made(self) -> Controller:
        if self.lock.shard is not None:
            whole = [one.resource.name for one in self.spec.watches if isinstance(one, Mapped) and one.whole]
            self._of_shard = ShardInformers(self._informers, self.lock.shard, whole)
        return self._make(self.lock, self._writes, self._of_shard)


class SharedGroup:
    """All controllers of this replica, those that it runs and those that it does not."""

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
        """Return whether any of these controllers may change anything right now."""
        return self._election.alive()

    def overdue(self) -> bool:
        """Return whether controllers run although this replica must not act any more."""
        return self._election.joined and self.leading.is_set() and not self._election.alive()

    async def run(self) -> None:
        """Take part until `stop`, then give everything back. Raises LeadershipLost once everything has ended."""
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
        """Have `run` end: what controllers work on is finished, all locks are given back."""
        self._election.stop()

    def states(self) -> tuple[LockState, ...]:
        """Return who has which lock, as far as it is known here."""
        return tuple(map(self._state, self.controllers))

    def _state(self, one: SharedController) -> LockState:
        lock, known = one.lock.name, self._election
        holder = known.membership.holder(lock)
        return LockState(str(known.key(lock)), holder, known.since(lock), known.leads(lock), (lock,))

    def _begin(self, lock: str, lease: Lease) -> SharedController:
        """Return the controller that begins now: one so many seconds behind the other."""
        self._recorder.normal(lease, "LeaderElection", f"{self._election.me} became leader")
        now = clock.monotonic()
        start = max(now, self._next_start)
        self._next_start = start + self._interval
        one = self._by_lock[lock]
        one.wait = start - now
        return one
