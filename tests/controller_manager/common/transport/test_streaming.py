"""Forwarded requests: limits, and malformed server responses."""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from controller_manager.common.api.wire import Request, Response
from controller_manager.common.transport.connection_pool import ConnectionTarget, authority
from controller_manager.common.transport.streaming import StreamingTransport
from controller_manager.common.transport.transport import TransportError, close_body, known_length, whole_body
from controller_manager.testing import certificates

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
ASKED = Request("GET", "/a", (), {"accept": "a/b"})


@pytest.fixture
async def serve() -> AsyncIterator[Callable[[Handler], Awaitable[ConnectionTarget]]]:
    servers = []

    async def start(handle: Handler) -> ConnectionTarget:
        servers.append(await asyncio.start_server(handle, "127.0.0.1", 0))
        return ConnectionTarget("127.0.0.1", servers[-1].sockets[0].getsockname()[1])

    yield start
    for server in servers:
        server.close()


def answering(text: bytes) -> Handler:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(text)
        await writer.drain()
        writer.close()

    return handle


@pytest.mark.parametrize(
    "text",
    [
        b"", b"nonsense\r\n\r\n", b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nx: " + b"y" * 100_000 + b"\r\n\r\n", b"SSH-2.0\r\n",
    ],
)  # fmt: skip
async def test_malformed_server_response_raises_transport_error(
    serve: Callable[[Handler], Awaitable[ConnectionTarget]], text: bytes
) -> None:
    transport = StreamingTransport()
    with pytest.raises(TransportError):
        await transport.send(await serve(answering(text)), ASKED)
    await transport.close()


async def test_header_with_newline_is_not_sent(serve: Callable[[Handler], Awaitable[ConnectionTarget]]) -> None:
    transport, origin = StreamingTransport(), await serve(answering(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"))
    for headers in ({"x-remote-user": "a\r\nx-remote-group: b"}, {"x-remote-user": "a\nb"}):
        with pytest.raises(TransportError):
            await transport.send(origin, Request("GET", "/", (), headers))
        with pytest.raises(TransportError):
            await transport.upgrade(origin, Request("GET", "/", (), {**headers, "upgrade": "x"}))
    assert (await transport.send(origin, ASKED)).status == 200
    await transport.close()


async def test_unresponsive_server_leaves_connections_for_others(
    serve: Callable[[Handler], Awaitable[ConnectionTarget]],
) -> None:
    async def hang(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(60)
        writer.close()

    transport, stuck = StreamingTransport(connections=4), await serve(hang)
    other = await serve(answering(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"))
    tasks = [asyncio.ensure_future(transport.send(stuck, ASKED)) for _ in range(10)]
    await asyncio.sleep(0.05)
    async with asyncio.timeout(2):
        assert (await transport.send(other, ASKED)).status == 200
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    await transport.close()


async def test_number_of_streams_is_bounded(serve: Callable[[Handler], Awaitable[ConnectionTarget]]) -> None:
    async def switch(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n")
        await reader.read()
        writer.close()

    transport, origin = StreamingTransport(connections=1), await serve(switch)
    offer = Request("GET", "/", (), {"upgrade": "x"})
    _, stream = await transport.upgrade(origin, offer)
    assert stream is not None
    with pytest.raises(TransportError, match="too many"):
        await transport.upgrade(origin, offer)
    await stream.aclose()
    await asyncio.sleep(0.05)
    _, stream = await transport.upgrade(origin, offer)
    assert stream is not None
    await stream.aclose()
    await transport.close()


async def test_refused_upgrade_returns_bounded_response(
    serve: Callable[[Handler], Awaitable[ConnectionTarget]],
) -> None:
    transport, offer = StreamingTransport(), Request("GET", "/", (), {"upgrade": "x"})
    refused = b"HTTP/1.1 403 Forbidden\r\ncontent-length: %d\r\n\r\n"
    response, stream = await transport.upgrade(await serve(answering(refused % 3 + b"no!")), offer)
    assert (response.status, response.body, stream) == (403, b"no!", None)
    with pytest.raises(TransportError, match="larger"):
        await transport.upgrade(await serve(answering(refused % (2 << 20) + b"x" * (2 << 20))), offer)
    await transport.close()


async def test_body_is_never_sent_twice(serve: Callable[[Handler], Awaitable[ConnectionTarget]]) -> None:
    """A reused connection breaks while it sends a forwarded body."""
    heads = []

    async def once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        if len(heads) == 1:
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
            await reader.readuntil(b"\r\n\r\n")
        writer.close()

    async def body() -> AsyncIterator[bytes]:
        yield b"abc"

    transport, origin = StreamingTransport(), await serve(once)
    assert (await transport.send(origin, ASKED)).status == 200
    with pytest.raises(TransportError):
        await transport.send(origin, Request("PUT", "/", (), {"content-length": "3"}), body())
    await transport.close()


async def test_untrusted_certificate_raises_transport_error(tmp_path: Path) -> None:
    server_tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificates.authority().write(tmp_path / "a.crt", tmp_path / "a.key")
    server_tls.load_cert_chain(tmp_path / "a.crt", tmp_path / "a.key")
    server = await asyncio.start_server(answering(b""), "127.0.0.1", 0, ssl=server_tls)
    port = server.sockets[0].getsockname()[1]
    with pytest.raises(TransportError, match="certificate"):
        await StreamingTransport().send(
            ConnectionTarget("127.0.0.1", port, tls=ssl.create_default_context(), name="a"), ASKED
        )
    server.close()


@pytest.mark.parametrize(("value", "length"), [("12", 12), ("", None), ("-1", None), ("9" * 30, None), ("٣", None)])
def test_content_length_of_response(value: str, length: int | None) -> None:
    assert known_length(Response(200, {"content-length": value})) == length


class FixedDialer:
    """A dialer that connects to one address for every host."""

    def __init__(self, origin: ConnectionTarget) -> None:
        self.origin = origin
        self.asked: list[tuple[str, int]] = []

    async def dial(self, host: str, port: int) -> socket.socket:
        self.asked.append((host, port))
        found = socket.socket()
        found.setblocking(False)
        await asyncio.get_running_loop().sock_connect(found, self.origin[:2])
        return found


@pytest.mark.parametrize("host", ["::1", "10.0.0.1", "server", f"{'a' * 60}.{'b' * 60}.svc.cluster.local"])
async def test_dialer_gets_the_host_name_unresolved(
    serve: Callable[[Handler], Awaitable[ConnectionTarget]], host: str
) -> None:
    heads: list[bytes] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError):
            while True:
                heads.append(await reader.readuntil(b"\r\n\r\n"))
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")

    dialer = FixedDialer(await serve(handle))
    transport = StreamingTransport(dialer=dialer)
    for _ in range(2):
        assert await whole_body(await transport.send(ConnectionTarget(host, 8080), ASKED)) == b"ok"
    await transport.close()
    assert dialer.asked == [(host, 8080)]  # the connection is reused
    assert f"host: {authority(ConnectionTarget(host, 8080))}\r\n".encode() in heads[0]


async def test_dial_is_cancelled_with_its_request() -> None:
    given_up = asyncio.Event()

    class Hangs:
        async def dial(self, host: str, port: int) -> socket.socket:
            try:
                await asyncio.sleep(60)
            finally:
                given_up.set()
            raise AssertionError

    transport = StreamingTransport(dialer=Hangs())
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await transport.send(ConnectionTarget("server", 1), ASKED)
    await asyncio.wait_for(given_up.wait(), 1)
    await transport.close()


async def test_dialer_failure_raises_transport_error() -> None:
    class Fails:
        async def dial(self, host: str, port: int) -> socket.socket:
            raise TransportError(f"no way to {host}:{port}")

    transport = StreamingTransport(dialer=Fails())
    with pytest.raises(TransportError, match="no way to server:1"):
        await transport.send(ConnectionTarget("server", 1), ASKED)
    await transport.close()


async def test_unread_body_stops_the_sender(serve: Callable[[Handler], Awaitable[ConnectionTarget]]) -> None:
    sent, size = 0, 1 << 20

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % (64 * size))
        for _ in range(64):
            writer.write(b"x" * size)
            await writer.drain()
            sent += size
        await reader.read()

    transport = StreamingTransport()
    response = await transport.send(await serve(handle), ASKED)
    last = -1
    while last != sent:
        last = sent
        await asyncio.sleep(0.2)
    assert sent < 32 * size
    assert len(await whole_body(response)) == 64 * size
    await transport.close()


@pytest.mark.parametrize("headers", [{}, {"content-length": "5"}])
async def test_streamed_request_body_arrives_while_the_answer_is_read(
    serve: Callable[[Handler], Awaitable[ConnectionTarget]], headers: dict[str, str]
) -> None:
    seen: list[bytes] = []
    begun = asyncio.Event()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n")
        seen.append(await reader.readuntil(b"lo" if headers else b"0\r\n\r\n"))
        writer.write(b"2\r\ncd\r\n0\r\n\r\n")
        seen.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")

    async def body() -> AsyncIterator[bytes]:
        yield b"hel"
        await begun.wait()
        yield b"lo"

    transport, origin = StreamingTransport(), await serve(handle)
    response = await transport.send(origin, Request("POST", "/", (), headers), body())
    parts = response.body
    assert not isinstance(parts, bytes)
    assert await anext(aiter(parts)) == b"ab"
    begun.set()
    assert await whole_body(response) == b"cd"
    assert seen[1] == (b"hello" if headers else b"3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n")
    assert (await transport.send(origin, ASKED)).body == b""  # over the same connection
    assert (b"transfer-encoding: chunked" in seen[0]) is not bool(headers)
    await transport.close()


async def test_early_response_to_request_body_ends_connection(
    serve: Callable[[Handler], Awaitable[ConnectionTarget]],
) -> None:
    ended, connections = asyncio.Event(), 0

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 413 Too Large\r\ncontent-length: 2\r\n\r\nno")
        await reader.read()
        writer.close()

    async def body() -> AsyncIterator[bytes]:
        try:
            yield b"x"
            await asyncio.sleep(3600)
        finally:
            ended.set()

    transport, origin = StreamingTransport(), await serve(handle)
    response = await transport.send(origin, Request("POST", "/"), body())
    assert (response.status, await whole_body(response)) == (413, b"no")
    async with asyncio.timeout(30):
        await ended.wait()
    await transport.send(origin, ASKED)
    assert connections == 2
    await transport.close()


async def test_broken_request_body_fails_the_request(serve: Callable[[Handler], Awaitable[ConnectionTarget]]) -> None:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async def body() -> AsyncIterator[bytes]:
        yield b"x"
        raise ValueError("cut off")

    transport = StreamingTransport()
    with pytest.raises(TransportError, match="cut off"):
        async with asyncio.timeout(30):
            await transport.send(await serve(handle), Request("POST", "/"), body())
    await transport.close()


@pytest.mark.parametrize("closes", [True, False])
async def test_abandoned_body_frees_its_connection(
    serve: Callable[[Handler], Awaitable[ConnectionTarget]], closes: bool
) -> None:
    gone = asyncio.Event()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\npart")
        await reader.read()
        gone.set()
        writer.close()

    transport, origin = StreamingTransport(connections=1, connect=0.2), await serve(handle)
    response = await transport.send(origin, ASKED)
    with pytest.raises(TransportError, match="timed out"):
        await transport.send(origin, ASKED)
    if closes:
        await close_body(response)
    del response
    async with asyncio.timeout(30):
        await gone.wait()
    assert (await transport.send(origin, ASKED)).status == 200
    await transport.close()


async def test_body_that_breaks_names_the_request(serve: Callable[[Handler], Awaitable[ConnectionTarget]]) -> None:
    origin = await serve(answering(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\npart"))
    transport = StreamingTransport()
    response = await transport.send(origin, ASKED)
    with pytest.raises(TransportError, match=rf"^GET http://{authority(origin)}/a: .*in the middle"):
        await whole_body(response)
    await transport.close()


async def test_head_request_has_no_body(serve: Callable[[Handler], Awaitable[ConnectionTarget]]) -> None:
    connections = 0

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        with contextlib.suppress(asyncio.IncompleteReadError):
            while await reader.readuntil(b"\r\n\r\n"):
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n")

    transport, origin = StreamingTransport(), await serve(handle)
    for _ in range(2):
        response = await transport.send(origin, Request("HEAD", "/"))
        assert (known_length(response), await whole_body(response)) == (100, b"")
    assert connections == 1
    await transport.close()


async def test_closed_idle_connection_is_replaced(serve: Callable[[Handler], Awaitable[ConnectionTarget]]) -> None:
    connections = 0

    async def once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
        with contextlib.suppress(asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
        writer.close()

    transport, origin = StreamingTransport(), await serve(once)
    for _ in range(2):
        assert await whole_body(await transport.send(origin, ASKED)) == b"ok"
    assert connections == 2
    await transport.close()


async def test_part_of_a_chunk_is_not_the_end(serve: Callable[[Handler], Awaitable[ConnectionTarget]]) -> None:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        for piece in (b"4", b"\r\n", b"ab", b"cd\r\n0\r\n\r\n"):
            writer.write(piece)
            await asyncio.sleep(0.02)

    transport = StreamingTransport()
    assert await whole_body(await transport.send(await serve(handle), ASKED)) == b"abcd"
    await transport.close()
