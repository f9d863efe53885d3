"""A whole control plane in one process: the API server, controller managers and their clients, without sockets."""

import asyncio
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from apiserver_stub.build import build
from apiserver_stub.flags import FLAGS
from apiserver_stub.store.row import Change
from controller_manager.api.platform import ADMIN_GROUP, MANAGER_USER
from controller_manager.api.wire import Certificate
from controller_manager.app import catalog
from controller_manager.app.catalog import AnySpec
from controller_manager.app.flags import GROUPS, ManagerOptions
from controller_manager.app.manager import Ending, Manager
from controller_manager.base.runtime import Runtime
from controller_manager.base.tasks import Tasks
from controller_manager.client import Client, InProcessTransport, Transport
from controller_manager.options import FlagSet
from controller_manager.testing.faults import FaultyTransport

ADMIN = Certificate("kubernetes-admin", (ADMIN_GROUP,))
MANAGER = Certificate(MANAGER_USER)
# Renewals of leases never end: a cluster is settled although they go on.
RESTLESS = frozenset({"leases.coordination.k8s.io"})
QUIET_SECONDS = 1.0
LONGEST_SETTLE = 600.0


class UnsettledError(AssertionError):
    """The cluster went on changing for longer than anybody should wait."""


class Replica:
    """A controller manager of a cluster."""

    def __init__(self, manager: Manager, network: FaultyTransport, task: "asyncio.Task[Ending]") -> None:
        self.manager = manager
        self.network = network
        self._task = task

    async def stop(self) -> Ending:
        """Stop it as SIGTERM would."""
        self.manager.stop("the test stopped it")
        return await self._task

    async def kill(self) -> None:
        """End it as SIGKILL would: nothing it still wants to say gets out."""
        self.network.cut()
        self._task.cancel()
        await asyncio.wait((self._task,))

    @property
    def has_ended(self) -> bool:
        """Whether it ended by itself."""
        return self._task.done()

    async def ended(self) -> Ending:
        """Wait until it ends by itself."""
        return await self._task


class Cluster:
    """`async with Cluster() as cluster:` an API server on a memory store, and an admin's `client`.

    `server_flags` are those of `apiserver-stub`. On a virtual-time loop nothing here takes real time.
    """

    def __init__(self, server_flags: Sequence[str] = ()) -> None:
        flags = ("--storage-backend=memory", "--secure-port=6443", "--bind-address=127.0.0.1", *server_flags)
        self.api = build(FLAGS.parse(flags), Runtime("apiserver"))
        self.client = self.connect()
        self._tasks = Tasks()
        self._replicas = 0
        self._changes = 0

    async def __aenter__(self) -> Self:
        self.api.store.subscribe(self._count)
        await self.api.start()
        await self._tasks.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self._tasks.__aexit__(kind, error, trace)
        finally:
            await self.api.stop()

    def transport(self, certificate: Certificate = ADMIN) -> Transport:
        """A way to the API server, as the holder of a client certificate."""
        return InProcessTransport(self.api.handle, certificate=certificate)

    def connect(self, certificate: Certificate = ADMIN) -> Client:
        """A client, as the holder of a client certificate."""
        return Client(self.transport(certificate))

    async def manage(self, *flags: str, specs: Sequence[AnySpec] | None = None, faults: float = 0.0) -> "Replica":
        """Start a controller manager with these flags: the controllers installed, or those of `specs`.

        `faults` is the probability that one of its requests fails.
        """
        every = catalog.installed() if specs is None else tuple(specs)
        parsed = FlagSet(*GROUPS, *(spec.options for spec in every)).parse(("--secure-port=0", *flags))
        chosen = catalog.select(every, parsed[ManagerOptions].controllers)
        network = FaultyTransport(self.transport(MANAGER), faults)
        self._replicas += 1
        manager = Manager(parsed, chosen, network, Runtime(f"manager-{self._replicas}"))
        return Replica(manager, network, self._tasks.start(manager.run(), name=f"manager-{self._replicas}"))

    async def sleep(self, seconds: float) -> None:
        """Let time pass."""
        await asyncio.sleep(seconds)

    async def settle(self, quiet: float = QUIET_SECONDS) -> None:
        """Wait until nothing has changed for `quiet` seconds; lease renewals don't count."""
        waited = 0.0
        while waited < LONGEST_SETTLE:
            before = self._changes
            await asyncio.sleep(quiet)
            if self._changes == before:
                return
            waited += quiet
        raise UnsettledError(f"the cluster still changes after {waited:.0f} s")

    async def advance(self, seconds: float) -> None:
        """Let time pass, then settle."""
        await asyncio.sleep(seconds)
        await self.settle()

    def _count(self, changes: Sequence[Change]) -> None:
        self._changes += sum(change.row.resource not in RESTLESS for change in changes)
