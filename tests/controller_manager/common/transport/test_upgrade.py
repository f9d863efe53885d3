"""Duplex streams through the real server and client: over TCP, TLS and in one process."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from controller_manager.common.api.wire import DuplexStream, Request, Response, Upgrade
from controller_manager.common.base.tasks import Tasks
from controller_manager.common.serving.http_server import HTTPServer
from controller_manager.common.transport import duplex
from controller_manager.common.transport.config import ClientConfig, ClientIdentity
from controller_manager.common.transport.http_transport import HttpTransport
from controller_manager.framework import TransportError
from tests.controller_manager.common.transport.upgrade_servers import OFFER, Handler, StreamHandler, echo, serving

pytestmark = pytest.mark.both_loops

MORE = 4 * 1024 * 1024  # bytes, more than all buffers hold


@pytest.fixture(params=["tcp", "tls", "memory"])
def kind(request):
    return request.param


@contextlib.asynccontextmanager
async def connected(handle: StreamHandler, kind: str) -> AsyncIterator[tuple[DuplexStream, Handler]]:
    handler = Handler(handle)
    async with asyncio.timeout(60), serving(handler, kind) as (transport, _):
        response, stream = await transport.upgrade(OFFER)
        assert response.status == 101
        assert stream is not None
        yield stream, handler


async def read_all(stream: DuplexStream) -> bytes:
    parts = []
    while part := await stream.read(50_000):
        parts.append(part)
    return b"".join(parts)


async def test_echo_returns_written_data(kind):
    async with connected(echo, kind) as (stream, handler):
        await stream.write(b"hello")
        assert await stream.read(3) == b"hel"
        assert await stream.read(100) == b"lo"
        await stream.aclose()
        await handler.ended.wait()
    (request,) = handler.requests
    assert (request.method, request.path, request.query) == ("GET", "/echo", (("command", "sh"),))


async def test_response_names_the_protocol(kind):
    async with serving(Handler(echo), kind) as (transport, _):
        response, stream = await transport.upgrade(OFFER)
        assert stream is not None
        assert response.headers["upgrade"] == "echo/1"
        assert response.headers["x-answer"] == "yes"
        await stream.aclose()


async def test_both_sides_write_more_than_buffers_hold(kind):
    data = bytes(range(256)) * (MORE // 256)
    received = []

    async def handle(stream: DuplexStream) -> None:
        async with Tasks() as tasks:
            writing = tasks.start(stream.write(data), name="writing")
            size = 0
            while size < len(data):
                received.append(await stream.read(100_000))
                size += len(received[-1])
            await writing

    async with connected(handle, kind) as (stream, _), Tasks() as tasks:
        writing = tasks.start(stream.write(data), name="writing")
        assert await read_all(stream) == data
        await writing
    assert b"".join(received) == data


async def test_data_written_before_close_is_read(kind):
    received = asyncio.get_running_loop().create_future()

    async def handle(stream: DuplexStream) -> None:
        await stream.write(b"x" * 100_000 + b"bye")
        await stream.aclose()

    async def listen(stream: DuplexStream) -> None:
        received.set_result(await read_all(stream))

    async with connected(handle, kind) as (stream, _):
        assert (await read_all(stream)).endswith(b"bye")
        assert await stream.read(1) == b""
    async with connected(listen, kind) as (stream, _):
        await stream.write(b"x" * 100_000 + b"bye")
        await stream.aclose()
        assert (await received).endswith(b"bye")


async def test_writing_to_closed_side_raises_connection_error(kind):
    failures = []

    async def handle(stream: DuplexStream) -> None:
        while await stream.read(10):
            pass
        with pytest.raises(ConnectionError):
            await stream.write(b"is anybody there?")
        failures.append(True)

    async with connected(handle, kind) as (stream, handler):
        await stream.write(b"going")
        await stream.aclose()
        with pytest.raises(ConnectionError):
            await stream.write(b"more")
        assert await stream.read(1) == b""
        await handler.ended.wait()
    assert failures == [True]


async def test_handler_end_closes_stream(kind):
    async def handle(stream: DuplexStream) -> None:
        await stream.write(b"that is all")

    async with connected(handle, kind) as (stream, _):
        assert await read_all(stream) == b"that is all"
        with pytest.raises(ConnectionError):
            await stream.write(b"more")


async def test_handler_failure_breaks_stream(kind):
    async def handle(stream: DuplexStream) -> None:
        await stream.read(1)
        raise RuntimeError("a bug")

    async with connected(handle, kind) as (stream, handler):
        await stream.write(b"?")
        with pytest.raises(ConnectionError):
            await read_all(stream)
        await handler.ended.wait()


async def test_writer_waits_for_slow_reader(kind):
    written = 0
    read_on = asyncio.Event()

    async def handle(stream: DuplexStream) -> None:
        await read_on.wait()
        await read_all(stream)

    async def write(stream: DuplexStream) -> None:
        nonlocal written
        for _ in range(64):
            await stream.write(b"x" * (1 << 20))
            written += 1

    async with connected(handle, kind) as (stream, handler), Tasks() as tasks:
        writing = tasks.start(write(stream), name="writing")
        before = -1
        while written != before:  # until the buffers are full
            before = written
            await asyncio.sleep(0.2)
        assert written < 32
        read_on.set()
        await writing
        await stream.aclose()
        await handler.ended.wait()


async def test_handler_waits_for_slow_reader(kind):
    written = 0

    async def handle(stream: DuplexStream) -> None:
        nonlocal written
        for _ in range(64):
            await stream.write(b"x" * (1 << 20))
            written += 1

    async with connected(handle, kind) as (stream, _):
        before = -1
        while written != before:
            before = written
            await asyncio.sleep(0.2)
        assert written < 32
        assert len(await read_all(stream)) == 64 << 20


async def test_stream_can_be_closed_after_cancelled_write(kind):
    async with connected(lambda stream: asyncio.Event().wait(), kind) as (stream, handler):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await stream.write(b"x" * (64 << 20))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await stream.read(1)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.2):
                await stream.aclose()
        with pytest.raises(ConnectionError):
            await stream.write(b"more")
        assert not handler.ended.is_set()


async def test_handler_ignoring_disconnect_is_cancelled(kind, monkeypatch):
    monkeypatch.setattr(duplex, "_NOTICE", 0.1)
    async with connected(lambda stream: asyncio.Event().wait(), kind) as (stream, handler):
        await stream.aclose()
        await handler.ended.wait()


async def test_closing_transport_breaks_its_streams(kind):
    handler = Handler(echo)
    async with serving(handler, kind) as (transport, _):
        _, stream = await transport.upgrade(OFFER)
        assert stream is not None
        async with Tasks() as tasks:
            reading = tasks.start(read_after(stream), name="reading")
            await asyncio.sleep(0)
            await transport.close()
            assert await reading == "broken"
        await handler.ended.wait()


async def read_after(stream: DuplexStream) -> str:
    try:
        return repr(await stream.read(1))
    except ConnectionError:
        return "broken"


async def test_refused_upgrade_is_an_ordinary_response(kind):
    async with serving(Handler(echo), kind) as (transport, _):
        for path, status in (("/refuses", 403), ("/ordinary", 200)):
            response, stream = await transport.upgrade(Request("GET", path, (), {"upgrade": "echo/1"}))
            assert (response.status, stream) == (status, None)
            assert isinstance(response.body, bytes)


async def test_upgrade_in_ordinary_request_is_refused(kind):
    async with serving(Handler(echo), kind) as (transport, _):
        with pytest.raises(TransportError):
            await transport.send(Request("GET", "/echo", (), {"upgrade": "echo/1", "connection": "upgrade"}))
        with pytest.raises(ValueError, match="offers no protocol"):
            await transport.upgrade(Request("GET", "/echo"))


async def test_upgrade_retries_with_renewed_credentials(tmp_path):
    async def handle(request: Request) -> Response:
        if request.headers.get("authorization") != "Bearer new":
            (tmp_path / "token").write_text("new")
            return Response(401)
        return Response(101, {}, Upgrade("echo/1", echo))

    (tmp_path / "token").write_text("old")
    server = HTTPServer(handle, "127.0.0.1", 0, None)
    await server.start()
    identity = ClientIdentity(token_file=str(tmp_path / "token"))
    transport = HttpTransport(ClientConfig(f"http://127.0.0.1:{server.port}", identity=identity))
    response, stream = await transport.upgrade(OFFER)
    assert response.status == 101
    assert stream is not None
    await stream.aclose()
    await transport.close()
    await server.stop(1.0)


async def test_streams_do_not_count_against_request_connections():
    handler = Handler(echo)
    async with asyncio.timeout(60), serving(handler, "tcp") as (_, server):
        assert server is not None
        transport = HttpTransport(ClientConfig(f"http://127.0.0.1:{server.port}"), connections=1)
        streams = [(await transport.upgrade(OFFER))[1] for _ in range(3)]
        assert (await transport.send(Request("GET", "/ordinary"))).body == b"hello"
        for stream in streams:
            assert stream is not None
            await stream.write(b"still here")
            assert await stream.read(100) == b"still here"
        await transport.close()


@pytest.mark.parametrize("kind", ["tcp", "tls"])
async def test_stopping_server_ends_streams_after_their_data(kind):
    async def handle(stream: DuplexStream) -> None:
        await stream.write(b"last words")
        await asyncio.Event().wait()

    handler = Handler(handle)
    async with serving(handler, kind) as (transport, server):
        _, stream = await transport.upgrade(OFFER)
        assert stream is not None
        assert server is not None
        await server.stop(5.0)
        assert await read_all(stream) == b"last words"
        assert handler.ended.is_set()
