"""One of the processes of an API server: a worker that serves, or the owner of the store.

The supervisor starts it as
`python -m controller_manager.common.base.tethered apiserver_stub.process.workers.process PLACE FLAG…`.
"""

import asyncio
import gc
import os
import socket
import sys
from collections.abc import Callable, Sequence
from functools import partial

import msgspec
from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric

from apiserver_stub.common.flags import DATABASE, FLAGS, EncryptionOptions, ServerFeatureOptions, StorageOptions
from apiserver_stub.process.workers import control
from apiserver_stub.process.workers.metric_sums import report, shown
from apiserver_stub.request.telemetry import StorageMetrics
from apiserver_stub.storage.embedded import EmbeddedStorage, StorageRules
from apiserver_stub.storage.interface import Unusable
from apiserver_stub.storage.shared.messages import MessageConnection
from apiserver_stub.storage.shared.owner import StorageOwner
from apiserver_stub.storage.shared.revision_page import RevisionPage
from apiserver_stub.storage.shared.storage import SharedStorage
from apiserver_stub.storage.sqlite import SqliteBackend
from apiserver_stub.storage.worker import METRICS, Worker
from apiserver_stub.watch_cache.row import decode_error_of, plain_error_of
from controller_manager.common.api.errors import ServiceUnavailable
from controller_manager.common.base.errors import CannotStart
from controller_manager.common.base.runtime import Runtime, collect_garbage_seldom
from controller_manager.common.base.tasks import Tasks
from controller_manager.common.component.process import run_process, start_watchdog
from controller_manager.common.component.process_metrics import register_process_metrics
from controller_manager.common.component.signals import end_before_start, obey_signals
from controller_manager.common.options.command_line import reported_version
from controller_manager.common.options.parse import Parsed

_EVENTS = "events"  # rows written by earlier versions have no TTL
_PATIENCE = 10.0  # seconds for the supervisor to collect metrics


def main() -> None:
    """Entry point."""
    gc.disable()  # objects created during startup are permanent
    place = msgspec.json.decode(sys.argv[1], type=control.Place)
    end_before_start(place.name)
    options = FLAGS.parse(sys.argv[2:])
    serve = _own if place.number is None else _serve
    raise SystemExit(run_process(place.name, options, partial(serve, place, options)))


class SupervisorLink:
    """The connection of a process to its supervisor: answers its requests and requests the metrics of all processes."""

    def __init__(self) -> None:
        self.registries: dict[str, CollectorRegistry] = {}
        """The metrics of this process, by page."""
        self.begun = asyncio.Event()
        """Set when the supervisor allows this process to begin."""
        self._tasks = Tasks()
        self._connection = MessageConnection(control.decode, self._take, self._lost)
        self.when_lost: Callable[[], None] = lambda: None
        """Called when the connection to the supervisor is lost; the process must then stop."""
        self._asked: dict[int, asyncio.Future[list[control.FamilyReport]]] = {}
        self._number = 0

    async def open(self, descriptor: int) -> None:
        """Connect to the supervisor over a socket."""
        await self._tasks.__aenter__()
        link = socket.socket(fileno=descriptor)
        await asyncio.get_running_loop().create_unix_connection(lambda: self._connection, sock=link)
        self._tasks.start(self._beat(), name="heartbeat")

    async def close(self) -> None:
        """Talk no longer."""
        await self._tasks.__aexit__(None, None, None)
        self._connection.close()

    def ready(self) -> None:
        """Notify the supervisor that this process is ready."""
        self._connection.send(control.Ready())

    async def _beat(self) -> None:
        while True:
            self._connection.send(control.Beat())
            await asyncio.sleep(control.BEAT)

    async def gather(self, page: str) -> Sequence[Metric]:
        """Return the families of a page of metrics, of all processes. Raises `ServiceUnavailable`."""
        self._number += 1
        number = self._number
        answer = self._asked[number] = asyncio.get_running_loop().create_future()
        self._connection.send(control.Wanted(number, page))
        try:
            async with asyncio.timeout(_PATIENCE):
                return list(shown(await answer))
        except TimeoutError:
            raise ServiceUnavailable("failed to collect the metrics of the other processes") from None
        finally:
            self._asked.pop(number, None)

    def _take(self, message: control.Message) -> None:
        match message:
            case control.Begin():
                self.begun.set()
            case control.Wanted(number, page):
                self._tasks.start(self._report(number, page), name="report of metrics")
            case control.Report(number, families):
                answer = self._asked.get(number)
                if answer is not None and not answer.done():
                    answer.set_result(families)

    async def _report(self, number: int, page: str) -> None:
        registry = self.registries.get(page)
        families = [] if registry is None else await report(registry)
        self._connection.send(control.Report(number, families))

    def _lost(self) -> None:
        self.when_lost()


async def _serve(place: control.Place, options: Parsed, runtime: Runtime) -> int:
    from apiserver_stub.process import serve as process

    link = SupervisorLink()
    await link.open(place.control)
    try:
        await link.begun.wait()
        page = RevisionPage(place.page)
        os.close(place.page)
        listener = socket.socket(fileno=place.listener)
        listener.setblocking(False)
        storage = SharedStorage(place.path, page, runtime.log("store")) if place.path else None
        if storage is not None:
            link.when_lost = storage.expect_no_other
        worker = Worker(
            place.number or 0,
            place.count,
            storage,
            listener,
            link.gather,
            link.ready,
            None if storage is None else lambda: page.revision,
            link.registries,
        )
        return await process.serve(options, runtime, worker)
    finally:
        await link.close()


async def _own(place: control.Place, options: Parsed, runtime: Runtime) -> int:
    stop: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    obey_signals(stop.set_result)
    register_process_metrics(runtime.registry, options[ServerFeatureOptions], reported_version(options))
    link = SupervisorLink()
    link.registries[METRICS] = runtime.registry
    await link.open(place.control)
    page = RevisionPage(place.page)
    os.close(place.page)
    chosen, log = options[StorageOptions], runtime.log("store")
    backend = SqliteBackend(chosen.folder / DATABASE, chosen.accept_data_loss, log)
    inspect = plain_error_of if options[EncryptionOptions].encryption_provider_config else decode_error_of
    rules = StorageRules(inspect, {_EVENTS: chosen.event_ttl})
    storage = EmbeddedStorage(backend, rules, log=log, reached=page.set)
    owner = StorageOwner(storage, socket.socket(fileno=place.listener), log)
    StorageMetrics(storage, runtime.registry)
    try:
        await owner.open()
    except (Unusable, OSError) as error:
        raise CannotStart(str(error)) from error
    try:
        async with Tasks() as tasks:
            start_watchdog(tasks, runtime)
            collect_garbage_seldom()
            link.ready()
            runtime.log("main").info("stopping", reason=await stop)
    finally:
        await owner.close()
        await link.close()
    return 0


if __name__ == "__main__":
    main()
