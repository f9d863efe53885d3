"""Egress proxies: Debian packages, and fakes that a test controls."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
import yaml
from prometheus_client import CollectorRegistry

from apiserver_stub.webhooks.egress import EgressSelector, egress_selector
from controller_manager.common.base.log import get_logger
from controller_manager.common.serving.tls import KeyPair, issue, make_ca

Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Egress:
    """Egress selectors, servers, and proxy programs of one test."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.registry = CollectorRegistry()
        self.proxies, self.clients = make_ca("proxies"), make_ca("clients")
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> "Egress":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    def write(self, **connections: object) -> str:
        """Write a configuration of networks by name; return the file."""
        listed = [{"name": name, "connection": connection} for name, connection in connections.items()]
        document = {"apiVersion": "apiserver.k8s.io/v1beta1", "kind": "EgressSelectorConfiguration"}
        file = self.folder / "egress.yaml"
        file.write_text(yaml.safe_dump({**document, "egressSelections": listed}))
        return str(file)

    def selector(self, **connections: object) -> EgressSelector:
        self.registry = CollectorRegistry()
        found = egress_selector(self.write(**connections), self.registry, get_logger("egress"))
        self._stack.push_async_callback(found.close)
        return found

    def counted(self, name: str, **labels: str) -> float:
        return self.registry.get_sample_value(f"apiserver_egress_dialer_dial_{name}", labels) or 0.0

    async def serve(self, talk: Talk) -> int:
        """Start a server on loopback; return the port."""
        server = await asyncio.start_server(talk, "127.0.0.1", 0)
        self._stack.callback(server.close)
        return int(server.sockets[0].getsockname()[1])

    def files(self, pair: KeyPair, name: str) -> dict[str, str]:
        """Write a certificate and its key; return the TLS fields that name them."""
        certificate, key = self.folder / f"{name}.crt", self.folder / f"{name}.key"
        pair.write(certificate, key)
        ca = self.folder / "proxies.crt"
        ca.write_bytes(self.proxies.certificate)
        return {"caBundle": str(ca), "clientCert": str(certificate), "clientKey": str(key)}

    def client(self, name: str = "client") -> dict[str, str]:
        return self.files(issue(self.clients, name, client=True), name)

    async def tinyproxy(self) -> int:
        """Run a CONNECT proxy over TCP; return its port."""
        port, file = _free_port(), self.folder / "tinyproxy.conf"
        file.write_text(
            f"Port {port}\nListen 127.0.0.1\nTimeout 60\nMaxClients 200\nAllow 127.0.0.1\n"
            f'PidFile "{self.folder}/tinyproxy.pid"\nLogFile "{self.folder}/tinyproxy.log"\n'
        )
        await self._stack.enter_async_context(_program("tinyproxy", "-d", "-c", str(file)))
        await _listening(port)
        return port

    async def haproxy(self, behind: int) -> tuple[int, str]:
        """Run a TLS endpoint with client certificates, and a Unix socket, in front of a proxy; return both."""
        port, file, uds = _free_port(), self.folder / "haproxy.conf", self.folder / "proxy.sock"
        server = issue(self.proxies, "localhost", hosts=["localhost", "proxy.example"])
        pem, ca = self.folder / "server.pem", self.folder / "clients.crt"
        pem.write_bytes(server.certificate + server.key)
        ca.write_bytes(self.clients.certificate)
        file.write_text(
            "defaults\n mode tcp\n timeout connect 5s\n timeout client 30s\n timeout server 30s\n"
            f"frontend f\n bind 127.0.0.1:{port} ssl crt {pem} ca-file {ca} verify required\n bind unix@{uds}\n"
            f" default_backend b\nbackend b\n server s 127.0.0.1:{behind}\n"
        )
        await self._stack.enter_async_context(_program("haproxy", "-db", "-f", str(file)))
        await _listening(port)
        return port, str(uds)


@asynccontextmanager
async def _program(*command: str) -> AsyncIterator[None]:
    nowhere = asyncio.subprocess.DEVNULL
    process = await asyncio.create_subprocess_exec(*command, stdout=nowhere, stderr=nowhere)
    try:
        yield
    finally:
        process.terminate()
        await process.wait()


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


async def _listening(port: int) -> None:
    for _ in range(200):
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            await asyncio.sleep(0.02)
        else:
            writer.close()
            return
    pytest.fail(f"nothing listens on port {port}")


@pytest.fixture
async def egress(tmp_path: Path) -> AsyncIterator[Egress]:
    async with Egress(tmp_path) as found:
        yield found
