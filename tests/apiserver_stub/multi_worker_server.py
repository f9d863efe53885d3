"""Several workers of one API server, as with `--workers`, in one process: requests are sent to them in turn."""

import itertools
import tempfile
from collections.abc import Awaitable, Sequence
from pathlib import Path
from typing import Any, cast

from prometheus_client.core import Metric

from apiserver_stub.authn.keys import own_key
from apiserver_stub.common.flags import FLAGS
from apiserver_stub.kinds.registry import ResourceRegistry
from apiserver_stub.kinds.resource_info import ResourceInfo
from apiserver_stub.process.build import build
from apiserver_stub.process.lifecycle import ApiServer
from apiserver_stub.process.storage_factory import embedded_storage
from apiserver_stub.process.workers.metric_sums import MetricSums, report, shown
from apiserver_stub.storage.backend import Backend
from apiserver_stub.storage.embedded import StorageRules
from apiserver_stub.storage.shared.storage import SharedStorage
from apiserver_stub.storage.worker import Worker
from apiserver_stub.watch_cache.row import decode_error_of
from controller_manager.common.api.wire import Request, Response
from controller_manager.common.base.runtime import Runtime
from controller_manager.common.base.tasks import all_of
from tests.apiserver_stub.memory_backend import MemoryBackend
from tests.apiserver_stub.sqlite_backend import MirroredSqliteBackend
from tests.apiserver_stub.storage_owner import InProcessOwner


def new_backend(storage: str) -> MemoryBackend:
    """Return an empty log for the `--storage` option."""
    return MirroredSqliteBackend() if storage in ("sqlite", "workers") else MemoryBackend()


def build_server(log: Backend, flags: Sequence[str], storage: str) -> ApiServer:
    """Build a server with those flags on a log; a multi-worker server if `storage` is "workers"."""
    if storage == "workers":
        return cast("ApiServer", MultiWorkerServer(log, flags))
    return build(FLAGS.parse(flags), Runtime("test"), embedded_storage(log))


class MultiWorkerServer:
    """Two servers on storages of one owner, with one signing key; calls that are not requests go to the first, and
    resources that tests add are served by both.
    """

    def __init__(self, log: Backend, flags: Sequence[str]) -> None:
        self._owner = InProcessOwner(log, StorageRules(decode_error_of))
        self._folder = tempfile.TemporaryDirectory()
        self._is_stopped = False
        page = self._owner.page
        options = FLAGS.parse((*flags, *self._key(flags)))
        self.servers: list[ApiServer] = []
        self._workers: list[Worker] = []
        for number in range(2):
            storage = SharedStorage(self._owner.path, page)
            worker = Worker(number, 2, gather=self._gather, newest=lambda: page.revision)
            self._workers.append(worker)
            self.servers.append(build(options, Runtime("test"), storage, worker=worker))
        self._next = itertools.cycle(self.servers)
        self.kinds = _SharedRegistry([server.kinds for server in self.servers])

    def _key(self, flags: Sequence[str]) -> Sequence[str]:
        """Return the flag of a key file that the workers of one server share."""
        if any(flag.startswith(("--service-account-signing", "--data-dir")) for flag in flags):
            return ()
        own_key(folder := Path(self._folder.name))
        return (f"--service-account-signing-key-file={folder / 'sa.key'}",)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.servers[0], name)

    def handle(self, request: Request) -> Awaitable[Response]:
        return next(self._next).handle(request)

    async def _gather(self, page: str) -> Sequence[Metric]:
        sums = MetricSums()
        for worker in self._workers:
            sums.reported(str(worker.number), await report(worker.registries[page]))
        return list(shown(sums.families()))

    async def start(self) -> None:
        await self._owner.start()
        for server in self.servers:
            await server.start()

    async def run(self) -> None:
        await all_of(*(server.run() for server in self.servers))

    def end_streams(self) -> None:
        for server in self.servers:
            server.end_streams()

    async def stop(self) -> None:
        if self._is_stopped:
            return
        self._is_stopped = True
        for server in self.servers:
            await server.stop()
        await self._owner.close()
        self._folder.cleanup()


class _SharedRegistry:
    """The registry of the first server; resources added to it or removed are so in all."""

    def __init__(self, registries: Sequence[ResourceRegistry]) -> None:
        self._registries = registries

    def __getattr__(self, name: str) -> Any:
        return getattr(self._registries[0], name)

    def add(self, info: ResourceInfo) -> None:
        for registry in self._registries:
            registry.add(info)

    def remove(self, info: ResourceInfo) -> None:
        for registry in self._registries:
            registry.remove(info)
