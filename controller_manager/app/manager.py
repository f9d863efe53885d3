"""The manager: serves its pages, stands by with synced informers, leads, and stops in order with a reason."""

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

import msgspec
from msgspec.structs import replace

from controller_manager.app.access.delegated_auth import DelegatedAuth
from controller_manager.app.catalog import AnySpec
from controller_manager.app.clients import ClientOptions, Clients, Network
from controller_manager.app.cloud import CloudOptions, make_provider
from controller_manager.app.election import Election, ElectionOptions, LockSpec, assignment_of, locks
from controller_manager.app.features import WATCH_LIST, ManagerFeatureOptions
from controller_manager.app.leader_group import LeaderGroup
from controller_manager.app.pages.controllers import controllers_handler
from controller_manager.app.pages.routes import Pages, ServingOptions, index_handler, pages_server
from controller_manager.app.pages.ui import ClusterView, ui_handlers
from controller_manager.app.shared_group import SharedController, SharedGroup, Writes
from controller_manager.app.state import ManagerState, standing_by
from controller_manager.common.api.resource import Resource
from controller_manager.common.api.timestamps import format_time
from controller_manager.common.base import clock
from controller_manager.common.base.errors import describe
from controller_manager.common.base.runtime import Runtime
from controller_manager.common.base.tasks import Tasks, first_of, keep_running
from controller_manager.common.component.options import MetricsOptions, ProfilingOptions
from controller_manager.common.component.pages import Handler, Profiling, debugging_routes, metrics_handler
from controller_manager.common.component.process_metrics import register_process_metrics
from controller_manager.common.options.command_line import reported_version
from controller_manager.common.options.flag import Options, flag
from controller_manager.common.options.parse import Parsed
from controller_manager.common.options.types import Duration
from controller_manager.common.serving.health import Health
from controller_manager.common.serving.trust import Trust
from controller_manager.framework.cache.informers import Informers, ShardInformers
from controller_manager.framework.client.events import EventWriter, Occurrence, Recorder
from controller_manager.framework.cloud_provider import MakeCloudProvider
from controller_manager.framework.controller.runner import Controller, ControllerMetrics, ControllerState, Phase
from controller_manager.framework.controller.spec import Context
from controller_manager.framework.leader.elector import LeadershipLost, identity
from controller_manager.framework.work.metrics import WorkMetrics

_CLOSE_PAGES = 3.0  # seconds for the last responses when it stops
_NO_CLOUDS: Mapping[str, MakeCloudProvider] = {}
_PATIENCE = 600.0  # seconds a controller may keep crashing before /healthz fails


class ManagerOptions(Options):
    """Flags for starts and resyncs of controllers."""

    title: ClassVar[str] = "Generic"

    controller_start_interval: Duration = flag(0.0, "time between the starts of two controllers", minimum=0)
    min_resync_period: Duration = flag(
        "12h0m0s",
        "every controller looks at all objects again after a random time between this and twice this; 0 never",
        minimum=0,
    )


class Ending(msgspec.Struct, frozen=True):
    """The result of a manager: the exit status of its process, and the reason."""

    status: int
    reason: str


class Manager:
    """One replica with the controllers `specs`. Create it within the event loop. Raises CannotStart.

    It has leader groups, each with a lock and the controllers that run under it: one group, or two with leader
    migration, where the second group requests its lock after the first has acquired its own. Losing a lock ends the
    process. If replicas share the controllers, there is one group with a lock for each controller or shard.

    `pages` handles the requests of its server, so that tests need no socket (--secure-port=0). `cloud_providers` are
    available in addition to the installed ones. `me` is its identity, by default a new unique one.
    """

    def __init__(
        self,
        parsed: Parsed,
        specs: Sequence[AnySpec],
        network: Network,
        runtime: Runtime,
        cloud_providers: Mapping[str, MakeCloudProvider] = _NO_CLOUDS,
        me: str = "",
    ) -> None:
        self._name = runtime.name
        runtime.registry.rules = parsed[MetricsOptions].rules()
        register_process_metrics(runtime.registry, parsed[ManagerFeatureOptions], reported_version(parsed))
        self._log = runtime.log("manager")
        in_cloud = any(spec.cloud for spec in specs)
        self._cloud = make_provider(parsed[CloudOptions], cloud_providers, runtime) if in_cloud else None
        specs = self._supported(specs)
        for spec in specs:
            spec.check(parsed[spec.options])
        self._born = clock.monotonic()
        self._stop = asyncio.Event()
        self._why = ""
        self._clients = Clients(parsed[ClientOptions], network, runtime)
        self._me = me or identity()
        resync, streams = parsed[ManagerOptions].min_resync_period, parsed[ManagerFeatureOptions].enabled(WATCH_LIST)
        self._informers = Informers(self._clients.reader, runtime, resync=resync, streams=streams)
        self._events = EventWriter(self._clients.writer("events", self.may_write), self._me, registry=runtime.registry)
        self._account_events: dict[str, EventWriter] = {}
        self._assignment = assignment_of(parsed, specs, runtime)
        self._groups = self._make_groups(parsed, specs, runtime)
        self._controllers: list[Controller | SharedController] = []
        for group in self._groups:
            self._controllers += group.controllers
        runtime.registry.register(ControllerMetrics(self._controllers, runtime.name))
        trust = Trust()
        self._guard = DelegatedAuth(parsed, network, trust, runtime, self._clients.metrics)
        self.profiling = Profiling(parsed[ProfilingOptions], runtime.name, [spec.name for spec in specs])
        health = self._health(runtime)
        self.pages = Pages(self._guard, health, self._routes(parsed, runtime, health))
        self._pages_server = pages_server(self.pages.handle, parsed[ServingOptions], trust, runtime.name)

    def _supported(self, specs: Sequence[AnySpec]) -> list[AnySpec]:
        """Return the controllers that need no cloud, or a part that the cloud provider has."""
        lacking = [spec.name for spec in specs if spec.cloud and getattr(self._cloud, spec.cloud, None) is None]
        if lacking and self._cloud is not None:
            self._log.info("left out: the provider of the cloud has nothing for them", controllers=lacking)
        return [spec for spec in specs if spec.name not in lacking]

    @property
    def identity(self) -> str:
        """The identity with which it holds leases."""
        return self._me

    def may_write(self) -> bool:
        """Return whether any of the controllers may write right now."""
        return any(group.may_write() for group in self._groups)

    def busy_with(self, within: float = 0.0) -> tuple[str, ...]:
        """Describe the pending work within `within` seconds: unsynced informers and keys."""
        filling = [f"listing {one.selection}" for one in self._informers.filling]
        working = (what for controller in self._controllers for what in controller.busy_with(within))
        return (*filling, *working)

    def controllers(self) -> tuple[ControllerState, ...]:
        """Return the current states of its controllers."""
        return tuple(controller.state() for controller in self._controllers)

    def failing(self) -> tuple[ControllerState, ...]:
        """Return the states of the controllers that have crashed or have failing keys."""
        return tuple(controller.state() for controller in self._controllers if controller.is_failing)

    def unreadable(self) -> tuple[tuple[Resource[Any], str], ...]:
        """Return the objects that its informers could not decode, each with its resource and the reason."""
        return tuple(
            (one.selection.resource, sentence) for one in self._informers for sentence in one.unreadable.sentences()
        )

    def state(self) -> ManagerState:
        """Return the current state of this replica as plain data."""
        elsewhere = (
            ControllerState(name, Phase.ELSEWHERE, component=owner)
            for name, owner in self._assignment.elsewhere.items()
        )
        controllers = (*self.controllers(), *elsewhere)
        return ManagerState(
            name=self._name,
            identity=self._me,
            time=format_time(clock.utc_now()),
            uptime=clock.monotonic() - self._born,
            stopping=self._why,
            locks=tuple(state for group in self._groups for state in group.states()),
            controllers=tuple(sorted(controllers, key=lambda one: one.name)),
            informers=tuple(sorted((one.state() for one in self._informers), key=lambda one: one.selection)),
        )

    def stop(self, why: str) -> None:
        """Request a graceful stop: finish running reconciles, write the last events, release the lease.

        The reason of the first call is reported.
        """
        if not self._stop.is_set():
            self._log.info("stopping", reason=why)
            self._why = why
            self._stop.set()

    async def run(self) -> Ending:
        """Run until stopped or until leadership is lost.

        Raises CannotStart, or an exception group for unexpected errors, which have already been logged.
        """
        try:
            ending = await self._serve_and_take_part()
        except BaseExceptionGroup as bug:
            self._log.critical("stopped", reason=f"an unexpected error: {describe(bug)}", status=1, exc_info=bug)
            raise
        finally:
            await self._guard.close()
            await self._clients.close()
            if self._cloud is not None:
                await self._cloud.close()
        log = self._log.info if ending.status == 0 else self._log.error
        log("stopped", reason=ending.reason, status=ending.status)
        return ending

    async def _serve_and_take_part(self) -> Ending:
        if await first_of(self._guard.prepare(), self._stop.wait()):
            return Ending(0, self._why)
        try:
            await self._serve()
            async with Tasks() as tasks:
                tasks.start(self._informers.run(), name="informers")
                tasks.start(keep_running(self._guard.run, self._log, name="guard"), name="guard")
                tasks.start(keep_running(self._events.run, self._log, name="events"), name="events")
                return await self._take_part(tasks)
        finally:
            if self._pages_server is not None:
                await self._pages_server.stop(_CLOSE_PAGES)

    async def _serve(self) -> None:
        if self._pages_server is not None:
            await self._pages_server.start()
            self._log.info("serving", port=self._pages_server.port)

    async def _take_part(self, tasks: Tasks) -> Ending:
        parts = [tasks.start(self._part_of(group), name="election") for group in self._groups]
        stopping = tasks.start(self._stop.wait(), name="stop")
        await asyncio.wait((*parts, stopping), return_when=asyncio.FIRST_COMPLETED)
        # The holder of the first lock may run all controllers: release it last, when nothing runs under another lock.
        for group, part in reversed(list(zip(self._groups, parts, strict=True))):
            if stopping.done() and group.leading.is_set():
                group.stop()
            else:
                part.cancel()
            await asyncio.wait((part,))
        losses = [loss for part in parts if not part.cancelled() and (loss := part.result())]
        return Ending(1, losses[0]) if losses else Ending(0, self._why)

    async def _part_of(self, group: LeaderGroup | SharedGroup) -> str:
        """Run a group; return why leadership was lost, or an empty string after a requested stop."""
        if group is not self._groups[0]:
            await self._groups[0].leading.wait()
        try:
            await group.run()
        except LeadershipLost as loss:
            return str(loss)
        return ""

    def _make_groups(
        self, parsed: Parsed, specs: Sequence[AnySpec], runtime: Runtime
    ) -> Sequence[LeaderGroup | SharedGroup]:
        options = parsed[ElectionOptions]
        election = Election(options, self._clients.unlimited, self._me, runtime)
        metrics = WorkMetrics(runtime.registry)
        interval = parsed[ManagerOptions].controller_start_interval
        if options.leader_elect_per_controller:
            make = partial(self._make_shared, parsed, runtime, metrics)
            every = locks(options, specs)
            return [SharedGroup(election, every, make, self._informers, self._events, interval, runtime)]
        groups = []
        for lock, specs in self._assignment.by_lock:
            elector = election.candidate(lock)
            may_write = elector.leads if elector is not None else _always
            controllers = [
                Controller(spec, self._context(spec, Writes(may_write), parsed, runtime), parsed[spec.options], metrics)
                for spec in specs
            ]
            groups.append(LeaderGroup(elector, controllers, self._events, interval, runtime))
        return groups

    def _make_shared(
        self,
        parsed: Parsed,
        runtime: Runtime,
        metrics: WorkMetrics,
        lock: LockSpec,
        writes: Writes,
        informers: ShardInformers | None,
    ) -> Controller:
        context = self._context(lock.spec, writes, parsed, runtime)
        if informers is not None:
            context = replace(context, informers=informers)
        options = parsed[lock.spec.options]
        return Controller(lock.spec, context, options, metrics, shard=lock.shard, name=lock.name)

    def _context(self, spec: AnySpec, writes: Writes, parsed: Parsed, runtime: Runtime) -> Context:
        return Context(
            self._clients.writer(
                spec.name, writes.may_write, spec.qps_factor, spec.account, writes.unanswered, spec.aliases
            ),
            self._informers,
            Recorder(partial(self._record, spec.account), spec.reporter or spec.name),
            runtime.log(spec.name),
            runtime,
            parsed[ManagerFeatureOptions].enabled,
            self._cloud if spec.cloud else None,
        )

    def _record(self, account: str, it: Occurrence) -> None:
        """Queue an event to be written as the service account of its controller, in a separate queue."""
        if account not in self._account_events:  # most controllers rarely record events
            client = self._clients.writer("events", self.may_write, account=account)
            self._account_events[account] = self._events.through(client)
        self._account_events[account].offer(it)

    def _routes(self, parsed: Parsed, runtime: Runtime, health: Health) -> Mapping[str, Handler]:
        routes = {
            "/metrics": metrics_handler(runtime.registry),
            "/metrics/slis": metrics_handler(health.indicators),
            "/debug/controllers": controllers_handler(self.state),
            **ui_handlers(self.state, ClusterView(self._informers), self._guard.may_list),
            **self.profiling.routes(),
        }
        routes |= debugging_routes(runtime.name, parsed, reported_version(parsed), routes)
        return {"/": index_handler(runtime.name, routes), **routes}

    def _health(self, runtime: Runtime) -> Health:
        health = Health(runtime.log("health"))
        health.add("leaderElection", self._check_lead, ("healthz", "livez"))
        health.add("leaderElection", lambda: "", ("readyz",), note=self._standing_by)
        health.add("apiServer", self._clients.reachability.problem, ("readyz",))
        health.add("informers", self._check_informers, ("readyz",))
        for controller in self._controllers:
            name = controller.name
            health.add(name, partial(_why_not_healthy, controller), ("healthz",))
            health.add(name, partial(_why_not_ready, controller), ("readyz",))
        return health

    def _check_lead(self) -> str:
        return "the lease was not renewed in time" if any(group.overdue() for group in self._groups) else ""

    def _standing_by(self) -> str:
        return standing_by([state for group in self._groups for state in group.states()])

    def _check_informers(self) -> str:
        return _waiting([str(one.selection) for one in self._informers.required if not one.is_synced])


def _always() -> bool:
    return True


# The effect of one controller on the probes. A failing probe of /livez or /healthz restarts the process with all its
# controllers. A single failing controller must not cause that at once, and never if a restart cannot help.
#
#   the controller                                    /livez   /healthz   /readyz
#   stands by or runs, its informers are synced       ok       ok         ok
#   waits for informers, for example after a 403      ok       ok         fails
#   has crashed, and waits to be restarted            ok       ok         fails
#   has kept crashing for ten minutes                 ok       fails      fails
#
# An unreachable API server fails only /readyz, because a restart of the manager does not help.


def _why_not_healthy(controller: Controller | SharedController) -> str:
    state = controller.state()
    keeps_crashing = state.failing_seconds >= _PATIENCE and not state.waits_for
    return f"it keeps crashing: {state.crash}" if keeps_crashing else ""


def _why_not_ready(controller: Controller | SharedController) -> str:
    state = controller.state()
    crashed = state.phase is Phase.CRASHED
    return f"it crashed: {state.crash}" if crashed else _waiting(state.waits_for) or _why_not_healthy(controller)


def _waiting(informers: Sequence[str]) -> str:
    return f"not read yet: {', '.join(informers)}" if informers else ""
