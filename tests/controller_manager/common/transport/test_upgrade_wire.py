"""Upgrade requests on the wire: early data, bodies, invalid offers, bounds."""

import asyncio
import contextlib
import socket

import pytest

from controller_manager.common.api.wire import DuplexStream, Request, Response, Upgrade
from controller_manager.common.serving.http_server import HTTPServer
from tests.controller_manager.common.transport.upgrade_servers import OFFER, Handler, echo, serving

pytestmark = pytest.mark.both_loops


async def exchange(port: int, *parts: bytes) -> bytes:
    """Return the response to parts that are sent one after the other."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for part in parts:
        writer.write(part)
        await asyncio.sleep(0.02)
    try:
        async with asyncio.timeout(20):
            return await reader.read()
    finally:
        writer.close()


async def echo_once(stream: DuplexStream) -> None:
    received = b""
    while not received.endswith(b"."):
        received += await stream.read(100)
    await stream.write(b"<" + received + b">")


HEAD = b"GET /echo HTTP/1.1\r\nHost: a\r\nUpgrade: %b\r\nConnection: keep-alive, Upgrade\r\n\r\n"


@pytest.mark.parametrize("protocol", [b"echo/1", b"websocket"])
@pytest.mark.parametrize("cut", [None, 30, 35, 40, len(HEAD) - 2, len(HEAD) + 3])
async def test_early_stream_data_is_not_lost(protocol, cut):
    async def handle(request: Request) -> Response:
        await asyncio.sleep(0.05)
        return Response(101, {}, Upgrade(protocol.decode(), echo_once))

    server = HTTPServer(handle, "127.0.0.1", 0, None)
    await server.start()
    text = HEAD % protocol + b"early\r\n\r\n"
    parts = (text,) if cut is None else (text[:cut], text[cut:])
    answer = await exchange(server.port, *parts, b" and late.")
    await server.stop(1.0)
    head, _, data = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 101 Switching Protocols\r\n")
    assert b"\r\nupgrade: " + protocol in head
    assert b"\r\nconnection: upgrade" in head
    assert b"content-length" not in head
    assert data == b"<early\r\n\r\n and late.>"


async def test_request_before_upgrade_is_answered_first():
    handler = Handler(echo_once)
    async with serving(handler, "tcp") as (_, server):
        assert server is not None
        first = b"GET /ordinary HTTP/1.1\r\nHost: a\r\n\r\n"
        answer = await exchange(server.port, first + HEAD % b"echo/1" + b"so.")
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"\r\n\r\nhelloHTTP/1.1 101 " in answer
    assert answer.endswith(b"\r\n\r\n<so.>")


@pytest.mark.parametrize(
    ("text", "status"),
    [
        (HEAD % b"websocket", b"500"),  # a mistake of the handler: the protocol was not offered
        (b"GET /echo HTTP/1.1\r\nHost: a\r\nUpgrade: echo/1\r\n\r\n", b"500"),  # the Connection header does not name it
        (b"GET /echo HTTP/1.0\r\nHost: a\r\nUpgrade: echo/1\r\nConnection: upgrade\r\n\r\n", b"500"),
        (b"HEAD /echo HTTP/1.1\r\nHost: a\r\nUpgrade: echo/1\r\nConnection: upgrade\r\n\r\n", b"500"),
        (HEAD.replace(b"/echo", b"/ordinary") % b"echo/1", b"200"),
        (HEAD.replace(b"/echo", b"/ordinary") % b"websocket", b"200"),
    ],
)
async def test_invalid_upgrade_offer_does_not_upgrade(text, status):
    async with serving(Handler(echo), "tcp") as (_, server):
        assert server is not None
        answer = await exchange(server.port, text)
    assert answer.startswith(b"HTTP/1.1 " + status)


@pytest.mark.parametrize("protocol", [b"echo/1", b"websocket", b"h2c"])
async def test_body_after_upgrade_offer_is_read(protocol):
    bodies = []

    async def handle(request: Request) -> Response:
        assert "upgrade" not in request.headers
        bodies.append((await request.received("caller")).body)
        return Response(200, {}, b"thanks")

    server = HTTPServer(handle, "127.0.0.1", 0, None)
    await server.start()
    head = HEAD.replace(b"GET", b"POST").replace(b"Host: a", b"Host: a\r\nContent-Length: 200000")
    answer = await exchange(server.port, head % protocol + b"x" * 1000, b"y" * 199_000)
    await server.stop(1.0)
    assert bodies == [b"x" * 1000 + b"y" * 199_000]
    assert answer.endswith(b"thanks")


async def test_data_before_upgrade_response_is_bounded():
    decide = asyncio.Event()

    async def handle(request: Request) -> Response:
        await decide.wait()
        return Response(200, {}, b"no")

    server = HTTPServer(handle, "127.0.0.1", 0, None)
    await server.start()
    client = socket.create_connection(("127.0.0.1", server.port))
    client.setblocking(False)
    loop, sent = asyncio.get_running_loop(), 0
    await loop.sock_sendall(client, HEAD % b"echo/1")
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(0.5):
            while True:
                await loop.sock_sendall(client, b"x" * 65536)
                sent += 65536
    assert sent < 32 << 20  # kernel buffers of both sockets, and a little here
    decide.set()
    async with asyncio.timeout(10):
        assert (await loop.sock_recv(client, 100)).startswith(b"HTTP/1.1 200 OK")
    client.close()
    await server.stop(1.0)


async def test_streams_count_as_connections():
    handler = Handler(echo)
    async with serving(handler, "tcp") as (transport, server):
        assert server is not None
        _, stream = await transport.upgrade(OFFER)
        assert stream is not None
        assert server.connections == 1
        await stream.aclose()
        await handler.ended.wait()
        await server.stop(5.0)
        assert server.connections == 0
