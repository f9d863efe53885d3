"""Takes part in an election: waits for the lead, has work done while it holds it, gives it back, and lets nobody write
who does not hold it.
"""

import asyncio
import socket
from collections.abc import Callable, Coroutine
from typing import Any

from prometheus_client import CollectorRegistry

from controller_manager.common.api import errors
from controller_manager.common.api.coordination import LEASES, Lease
from controller_manager.common.api.model import ObjectMeta
from controller_manager.common.api.resource import Key
from controller_manager.common.api.wire import DuplexStream, Request, Response
from controller_manager.common.base import clock
from controller_manager.common.base.metrics import Counters, Family, Gauges
from controller_manager.common.base.random import random_source
from controller_manager.common.base.runtime import Runtime
from controller_manager.common.base.tasks import Tasks
from controller_manager.framework.client import Client, Transport
from controller_manager.framework.leader.lease import (
    LeaderElectionRecord,
    LeaseAction,
    LeaseTimings,
    Seen,
    decide,
    held,
    observe,
    read,
    released,
)

Work = Callable[[], Coroutine[Any, Any, None]]


_STATUS = Family(
    "leader_election_master_status",
    "1 while this process leads under that lease, 0 while it stands by.",
    "gauge",
    ("name",),
)
_SLOW = Family(
    "leader_election_slowpath_total",
    "Renewals of that lease by its holder that had to read it first.",
    "counter",
    ("name",),
)


class LeaderMetrics:
    """The metrics of all elections that one process takes part in, by the name of the lease; one per process.

    `slow` counts renewals for which the lease had to be read first.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self.status = Gauges(_STATUS, registry)
        self.slow = Counters(_SLOW, registry)


class LeadershipLost(Exception):
    """The lease could not be renewed in time, or is another's; the work was cancelled and has ended."""


def identity() -> str:
    """A name for this process that no other has: `hostname_uuid`."""
    return f"{socket.gethostname()}_{random_source().uid()}"


class Elector:
    """One candidate for the lease `key`; `me` must be unique among all that ever were.

    The lead ends by our own clock `timings.renew` seconds after the last renewal that succeeded was *sent*: earlier
    than any other candidate may take it.
    """

    def __init__(
        self, client: Client, key: Key, me: str, timings: LeaseTimings, runtime: Runtime, metrics: LeaderMetrics
    ) -> None:
        self.key = key
        self.me = me
        self._client = client
        self._timings = timings
        self._log = runtime.log("leader").bind(lease=str(key), me=me)
        self._seen = Seen()
        # Our lease as last written, if nothing went wrong since: it can be renewed without reading it.
        self._lease: Lease | None = None
        # The holder that was last said to be waited for.
        self._waits_for = ""
        # When the last successful renewal was sent; None while another leads.
        self._renewed: float | None = None
        # Set before the first write: from then on the lease may be ours even if no answer arrives.
        self._may_hold = False
        self._metrics = metrics
        metrics.slow.add(key.name, by=0)

    @property
    def holder(self) -> str:
        """The holder of the lease when it was last seen; empty for nobody."""
        return self._seen.holder

    @property
    def record(self) -> LeaderElectionRecord | None:
        """Return what the lease said when it was last seen; None if there was none."""
        return self._seen.record

    @property
    def lease(self) -> Lease | None:
        """The lease as this process last wrote it, if nothing went wrong since."""
        return self._lease

    def leads(self) -> bool:
        """Return whether this process may act right now."""
        return self._renewed is not None and clock.monotonic() < self._renewed + self._timings.renew

    async def run(self, work: Work) -> None:
        """Wait for the lead, then run `work` to its end, then release the lease; so does being cancelled.

        Raises `LeadershipLost` when the lead was lost before: `work` was cancelled then, and waited for.
        """
        try:
            await self._acquire()
            await self._lead(work)
        finally:
            self._renewed = None
            self._metrics.status.set(0, self.key.name)
            await self._release()

    async def _acquire(self) -> None:
        self._metrics.status.set(0, self.key.name)
        while True:
            if await self._try():
                return
            await asyncio.sleep(random_source().uniform(self._timings.retry / 2, self._timings.retry))

    async def _lead(self, work: Work) -> None:
        self._log.info("leading")
        self._metrics.status.set(1, self.key.name)
        async with Tasks() as tasks:
            working = tasks.start(work(), name="work of the leader")
            renewing = tasks.start(self._renew_while_possible(), name="renew the lease")
            await asyncio.wait((working, renewing), return_when=asyncio.FIRST_COMPLETED)
            lost = not working.done()
            if lost:
                self._log.error("lost the lead; stopping what runs", holder=self.holder)
                self._renewed = None
        if lost:
            raise LeadershipLost(f"the lease {self.key} {self._loss()}")

    def _loss(self) -> str:
        if self.holder == self.me:
            return f"could not be renewed for {self._timings.renew:g} s"
        return f"was taken: its holder is {self.holder}" if self.holder else "was released by somebody else"

    async def _renew_while_possible(self) -> None:
        renewed = True
        while renewed:
            await asyncio.sleep(self._timings.retry)
            renewed = await self._renew()

    async def _renew(self) -> bool:
        """Renew the lease, in several tries if need be; false once the lead is lost."""
        assert self._renewed is not None
        try:
            async with asyncio.timeout_at(self._renewed + self._timings.renew):
                while not await self._try():
                    if self._seen.holder != self.me:
                        return False
                    await asyncio.sleep(self._timings.retry)
        except TimeoutError:
            return False
        return True

    async def _try(self) -> bool:
        """Do about the lease what the table says; whether it is ours afterwards."""
        try:
            async with asyncio.timeout(self._timings.renew / 2):
                return await self._move()
        except (errors.Conflict, errors.AlreadyExists) as refusal:
            self._log.debug("another was faster", error=refusal)
        except (errors.ApiError, OSError) as error:
            self._log.warning("can't reach the lease", error=error)
        return False

    async def _move(self) -> bool:
        if self._lease is None and self._renewed is not None:
            self._metrics.slow.add(self.key.name)
        # Whoever is cancelled while it writes, or gets no answer, does not know any more what the lease says.
        lease, self._lease = self._lease, None
        lease = lease or await self._read()
        self._observe(lease)
        move = decide(self.me, self._seen, clock.monotonic())
        if move is LeaseAction.WAIT:
            self._stand_by()
            return False
        sent, self._may_hold = clock.monotonic(), True
        if lease is None:
            meta = ObjectMeta(namespace=self.key.namespace, name=self.key.name)
            lease = await self._client.create(LEASES, self._held(Lease(metadata=meta)))
        else:
            lease = await self._client.update(LEASES, self._held(lease))
        self._observe(lease)
        self._lease, self._renewed = lease, sent
        return True

    async def _read(self) -> Lease | None:
        try:
            return await self._client.get(LEASES, self.key)
        except errors.NotFound:
            return None

    def _held(self, lease: Lease) -> Lease:
        return held(lease, self.me, self._timings.lease, clock.utc_now())

    def _observe(self, lease: Lease | None) -> None:
        self._seen = observe(self._seen, read(lease) if lease is not None else None, clock.monotonic())

    def _stand_by(self) -> None:
        """Say once of each holder that it is waited for."""
        if self._waits_for != self._seen.holder:
            self._waits_for = self._seen.holder
            self._log.info("standing by while another leads", holder=self._waits_for)

    async def _release(self) -> None:
        """Leave the lease to whoever comes first, if it is ours."""
        if not self._may_hold:
            return
        self._may_hold = False
        try:
            async with asyncio.timeout(self._timings.renew / 2):
                lease = self._lease or await self._read()
                if lease is not None and read(lease).holder == self.me:
                    await self._client.update(LEASES, released(lease, clock.utc_now()))
                    self._log.info("released the lease")
        except (errors.ApiError, OSError) as error:
            self._log.warning("could not release the lease; it will run out", error=error)
        self._lease = None


_READS = ("GET", "HEAD")


def _nobody_asks() -> None:
    """Nobody asks what became of it."""


class FencedTransport:
    """Refuses whatever changes anything unless `leads()` is true right before it is sent.

    A leader's work is cancelled in time by its elector; this is for a process that was stopped or busy for so long
    that its work runs on before the elector had its turn. `unanswered` is called for each write that ends without an
    answer, so that it may still arrive.
    """

    def __init__(
        self, transport: Transport, leads: Callable[[], bool], unanswered: Callable[[], None] = _nobody_asks
    ) -> None:
        self._transport = transport
        self._leads = leads
        self._unanswered = unanswered

    @property
    def host(self) -> str:
        """Return whom it talks to."""
        return self._transport.host

    @property
    def authorities(self) -> bytes:
        """Return whose certificates it believes the server by."""
        return self._transport.authorities

    async def send(self, request: Request) -> Response:
        """The answer. Raises `errors.Forbidden` for a write by one who does not lead."""
        self._check(request)
        try:
            return await self._transport.send(request)
        except BaseException:
            if request.method not in _READS:
                self._unanswered()
            raise

    async def upgrade(self, request: Request) -> tuple[Response, DuplexStream | None]:
        """The answer, and the stream if the server agreed. Raises as `send`."""
        self._check(request)
        return await self._transport.upgrade(request)

    async def close(self) -> None:
        """Close the transport within."""
        await self._transport.close()

    def _check(self, request: Request) -> None:
        if request.method not in _READS and not self._leads():
            raise errors.Forbidden(f"{request.method} {request.path}: this process does not lead")
