"""Connections through HTTP CONNECT proxies: real ones, and failing ones."""

import asyncio
import contextlib
import os
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from apiserver_stub.webhooks.egress import EgressSelector
from controller_manager.common.api.wire import Request, Response
from controller_manager.common.serving.tls import context_of, issue, make_ca
from controller_manager.common.transport.connection_pool import ConnectionPool, ConnectionTarget
from controller_manager.common.transport.streaming import StreamingTransport
from controller_manager.common.transport.transport import Endpoint, TransportError, client_context, whole_body
from tests.apiserver_stub.webhooks.egress.conftest import Egress, Talk

GET = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
MEGABYTE = 1 << 20


pytestmark = pytest.mark.both_loops


def over_tcp(port: int, tls: dict[str, str] | None = None, host: str = "127.0.0.1") -> dict[str, Any]:
    url = f"{'https' if tls else 'http'}://{host}:{port}"
    return {"proxyProtocol": "HTTPConnect", "transport": {"tcp": {"url": url, **({"tlsConfig": tls} if tls else {})}}}


def over_uds(path: str | Path) -> dict[str, Any]:
    return {"proxyProtocol": "HTTPConnect", "transport": {"uds": {"udsName": str(path)}}}


async def ok(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer each request with the size of its body, or with as many bytes as it asks for."""
    try:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
            size = int(head.partition("content-length: ")[2].partition("\r\n")[0] or 0)
            for _ in range(size // MEGABYTE):
                await reader.readexactly(MEGABYTE)
            wanted = int(head.partition("x-wanted: ")[2].partition("\r\n")[0] or 2)
            writer.write(f"HTTP/1.1 200 OK\r\nx-host: {_host(head)}\r\ncontent-length: {wanted}\r\n\r\n".encode())
            writer.write(b"ok" if wanted == 2 else b"")
            for _ in range(wanted // MEGABYTE):
                writer.write(bytes(MEGABYTE))
                await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


def _host(head: str) -> str:
    return head.partition("host: ")[2].partition("\r\n")[0]


async def get(selector: EgressSelector, origin: ConnectionTarget, seconds: float = 5.0) -> Response:
    pool = ConnectionPool(4, seconds, seconds, dialer=selector.cluster)
    try:
        return await pool.send(origin, GET, idempotent=True)
    finally:
        pool.close()


@pytest.mark.needs("tinyproxy")
async def test_server_is_reached_through_proxy_that_resolves_names(egress: Egress) -> None:
    port = await egress.serve(ok)
    selector = egress.selector(cluster=over_tcp(await egress.tinyproxy()))
    assert (await get(selector, ConnectionTarget("localhost", port))).body == b"ok"
    transport = StreamingTransport(dialer=selector.cluster)
    answer = await transport.send(ConnectionTarget("localhost", port), Request("GET", "/a", (), {}))
    assert await whole_body(answer) == b"ok"
    assert answer.headers["x-host"] == f"localhost:{port}"
    await transport.close()
    assert egress.counted("start_total", protocol="http_connect", transport="tcp") == 2
    assert egress.counted("duration_seconds_count", protocol="http_connect", transport="tcp") == 2


@pytest.mark.needs("tinyproxy", "haproxy")
async def test_proxy_with_client_certificates_and_at_unix_socket(egress: Egress) -> None:
    port = await egress.serve(ok)
    secured, uds = await egress.haproxy(behind=await egress.tinyproxy())
    origin = ConnectionTarget("localhost", port)
    known = egress.client()
    assert (await get(egress.selector(cluster=over_tcp(secured, known, "localhost")), origin)).body == b"ok"
    named = known | {"tlsServerName": "proxy.example"}
    assert (await get(egress.selector(cluster=over_tcp(secured, named)), origin)).body == b"ok"
    assert (await get(egress.selector(cluster=over_uds(uds)), origin)).body == b"ok"


@pytest.mark.needs("tinyproxy", "haproxy")
async def test_wrong_certificates_are_rejected(egress: Egress) -> None:
    port = await egress.serve(ok)
    secured, _ = await egress.haproxy(behind=await egress.tinyproxy())
    known, others = egress.client(), make_ca("others")
    stranger = egress.files(issue(others, "stranger", client=True), "stranger")
    (egress.folder / "others.crt").write_bytes(others.certificate)
    for tls, host in [
        (stranger, "localhost"),
        (known | {"caBundle": str(egress.folder / "others.crt")}, "localhost"),
        (known, "127.0.0.1"),  # its certificate has another name
        (known | {"tlsServerName": "else.example"}, "localhost"),
    ]:
        with pytest.raises(OSError):
            await get(egress.selector(cluster=over_tcp(secured, tls, host)), ConnectionTarget("localhost", port))


@pytest.mark.needs("tinyproxy", "haproxy")
async def test_tls_to_server_runs_inside_tls_to_proxy(egress: Egress) -> None:
    ca = make_ca("servers")
    server = await asyncio.start_server(ok, "127.0.0.1", 0, ssl=context_of(issue(ca, "x", hosts=["ext.default.svc"])))
    port = server.sockets[0].getsockname()[1]
    secured, _ = await egress.haproxy(behind=await egress.tinyproxy())
    selector = egress.selector(cluster=over_tcp(secured, egress.client(), "localhost"))
    right = client_context(Endpoint("https://x", ca.certificate), b"", b"")
    wrong = client_context(Endpoint("https://x", egress.proxies.certificate), b"", b"")
    assert (await get(selector, ConnectionTarget("localhost", port, right, "ext.default.svc"))).body == b"ok"
    for tls, name in [(wrong, "ext.default.svc"), (right, "proxy.example"), (right, None)]:
        with pytest.raises(ssl.SSLError):
            await get(selector, ConnectionTarget("localhost", port, tls, name))
    transport = StreamingTransport(dialer=selector.cluster)
    answer = await transport.send(
        ConnectionTarget("localhost", port, right, "ext.default.svc"), Request("GET", "/", (), {})
    )
    assert await whole_body(answer) == b"ok"
    with pytest.raises(TransportError):
        await transport.send(ConnectionTarget("localhost", port, right), Request("GET", "/", (), {}))
    await transport.close()
    server.close()


@pytest.mark.needs("tinyproxy", "haproxy")
async def test_large_bodies_are_streamed_in_bounded_memory(egress: Egress) -> None:
    port = await egress.serve(ok)
    secured, _ = await egress.haproxy(behind=await egress.tinyproxy())
    selector = egress.selector(cluster=over_tcp(secured, egress.client(), "localhost"))
    transport, size = StreamingTransport(dialer=selector.cluster), 60 * MEGABYTE

    async def body() -> AsyncIterator[bytes]:
        for _ in range(size // MEGABYTE):
            yield bytes(MEGABYTE)

    before, most, received = _resident(), 0, 0
    headers = {"content-length": str(size), "x-wanted": str(size)}
    answer = await transport.send(ConnectionTarget("localhost", port), Request("PUT", "/", (), headers), body())
    assert not isinstance(answer.body, bytes)
    async for piece in answer.body:
        received += len(piece)
        most = max(most, _resident())
    assert received == size
    assert most - before < 20 * MEGABYTE
    await transport.close()


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.needs("tinyproxy")
async def test_many_concurrent_connections(egress: Egress) -> None:
    port = await egress.serve(ok)
    selector = egress.selector(cluster=over_tcp(await egress.tinyproxy()))
    pool = ConnectionPool(100, 20.0, 20.0, dialer=selector.cluster)
    async with asyncio.TaskGroup() as group:
        asked = [
            group.create_task(pool.send(ConnectionTarget("localhost", port), GET, idempotent=False)) for _ in range(300)
        ]
    assert {task.result().body for task in asked} == {b"ok"}
    pool.close()
    await selector.close()
    with pytest.raises(TransportError, match="stopping"):
        await get(selector, ConnectionTarget("localhost", port))


def answering(text: bytes, *, then_close: bool = True) -> Talk:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(text)
        if then_close:
            writer.close()

    return talk


@pytest.mark.parametrize(
    ("response", "message"),
    [
        (b"HTTP/1.1 403 Filtered\r\ncontent-length: 2\r\n\r\nno", "responded 403 Filtered to a CONNECT to server:1"),
        (b"HTTP/1.1 407 \r\n\r\n", "responded 407 to a CONNECT"),
        (b"HTTP/1.1 204 x\r\n\r\n", "responded 204 x"),
        (b"SSH-2.0-x\r\n\r\n", "malformed status line"),
        (b"", "closed the connection"),
        (b"HTTP/1.1 200 OK\r\nx: y", "closed the connection"),
        (b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 20_000, "is too large"),
    ],
)
async def test_rejected_tunnel_is_an_error(egress: Egress, response: bytes, message: str) -> None:
    selector = egress.selector(cluster=over_tcp(await egress.serve(answering(response))))
    with pytest.raises(TransportError, match=message):
        await get(selector, ConnectionTarget("server", 1))
    assert egress.counted("failure_count", protocol="http_connect", transport="tcp", stage="proxy") == 1


async def test_missing_proxy_is_an_error(egress: Egress) -> None:
    selector = egress.selector(cluster=over_tcp(1), controlplane=over_uds(egress.folder / "none"))
    with pytest.raises(TransportError, match=r"failed to connect to the proxy 127\.0\.0\.1:1"):
        await get(selector, ConnectionTarget("server", 1))
    assert selector.control_plane is not None
    with pytest.raises(TransportError, match=r"failed to connect to the proxy .*none"):
        await selector.control_plane.dial("server", 1)
    for transport in ("tcp", "uds"):
        assert egress.counted("failure_count", protocol="http_connect", transport=transport, stage="connect") == 1


async def test_hanging_proxy_times_out(egress: Egress) -> None:
    left = asyncio.Event()

    async def hang(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while await reader.read(100):
                pass
        left.set()

    selector = egress.selector(cluster=over_tcp(await egress.serve(hang)))
    with pytest.raises(TimeoutError):
        await get(selector, ConnectionTarget("server", 1), seconds=0.2)
    await asyncio.wait_for(left.wait(), 2)
    transport = StreamingTransport(dialer=selector.cluster)
    left.clear()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await transport.send(ConnectionTarget("server", 1), Request("GET", "/", (), {}))
    await transport.close()


async def test_proxy_dying_during_response_breaks_it(egress: Egress) -> None:
    async def die(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        await reader.readuntil(b"\r\n\r\n")
        writer.write(OK[:-1])
        await writer.drain()
        writer.transport.abort()

    selector = egress.selector(cluster=over_tcp(await egress.serve(die)))
    with pytest.raises(TransportError):
        await get(selector, ConnectionTarget("server", 1))


async def test_server_may_send_first(egress: Egress) -> None:
    selector = egress.selector(cluster=over_tcp(await egress.serve(answering(b"HTTP/1.1 200 OK\r\n\r\nhello"))))
    assert selector.cluster is not None
    reader, writer = await asyncio.open_connection(sock=await selector.cluster.dial("server", 1))
    assert await reader.read() == b"hello"
    writer.close()


async def test_data_sent_before_hangup_is_received(egress: Egress) -> None:
    body = bytes(3 * MEGABYTE)

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.0 200 OK\r\n\r\n" + body)  # the response ends with the connection
        writer.write_eof()

    selector = egress.selector(cluster=over_tcp(await egress.serve(talk)))
    assert (await get(selector, ConnectionTarget("server", 1))).body == body
