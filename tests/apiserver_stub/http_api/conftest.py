"""The document "API concepts" checked against a whole API server in this process; each test names its
section and rule.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from apiserver_stub.common.flags import FLAGS
from apiserver_stub.process.build import build
from apiserver_stub.process.lifecycle import ApiServer
from controller_manager.common.api.wire import Certificate, Request, Response
from controller_manager.common.base.runtime import Runtime
from controller_manager.testing import VirtualLoop
from tests.apiserver_stub.etcd_storage import etcd_storage_after_start, new_prefix, record_start
from tests.apiserver_stub.memory_backend import MemoryBackend
from tests.apiserver_stub.multi_worker_server import build_server, new_backend

ADMIN = Certificate("admin", ("system:masters",))
CONFIGS = "/api/v1/namespaces/default/configmaps"


@dataclass(frozen=True)
class Answer:
    """A whole response."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def tree(self) -> dict[str, Any]:
        """The body as JSON."""
        found: dict[str, Any] = json.loads(self.body)
        return found

    @property
    def names(self) -> list[str]:
        """The names of the items of a list."""
        return [item["metadata"]["name"] for item in self.tree["items"]]

    @property
    def version(self) -> str:
        """The resource version of the object or list."""
        found: str = self.tree["metadata"]["resourceVersion"]
        return found

    @property
    def events(self) -> list[tuple[str, str]]:
        """The events of a watch that has ended: type and name."""
        told = map(json.loads, self.body.splitlines())
        return [(event["type"], event["object"]["metadata"].get("name", "")) for event in told]


class Api:
    """A started server and its administrator."""

    def __init__(self, server: ApiServer) -> None:
        self.server = server

    async def send(self, method: str, url: str, body: Any = None, **headers: str) -> Response:
        """The unread response; a body that is not bytes is sent as JSON."""
        path, _, query = url.partition("?")
        pairs = tuple(pair.partition("=")[::2] for pair in query.split("&") if pair)
        data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return await self.server.handle(Request(method, path, pairs, named, data, ADMIN))

    async def ask(self, method: str, url: str, body: Any = None, **headers: str) -> Answer:
        """The whole response; a watch ends by its timeout."""
        response = await self.send(method, url, body, **headers)
        data = response.body
        if not isinstance(data, bytes):
            data = b"".join([chunk async for chunk in data])
        return Answer(response.status, response.headers, data)

    async def get(self, url: str, **headers: str) -> Answer:
        return await self.ask("GET", url, **headers)

    async def delete(self, url: str, body: Any = None, **headers: str) -> Answer:
        return await self.ask("DELETE", url, body, **headers)

    async def patch(self, url: str, body: Any, form: str = "merge-patch+json", **headers: str) -> Answer:
        return await self.ask("PATCH", url, body, content_type=f"application/{form}", **headers)

    async def config(self, name: str, **data: str) -> Answer:
        """Create a small object."""
        made = await self.ask("POST", CONFIGS, {"metadata": {"name": name, "labels": {"of": name}}, "data": data})
        assert made.status == 201
        return made


Start = Callable[..., Awaitable[Api]]


FLAGS_OF_ALL = ("--storage-backend=memory", "--advertise-address=192.0.2.1")
_FIRST_STARTS: dict[tuple[str, ...], MemoryBackend] = {}


@asynccontextmanager
async def started(*arguments: str, storage: str = "") -> AsyncIterator[Api]:
    """A server with those flags, on a store by `--storage`. In real time all but the first start with the objects that
    it created at its start; in virtual time objects also have their times. `storage` is a value of `--storage` that
    takes precedence.
    """
    flags = (*FLAGS_OF_ALL, *arguments)
    is_virtual = isinstance(asyncio.get_running_loop(), VirtualLoop)
    new = partial(new_backend, storage or _CHOSEN[0]) if storage in ("", "sqlite") else MemoryBackend
    storage = storage or _CHOSEN[0]
    if storage == "etcd" and not is_virtual:
        async with _on_etcd(flags) as api:
            yield api
        return
    log = new()
    if not is_virtual and flags in _FIRST_STARTS:
        log.adopt(_FIRST_STARTS[flags])
    server = build_server(log, flags, storage)
    await server.start()
    if not is_virtual:
        _FIRST_STARTS.setdefault(flags, log.copy())
    yield Api(server)
    await server.stop()


@asynccontextmanager
async def _on_etcd(flags: tuple[str, ...]) -> AsyncIterator[Api]:
    storage = await etcd_storage_after_start(new_prefix(), flags)
    server = build(FLAGS.parse(flags), Runtime("test"), storage)
    await server.start()
    await record_start(flags, storage)
    yield Api(server)
    await server.stop()


_CHOSEN = ["memory"]  # unless set otherwise


@pytest.fixture(scope="session", autouse=True)
def chosen_storage(request: pytest.FixtureRequest) -> None:
    """The kind of storage in real time."""
    _CHOSEN[:] = [request.config.getoption("--storage")]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run the tests of a module on all its `STORAGES`, in virtual time on those in this process."""
    storages = getattr(metafunc.module, "STORAGES", None)
    if storages and "api" in metafunc.fixturenames:
        if metafunc.definition.get_closest_marker("virtual"):
            storages = [one for one in storages if one in ("memory", "sqlite", "workers")]
        metafunc.parametrize("api", storages, indirect=True)


@pytest.fixture
async def api(request: pytest.FixtureRequest) -> AsyncIterator[Api]:
    async with started(storage=getattr(request, "param", "")) as api:
        yield api


@pytest.fixture
def serve() -> Callable[..., Any]:
    """Start a server with other flags, as an asynchronous context."""
    return started
