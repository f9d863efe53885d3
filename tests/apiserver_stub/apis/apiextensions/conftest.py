"""Servers in this process that run the controller of custom resource definitions."""

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import msgspec
import pytest

from apiserver_stub.common.flags import FLAGS
from apiserver_stub.process.build import build
from apiserver_stub.process.lifecycle import ApiServer
from apiserver_stub.process.storage_factory import embedded_storage
from apiserver_stub.storage.interface import Storage
from controller_manager.common.api.tree import Tree
from controller_manager.common.api.wire import Certificate, Request
from controller_manager.common.base.runtime import Runtime
from controller_manager.common.base.tasks import Tasks
from tests.apiserver_stub.memory_backend import MemoryBackend

ADMIN = Certificate("admin", ("system:masters",))
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
MERGE = "application/merge-patch+json"


class Administrator:
    """An administrator of a server."""

    def __init__(self, api: ApiServer) -> None:
        self.api = api

    async def __call__(self, method: str, url: str, body: Any = None, content_type: str = "") -> tuple[int, Any]:
        path, _, text = url.partition("?")
        query = tuple((pair.partition("=")[0], pair.partition("=")[2]) for pair in text.split("&") if pair)
        data = b"" if body is None else msgspec.json.encode(body)
        headers = {"content-type": content_type or "application/json", "accept": "application/json"}
        response = await self.api.handle(Request(method, path, query, headers, data, ADMIN))
        content = response.body
        assert isinstance(content, bytes)
        return response.status, msgspec.json.decode(content)

    async def watch_events(self, path: str) -> list[tuple[str, str]]:
        """Watch until the server ends it; return the type and name of each event."""
        request = Request("GET", path, (("watch", "true"),), {"accept": "application/json"}, b"", ADMIN)
        stream = (await self.api.handle(request)).body
        assert isinstance(stream, AsyncIterator)
        lines = b"".join([chunk async for chunk in stream]).splitlines()
        events = [msgspec.json.decode(line) for line in lines]
        return [(event["type"], event["object"]["metadata"]["name"]) for event in events]

    async def definition(self, name: str) -> Tree:
        code, found = await self("GET", f"{DEFINITIONS}/{name}")
        assert code == 200
        return found


@asynccontextmanager
async def served(storage: Storage | None = None, *, settled: bool = True) -> AsyncIterator[Administrator]:
    """Run a server until the block ends; unless `settled`, it writes no status."""
    flags = FLAGS.parse(("--storage-backend=memory", "--advertise-address=192.0.2.1"))
    api = build(flags, Runtime("apiserver"), storage or embedded_storage(MemoryBackend()))
    await api.start()
    async with AsyncExitStack() as stack:
        tasks = await stack.enter_async_context(Tasks())
        if settled:
            tasks.start(api.run(), name="apiserver")
        yield Administrator(api)
        api.end_streams()
    await api.stop()


@pytest.fixture
async def admin() -> AsyncIterator[Administrator]:
    async with served() as found:
        yield found


@pytest.fixture
def serve() -> Callable[..., Any]:
    return served
