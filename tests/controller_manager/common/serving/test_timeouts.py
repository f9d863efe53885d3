"""Timeouts of a server for its clients, in virtual time."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from controller_manager.common.api.wire import Request, Response
from controller_manager.common.serving import tls
from controller_manager.common.serving.http_server import HTTPServer

HEAD = b"GET /a HTTP/1.1\r\nhost: x\r\n"


async def answer_slowly(request: Request) -> Response:
    await request.received("caller")
    await asyncio.sleep(float(request.path.removeprefix("/").removeprefix("a") or 0))
    return Response(200, {}, b"hello")


class Visit:
    """A client connection that measures the seconds until it is closed."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.loop = asyncio.get_running_loop()
        self.since = self.loop.time()

    async def seconds_until_closed(self) -> tuple[float, bytes]:
        """Return the seconds until the server closes the connection, and its response."""
        try:
            response = await self.reader.read()
        except ConnectionResetError:
            response = b""
        return round(self.loop.time() - self.since), response


@asynccontextmanager
async def visiting(*, secured: bool = False) -> AsyncIterator[Visit]:
    context = tls.context_of(tls.issue(tls.make_ca("ca"), "server")) if secured else None
    server = HTTPServer(answer_slowly, "127.0.0.1", 0, context)
    await server.start()
    visit = Visit(*await asyncio.open_connection("127.0.0.1", server.port))
    try:
        yield visit
    finally:
        visit.writer.close()
        await server.stop(1)


@pytest.mark.virtual
async def test_handshake_that_does_not_begin_is_ended():
    async with visiting(secured=True) as visit:
        assert await visit.seconds_until_closed() == (32, b"")


@pytest.mark.virtual
async def test_handshake_that_stops_after_its_first_byte_is_ended():
    async with visiting(secured=True) as visit:
        visit.writer.write(b"\x16")
        assert await visit.seconds_until_closed() == (15, b"")


@pytest.mark.virtual
async def test_silent_new_client_is_disconnected():
    async with visiting() as visit:
        assert await visit.seconds_until_closed() == (32, b"")


@pytest.mark.virtual
async def test_slow_head_is_disconnected():
    async with visiting() as visit, asyncio.TaskGroup() as group:
        dripping = group.create_task(drip(visit, HEAD + b"x-more: " + b"x" * 100))
        assert await visit.seconds_until_closed() == (32, b"")
        dripping.cancel()


async def drip(visit: Visit, data: bytes) -> None:
    for place in range(len(data)):
        visit.writer.write(data[place : place + 1])
        await asyncio.sleep(1)


@pytest.mark.virtual
async def test_later_head_has_its_own_timeout():
    async with visiting() as visit:
        visit.writer.write(HEAD + b"\r\n")
        assert (await visit.reader.readuntil(b"hello")).startswith(b"HTTP/1.1 200")
        await asyncio.sleep(100)
        visit.writer.write(HEAD)
        assert await visit.seconds_until_closed() == (132, b"")


@pytest.mark.virtual
async def test_idle_keep_alive_connection_lasts_five_minutes():
    async with visiting() as visit:
        visit.writer.write(HEAD + b"\r\n")
        seconds, response = await visit.seconds_until_closed()
    assert seconds == 300
    assert response.endswith(b"hello")


@pytest.mark.virtual
async def test_slow_response_is_not_cut_by_next_request():
    async with visiting() as visit:
        visit.writer.write(HEAD.replace(b"/a", b"/a100") + b"\r\n")
        await asyncio.sleep(1)
        visit.writer.write(HEAD)
        seconds, response = await visit.seconds_until_closed()
    assert response.endswith(b"hello")
    assert 100 < seconds < 140


@pytest.mark.virtual
async def test_body_has_one_minute():
    async with visiting() as visit:
        visit.writer.write(b"POST /a HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n\r\nhello")
        seconds, response = await visit.seconds_until_closed()
    assert response.startswith(b"HTTP/1.1 400")
    assert 60 <= seconds < 64


async def endless() -> AsyncIterator[bytes]:
    while True:
        yield b"x" * 1_000_000


class Watch(AsyncIterator[bytes]):
    """A stream with its own end."""

    def __init__(self) -> None:
        self.ends_at = asyncio.get_running_loop().time() + 5

    async def __anext__(self) -> bytes:
        return b"x" * 100_000


@pytest.mark.virtual
@pytest.mark.parametrize(("stream", "seconds"), [(endless, 30), (Watch, 5)])
async def test_client_not_reading_is_cut_off_in_time(stream, seconds):
    """A piece of a response has 30 s; a watch ends at its timeout."""

    async def answer(_: Request) -> Response:
        return Response(200, {}, stream())

    server, loop = HTTPServer(answer, "127.0.0.1", 0, None), asyncio.get_running_loop()
    await server.start()
    _, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=1)
    writer.write(HEAD + b"\r\n")
    await asyncio.sleep(seconds - 1)
    assert server.held
    await asyncio.sleep(2)
    assert not server.held
    assert loop.time() == seconds + 1
    writer.transport.abort()
    await server.stop(1)
