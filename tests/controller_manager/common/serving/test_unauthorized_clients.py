"""Requests before and after authentication: unread bodies, unread responses and unfinished heads are bounded."""

import asyncio
import contextlib
import gzip
import json
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest

from controller_manager.common.api.errors import Unauthorized
from controller_manager.common.api.wire import Request, Response
from controller_manager.common.serving.http_server import HTTPServer, ServerLimits

pytestmark = pytest.mark.both_loops

BIG = 2_000_000
UNAUTHORIZED = b"POST /stranger HTTP/1.1\r\nhost: x\r\n"
AUTHORIZED = b"POST /friend HTTP/1.1\r\nhost: x\r\n"


class RefusingHandler:
    """Refuses requests for /stranger; records requests at authentication and the bodies it read."""

    def __init__(self) -> None:
        self.judged: list[Request] = []
        self.bodies: list[bytes] = []
        self.cut_off = 0
        self.go_on = asyncio.Event()
        self.go_on.set()

    async def __call__(self, request: Request) -> Response:
        self.judged.append(request)
        if request.path == "/stranger":
            raise Unauthorized("Unauthorized")
        if request.path == "/list":
            return Response(200, {}, self._endless())
        body = (await request.received(request.path)).body
        self.bodies.append(body)
        await self.go_on.wait()
        return Response(200, {}, b"%d" % len(body))

    async def _endless(self) -> AsyncIterator[bytes]:
        try:
            while True:
                yield b"x" * 1_000_000
        finally:
            self.cut_off += 1


@contextlib.asynccontextmanager
async def serving(handler: Any, **limits: int) -> AsyncIterator[HTTPServer]:
    server = HTTPServer(handler, "127.0.0.1", 0, None, limits=ServerLimits(**limits))
    await server.start()
    try:
        yield server
    finally:
        await server.stop(1.0)


@contextlib.asynccontextmanager
async def connect(
    server: HTTPServer, data: bytes = b""
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Open a connection that has sent data and reads little at a time."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.setblocking(False)
    await asyncio.get_running_loop().sock_connect(client, ("127.0.0.1", server.port))
    reader, writer = await asyncio.open_connection(sock=client, limit=1000)
    writer.write(data)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


async def answer(reader: asyncio.StreamReader) -> bytes:
    """Return all data until the connection ends, which it must."""
    response = []
    with contextlib.suppress(ConnectionResetError):
        async with asyncio.timeout(60):
            while more := await reader.read(1000):
                response.append(more)
    return b"".join(response)


async def until(condition: Any) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - there is no notification
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("framing", [b"content-length: %d\r\n\r\n" % BIG, b"transfer-encoding: chunked\r\n\r\n5\r\n"])
async def test_unauthorized_request_is_refused_before_its_body(framing):
    handler = RefusingHandler()
    async with serving(handler) as server, connect(server, UNAUTHORIZED + framing + b"hello") as (reader, _):
        response = await answer(reader)
        assert response.startswith(b"HTTP/1.1 401 ")
        assert b"connection: close" in response
        assert json.loads(response.partition(b"\r\n\r\n")[2])["reason"] == "Unauthorized"
    assert [request.body for request in handler.judged] == [b""]
    assert server.held == 0


async def test_unauthorized_client_still_sending_reads_refusal():
    head = UNAUTHORIZED + b"content-length: %d\r\n\r\n" % BIG
    async with serving(RefusingHandler()) as server, connect(server, head + b"x" * 1_000_000) as (reader, _):
        assert (await answer(reader)).startswith(b"HTTP/1.1 401 ")


async def test_body_of_unauthorized_client_is_not_read():
    head = UNAUTHORIZED + b"content-length: 1000000000\r\n\r\n"
    async with serving(RefusingHandler()) as server, connect(server, head) as (_, writer):
        sent = 0
        with contextlib.suppress(ConnectionError, TimeoutError, RuntimeError):
            async with asyncio.timeout(10):
                while True:
                    writer.write(b"x" * 65536)
                    await writer.drain()
                    sent += 65536
        assert sent < 50_000_000  # the maximum of two socket buffers


async def test_request_with_early_body_keeps_connection():
    async with serving(RefusingHandler()) as server, connect(server, b"") as (reader, writer):
        for _ in range(2):
            writer.write(AUTHORIZED + b"content-length: 5\r\n\r\nhello")
            await reader.readuntil(b"\r\n\r\n5")


async def test_only_authorized_client_gets_100_continue():
    expecting = b"expect: 100-continue\r\nconnection: close\r\ncontent-length: 5\r\n\r\n"
    async with serving(RefusingHandler()) as server:
        async with connect(server, UNAUTHORIZED + expecting) as (reader, _):
            assert (await answer(reader)).startswith(b"HTTP/1.1 401 ")
        async with connect(server, AUTHORIZED + expecting) as (reader, writer):
            assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
            writer.write(b"hello")
            assert (await answer(reader)).startswith(b"HTTP/1.1 200 ")


async def test_bodies_are_not_decompressed():
    packed, handler = gzip.compress(b" " * 1_000_000), RefusingHandler()
    head = b"content-encoding: gzip\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % len(packed)
    async with serving(handler) as server, connect(server, AUTHORIZED + head + packed) as (reader, _):
        assert (await answer(reader)).startswith(b"HTTP/1.1 200 ")
    assert handler.bodies == [packed]


async def test_bodies_count_per_caller_until_answered():
    handler = RefusingHandler()
    handler.go_on.clear()
    async with serving(handler, body=BIG) as server, contextlib.AsyncExitStack() as stack:
        for _ in range(6):
            head = AUTHORIZED + b"connection: close\r\ncontent-length: %d\r\n\r\n" % BIG
            _, writer = await stack.enter_async_context(connect(server, head))
            writer.write(b"x" * BIG)
        await until(lambda: len(handler.bodies) == 4)
        assert server.held == 4 * BIG
        await stack.enter_async_context(
            connect(server, b"POST /other HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 300000\r\n\r\n")
        )
        await until(lambda: server.held == 4 * BIG + 300_000)
        assert len(handler.bodies) == 4
        handler.go_on.set()
        await until(lambda: len(handler.bodies) == 6)
    await until(lambda: server.held == 0)


@pytest.mark.parametrize("noise", [b"1;" + b"x" * 100_000, b"1\r\nx\r\n" * 20_000])
async def test_endless_chunk_framing_is_refused(noise):
    handler = RefusingHandler()
    head = AUTHORIZED + b"transfer-encoding: chunked\r\n\r\n"
    async with serving(handler) as server, connect(server, head) as (reader, writer):
        waiting = asyncio.ensure_future(answer(reader))
        with contextlib.suppress(ConnectionError, RuntimeError):  # raised by uvloop
            while not waiting.done():
                writer.write(noise)
                await asyncio.sleep(0.001)
        response = await waiting
        assert not response or response.startswith(b"HTTP/1.1 400 ")  # a reset may overtake the answer
    assert not handler.bodies
    assert server.held == 0


async def test_unread_responses_share_a_budget():
    handler = RefusingHandler()
    async with serving(handler, backlog=3_500_000) as server, contextlib.AsyncExitStack() as stack:
        request = b"GET /list HTTP/1.1\r\nhost: x\r\n\r\n"
        waiting = [await stack.enter_async_context(connect(server, request)) for _ in range(3)]
        await until(lambda: server.held == 3_000_000)
        newest = await stack.enter_async_context(connect(server, request))
        await until(lambda: handler.cut_off)  # a client that reads is not the slowest any more
        response = {asyncio.create_task(answer(reader)): reader for reader, _ in (*waiting, newest)}
        ended, others = await asyncio.wait(response, timeout=60, return_when=asyncio.FIRST_COMPLETED)
        for one in others:
            one.cancel()
        assert [response[one] is newest[0] for one in ended] == [False]
        await until(lambda: server.held == 3_000_000)
    await until(lambda: server.held == 0)
    assert handler.cut_off == 4  # including those whose clients have left


async def test_unfinished_heads_share_a_budget():
    async with serving(RefusingHandler(), heads=250_000) as server, contextlib.AsyncExitStack() as stack:
        head = b"GET /list HTTP/1.1\r\nhost: x\r\n" + b"x-more: " + b"x" * 60_000 + b"\r\ny: "
        first, *_ = [await stack.enter_async_context(connect(server, head)) for _ in range(4)]
        await until(lambda: server.held >= 240_000)
        await stack.enter_async_context(connect(server, head))
        assert await answer(first[0]) == b""
        assert server.held <= 250_000
