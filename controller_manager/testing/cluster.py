"""A whole control plane in one process: the API server, controller managers and their clients, without sockets."""

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
from controller_manager.common.options import Parsed
from controller_manager.common.transport.credentials import Obtain
from controller_manager.framework.client import Client, InProcessTransport, Transport
from controller_manager.framework.cloud_provider import MakeCloudProvider
from controller_manager.framework.work import current_run
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
    """Return what flags say, and the controllers that run."""
    every = catalog.installed()
    parsed = flag_set(every).parse(flags)
    return parsed, catalog.choose(every, parsed)


Answer = Callable[[Request], Awaitable[Response]]

ADMIN = Certificate("kubernetes-admin", (ADMIN_GROUP,))
# A manager whose controllers have no accounts of their own does all that they do, which no default role allows.
MANAGER, WHOLE_MANAGER = Certificate(MANAGER_USER), Certificate(MANAGER_USER, (ADMIN_GROUP,))
# Renewals of leases never end: a cluster is settled although they go on.
RESTLESS = frozenset({"leases.coordination.k8s.io"})
QUIET_SECONDS = 1.0
LONGEST_SETTLE = 600.0
# `settle` waits for keys that are due within so many seconds of the last change, for so many seconds in all.
PENDING_SECONDS = 6.0  # the garbage collector asks for new kinds within five
LONGEST_PENDING = 60.0
# The controllers by which pods run.
RUN_PODS = ("scheduler", "virtual-node-controller")
# One manager is there, whose lease nobody looks at; what its nodes do they do at once, and they serve no logs.
NODE_FLAGS = ("--leader-elect=false", "--virtual-node-instant", "--virtual-node-bind-address=")


class UnsettledError(AssertionError):
    """The cluster went on changing, or working, for longer than anybody should wait; says at what."""


class Follower(Protocol):
    """Who follows the objects of a cluster, whichever server serves them."""

    def note(self, changes: Sequence[Change]) -> None:
        """Hear of changes, as soon as they are visible."""

    def restart(self) -> None:
        """The objects are others than before, without any change: what was begun is void."""


class Cluster:
    """`async with Cluster() as cluster:` an API server on a memory store, and an admin's `client`.

    With `nodes` it is a whole cluster: one manager has the controllers that are on by default, the scheduler and so
    many virtual nodes, and a deployment that is created has pods that run after `settle`. Without, nothing but the
    server is there until `manage` or `add_nodes` is called, and pods are bound and led by hand, if at all.

    `server_flags` are those of `apiserver-stub`; unless they say otherwise, RBAC decides what callers may do, and the
    server keeps no lease of its own and bounds no caller's requests by priority and fairness.
    `admission_plugins` are plugins of your own, by their names, which need not be installed. On a virtual-time loop
    nothing here takes real time.
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
        if not any("APIServerIdentity=" in flag for flag in server_flags):  # renewals would be most of what it does
            server_flags = (*server_flags, "--feature-gates=APIServerIdentity=false")
        if not any("priority-and-fairness" in flag for flag in server_flags):  # looks at its levels would be the rest
            server_flags = (*server_flags, "--enable-priority-and-fairness=false")
        if not any(flag.startswith("--representation-cache-size") for flag in server_flags):  # few watch the same here
            server_flags = ("--representation-cache-size=33554432", *server_flags)
        if not any(flag.startswith("--watch-cache-size") for flag in server_flags):  # nobody here is far behind
            server_flags = ("--watch-cache-size=16777216", *server_flags)
        self._flags = ("--storage-backend=memory", "--secure-port=6443", "--bind-address=127.0.0.1", *server_flags)
        self._options = _server_options(self._flags)
        self._plugins = admission_plugins
        self.rows = MemoryRows()
        """What the server keeps, which outlives it."""
        self._link = Link()
        self.api = self._build(self.rows)
        self.client = self.connect()
        self._tasks = Tasks()
        self._replicas: list[Replica] = []
        # Who answers requests below a path instead of the server, as aggregated APIs do.
        self._beside: dict[str, Answer] = {}
        # Looks for reconciles that hold the loop; of those of these controllers.
        self._watch: LoopWatch | None = None
        self._controllers: set[str] = set()
        self._first_nodes = nodes
        self._nodes = 0  # that were added
        # What changed how often since the last look.
        self._changed: Counter[str] = Counter()
        self._hot_loops = HotLoops()
        # When anything changed last, or a server or manager started: the time of the loop.
        self._last_change = 0.0
        self._followers: list[Follower] = []
        self._origin: ClusterSnapshot | None = None  # of a fork
        self.name = ""
        """What it is called in the timeline, which it shares with other clusters of its loop."""
        self._timeline: Timeline | None = None
        self._forks = 0

    def _build(self, rows: MemoryRows) -> ApiServer:
        storage = MemoryStorage(rows)
        return build(self._options, Runtime("apiserver"), storage, admission_plugins=self._plugins)

    @property
    def timeline(self) -> Timeline:
        """What happened, in order: who wrote what and what woke them, faults, ends and beginnings, steps of the test.

        The last five thousand happenings are kept. Of a test that fails in virtual time the plugin prints it.
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
        if self._plugins:  # which may change what a start leaves
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
        """A way to the API server, as the holder of a client certificate, or of the token that `obtain` gives; it
        lasts across restarts.
        """
        return InProcessTransport(self._handle, certificate=certificate, obtain=obtain)

    def connect(self, certificate: Certificate = ADMIN) -> Client:
        """A client, as the holder of a client certificate."""
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
        """Start a controller manager with these flags: the controllers installed, or those of `specs`.

        `faults` is the probability that one of its requests fails. Those of its election are spared, unless it
        `may_lose_lead` and thereby end, in which case the test starts another. `name` is that of its component.
        `cloud_providers` are providers of your own, by their names for `--cloud-provider`, which need not be installed.

        What a controller did not declare in its `rbac` is refused with 403. With `--use-service-account-credentials`,
        accounts that clusters have no role for are given what their controllers declare, as the chart does. If it is
        `strict`, such a refusal, an error that no retry will mend, a crash, and a manager that ends unasked fail the
        test: in `settle`, or when the cluster ends.
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
        """Return the managers that were started, those that have ended too."""
        return tuple(self._replicas)

    def follow(self, follower: "Follower") -> None:
        """Tell `follower` of all changes, also of those by a server that is started again, and when the cluster is
        restored.
        """
        self._followers.append(follower)
        self.api.store.subscribe(follower.note)

    def snapshot(self) -> ClusterSnapshot:
        """Return the cluster as it is now, to `restore` it later. No object is looked at: it costs the same for ten and
        for ten thousand.

        It holds the objects, which managers run (their flags and identities), and in virtual time the wall clock and
        the state of randomness. What processes know only themselves is not in it: the history that watches resume from,
        what was written but not answered yet, what controllers remember, and which keys wait in their queues, with
        their back-off and what was due later. Nor are a network that is cut or intercepted, and what is beside the
        cluster: clouds, metrics, the test's own objects.
        """
        return ClusterSnapshot.of(self.rows, self.api, self._replicas)

    async def restore(self, snapshot: ClusterSnapshot, *, seed: int | None = None) -> None:
        """Make this cluster what it was at one of its snapshots.

        Server and managers end as if they were killed, and others start on what the snapshot holds: controllers look at
        everything anew, as after a restart, and hold the leases that they held. A `Replica` of then stands for the
        manager that takes its place; managers of after the snapshot are gone. Uids and resource versions of objects are
        those of then; new resource versions are greater than all that were ever given. Watches break, and whoever wants
        to resume one gets 410 and lists again.

        In virtual time the wall clock is set back too, for the whole loop, so for forks as well, and chance says what
        it then said: whatever is done the same way again ends the same way. With a `seed` it says something else.
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
        """Return another cluster that is like this one is now, for `async with`: to try what if. It costs the same
        however many objects there are, but for what its server and managers read at their start.

        What is changed in one is never seen in the other. They share the loop, so its time and its randomness, and what
        is beside them: clouds, and what answers by `serve_beside`. The fork has managers of its own, in `replicas`; of
        what is not taken over `snapshot` says more.
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
        """Add virtual nodes that are ready, and return their names: `prefix` with numbers.

        The first call starts a manager with the scheduler and the controller of virtual nodes, or the one of them that
        no manager of this cluster has; `flags` are for that one. Pods are scheduled and run from then on, and what the
        stages that are built in do, they do at once, so that after `settle` they have done it;
        `--virtual-node-instant=false` has them take their time. Nodes answer no `logs` here.
        """
        there = {spec.name for replica in self._replicas if not replica.has_ended for spec in replica.plan.specs}
        missing = [name for name in RUN_PODS if name not in there]
        if missing:
            await self.manage(f"--controllers={','.join(missing)}", *NODE_FLAGS, *flags, name="nodes")
        names = [f"{prefix}-{number}" for number in range(self._nodes + 1, self._nodes + count + 1)]
        self._nodes += count
        for name in names:
            await self.client.create(NODES, virtual_node(name, labels, capacity))
            # Who takes away the taint of nodes that are not ready may not be there.
            await self.client.patch(NODES, Key("", name), {"spec": {"taints": list(taints)}})
        return names

    def serve_beside(self, path: str, answer: Answer) -> None:
        """Have `answer` answer, in the server's place, what is asked of `path` and below: an API of somebody else's.

        The server's discovery does not name it.
        """
        self._beside[path] = answer

    async def stop_api(self) -> None:
        """Stop the API server, if it runs, as SIGTERM would: watches end, writes are finished."""
        if not self._link.is_cut:
            self._note("the server is stopped")
            self._upkeep.cancel()
            await self.api.stop()
            self._link.cut()

    async def kill_api(self) -> None:
        """End the API server as SIGKILL would: connections break, and what it still does is not kept."""
        self._note("the server is killed")
        self.rows = self.rows.copy()
        self._link.cut()
        self._upkeep.cancel()
        await self.api.stop()

    async def start_api(self, *, wiped: bool = False) -> None:
        """Start the API server again, once it was stopped or killed, on what it kept, or on nothing."""
        self._note("the server starts on nothing" if wiped else "the server starts")
        if wiped:
            self.rows = MemoryRows()
        self.api = self._build(self.rows)
        self._listen()
        await self.api.start()
        self._upkeep = self._tasks.start(self.api.run(), name="apiserver")
        self._link = Link()

    async def _begin_as(self, snapshot: ClusterSnapshot, revision: int) -> None:
        """Start the server on what a snapshot holds, at a revision that is not lower than this one."""
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
        """Hear of all changes of a new server."""
        self.api.store.subscribe(self._count)
        self._last_change = asyncio.get_running_loop().time()
        for follower in self._followers:
            self.api.store.subscribe(follower.note)

    async def sleep(self, seconds: float) -> None:
        """Let time pass."""
        self._note(f"the test lets {seconds:g} s pass")
        await asyncio.sleep(seconds)

    async def settle(self, quiet: float = QUIET_SECONDS, *, pending: float = PENDING_SECONDS) -> None:
        """Wait until no manager has anything to do, and nothing has changed for `quiet` seconds.

        Work that is due within `pending` seconds of the last change is waited for too, for a minute in all: a retry
        after an error, a `Requeue`, a delay. What is due later does not count, nor do renewed leases. Raises
        `UnsettledError` after ten minutes, and `ManagerFailedError` for what `manage` says.
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
        """Let so much time pass, all taken together, then settle.

        Without `housekeeping`, which takes most of the time of a cluster at rest, there are meanwhile no bookmarks, no
        watches that end since they are old, no compaction of the history, and nobody asks for resources that are new.
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
        """Return the controllers that run and whose failures fail the test."""
        strict = (replica for replica in self._replicas if replica.plan.strict and not replica.has_ended)
        return {spec.name for replica in strict for spec in replica.plan.specs}

    def _reach(self, options: Parsed, obtain: Obtain | None) -> Transport:
        """Return how a manager reaches the server: by its certificate, or with the credentials of somebody else."""
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
