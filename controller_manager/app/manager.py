"""The manager put together and its life: serve, stand by with warm caches, lead, stop in order and say why."""

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from controller_manager.app.access import Guard
from controller_manager.app.catalog import AnySpec
from controller_manager.app.clients import ClientOptions, Clients
from controller_manager.app.debugging import debugging_routes
from controller_manager.app.election import ElectionOptions, make_elector
from controller_manager.app.metrics import MetricsOptions, metrics_handler
from controller_manager.app.network import Network
from controller_manager.app.pages import Handler, Pages
from controller_manager.app.secure import ServingOptions, secure_site
from controller_manager.base.runtime import Runtime
from controller_manager.base.tasks import Tasks, keep_running
from controller_manager.cache import Informers
from controller_manager.client.events import EventWriter
from controller_manager.controller import Context
from controller_manager.controller.build import Controller
from controller_manager.leader import LeadershipLost, identity
from controller_manager.options import Duration, Options, Parsed, flag
from controller_manager.serving import Health
from controller_manager.serving.trust import Trust
from controller_manager.work import WorkMetrics

_FLUSH_EVENTS = 2.0  # seconds the last events get at a stop
_CLOSE_SITE = 3.0  # seconds the last answers get at a stop


class ManagerOptions(Options):
    """How controllers start, and how often they look at everything."""

    title: ClassVar[str] = "Generic"

    controller_start_interval: Duration = flag(0.0, "time between the starts of two controllers", minimum=0)
    min_resync_period: Duration = flag(
        "12h0m0s",
        "every controller looks at all objects again after a random time between this and twice this; 0 never",
        minimum=0,
    )


@dataclass(frozen=True, slots=True)
class Ending:
    """How a manager ended: the exit status of its process, and why."""

    status: int
    reason: str


class Manager:
    """One replica with the controllers `specs`; make it within the loop.

    `pages` answers what its site serves, so that a test can ask without a socket (--secure-port=0).
    """

    def __init__(self, parsed: Parsed, specs: Sequence[AnySpec], network: Network, runtime: Runtime) -> None:
        runtime.registry.rules = parsed[MetricsOptions].rules()
        self._log = runtime.log("manager")
        self._interval = parsed[ManagerOptions].controller_start_interval
        self._stop = asyncio.Event()
        self._why = ""
        self._leading = False
        self._clients = Clients(parsed[ClientOptions], network, runtime)
        me = identity()
        self._elector = make_elector(parsed[ElectionOptions], self._clients.unlimited, me, runtime)
        self._informers = Informers(self._clients.reader, runtime, resync=parsed[ManagerOptions].min_resync_period)
        self._events = EventWriter(self._clients.writer("events", self.may_write), me, registry=runtime.registry)
        metrics = WorkMetrics(runtime.registry)
        self._controllers = [
            Controller(spec, self._context(spec, runtime), parsed[spec.options], metrics) for spec in specs
        ]
        trust = Trust()
        self._guard = Guard(parsed, network, trust, runtime)
        self.pages = Pages(self._guard, self._health(runtime), self._routes(parsed, runtime))
        self._site = secure_site(self.pages.handle, parsed[ServingOptions], trust)

    def may_write(self) -> bool:
        """Whether the controllers may change anything right now."""
        return self._elector is None or self._elector.leads()

    def busy_with(self) -> tuple[str, ...]:
        """What is to be done right now: informers to fill, keys to work on. What is due later does not count."""
        filling = [f"listing {one.selection}" for one in self._informers if not one.is_synced]
        states = [state for controller in self._controllers if (state := controller.state()) is not None]
        working = [f"{state.name} with {key.key}" for state in states for key in state.running]
        waiting = [f"{state.name} with {state.ready} keys more" for state in states if state.ready]
        return (*filling, *working, *waiting)

    def stop(self, why: str) -> None:
        """Ask it to stop: what runs is finished, the last events are written, the lease is released."""
        self._why = self._why or why
        self._stop.set()

    async def run(self) -> Ending:
        """Live until stopped or until the lead is lost. Raises CannotListen and ConfigError."""
        try:
            ending = await self._serve_and_take_part()
        finally:
            await self._guard.close()
            await self._clients.close()
        tell = self._log.info if ending.status == 0 else self._log.error
        tell("stopped", reason=ending.reason, status=ending.status)
        return ending

    async def _serve_and_take_part(self) -> Ending:
        await self._guard.prepare()
        if self._site is not None:
            await self._site.start()
            self._log.info("serving", port=self._site.port)
        try:
            async with Tasks() as tasks:
                tasks.start(self._informers.run(), name="informers")
                tasks.start(keep_running(self._guard.run, self._log, name="guard"), name="guard")
                tasks.start(keep_running(self._events.run, self._log, name="events"), name="events")
                return await self._take_part(tasks)
        finally:
            if self._site is not None:
                await self._site.stop(_CLOSE_SITE)

    async def _take_part(self, tasks: Tasks) -> Ending:
        part = tasks.start(self._lead_when_elected(), name="election")
        stopping = tasks.start(self._stop.wait(), name="stop")
        await asyncio.wait((part, stopping), return_when=asyncio.FIRST_COMPLETED)
        if not self._leading:
            part.cancel()
        await asyncio.wait((part,))
        return Ending(0, self._why) if part.cancelled() else part.result()

    async def _lead_when_elected(self) -> Ending:
        try:
            await (self._lead() if self._elector is None else self._elector.run(self._lead))
        except LeadershipLost as error:
            return Ending(1, str(error))
        return Ending(0, self._why)

    async def _lead(self) -> None:
        """Run the controllers until asked to stop; being cancelled ends them at once."""
        self._leading = True
        try:
            async with Tasks() as tasks:
                running: list[asyncio.Task[Any]] = []
                tasks.start(self._start_controllers(tasks, running), name="start the controllers")
                await self._stop.wait()
                for controller in self._controllers:
                    controller.stop()
                if running:
                    await asyncio.wait(running)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._events.flush(), _FLUSH_EVENTS)
        finally:
            self._leading = False

    async def _start_controllers(self, tasks: Tasks, running: list[asyncio.Task[Any]]) -> None:
        for controller in self._controllers:
            if running:
                await asyncio.sleep(self._interval)
            name = controller.spec.name
            self._log.info("starting a controller", controller=name, waits_for=controller.waits_for)
            running.append(tasks.start(controller.run(), name=name))

    def _context(self, spec: AnySpec, runtime: Runtime) -> Context:
        client = self._clients.writer(spec.name, self.may_write, spec.qps_factor)
        return Context(client, self._informers, self._events.recorder(spec.name), runtime.log(spec.name), runtime)

    def _routes(self, parsed: Parsed, runtime: Runtime) -> Mapping[str, Handler]:
        metrics = metrics_handler(runtime.registry)
        return {"/metrics": metrics, **debugging_routes(runtime.name, parsed)}

    def _health(self, runtime: Runtime) -> Health:
        health = Health(runtime.log("health"))
        health.add("leaderElection", self._check_lead, ("healthz", "livez"))
        health.add("informers", self._check_informers, ("readyz",))
        for controller in self._controllers:
            health.add(controller.spec.name, partial(_check_controller, controller), ("readyz",))
        return health

    def _check_lead(self) -> str:
        return "" if not self._leading or self.may_write() else "the lease was not renewed in time"

    def _check_informers(self) -> str:
        return _waiting([str(one.selection) for one in self._informers if not one.is_synced])


def _check_controller(controller: Controller) -> str:
    return _waiting(controller.waits_for)


def _waiting(informers: Sequence[str]) -> str:
    return f"not read yet: {', '.join(informers)}" if informers else ""
