"""A whole control plane in one process: the API server, controller managers and their clients, without sockets."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from types import TracebackType
from typing import Self

from apiserver_stub.build import build
from apiserver_stub.flags import FLAGS
from apiserver_stub.store.memory import MemoryBackend
from apiserver_stub.store.row import Change
from controller_manager.api.platform import ADMIN_GROUP, MANAGER_USER
from controller_manager.api.wire import Certificate, Request, Response
from controller_manager.app import catalog
from controller_manager.app.catalog import AnySpec, CatalogOptions
from controller_manager.app.flags import flag_set
from controller_manager.app.manager import Ending, Manager
from controller_manager.base.runtime import Runtime
from controller_manager.base.tasks import Tasks
from controller_manager.client import Client, InProcessTransport, Transport
from controller_manager.client.credentials import Obtain
from controller_manager.testing.cable import Cable
from controller_manager.testing.faults import FaultyNetwork
from controller_manager.testing.permits import Permits, PermittedTransport

Answer = Callable[[Request], Awaitable[Response]]

ADMIN = Certificate("kubernetes-admin", (ADMIN_GROUP,))
MANAGER = Certificate(MANAGER_USER)
# Renewals of leases never end: a cluster is settled although they go on.
RESTLESS = frozenset({"leases.coordination.k8s.io"})
QUIET_SECONDS = 1.0
LONGEST_SETTLE = 600.0


class UnsettledError(AssertionError):
    """The cluster went on changing, or working, for longer than anybody should wait; says at what."""


class Replica:
    """A controller manager of a cluster."""

    def __init__(
        self, manager: Manager, network: FaultyNetwork, permits: Permits, task: "asyncio.Task[Ending]"
    ) -> None:
        self.manager = manager
        self.network = network
        self.permits = permits
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

    def busy_with(self) -> tuple[str, ...]:
        """What it has yet to do right now; nothing once it has ended."""
        return () if self.has_ended else self.manager.busy_with()

    async def ended(self) -> Ending:
        """Wait until it ends by itself."""
        return await self._task


class Cluster:
    """`async with Cluster() as cluster:` an API server on a memory store, and an admin's `client`.

    `server_flags` are those of `apiserver-stub`. On a virtual-time loop nothing here takes real time.
    """

    def __init__(self, server_flags: Sequence[str] = ()) -> None:
        flags = ("--storage-backend=memory", "--secure-port=6443", "--bind-address=127.0.0.1", *server_flags)
        self._options = FLAGS.parse(flags)
        self._log = MemoryBackend()
        self._cable = Cable()
        self.api = build(self._options, Runtime("apiserver"), self._log)
        self.client = self.connect()
        self._tasks = Tasks()
        self._replicas: list[Replica] = []
        # Who answers requests below a path instead of the server, as aggregated APIs do.
        self._beside: dict[str, Answer] = {}
        # What changed how often since the last look.
        self._changed: Counter[str] = Counter()

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
            await self.stop_api()
        refused = [sentence for replica in self._replicas for sentence in replica.permits.refused]
        if refused and error is None:
            raise AssertionError(refused[0])

    def transport(self, certificate: Certificate | None = ADMIN, obtain: Obtain | None = None) -> Transport:
        """A way to the API server, as the holder of a client certificate, or of the token that `obtain` gives; it
        lasts across restarts.
        """
        return InProcessTransport(self._handle, certificate=certificate, obtain=obtain)

    def connect(self, certificate: Certificate = ADMIN) -> Client:
        """A client, as the holder of a client certificate."""
        return Client(self.transport(certificate))

    async def manage(
        self, *flags: str, specs: Sequence[AnySpec] | None = None, faults: float = 0.0, name: str = ""
    ) -> "Replica":
        """Start a controller manager with these flags: the controllers installed, or those of `specs`.

        `faults` is the probability that one of its requests fails; `name` is that of its component. What a controller
        did not declare in its `rbac` is refused with 403, and the cluster ends with an AssertionError.
        """
        every = catalog.installed() if specs is None else tuple(specs)
        parsed = flag_set(every).parse(("--secure-port=0", *flags))
        chosen = catalog.select(every, parsed[CatalogOptions].controllers)
        permits = Permits(chosen)
        network = FaultyNetwork(lambda obtain: PermittedTransport(self._reach(obtain), permits), faults)
        name = name or f"manager-{len(self._replicas) + 1}"
        manager = Manager(parsed, chosen, network, Runtime(name))
        replica = Replica(manager, network, permits, self._tasks.start(manager.run(), name=name))
        self._replicas.append(replica)
        return replica

    def serve_beside(self, path: str, answer: Answer) -> None:
        """Have `answer` answer, in the server's place, what is asked of `path` and below: an API of somebody else's.

        The server's discovery does not name it.
        """
        self._beside[path] = answer

    async def stop_api(self) -> None:
        """Stop the API server, if it runs, as SIGTERM would: watches end, writes are finished."""
        if not self._cable.is_cut:
            await self.api.stop()
            self._cable.cut()

    async def kill_api(self) -> None:
        """End the API server as SIGKILL would: connections break, and what it still does is not kept."""
        self._log = self._log.copy()
        self._cable.cut()
        await self.api.stop()

    async def start_api(self, *, wiped: bool = False) -> None:
        """Start the API server again, once it was stopped or killed, on what it kept, or on nothing."""
        if wiped:
            self._log = MemoryBackend()
        self.api = build(self._options, Runtime("apiserver"), self._log)
        self.api.store.subscribe(self._count)
        await self.api.start()
        self._cable = Cable()

    async def sleep(self, seconds: float) -> None:
        """Let time pass."""
        await asyncio.sleep(seconds)

    async def settle(self, quiet: float = QUIET_SECONDS) -> None:
        """Wait until no manager has anything to do, and nothing has changed for `quiet` seconds.

        Renewed leases don't count; neither does what is due later: a retry after an error, a `Requeue`, a delay.
        Raises `UnsettledError` after ten minutes.
        """
        for _ in range(int(LONGEST_SETTLE / quiet) + 1):
            self._changed.clear()
            await asyncio.sleep(quiet)
            busy = [what for replica in self._replicas for what in replica.busy_with()]
            if not self._changed and not busy:
                return
        changes = [f"{count} changes of {what}" for what, count in self._changed.most_common(5)]
        raise UnsettledError(f"the cluster does not come to rest; in the last {quiet:g} s: {', '.join(changes + busy)}")

    async def advance(self, seconds: float) -> None:
        """Let time pass, then settle."""
        await asyncio.sleep(seconds)
        await self.settle()

    def _reach(self, obtain: Obtain | None) -> Transport:
        """How a manager reaches the server: by its certificate, or with the credentials of somebody else."""
        return self.transport(None if obtain else MANAGER, obtain)

    async def _handle(self, request: Request) -> Response:
        others = (answer for path, answer in self._beside.items() if f"{request.path}/".startswith(f"{path}/"))
        return await self._cable.answer(partial(next(others, self.api.handle), request))

    def _count(self, changes: Sequence[Change]) -> None:
        self._changed.update(
            f"{change.row.resource} {change.row.key}" for change in changes if change.row.resource not in RESTLESS
        )
