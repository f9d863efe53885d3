"""Leader election: waits for the lease, runs the work while it leads, and releases the lease.

`FencedTransport` rejects writes of a process that does not lead.
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
from controller_manager.common.transport.transport import Transport
from controller_manager.framework.client.client import Client
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
    "1 while this process holds the lease, 0 while it stands by.",
    "gauge",
    ("name",),
)
_SLOW = Family(
    "leader_election_slowpath_total",
    "Number of renewals by the holder that had to read the lease first.",
    "counter",
    ("name",),
)


class LeaderMetrics:
    """The metrics of all elections of one process, by the name of the lease; one instance per process.

    `slow` counts renewals that had to read the lease first.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self.status = Gauges(_STATUS, registry)
        self.slow = Counters(_SLOW, registry)


class LeadershipLost(Exception):
    """The lease was not renewed in time, or has another holder. The work was cancelled and has ended."""


def identity() -> str:
    """Return a unique identity for this process: `hostname_uuid`."""
    return f"{socket.gethostname()}_{random_source().uid()}"


class Elector:
    """One candidate for the lease `key`. The identity `me` must never have been used before.

    Leadership ends by the local clock `timings.renew` seconds after the last successful renewal was *sent*, which is
    before another candidate may take the lease.
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
        # Our lease as last written. If it is set, it can be renewed without a read; any error clears it.
        self._lease: Lease | None = None
        # The holder that was last logged as the current leader.
        self._waits_for = ""
        # When the last successful renewal was sent; None while another candidate leads.
        self._renewed: float | None = None
        # Set before the first write: from then on the lease may be ours even without a response.
        self._may_hold = False
        self._metrics = metrics
        metrics.slow.add(key.name, by=0)

    @property
    def holder(self) -> str:
        """The last observed holder of the lease; empty if it has none."""
        return self._seen.holder

    @property
    def record(self) -> LeaderElectionRecord | None:
        """The last observed record of the lease; None if the lease does not exist."""
        return self._seen.record

    @property
    def lease(self) -> Lease | None:
        """The lease as this process last wrote it; None after an error."""
        return self._lease

    def leads(self) -> bool:
        """Return whether this process may act right now."""
        return self._renewed is not None and clock.monotonic() < self._renewed + self._timings.renew

    async def run(self, work: Work) -> None:
        """Wait until this process leads, run `work` to its end, then release the lease, also when cancelled.

        Raises `LeadershipLost` if leadership was lost before the end. `work` has been cancelled and has ended by then.
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
        return f"was taken: its holder is {self.holder}" if self.holder else "was released by another client"

    async def _renew_while_possible(self) -> None:
        renewed = True
        while renewed:
            await asyncio.sleep(self._timings.retry)
            renewed = await self._renew()

    async def _renew(self) -> bool:
        """Renew the lease, with retries; return False once leadership is lost."""
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
        """Perform the action that `decide` returns; return whether the lease is ours afterwards."""
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
        # After a cancelled write, or one without a response, the content of the lease is unknown.
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
        """Log each new holder once."""
        if self._waits_for != self._seen.holder:
            self._waits_for = self._seen.holder
            self._log.info("standing by while another leads", holder=self._waits_for)

    async def _release(self) -> None:
        """Release the lease if it is ours, so that any candidate can take it at once."""
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


def _ignore() -> None:
    """Do nothing (default of `unanswered`)."""


class FencedTransport:
    """Rejects writes unless `leads()` is true right before they are sent.

    The elector cancels a leader's work in time. This guards a process that was stopped or blocked for so long that its
    work continues before the elector runs again. `unanswered` is called for each write that ends without a response and
    may still reach the server.
    """

    def __init__(
        self, transport: Transport, leads: Callable[[], bool], unanswered: Callable[[], None] = _ignore
    ) -> None:
        self._transport = transport
        self._leads = leads
        self._unanswered = unanswered

    @property
    def host(self) -> str:
        """The host of the server."""
        return self._transport.host

    @property
    def authorities(self) -> bytes:
        """The certificate authorities that the server is verified with (PEM)."""
        return self._transport.authorities

    async def send(self, request: Request) -> Response:
        """Send a request, return the response. Raises `errors.Forbidden` for a write if this process does not lead."""
        self._check(request)
        try:
            return await self._transport.send(request)
        except BaseException:
            if request.method not in _READS:
                self._unanswered()
            raise

    async def upgrade(self, request: Request) -> tuple[Response, DuplexStream | None]:
        """Return the response, and the stream if the server accepted the upgrade. Raises like `send`."""
        self._check(request)
        return await self._transport.upgrade(request)

    async def close(self) -> None:
        """Close the wrapped transport."""
        await self._transport.close()

    def _check(self, request: Request) -> None:
        if request.method not in _READS and not self._leads():
            raise errors.Forbidden(f"{request.method} {request.path}: this process does not lead")
