"""Starts whole API servers in this process, on a storage chosen by `--storage`."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import NamedTuple

from apiserver_stub.common.flags import FLAGS
from apiserver_stub.process.build import build
from apiserver_stub.process.lifecycle import ApiServer
from apiserver_stub.process.storage_factory import embedded_storage
from controller_manager.common.base.runtime import Runtime
from controller_manager.testing import VirtualLoop
from tests.apiserver_stub.api_client import ApiClient
from tests.apiserver_stub.etcd_storage import etcd_storage, etcd_storage_after_start, new_prefix, record_start
from tests.apiserver_stub.lagging_storage import LaggingStorage
from tests.apiserver_stub.memory_backend import MemoryBackend
from tests.apiserver_stub.multi_worker_server import build_server, new_backend

FLAGS_OF_ALL = ("--storage-backend=memory", "--advertise-address=192.0.2.1")
Started = Callable[..., AbstractAsyncContextManager[ApiClient]]

_FIRST_STARTS: dict[Sequence[str], MemoryBackend] = {}


class ServerStarter:
    """Starts servers one after the other on one storage, as a process that restarts does.

    `storage` is a value of `--storage`; etcd is used in real time only. In real time an empty storage begins with the
    objects that the first server with the same flags created at its start; in virtual time their times would be wrong.
    """

    def __init__(self, storage: str = "memory", backend: MemoryBackend | None = None) -> None:
        self._storage = storage
        self._backend = new_backend(storage) if backend is None else backend
        self._prefix = ""  # in etcd; empty until the first start

    @asynccontextmanager
    async def start(self, *flags: str) -> AsyncIterator[ApiClient]:
        """Run a server with these flags and yield an administrator of it."""
        flags = (*FLAGS_OF_ALL, *flags)
        is_virtual = isinstance(asyncio.get_running_loop(), VirtualLoop)
        if self._storage == "etcd" and not is_virtual:
            server = await self._start_on_etcd(flags)
        else:
            server = await self._start_on_log(flags, is_virtual)
        yield ApiClient(server)
        server.end_streams()
        await server.stop()

    async def _start_on_log(self, flags: Sequence[str], is_virtual: bool) -> ApiServer:
        is_first = not is_virtual and not self._backend._records
        if is_first and flags in _FIRST_STARTS:
            self._backend.adopt(_FIRST_STARTS[flags])
        server = build_server(self._backend, flags, self._storage)
        await server.start()
        if is_first:
            _FIRST_STARTS.setdefault(flags, self._backend.copy())
        return server

    async def _start_on_etcd(self, flags: Sequence[str]) -> ApiServer:
        is_first = not self._prefix
        self._prefix = self._prefix or new_prefix()
        storage = await etcd_storage_after_start(self._prefix, flags) if is_first else etcd_storage(self._prefix)
        server = build(FLAGS.parse(flags), Runtime("test"), storage)
        await server.start()
        if is_first:
            await record_start(flags, storage)
        return server


class TwoServers(NamedTuple):
    """Administrators of two servers on one storage; `other` sees changes late while `late` holds them."""

    one: ApiClient
    other: ApiClient
    late: LaggingStorage


@asynccontextmanager
async def two_servers(*flags: str) -> AsyncIterator[TwoServers]:
    """Run two servers with these flags on one storage in memory."""
    options, storage = FLAGS.parse((*FLAGS_OF_ALL, *flags)), embedded_storage(MemoryBackend())
    late = LaggingStorage(storage)
    servers = [build(options, Runtime("one"), storage), build(options, Runtime("other"), late)]
    for server in servers:
        await server.start()
    yield TwoServers(ApiClient(servers[0]), ApiClient(servers[1]), late)
    for server in servers:
        await server.stop()
