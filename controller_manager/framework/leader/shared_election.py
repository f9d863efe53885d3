"""Takes part, with all other replicas, in sharing out locks: keeps a session, takes the locks that are assigned to it,
and gives them back, once what was done under them has ended, when others should have them.

The main lease is held by the replicas together, in the name of what they share out. Whoever shares out something else,
or seeks that lease for itself alone, waits until none of them is left, and they wait for it.
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
from controller_manager.framework.client import Client
from controller_manager.framework.leader.elector import LeaderMetrics, LeadershipLost
from controller_manager.framework.leader.lease import LeaseTimings, read
from controller_manager.framework.leader.main_lease import MainLease
from controller_manager.framework.leader.membership import LockAction, Membership
from controller_manager.framework.leader.shared_leases import SharedLeases, SharedLocks


class Work(Protocol):
    """Something that is done under a lock."""

    async def run(self) -> None:
        """Work until `stop`; being cancelled ends it at once."""

    def stop(self) -> None:
        """Have `run` end once what is being done is finished."""

    def settled(self) -> float:
        """Return the monotonic time (seconds) from when no write of it can still arrive; known once it has ended."""


class SharedElection:
    """One replica; `me` must be unique among all that ever were. `make(lock, lease)` makes what is done
    under a lock.

    It may act until `timings.renew` seconds after it sent the last renewal of its session that succeeded, and after
    the main lease was renewed by anybody, by its own clock.
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
        # Our session as last written, and when that was sent.
        self._session: Lease | None = None
        self._session_name = ""
        self._renewed: float | None = None
        # The leases of locks as last listed; what is done under locks; locks that something is done about.
        self._listed: Mapping[str, Lease] = {}
        self._held: dict[str, Lease] = {}
        self._taken: dict[str, float] = {}
        self._working: dict[str, Work] = {}
        self._busy: set[str] = set()
        for lock in shared.families:
            metrics.status.set(0, shared.key(lock).name)

    @property
    def main_holder(self) -> str:
        """The holder of the main lease when it was last seen."""
        return self._main.holder

    @property
    def joined(self) -> bool:
        """Return whether it takes part."""
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
        """Return since when its holder has had a lock (RFC 3339), as it was last listed; empty if nobody has it."""
        lease = self._listed.get(lock)
        return read(lease).acquired if lease is not None and read(lease).holder else ""

    def stop(self) -> None:
        """Have `run` end: everything is finished and given back."""
        self._stopping = True

    async def run(self) -> None:
        """Take part until `stop`. Raises `LeadershipLost` when it must not act any more, once everything has ended."""
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
        """Return why it may act no more; empty if it was asked to stop, and has."""
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
            return f"the lease {self._shared.main} was taken: its holder is {self.main_holder or 'nobody'}"
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
                if self.joined:  # somebody took it away: our time runs out
                    return False
                self._session_name = ""
                return False
        sent = clock.monotonic()
        self._session = await self._leases.hold(lease, self._session_name, self.me, shares=not self._stopping)
        self._renewed = sent
        return True

    async def _free_session(self) -> Lease | None:
        """Choose a session that is free; return its lease if there is one."""
        asked = clock.monotonic()
        found = await self._leases.list()
        self._observe_sessions(found)
        names = (self._shared.session(number) for number in count())
        self._session_name = self.membership.sessions.free_slot(names, asked)
        return found.get(self._session_name)

    async def _keep_main(self) -> bool:
        return await self._main.keep(joined=self.joined)

    async def _leave(self) -> None:
        """Give the session back, and the main lease if nobody else is left."""
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
        for lock in self._busy:  # what was listed may be older than what we wrote since
            if self._taken.get(lock, asked) >= asked:
                holders[lock] = self.membership.holder(lock)
        members = [read(one).holder for one in found.values() if self._leases.shares(one)]
        self.membership.observe(holders, [one for one in members if one], asked)
        for lock in [one for one in self._working if one not in self._listed and self._taken[one] < asked]:
            await self._take(lock)  # somebody deleted its lease
        return True

    def _name(self, lock: str) -> str:
        return self._shared.key(lock).name

    def _observe_sessions(self, found: Mapping[str, Lease]) -> None:
        prefix = self._shared.session_prefix
        records = {name: read(lease) for name, lease in found.items() if name.startswith(prefix)}
        self.membership.sessions.observe(records, clock.monotonic())

    # What is done under locks.

    def _act(self) -> str:
        """Do what is to be done about locks; return why this replica may act no more, if so."""
        for lock, step in tuple(self.membership.steps(self._working.keys())):
            match step:
                case LockAction.LOST:
                    return f"the lease {self._shared.key(lock)} was taken: {self.membership.holder(lock) or 'nobody'}"
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
        """Take a lock, work under it, give it back."""
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
        except errors.AlreadyExists:  # somebody took our label from it
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
