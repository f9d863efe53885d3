"""An API server in this process. Its cluster network is a proxy of the test that connects every address to this
machine; there is also a kubelet over TLS, which demands the client certificate of an API server.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from apiserver_stub.common.flags import FLAGS
from apiserver_stub.process.build import build
from apiserver_stub.process.lifecycle import ApiServer
from controller_manager.common.api.wire import Certificate, DuplexStream, Request, Response, Upgrade
from controller_manager.common.base.runtime import Runtime
from controller_manager.common.base.tasks import Tasks, first_of
from controller_manager.common.serving.http_server import HTTPServer
from controller_manager.common.serving.tls import KeyPair, context_of, issue, make_ca

ADMIN = Certificate("admin", ("system:masters",))
PODS = "/api/v1/namespaces/default/pods"
SERVICES = "/api/v1/namespaces/default/services"
NODES = "/api/v1/nodes"
ENDPOINTS = "/api/v1/namespaces/default/endpoints"
EGRESS = (
    '{{"apiVersion": "apiserver.k8s.io/v1beta1", "kind": "EgressSelectorConfiguration", "egressSelections": '
    '[{{"name": "cluster", "connection": {{"proxyProtocol": "HTTPConnect", "transport": {{"tcp": '
    '{{"url": "http://127.0.0.1:{port}"}}}}}}}}]}}'
)
CLUSTER = "192.0.2.7"
"""An address of the cluster (RFC 5737), which the proxy connects to this machine."""

Handle = Callable[[Request], Awaitable[Response]]


async def read_body(response: Response) -> bytes:
    """Return the whole body of an answer."""
    body = response.body
    assert not isinstance(body, Upgrade)
    return body if isinstance(body, bytes) else b"".join([chunk async for chunk in body])


class Kubelet:
    """Records requests and answers as the test says; callers without a certificate are rejected."""

    def __init__(self, answer: Handle) -> None:
        self.answer = answer
        self.asked: list[Request] = []
        self.open = 0

    async def __call__(self, request: Request) -> Response:
        if request.certificate is None:
            return Response(401, {"content-type": "text/plain; charset=utf-8"}, b"Unauthorized")
        if request.method == "GET" and request.is_head:
            request = replace(request, method="HEAD")
        self.asked.append(await request.received("x"))
        return await self.answer(self.asked[-1])


class Cluster:
    """An API server, its administrator, and servers of the cluster."""

    def __init__(self, folder: Path, *flags: str) -> None:
        self.folder = folder
        self.clients, self.kubelets = make_ca("clients"), make_ca("kubelets")
        self.flags = flags
        self.runtime = Runtime("cluster")
        self.stack = AsyncExitStack()

    def write(self, name: str, pair: KeyPair) -> tuple[str, str]:
        certificate, key = self.folder / f"{name}.crt", self.folder / f"{name}.key"
        pair.write(certificate, key)
        return str(certificate), str(key)

    async def __aenter__(self) -> "Cluster":
        proxy = await asyncio.start_server(self._proxy, "127.0.0.1", 0)
        self.stack.callback(proxy.close)
        egress = self.folder / "egress.json"
        egress.write_text(EGRESS.format(port=proxy.sockets[0].getsockname()[1]))
        certificate, key = self.write("client", issue(self.clients, "kube-apiserver", client=True))
        authority, _ = self.write("kubelets", self.kubelets)
        arguments = (
            "--storage-backend=memory", "--advertise-address=192.0.2.1", f"--data-dir={self.folder}",
            f"--egress-selector-config-file={egress}", f"--kubelet-client-certificate={certificate}",
            f"--kubelet-client-key={key}", f"--kubelet-certificate-authority={authority}", *self.flags,
        )  # fmt: skip
        self.api: ApiServer = build(FLAGS.parse(arguments), self.runtime)
        await self.api.start()
        self.tasks = await self.stack.enter_async_context(Tasks())
        self.tasks.start(self.api.run(), name="cluster")
        return self

    async def __aexit__(self, *_: object) -> None:
        self.api.end_streams()
        await self.stack.aclose()
        await self.api.stop()

    async def _proxy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Speak HTTP CONNECT: every address leads to this machine, and low ports are closed."""
        try:
            with suppress(OSError, asyncio.IncompleteReadError):
                head = await reader.readuntil(b"\r\n\r\n")
                port = int(head.split()[1].rpartition(b":")[2])
                if port < 1024:
                    writer.write(b"HTTP/1.1 502 Bad Gateway\r\n\r\n")
                    return
                there = await asyncio.open_connection("127.0.0.1", port)
                writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
                try:
                    await first_of(_copy(reader, there[1]), _copy(there[0], writer))
                finally:
                    there[1].close()
        finally:
            writer.close()

    async def send(self, method: str, url: str, body: Any = None, **headers: str) -> Response:
        path, _, text = url.partition("?")
        query = tuple((pair.partition("=")[0], pair.partition("=")[2]) for pair in text.split("&") if pair)
        data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        named = {name.replace("_", "-").lower(): to for name, to in headers.items()}
        if body is not None and not isinstance(body, bytes):
            named = {"content-type": "application/json"} | named
        is_head = method == "HEAD"
        method = "GET" if is_head else method
        return await self.api.handle(Request(method, path, query, named, data, ADMIN, target=url, is_head=is_head))

    async def __call__(self, method: str, url: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        response = await self.send(method, url, body, **headers)
        data = await read_body(response)
        try:
            return response.status, json.loads(data)
        except ValueError:
            return response.status, data.decode()

    async def create(self, url: str, body: Any, status: Any = None) -> None:
        code, answer = await self("POST", url, body)
        assert code == 201, answer
        if status is not None:
            patch = {"content_type": "application/merge-patch+json"}
            name = body["metadata"]["name"]
            code, answer = await self("PATCH", f"{url}/{name}/status", {"status": status}, **patch)
            assert code == 200, answer

    async def pod(
        self, name: str, node: str = "", ip: str = "", port: int = 0, containers: tuple[str, ...] = ("a",)
    ) -> None:
        ports = [{"containerPort": port}] if port else []
        spec: Any = {"containers": [{"name": one, "image": "i", "ports": ports} for one in containers]}
        if node:
            spec["nodeName"] = node
        status = {"podIP": ip, "podIPs": [{"ip": ip}]} if ip else None
        await self.create(PODS, {"metadata": {"name": name}, "spec": spec}, status)

    async def node(self, name: str, port: int, host: str = CLUSTER, *features: str) -> None:
        status: Any = {
            "addresses": [{"type": "InternalIP", "address": host}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
        }
        if features:
            status["declaredFeatures"] = list(features)
        await self.create(NODES, {"metadata": {"name": name}}, status)

    async def serve(
        self, answer: Handle, *, secure: bool = True, hosts: tuple[str, ...] = (CLUSTER,)
    ) -> tuple[Kubelet, HTTPServer]:
        """Start a server in the cluster, like a kubelet."""
        found = Kubelet(answer)
        context = context_of(issue(self.kubelets, "kubelet", hosts=list(hosts)), self.clients.certificate)
        server = HTTPServer(found if secure else _plainly(found), "127.0.0.1", 0, context if secure else None)
        await server.start()
        self.stack.push_async_callback(server.stop, 0.2)
        return found, server

    async def kubelet(self, answer: Handle, *features: str) -> tuple[Kubelet, HTTPServer]:
        """Serve as the kubelet of a node `n` that has the pod `p`."""
        found, server = await self.serve(answer)
        await self.node("n", server.port, CLUSTER, *features)
        await self.pod("p", "n")
        return found, server

    async def listen(self) -> int:
        """Serve the API server on a socket, with its administrator as every client; return the port."""

        async def as_admin(request: Request) -> Response:
            return await self.api.handle(replace(request, certificate=ADMIN))

        server = HTTPServer(as_admin, "127.0.0.1", 0, None)
        await server.start()
        self.stack.push_async_callback(server.stop, 0.2)
        return server.port

    async def eventually(self, fits: Callable[[], bool]) -> None:
        for _ in range(500):
            if fits():
                return
            await asyncio.sleep(0.01)
        pytest.fail("that does not happen")

    async def counted(self, name: str, **labels: str) -> float:
        return self.runtime.registry.get_sample_value(name, labels) or 0.0


def _plainly(kubelet: Kubelet) -> Handle:
    async def answer(request: Request) -> Response:
        return await kubelet(replace(request, certificate=ADMIN))

    return answer


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()


async def echo(stream: DuplexStream) -> None:
    """Send everything back in capitals."""
    while piece := await stream.read(1 << 16):
        await stream.write(piece.upper())


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with Cluster(tmp_path) as found:
        yield found


@pytest.fixture
def make_cluster(tmp_path: Path) -> Callable[..., Cluster]:
    return lambda *flags: Cluster(tmp_path, *flags)
