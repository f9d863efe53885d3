"""An API server in this process, and aggregated servers on loopback, which it calls over TLS as a front proxy."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from apiserver_stub.common.flags import FLAGS
from apiserver_stub.process.build import build
from apiserver_stub.process.lifecycle import ApiServer
from controller_manager.common.api.wire import Certificate, Request, Response
from controller_manager.common.base.runtime import Runtime
from controller_manager.common.base.tasks import Tasks
from controller_manager.common.serving.http_server import HTTPServer
from controller_manager.common.serving.tls import KeyPair, context_of, issue, make_ca

ADMIN = Certificate("admin", ("system:masters",))
SERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"
SERVICE = "/api/v1/namespaces/default/services"
RESOURCES = {
    "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "x.example.com/v1",
    "resources": [{"name": "foos", "singularName": "foo", "namespaced": True, "kind": "Foo", "verbs": ["get", "list"]}],
}  # fmt: skip

Handle = Callable[[Request], Awaitable[Response]]


def answer(status: int, body: Any, **headers: str) -> Response:
    return Response(status, {"content-type": "application/json", **headers}, json.dumps(body).encode())


class Front:
    """The API server in front, its administrator, and the CAs of both sides."""

    admin = ADMIN

    def __init__(self, folder: Path, *flags: str) -> None:
        self.proxies, self.servers = make_ca("front-proxy-ca"), make_ca("servers-ca")
        self.pair: KeyPair = issue(self.proxies, "front-proxy-client", client=True)
        arguments = ("--storage-backend=memory", "--advertise-address=192.0.2.1", f"--data-dir={folder}", *flags)
        self.runtime = Runtime("front")
        self.api: ApiServer = build(FLAGS.parse(arguments), self.runtime, proxy_pair=lambda: self.pair)
        self.behind: list[HTTPServer] = []
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> "Front":
        await self.api.start()
        self.tasks = await self._stack.enter_async_context(Tasks())
        self.tasks.start(self.api.run(), name="front")
        return self

    async def __aexit__(self, *_: object) -> None:
        self.api.end_streams()
        await self._stack.aclose()
        await self.api.stop()

    async def send(self, method: str, url: str, body: Any = None, **headers: str) -> Response:
        path, _, text = url.partition("?")
        query = tuple((pair.partition("=")[0], pair.partition("=")[2]) for pair in text.split("&") if pair)
        data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        named = {"content-type": "application/json"} | {name.replace("_", "-"): to for name, to in headers.items()}
        return await self.api.handle(Request(method, path, query, named, data, ADMIN))

    async def __call__(self, method: str, url: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        response = await self.send(method, url, body, **headers)
        assert not hasattr(response.body, "serve")
        data = response.body
        if not isinstance(data, bytes):
            data = b"".join([chunk async for chunk in data])
        try:
            return response.status, json.loads(data)
        except ValueError:
            return response.status, data.decode()

    async def serve(self, handle: Handle, name: str = "ext.default.svc") -> int:
        """Start a server with a certificate for `name`; return the port."""
        pair = issue(self.servers, "server", hosts=[name])
        server = HTTPServer(handle, "127.0.0.1", 0, context_of(pair, self.proxies.certificate))
        await server.start()
        self.behind.append(server)
        self._stack.push_async_callback(server.stop, 0.2)
        return server.port

    def service(self, port: int, group: str = "x.example.com", name: str = "ext", **spec: Any) -> dict[str, Any]:
        bundle = base64.b64encode(self.servers.certificate).decode()
        reference = {"namespace": "default", "name": name, "port": port}
        priorities = {"groupPriorityMinimum": 100, "versionPriority": 10}
        wanted = {"group": group, "version": "v1", **priorities, "service": reference, "caBundle": bundle, **spec}
        return {"metadata": {"name": f"v1.{group}"}, "spec": {key: to for key, to in wanted.items() if to is not None}}

    async def register(self, port: int, group: str = "x.example.com", name: str = "ext", **spec: Any) -> None:
        """Register an API service whose endpoint is a port of this machine."""
        body = {"metadata": {"name": name}, "spec": {"type": "ExternalName", "externalName": "localhost"}}
        await self("POST", SERVICE, body)
        code, document = await self("POST", SERVICES, self.service(port, group, name, **spec))
        assert code == 201, document

    async def condition(self, name: str = "v1.x.example.com") -> tuple[str, str, str]:
        status = (await self("GET", f"{SERVICES}/{name}"))[1].get("status") or {}
        found = next(iter(status.get("conditions") or ()), {})
        return found.get("status", ""), found.get("reason", ""), found.get("message", "")

    async def wait_for_reason(self, reason: str, name: str = "v1.x.example.com") -> str:
        """Wait until the condition has this reason; return its message."""
        await self.eventually(lambda: self.condition(name), lambda found: found[1] == reason)
        return (await self.condition(name))[2]

    async def eventually(self, look: Callable[[], Awaitable[Any]], fits: Callable[[Any], bool]) -> Any:
        """Return the result once it fits, within ten seconds."""
        for _ in range(1000):
            if fits(found := await look()):
                return found
            await asyncio.sleep(0.01)
        return pytest.fail(f"it stays at {found}")

    async def aggregate(self, handle: Handle, **spec: Any) -> None:
        """Start a server, register it, and wait until it is available."""
        await self.register(await self.serve(handle), **spec)
        await self.wait_for_reason("Passed")


@pytest.fixture
async def front(tmp_path: Path) -> AsyncIterator[Front]:
    async with Front(tmp_path) as found:
        yield found


@pytest.fixture
def make_front(tmp_path: Path) -> Callable[..., Front]:
    return lambda *flags: Front(tmp_path, *flags)


@pytest.fixture
def reply() -> Callable[..., Response]:
    return answer


@pytest.fixture
def resources() -> dict[str, Any]:
    return RESOURCES
