"""A complete control plane in one process without sockets: API server, controller managers and clients."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import lru_cache, partial
from types import MappingProxyType, TracebackType
from typing import Protocol, Self

from apiserver_stub.admission import MakePlugin
from apiserver_stub.common.flags import FLAGS
from apiserver_stub.process.build import build
from apiserver_stub.process.lifecycle import ApiServer
from apiserver_stub.storage.memory import MemoryRows, MemoryStorage
from apiserver_stub.watch_cache.row import Change
from controller_manager.app import catalog
from controller_manager.app.catalog import AnySpec
from controller_manager.app.clients import ClientOptions
from controller_manager.app.permissions import grant
from controller_manager.app.program import flag_set
from controller_manager.common.api.core import NODES
from controller_manager.common.api.platform import ADMIN_GROUP, MANAGER_USER
from controller_manager.common.api.resource import Key
from controller_manager.common.api.wire import Certificate, Request, Response
from controller_manager.common.base.runtime import Runtime
from controller_manager.common.base.tasks import Tasks
from controller_manager.common.options.parse import Parsed
from controller_manager.common.transport.authenticated import InProcessTransport
from controller_manager.common.transport.credentials import Obtain
from controller_manager.common.transport.transport import Transport
from controller_manager.framework.client.client import Client
from controller_manager.framework.cloud_provider import MakeCloudProvider
from controller_manager.framework.work.loop import current_run
from controller_manager.testing.builders import ROOM, virtual_node
from controller_manager.testing.faults import Link
from controller_manager.testing.first_start import first_start, resume
from controller_manager.testing.hot_loops import HotLoops
from controller_manager.testing.loop_watch import LoopWatch
from controller_manager.testing.replica import ManagerFailedError, ManagerPlan, Replica
from controller_manager.testing.snapshots import ClusterSnapshot
from controller_manager.testing.timeline import Timeline, is_write, timeline, written_object
from controller_manager.testing.virtual import VirtualLoop, housekeeping_held


@lru_cache(maxsize=64)
def _server_options(flags: tuple[str, ...]) -> Parsed:
    return FLAGS.parse(flags)


@lru_cache(maxsize=64)
def _manager_options(flags: tuple[str, ...]) -> tuple[Parsed, Sequence[AnySpec]]:
    """Return the parsed flags and the controllers that they enable."""
    every = catalog.installed()
    parsed = flag_set(every).parse(flags)
    return parsed, catalog.choose(every, parsed)


Answer = Callable[[Request], Awaitable[Response]]

ADMIN = Certificate("kubernetes-admin", (ADMIN_GROUP,))
# Without an account per controller, the manager needs all their permissions, which no default role grants.
MANAGER, WHOLE_MANAGER = Certificate(MANAGER_USER), Certificate(MANAGER_USER, (ADMIN_GROUP,))
# Lease renewals never end, so `settle` ignores them.
RESTLESS = frozenset({"leases.coordination.k8s.io"})
QUIET_SECONDS = 1.0
LONGEST_SETTLE = 600.0
# `settle` waits for keys that are due within PENDING_SECONDS after the last change, LONGEST_PENDING seconds in total.
PENDING_SECONDS = 6.0  # the garbage collector discovers new kinds within five seconds
LONGEST_PENDING = 60.0
# The controllers that make pods run.
RUN_PODS = ("scheduler", "virtual-node-controller")
# There is one manager, so it needs no lease. Its nodes act without delay and serve no logs.
NODE_FLAGS = ("--leader-elect=false", "--virtual-node-instant", "--virtual-node-bind-address=")


class UnsettledError(AssertionError):
    """The cluster did not come to rest in time; the message names the changing objects and the pending work."""


class Follower(Protocol):
    """A subscriber to the objects of a cluster, which stays subscribed when the server is restarted."""

    def note(self, changes: Sequence[Change]) -> None:
        """Receive changes as soon as they are visible."""

    def restart(self) -> None:
        """Start over: the cluster was restored, so all objects may differ without change notifications."""


class Cluster:
    """A cluster for tests: `async with Cluster() as cluster:` starts an API server with a memory store.

    `client` is an admin client. With `nodes`, the cluster also has one manager with the default controllers and the
    scheduler, and this number of virtual nodes; pods of a created Deployment run after `settle`. Without `nodes`, only
    the server runs until you call `manage` or `add_nodes`, and tests must bind and run pods themselves.

    `server_flags` are flags of `apiserver-stub`. By default RBAC authorizes requests, the server has no lease, and
    priority and fairness is off. `admission_plugins` are your own plugins by name; they need not be installed. On a
    virtual-time loop nothing here takes real time.
    """

    def __init__(
        self,
        server_flags: Sequence[str] = (),
        admission_plugins: Mapping[str, MakePlugin] = MappingProxyType({}),
        *,
        nodes: int = 0,
    ) -> None:
        if not any(flag.startswith("--authorization-") for flag in server_flags):
            server_flags = ("--authorization-mode=Node,RBAC", *server_flags)
        if not any(flag.startswith("--enable-admission-plugins") for flag in server_flags):
            server_flags = ("--enable-admission-plugins=NodeRestriction", *server_flags)
        if not any("APIServerIdentity=" in flag for flag in server_flags):  # its renewals would be most of the work
            server_flags = (*server_flags, "--feature-gates=APIServerIdentity=false")
        if not any("priority-and-fairness" in flag for flag in server_flags):  # so would these
            server_flags = (*server_flags, "--enable-priority-and-fairness=false")
        if not any(flag.startswith("--representation-cache-size") for flag in server_flags):  # few equal watches
            server_flags = ("--representation-cache-size=33554432", *server_flags)
        if not any(flag.startswith("--watch-cache-size") for flag in server_flags):  # no client lags far behind here
            server_flags = ("--watch-cache-size=16777216", *server_flags)
        self._flags = ("--storage-backend=memory", "--secure-port=6443", "--bind-address=127.0.0.1", *server_flags)
        self._options = _server_options(self._flags)
        self._plugins = admission_plugins
        self.rows = MemoryRows()
        """The stored objects, which outlive the server."""
        self._link = Link()
        self.api = self._build(self.rows)
        self.client = self.connect()
        self._tasks = Tasks()
        self._replicas: list[Replica] = []
        # Handlers by path that answer requests instead of the server, like aggregated APIs.
        self._beside: dict[str, Answer] = {}
        # Detects reconciles of these controllers that block the loop.
        self._watch: LoopWatch | None = None
        self._controllers: set[str] = set()
        self._first_nodes = nodes
        self._nodes = 0  # number of added nodes
        # Number of changes by object since the last check of `settle`.
        self._changed: Counter[str] = Counter()
        self._hot_loops = HotLoops()
        # Loop time of the last change, or start of a server or manager.
        self._last_change = 0.0
        self._followers: list[Follower] = []
        self._origin: ClusterSnapshot | None = None  # set for a fork
        self.name = ""
        """The name of this cluster in the timeline, which all clusters of the loop share."""
        self._timeline: Timeline | None = None
        self._forks = 0

    def _build(self, rows: MemoryRows) -> ApiServer:
        storage = MemoryStorage(rows)
        return build(self._options, Runtime("apiserver"), storage, admission_plugins=self._plugins)

    @property
    def timeline(self) -> Timeline:
        """The recorded history: writes with their callers and causes, faults, starts and stops, steps of the test.

        It has the last 5,000 entries. The plugin prints it for a test that fails in virtual time.
        """
        if self._timeline is None:
            self._timeline = timeline()
        return self._timeline

    async def __aenter__(self) -> Self:
        if self._origin is not None:
            await self._tasks.__aenter__()
            await self._begin_as(self._origin, 0)
            self._replicas = [Replica(replica.plan, self._note) for replica, _ in self._origin.replicas]
            self._start_replicas(self._replicas, self._origin)
            return self
        self._listen()
        if self._plugins:  # they may change what the first start stores
            await self.api.start()
        else:
            await first_start(self.api, self.rows, self._flags, self._build)
        await self._tasks.__aenter__()
        self._upkeep = self._tasks.start(self.api.run(), name="apiserver")
        if self._first_nodes:
            await self.manage(*NODE_FLAGS, f"--controllers=*,{','.join(RUN_PODS)}")
            await self.add_nodes(self._first_nodes)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        complaints = [] if error is not None else self._complaints(at_rest=True)
        if self._watch is not None:
            self._watch.close()
        try:
            await self._tasks.__aexit__(kind, error, trace)
        finally:
            await self.stop_api()
        if complaints:
            raise ManagerFailedError("\n".join(complaints))

    def transport(self, certificate: Certificate | None = ADMIN, obtain: Obtain | None = None) -> Transport:
        """Return a transport to the API server, with a client certificate or the token that `obtain` returns.

        It keeps working after restarts of the server.
        """
        return InProcessTransport(self._handle, certificate=certificate, obtain=obtain)

    def connect(self, certificate: Certificate = ADMIN) -> Client:
        """Return a client with a client certificate."""
        return Client(self.transport(certificate))

    async def manage(
        self,
        *flags: str,
        specs: Sequence[AnySpec] | None = None,
        faults: float = 0.0,
        may_lose_lead: bool = False,
        name: str = "",
        strict: bool = True,
        cloud_providers: Mapping[str, MakeCloudProvider] = MappingProxyType({}),
    ) -> "Replica":
        """Start a controller manager with these flags, with the installed controllers or those of `specs`.

        `faults` is the probability that one of its requests fails. Requests of its leader election never fail, unless
        it `may_lose_lead`; then it may end and the test must start another one. `name` is the name of the component.
        `cloud_providers` are your own providers, by their names for `--cloud-provider`; they need not be installed.

        Requests that a controller has not declared in its `rbac` get 403. With `--use-service-account-credentials`,
        accounts without a default role get the permissions that their controllers declare, as with the chart. If
        `strict`, the test fails in `settle` or at the end of the cluster after: such a 403, an error that retries
        cannot solve, a crash, or an unexpected end of the manager.
        """
        flags = ("--secure-port=0", *flags)
        if specs is None and not cloud_providers:
            parsed, chosen = _manager_options(flags)
        else:
            every = catalog.installed() if specs is None else tuple(specs)
            parsed = flag_set(every, cloud_providers=cloud_providers).parse(flags)
            chosen = catalog.choose(every, parsed)
        self._watch_over(chosen)
        if parsed[ClientOptions].use_service_account_credentials:
            await grant(self.client, chosen)
        name = name or f"manager-{len(self._replicas) + 1}"
        replica = Replica(ManagerPlan(name, parsed, chosen, faults, may_lose_lead, strict, cloud_providers), self._note)
        replica.start(self._tasks, self._reach)
        self._replicas.append(replica)
        self._last_change = asyncio.get_running_loop().time()
        return replica

    @property
    def replicas(self) -> Sequence[Replica]:
        """All managers that were started, including those that have ended."""
        return tuple(self._replicas)

    def follow(self, follower: "Follower") -> None:
        """Subscribe `follower` to all changes, also after a restart of the server, and to restores of the cluster."""
        self._followers.append(follower)
        self.api.store.subscribe(follower.note)

    def snapshot(self) -> ClusterSnapshot:
        """Return a snapshot of the cluster for `restore`. Its cost does not depend on the number of objects.

        It has the objects, the running managers (flags and identities), and in virtual time the wall clock and the
        random state. It does not have the memory of processes: the watch history, writes without a response, the state
        of controllers, and their queues with backoff and delays. It also does not have network faults and state outside
        the cluster, such as clouds, metrics and objects of the test.
        """
        return ClusterSnapshot.of(self.rows, self.api, self._replicas)

    async def restore(self, snapshot: ClusterSnapshot, *, seed: int | None = None) -> None:
        """Restore this cluster to one of its snapshots.

        The server and the managers are killed, and new ones start with the objects of the snapshot. Controllers
        reconcile everything, as after a restart, and hold the leases that they held. A `Replica` from before the
        snapshot now represents the new manager; managers started after the snapshot are gone. Objects have the uids and
        resource versions of the snapshot; new resource versions are greater than all previous ones. Watches break, and
        resuming one returns 410, so clients list again.

        In virtual time the wall clock is set back for the whole loop, including forks. The random state is restored
        too, so that the same actions have the same results. Pass a `seed` for other random numbers.
        """
        self._note("the cluster is restored")
        for replica in self._replicas:
            await replica.kill()
        if not self._link.is_cut:
            await self.kill_api()
        self._replicas = [replica for replica, _ in snapshot.replicas]
        if snapshot.clock is not None:
            snapshot.clock.set_time()
        await self._begin_as(snapshot, self.rows.revision + 1)
        if snapshot.clock is not None:
            snapshot.clock.set_chance(seed)
        self._start_replicas(self._replicas, snapshot)
        for follower in self._followers:
            follower.restart()

    def fork(self) -> "Cluster":
        """Return a copy of this cluster for `async with`, to try alternatives. Copying does not depend on its size.

        Changes in one cluster are not visible in the other. Both share the loop with its time and random state, clouds,
        and the handlers of `serve_beside`. The fork has its own managers in `replicas`. See `snapshot` for the state
        that is not copied.
        """
        other = Cluster(self._flags, self._plugins)
        self._forks += 1
        other.name = f"{self.name}fork-{self._forks}"
        self._note(f"{other.name} goes on from here")
        other._beside = dict(self._beside)
        other._controllers = set(self._controllers)
        other._nodes = self._nodes
        other._origin = self.snapshot()
        return other

    async def add_nodes(
        self,
        count: int,
        *,
        prefix: str = "node",
        labels: Mapping[str, str] = MappingProxyType({}),
        capacity: Mapping[str, str] = ROOM,
        taints: Sequence[Mapping[str, str]] = (),
        flags: Sequence[str] = (),
    ) -> list[str]:
        """Add ready virtual nodes and return their names: `prefix` with a number.

        The first call starts a manager, with `flags`, for the scheduler and the virtual-node-controller, as far as no
        manager of this cluster has them. From then on pods are scheduled and run. The built-in stages of pods and nodes
        have no delays, so they are complete after `settle`; use `--virtual-node-instant=false` for delays. Nodes do not
        serve `logs` here.
        """
        there = {spec.name for replica in self._replicas if not replica.has_ended for spec in replica.plan.specs}
        missing = [name for name in RUN_PODS if name not in there]
        if missing:
            await self.manage(f"--controllers={','.join(missing)}", *NODE_FLAGS, *flags, name="nodes")
        names = [f"{prefix}-{number}" for number in range(self._nodes + 1, self._nodes + count + 1)]
        self._nodes += count
        for name in names:
            await self.client.create(NODES, virtual_node(name, labels, capacity))
            # The controller that removes the not-ready taint may not run.
            await self.client.patch(NODES, Key("", name), {"spec": {"taints": list(taints)}})
        return names

    def serve_beside(self, path: str, answer: Answer) -> None:
        """Let `answer` handle requests for `path` and below instead of the server, like an external API.

        The server's discovery does not list it.
        """
        self._beside[path] = answer

    async def stop_api(self) -> None:
        """Stop the API server, if it runs, like SIGTERM: watches end, writes are finished."""
        if not self._link.is_cut:
            self._note("the server is stopped")
            self._upkeep.cancel()
            await self.api.stop()
            self._link.cut()

    async def kill_api(self) -> None:
        """Kill the API server, like SIGKILL: connections break, and its later writes are lost."""
        self._note("the server is killed")
        self.rows = self.rows.copy()
        self._link.cut()
        self._upkeep.cancel()
        await self.api.stop()

    async def start_api(self, *, wiped: bool = False) -> None:
        """Start the API server again after a stop or kill, with its stored objects, or without any if `wiped`."""
        self._note("the server starts on nothing" if wiped else "the server starts")
        if wiped:
            self.rows = MemoryRows()
        self.api = self._build(self.rows)
        self._listen()
        await self.api.start()
        self._upkeep = self._tasks.start(self.api.run(), name="apiserver")
        self._link = Link()

    async def _begin_as(self, snapshot: ClusterSnapshot, revision: int) -> None:
        """Start the server with the objects of a snapshot, at `revision` or a later one."""
        self.rows = MemoryRows.of(snapshot.rows, revision)
        self.api = self._build(self.rows)
        if snapshot.cached is not None:
            self.api.store.adopt(snapshot.cached)
        self._listen()
        await resume(self.api)
        self._upkeep = self._tasks.start(self.api.run(), name="apiserver")
        self._link = Link()

    def _start_replicas(self, replicas: Sequence[Replica], snapshot: ClusterSnapshot) -> None:
        for replica, (_, me) in zip(replicas, snapshot.replicas, strict=True):
            self._watch_over(replica.plan.specs)
            replica.start(self._tasks, self._reach, me)
        self._last_change = asyncio.get_running_loop().time()

    def _listen(self) -> None:
        """Subscribe to all changes of a new server."""
        self.api.store.subscribe(self._count)
        self._last_change = asyncio.get_running_loop().time()
        for follower in self._followers:
            self.api.store.subscribe(follower.note)

    async def sleep(self, seconds: float) -> None:
        """Sleep for `seconds`; the timeline records it."""
        self._note(f"the test lets {seconds:g} s pass")
        await asyncio.sleep(seconds)

    async def settle(self, quiet: float = QUIET_SECONDS, *, pending: float = PENDING_SECONDS) -> None:
        """Wait until no manager has work and nothing has changed for `quiet` seconds.

        Also wait for work that is due within `pending` seconds after the last change, for a minute in total: retries,
        requeues and delays. Later work and lease renewals do not count. Raises `UnsettledError` after ten minutes, and
        `ManagerFailedError` as described in `manage`.
        """
        clock = asyncio.get_running_loop().time
        began, busy = clock(), [""]
        while self._changed or busy:
            if clock() > began + LONGEST_SETTLE:
                raise UnsettledError(self._unrest(quiet, busy))
            self._changed.clear()
            await asyncio.sleep(quiet)
            within = self._last_change + pending - clock() if clock() < began + LONGEST_PENDING else 0.0
            busy = [what for replica in self._replicas for what in replica.busy_with(max(0.0, within))]
            self._raise_complaints()
        self._raise_complaints(at_rest=True)

    def _unrest(self, quiet: float, busy: Sequence[str]) -> str:
        changes = [f"{count} changes of {what}" for what, count in self._changed.most_common(5)]
        return f"the cluster does not come to rest; in the last {quiet:g} s: {', '.join([*changes, *busy])}"

    def _raise_complaints(self, *, at_rest: bool = False) -> None:
        if complaints := self._complaints(at_rest=at_rest):
            raise ManagerFailedError("\n".join(complaints))

    async def advance(
        self,
        seconds: float = 0.0,
        *,
        minutes: float = 0.0,
        hours: float = 0.0,
        days: float = 0.0,
        housekeeping: bool = True,
    ) -> None:
        """Let the sum of these times pass, then settle.

        Housekeeping takes most of the time of an idle cluster. Without `housekeeping`, there are no bookmarks, no
        timeouts of watches, no compaction of the history and no periodic discovery in the meantime.
        """
        with nullcontext() if housekeeping else housekeeping_held():
            await self.sleep(seconds + 60 * (minutes + 60 * (hours + 24 * days)))
            await self.settle()

    def _watch_over(self, specs: Sequence[AnySpec]) -> None:
        self._controllers.update(spec.name for spec in specs)
        loop = asyncio.get_running_loop()
        if self._watch is None and isinstance(loop, VirtualLoop):
            self._watch = LoopWatch(loop, lambda: loop.turns, lambda task: task.split(" ")[0] in self._controllers)

    def _complaints(self, *, at_rest: bool = False) -> list[str]:
        strict = self._strict_controllers()
        found = [sentence for controller, sentence in self._hot_loops.found.items() if controller in strict]
        return found + [one for replica in self._replicas for one in replica.complaints(at_rest=at_rest)]

    def _strict_controllers(self) -> set[str]:
        """Return the running controllers whose failures fail the test."""
        strict = (replica for replica in self._replicas if replica.plan.strict and not replica.has_ended)
        return {spec.name for replica in strict for spec in replica.plan.specs}

    def _reach(self, options: Parsed, obtain: Obtain | None) -> Transport:
        """Return the transport of a manager: with its certificate, or with the token that `obtain` returns."""
        if obtain is not None:
            return self.transport(None, obtain)
        return self.transport(MANAGER if options[ClientOptions].use_service_account_credentials else WHOLE_MANAGER)

    async def _handle(self, request: Request) -> Response:
        others = (answer for path, answer in self._beside.items() if f"{request.path}/".startswith(f"{path}/"))
        other = next(others, None)
        answer = partial(other or self.api.handle, request)
        run = current_run() if is_write(request) else None
        if run is not None and run.loop in self._strict_controllers():
            self._hot_loops.check(run)
        revision = self.rows.revision if other is None else 0
        response = await self.timeline.asked(self.name, request, lambda: self._link.answer(answer), revision)
        if is_write(request) and (written := written_object(request, response)):
            self._hot_loops.wrote(run, written)
        return response

    def _count(self, changes: Sequence[Change]) -> None:
        for change in changes:
            row = change.row
            if row.resource not in RESTLESS:
                self._last_change = asyncio.get_running_loop().time()
                self._changed[f"{row.resource} {row.key}"] += 1
                self.timeline.changed(self.name, change)

    def _note(self, what: str, request: Request | None = None) -> None:
        self.timeline.step(self.name, what, request)
