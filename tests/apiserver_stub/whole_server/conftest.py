"""A whole server in this process, on a log that outlives it, and an administrator as its client."""

import asyncio
import inspect
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest

from apiserver_stub.common.flags import FLAGS
from apiserver_stub.process.build import build
from apiserver_stub.process.lifecycle import ApiServer
from controller_manager.common.api.wire import Certificate, Request, Response
from controller_manager.common.base.runtime import Runtime
from controller_manager.testing import VirtualLoop
from tests.apiserver_stub.etcd_storage import etcd_storage, etcd_storage_after_start, new_prefix, record_start
from tests.apiserver_stub.memory_backend import MemoryBackend
from tests.apiserver_stub.multi_worker_server import build_server, new_backend

ADMIN = Certificate("admin", ("system:masters",))
CONFIGS = "/api/v1/namespaces/default/configmaps"

Started = Callable[..., AbstractAsyncContextManager["Api"]]


class Api:
    """An administrator of a started server."""

    def __init__(self, server: ApiServer) -> None:
        self.server = server

    async def send(self, method: str, url: str, body: Any = None, **headers: str) -> Response:
        path, _, text = url.partition("?")
        query = tuple((pair.partition("=")[0], pair.partition("=")[2]) for pair in text.split("&") if pair)
        data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return await self.server.handle(Request(method, path, query, named, data, ADMIN))

    async def __call__(self, method: str, url: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        response = await self.send(method, url, body, **headers)
        assert isinstance(response.body, bytes)
        return response.status, json.loads(response.body)

    async def config(self, name: str, **metadata: Any) -> Any:
        code, made = await self("POST", CONFIGS, {"metadata": {"name": name, **metadata}, "data": {"k": name}})
        assert code == 201
        return made

    async def watch(self, query: str, url: str = CONFIGS) -> list[Any]:
        """The events of a watch that ends."""
        response = await self.send("GET", f"{url}?watch=1&{query}")
        assert not isinstance(response.body, bytes)
        return [json.loads(line) async for chunk in response.body for line in chunk.splitlines()]


@pytest.fixture
def admin_of() -> Callable[[ApiServer], Api]:
    """Return an administrator of a server that was started elsewhere."""
    return Api


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run the tests of a module on all its `STORAGES`, unless `--storage` names one."""
    storages = getattr(metafunc.module, "STORAGES", ())
    if storages and "started" in metafunc.fixturenames and metafunc.config.getoption("--storage") == "memory":
        metafunc.parametrize("storage", storages, indirect=True)


@pytest.fixture
def storage(request: pytest.FixtureRequest) -> str:
    """The kind of storage, from `--storage`."""
    return str(getattr(request, "param", request.config.getoption("--storage")))


@pytest.fixture
def backend(request: pytest.FixtureRequest, storage: str) -> MemoryBackend:
    """The backend, by `--storage` unless the test makes it fail."""
    return MemoryBackend() if breaks(request) else new_backend(storage)


_BREAK = frozenset({"disk", "broken"})  # fixtures that make the backend fail
_FIRST_STARTS: dict[tuple[str, ...], MemoryBackend] = {}


def breaks(request: pytest.FixtureRequest) -> bool:
    """Return whether a test makes the backend of the embedded storage fail."""
    return bool(_BREAK & set(request.fixturenames)) or "backend" in inspect.signature(request.function).parameters


@pytest.fixture
def started(backend: MemoryBackend, request: pytest.FixtureRequest, storage: str) -> Started:
    """Starts servers; on an empty store they begin with the objects that the first one created at its start. With
    `--storage=etcd`, in real time, the store is in an etcd unless the test makes its backend fail; with
    `--storage=workers` the server has several workers.
    """
    is_broken = breaks(request)
    in_etcd = storage == "etcd" and not is_broken
    prefix = new_prefix()
    is_used = False

    @asynccontextmanager
    async def start_on_etcd(*flags: str) -> AsyncIterator[Api]:
        nonlocal is_used
        is_first, is_used = not is_used, True
        kept = await etcd_storage_after_start(prefix, flags) if is_first else etcd_storage(prefix)
        server = build(FLAGS.parse(flags), Runtime("test"), kept)
        await server.start()
        if is_first:
            await record_start(flags, kept)
        yield Api(server)
        server.end_streams()
        await server.stop()

    @asynccontextmanager
    async def start(*flags: str) -> AsyncIterator[Api]:
        flags = ("--storage-backend=memory", "--advertise-address=192.0.2.1", *flags)
        is_real = not isinstance(asyncio.get_running_loop(), VirtualLoop)
        if is_real and in_etcd:
            async with start_on_etcd(*flags) as api:
                yield api
            return
        # In virtual time objects also have their times.
        is_first = not backend._records and not isinstance(asyncio.get_running_loop(), VirtualLoop)
        if is_first and flags in _FIRST_STARTS:
            backend.adopt(_FIRST_STARTS[flags])
        server = build_server(backend, flags, "" if is_broken else storage)
        await server.start()
        if is_first:
            _FIRST_STARTS.setdefault(flags, backend.copy())
        yield Api(server)
        server.end_streams()
        await server.stop()

    return start
