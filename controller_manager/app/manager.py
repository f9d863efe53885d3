"""The manager put together and its life: serve, stand by with warm caches, lead, stop in order and say why."""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from controller_manager.api.resource import Key
from controller_manager.app.catalog import AnySpec
from controller_manager.app.delegated import Delegated, Lifetimes
from controller_manager.app.flags import AccessOptions, ClientOptions, ElectionOptions, ManagerOptions
from controller_manager.app.pages import Pages
from controller_manager.app.secure import secure_site
from controller_manager.base.runtime import Runtime
from controller_manager.base.tasks import Tasks, keep_running
from controller_manager.cache import Informers
from controller_manager.client import Client, ClientMetrics, Throttle, Transport
from controller_manager.client.events import EventWriter
from controller_manager.controller import Context
from controller_manager.controller.build import Controller
from controller_manager.leader import Elector, FencedTransport, LeadershipLost, Terms, identity
from controller_manager.options import Parsed
from controller_manager.serving import Access, Health
from controller_manager.work import WorkMetrics

_FLUSH_EVENTS = 2.0  # seconds the last events get at a stop
_CLOSE_SITE = 3.0  # seconds the last answers get at a stop


@dataclass(frozen=True, slots=True)
class Ending:
    """How a manager ended: the exit status of its process, and why."""

    status: int
    reason: str


class Manager:
    """One replica with the controllers `specs`; make it within the loop.

    `pages` answers what its site serves, so that a test can ask without a socket (--secure-port=0).
    """

    def __init__(self, parsed: Parsed, specs: Sequence[AnySpec], transport: Transport, runtime: Runtime) -> None:
        self._log = runtime.log("manager")
        self._transport = transport
        self._interval = parsed[ManagerOptions].controller_start_interval
        self._stop = asyncio.Event()
        self._why = ""
        self._leading = False
        clients = _Clients(parsed[ClientOptions], transport, self.may_write, runtime)
        me = identity()
        self._elector = _elector(parsed[ElectionOptions], clients.unlimited, me, runtime)
        self._informers = Informers(clients.reader, runtime, resync=parsed[ManagerOptions].min_resync_period)
        self._events = EventWriter(clients.writer("events"), me, registry=runtime.registry)
        metrics = WorkMetrics(runtime.registry)
        self._controllers = [
            Controller(spec, self._context(spec, clients, runtime), parsed[spec.options], metrics) for spec in specs
        ]
        access = _access(parsed[AccessOptions], clients.unlimited)
        self.pages = Pages(access, self._health(runtime), runtime.registry, runtime.name, parsed.settings())
        self._site = secure_site(self.pages.handle, parsed)

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
        """Live until stopped or until the lead is lost. Raises CannotListen."""
        try:
            ending = await self._serve_and_take_part()
        finally:
            await self._transport.close()
        tell = self._log.info if ending.status == 0 else self._log.error
        tell("stopped", reason=ending.reason, status=ending.status)
        return ending

    async def _serve_and_take_part(self) -> Ending:
        if self._site is not None:
            await self._site.start()
            self._log.info("serving", port=self._site.port)
        try:
            async with Tasks() as tasks:
                tasks.start(self._informers.run(), name="informers")
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

    def _context(self, spec: AnySpec, clients: "_Clients", runtime: Runtime) -> Context:
        client = clients.writer(spec.name, spec.qps_factor)
        return Context(client, self._informers, self._events.recorder(spec.name), runtime.log(spec.name), runtime)

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


class _Clients:
    """The clients of one manager: they share transport and metrics; each has the rate limit to itself.

    `unlimited` renews the lease and asks about callers: nothing must hold those up.
    """

    def __init__(
        self, options: ClientOptions, transport: Transport, may_write: Callable[[], bool], runtime: Runtime
    ) -> None:
        self._options = options
        self._name = runtime.name
        metrics = ClientMetrics(runtime.registry)
        self.unlimited = Client(transport, metrics=metrics, user_agent=f"{runtime.name}/process")
        self.reader = self.unlimited.derive(user_agent=f"{runtime.name}/informers", throttle=self._throttle(1))
        self._fenced = Client(FencedTransport(transport, may_write), metrics=metrics)

    def writer(self, name: str, qps_factor: int = 1) -> Client:
        """A client for what only the leader may do; a busy one holds up no other."""
        return self._fenced.derive(user_agent=f"{self._name}/{name}", throttle=self._throttle(qps_factor))

    def _throttle(self, factor: int) -> Throttle:
        return Throttle(self._options.cluster_api_qps * factor, self._options.cluster_api_burst * factor)


def _elector(options: ElectionOptions, client: Client, me: str, runtime: Runtime) -> Elector | None:
    if not options.leader_elect:
        return None
    key = Key(options.leader_elect_resource_namespace, options.leader_elect_resource_name)
    terms = Terms(
        lease=options.leader_elect_lease_duration,
        renew=options.leader_elect_renew_deadline,
        retry=options.leader_elect_retry_period,
    )
    return Elector(client, key, me, terms, runtime)


def _access(options: AccessOptions, client: Client) -> Access:
    lifetimes = Lifetimes(
        tokens=options.authentication_token_webhook_cache_ttl,
        allowed=options.authorization_webhook_cache_authorized_ttl,
        refused=options.authorization_webhook_cache_unauthorized_ttl,
    )
    delegated = Delegated(client, lifetimes)
    return Access(options.authorization_always_allow_paths, delegated.authenticate, delegated.authorize)


def _check_controller(controller: Controller) -> str:
    return _waiting(controller.waits_for)


def _waiting(informers: Sequence[str]) -> str:
    return f"not read yet: {', '.join(informers)}" if informers else ""
