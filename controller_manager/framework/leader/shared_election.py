"""Election of several active replicas: each keeps a session and takes the locks assigned to it.

A replica releases a lock that is assigned to another one after the work under it has ended. All replicas hold the main
lease together, with an identity derived from the set of locks. A replica with another set of locks, or one that wants
the main lease alone, waits until all of them have left, and vice versa.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import partial
from itertools import count
from typing import Any, Protocol

from controller_manager.common.api import errors
from controller_manager.common.api.coordination import Lease
from controller_manager.common.api.resource import Key
from controller_manager.common.base import clock
from controller_manager.common.base.random import random_source
from controller_manager.common.base.runtime import Runtime
from controller_manager.common.base.tasks import Tasks
from controller_manager.framework.client.client import Client
from controller_manager.framework.leader.elector import LeaderMetrics, LeadershipLost
from controller_manager.framework.leader.lease import LeaseTimings, read
from controller_manager.framework.leader.main_lease import MainLease
from controller_manager.framework.leader.membership import LockAction, Membership
from controller_manager.framework.leader.shared_leases import SharedLeases, SharedLocks


class Work(Protocol):
    """Work that runs under a lock."""

    async def run(self) -> None:
        """Work until `stop`. Cancellation ends the work at once."""

    def stop(self) -> None:
        """Make `run` return after the current work is finished."""

    def settled(self) -> float:
        """Return the monotonic time after which none of its writes can still arrive; known once `run` has ended."""


class SharedElection:
    """One replica. Its identity must never have been used before. `make(lock, lease)` creates the work of a lock.

    By the local clock, it may act until `timings.renew` seconds after it sent the last successful renewal of its
    session, and not longer than that after the last renewal of the main lease by any replica.
    """

    def __init__(
        self,
        client: Client,
        shared: SharedLocks,
        membership: Membership,
        timings: LeaseTimings,
        make: Callable[[str, Lease], Work],
        runtime: Runtime,
        metrics: LeaderMetrics,
    ) -> None:
        self._shared = shared
        self._leases = SharedLeases(client, shared, timings.lease)
        self._main = MainLease(self._leases, shared, timings.retry)
        self._timings = timings
        self._make = make
        self._metrics = metrics
        self._log = runtime.log("leader").bind(me=membership.me)
        self._tasks: Tasks | None = None
        self.me = membership.me
        self.membership = membership
        self._stopping = False
        # Our session as last written, and when the last successful renewal was sent.
        self._session: Lease | None = None
        self._session_name = ""
        self._renewed: float | None = None
        # By lock: its lease as last listed, its lease as we last wrote it, when, its work; locks with a running task.
        self._listed: Mapping[str, Lease] = {}
        self._held: dict[str, Lease] = {}
        self._taken: dict[str, float] = {}
        self._working: dict[str, Work] = {}
        self._busy: set[str] = set()
        for lock in shared.families:
            metrics.status.set(0, shared.key(lock).name)

    @property
    def main_holder(self) -> str:
        """The last observed holder of the main lease."""
        return self._main.holder

    @property
    def joined(self) -> bool:
        """Return whether this replica takes part."""
        return self._renewed is not None

    def alive(self) -> bool:
        """Return whether this replica may act at all right now."""
        if self._renewed is None or self._main.renewed is None:
            return False
        return clock.monotonic() < min(self._renewed, self._main.renewed) + self._timings.renew

    def leads(self, lock: str) -> bool:
        """Return whether this replica may act under a lock right now."""
        return lock in self._working and self.alive()

    def key(self, lock: str) -> Key:
        """Return the lease of a lock."""
        return self._shared.key(lock)

    def since(self, lock: str) -> str:
        """Return when the holder of a lock acquired it (RFC 3339), by the last list; empty if it has no holder."""
        lease = self._listed.get(lock)
        return read(lease).acquired if lease is not None and read(lease).holder else ""

    def stop(self) -> None:
        """Make `run` return after all work is finished and all locks are released."""
        self._stopping = True

    async def run(self) -> None:
        """Take part until `stop`. Raises `LeadershipLost`, after all work has ended, if leadership was lost."""
        lost, orderly = "", True
        try:
            await self._join()
            orderly = False
            async with Tasks() as self._tasks:
                lost = await self._take_part()
                orderly = not lost
                if lost:
                    self._log.error("lost the lead; stopping what runs", reason=lost)
                    self._renewed = None
        finally:
            if orderly:
                await self._leave()
            self._renewed = None
        if lost:
            raise LeadershipLost(lost)

    async def _join(self) -> None:
        waits_for = ""
        while not self._stopping:
            if await self._attempt(self._keep_main) and await self._attempt(self._renew_session):
                self._log.info("taking part", session=self._session_name)
                return
            if self.main_holder not in ("", self._shared.holder, waits_for):
                waits_for = self.main_holder
                self._log.info("standing by while another leads", holder=waits_for)
            await self._pause()

    async def _take_part(self) -> str:
        """Take part until stopped; return why this replica may no longer act, or an empty string after `stop`."""
        while not self._stopping or self._busy:
            if self._stopping:
                self._stop_all()
            try:
                async with asyncio.timeout_at(self._deadline()):
                    await self._attempt(self._renew_session)
                    if await self._attempt(self._list):
                        await self._attempt(self._keep_main)
                        why = self._act()
                        if why:
                            return why
                    await self._pause()
            except TimeoutError:
                self._log.debug("there is no time left to renew the session")
            if not self.alive():
                return self._loss()
        return ""

    def _deadline(self) -> float:
        assert self._renewed is not None
        assert self._main.renewed is not None
        return min(self._renewed, self._main.renewed) + self._timings.renew

    def _loss(self) -> str:
        if self.main_holder != self._shared.holder:
            return f"the lease {self._shared.main} was taken: its holder is {self.main_holder or 'empty'}"
        return f"the lease {self._session_name} could not be renewed for {self._timings.renew:g} s"

    async def _pause(self) -> None:
        await asyncio.sleep(random_source().uniform(self._timings.retry / 2, self._timings.retry))

    async def _attempt(self, step: Callable[[], Awaitable[bool]]) -> bool:
        """Return whether a step succeeded."""
        try:
            async with asyncio.timeout(self._timings.renew / 2):
                return await step()
        except (errors.Conflict, errors.AlreadyExists) as refusal:
            self._log.debug("another was faster", error=refusal)
        except (errors.ApiError, OSError) as error:  # a timeout is an OSError
            self._log.warning("can't reach the leases", error=error)
        return False

    # The session.

    async def _renew_session(self) -> bool:
        lease, self._session = self._session, None
        if not self._session_name:
            lease = await self._free_session()
        elif lease is None:
            lease = await self._leases.get(self._session_name)
            if lease is None or read(lease).holder != self.me:
                if self.joined:  # another client changed or deleted it: let our term expire
                    return False
                self._session_name = ""
                return False
        sent = clock.monotonic()
        self._session = await self._leases.hold(lease, self._session_name, self.me, shares=not self._stopping)
        self._renewed = sent
        return True

    async def _free_session(self) -> Lease | None:
        """Choose a free session name; return its lease if one exists."""
        asked = clock.monotonic()
        found = await self._leases.list()
        self._observe_sessions(found)
        names = (self._shared.session(number) for number in count())
        self._session_name = self.membership.sessions.free_slot(names, asked)
        return found.get(self._session_name)

    async def _keep_main(self) -> bool:
        return await self._main.keep(joined=self.joined)

    async def _leave(self) -> None:
        """Release the session, and the main lease if no other replica is left."""
        if self._session_name:
            await self._attempt(self._release_session)
        if self.joined and not [one for one in self.membership.members if one != self.me]:
            await self._attempt(self._release_main)

    async def _release_session(self) -> bool:
        lease = self._session or await self._leases.get(self._session_name)
        if lease is not None and read(lease).holder == self.me:
            await self._leases.release(lease)
            self._log.info("released the session", session=self._session_name)
        return True

    async def _release_main(self) -> bool:
        await self._main.release()
        return True

    # The locks.

    async def _list(self) -> bool:
        asked = clock.monotonic()
        found = await self._leases.list()
        self._observe_sessions(found)
        main = found.get(self._shared.main.name)
        if main is None:
            await self._main.read()
        else:
            self._main.observe(main, asked)
        self._listed = {one: found[name] for one in self._shared.families if (name := self._name(one)) in found}
        holders = {lock: read(lease).holder for lock, lease in self._listed.items()}
        for lock in self._busy:  # the list may be older than our own writes
            if self._taken.get(lock, asked) >= asked:
                holders[lock] = self.membership.holder(lock)
        members = [read(one).holder for one in found.values() if self._leases.shares(one)]
        self.membership.observe(holders, [one for one in members if one], asked)
        for lock in [one for one in self._working if one not in self._listed and self._taken[one] < asked]:
            await self._take(lock)  # another client deleted its lease
        return True

    def _name(self, lock: str) -> str:
        return self._shared.key(lock).name

    def _observe_sessions(self, found: Mapping[str, Lease]) -> None:
        prefix = self._shared.session_prefix
        records = {name: read(lease) for name, lease in found.items() if name.startswith(prefix)}
        self.membership.sessions.observe(records, clock.monotonic())

    # The work under locks.

    def _act(self) -> str:
        """Perform the actions on all locks; return why this replica may no longer act, or an empty string."""
        for lock, step in tuple(self.membership.steps(self._working.keys())):
            match step:
                case LockAction.LOST:
                    holder = self.membership.holder(lock) or "empty"
                    return f"the lease {self._shared.key(lock)} was taken: its holder is {holder}"
                case LockAction.YIELD:
                    self._working[lock].stop()
                case LockAction.GIVE_BACK if lock not in self._busy:
                    self._begin(lock, self._give_back(lock, self._listed.get(lock)))
                case LockAction.TAKE if lock not in self._busy and not self._stopping:
                    self._begin(lock, self._serve(lock))
        return ""

    def _stop_all(self) -> None:
        for work in self._working.values():
            work.stop()

    def _begin(self, lock: str, doing: Coroutine[Any, Any, None]) -> None:
        assert self._tasks is not None
        self._busy.add(lock)
        self._tasks.start(doing, name=f"lock {lock}").add_done_callback(lambda _: self._busy.discard(lock))

    async def _serve(self, lock: str) -> None:
        """Take a lock, work under it, and release it."""
        if not await self._attempt(partial(self._take, lock)):
            return
        if not self.alive() or self._stopping:
            await self._give_back(lock, self._held[lock])
            return
        name = self._name(lock)
        self._log.info("leading", lease=name)
        work = self._working[lock] = self._make(lock, self._held[lock])
        self._metrics.status.set(1, name)
        try:
            await work.run()
        finally:
            del self._working[lock]
            self._metrics.status.set(0, name)
        await asyncio.sleep(max(0.0, work.settled() - clock.monotonic()))
        await self._give_back(lock, self._held[lock])

    async def _take(self, lock: str) -> bool:
        name = self._name(lock)
        try:
            written = await self._leases.hold(self._listed.get(lock), name, self.me)
        except errors.AlreadyExists:  # another client removed our label from it
            found = await self._leases.get(name)
            holder = read(found).holder if found is not None else ""
            if found is None or (holder not in ("", self.me) and not self.membership.is_over(holder)):
                self.membership.note(lock, holder)
                return False
            written = await self._leases.hold(found, name, self.me)
        self._held[lock], self._taken[lock] = written, clock.monotonic()
        self.membership.note(lock, self.me)
        return True

    async def _give_back(self, lock: str, lease: Lease | None) -> None:
        if lease is not None and await self._attempt(partial(self._release, lease)):
            self.membership.note(lock, "")
            self._log.info("released the lease", lease=lease.metadata.name)

    async def _release(self, lease: Lease) -> bool:
        await self._leases.release(lease)
        return True
