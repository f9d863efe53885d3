"""Reuse, limits and failures of pooled connections."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from controller_manager.common.transport.client_connection import ClientConnection
from controller_manager.common.transport.connection_pool import ConnectionPool, ConnectionTarget
from controller_manager.common.transport.response_parser import ServerDisconnected
from controller_manager.framework import TransportError

GET = b"GET / HTTP/1.1\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

Serve = Callable[[int, int], bytes | None]


class Server:
    """Answers request `n` of connection `c` with `serve(c, n)`; None closes the connection."""

    def __init__(self, serve: Serve) -> None:
        self.serve = serve
        self.seen: list[tuple[int, int]] = []
        self.connections = 0
        self.asked, self.ended = asyncio.Event(), asyncio.Event()

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        mine, count = self.connections, 0
        try:
            while await reader.readuntil(b"\r\n\r\n"):
                count += 1
                self.seen.append((mine, count))
                self.asked.set()
                await asyncio.sleep(0.01)
                response = self.serve(mine, count)
                if response is None:
                    break
                writer.write(response)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self.ended.set()
            writer.close()


@asynccontextmanager
async def pool_of(
    server: Server, connections: int = 4, read_timeout: float = 5.0
) -> AsyncIterator[tuple[ConnectionPool, ConnectionTarget]]:
    listening = await asyncio.start_server(server, "127.0.0.1", 0)
    found = ConnectionPool(connections, 5.0, read_timeout)
    try:
        yield found, ConnectionTarget("127.0.0.1", listening.sockets[0].getsockname()[1])
    finally:
        found.close()
        listening.close()


async def test_idle_connection_is_reused() -> None:
    server = Server(lambda *_: OK)
    async with pool_of(server) as (pool, origin):
        for _ in range(3):
            assert (await pool.send(origin, GET, idempotent=False)).body == b"ok"
    assert server.seen == [(1, 1), (1, 2), (1, 3)]


async def test_number_of_connections_is_bounded() -> None:
    server = Server(lambda *_: OK)
    async with pool_of(server, connections=3) as (pool, origin), asyncio.TaskGroup() as group:
        for _ in range(12):
            group.create_task(pool.send(origin, GET, idempotent=False))
    assert server.connections == 3
    assert len(server.seen) == 12


@pytest.mark.parametrize("response", [OK.replace(b"OK", b"OK\r\nConnection: close"), OK + b"more"])
async def test_closed_connection_is_not_reused(response: bytes) -> None:
    server = Server(lambda *_: response)
    async with pool_of(server) as (pool, origin):
        for _ in range(2):
            assert (await pool.send(origin, GET, idempotent=False)).body == b"ok"
    assert server.seen == [(1, 1), (2, 1)]


async def test_idempotent_request_is_repeated_after_idle_close() -> None:
    server = Server(lambda connection, count: None if (connection, count) == (1, 2) else OK)
    async with pool_of(server) as (pool, origin):
        for _ in range(2):
            assert (await pool.send(origin, GET, idempotent=True)).body == b"ok"
    assert server.seen == [(1, 1), (1, 2), (2, 1)]


async def test_other_failed_requests_are_not_repeated() -> None:
    server = Server(lambda _, count: None if count == 2 else OK)
    async with pool_of(server) as (pool, origin):
        await pool.send(origin, GET, idempotent=False)
        with pytest.raises(ServerDisconnected):
            await pool.send(origin, GET, idempotent=False)
    fresh = Server(lambda *_: None)
    async with pool_of(fresh) as (pool, origin):
        with pytest.raises(ServerDisconnected):
            await pool.send(origin, GET, idempotent=True)
    half = Server(lambda _, count: OK if count == 1 else OK[:9])
    async with pool_of(half, read_timeout=0.1) as (pool, origin):
        await pool.send(origin, GET, idempotent=True)
        with pytest.raises(TimeoutError):
            await pool.send(origin, GET, idempotent=True)
    assert [len(one.seen) for one in (server, fresh, half)] == [2, 1, 2]


async def test_cancelled_request_does_not_leave_its_response() -> None:
    answers = iter((OK, OK.replace(b"ok", b"no")))
    server = Server(lambda *_: next(answers))
    async with pool_of(server, connections=1) as (pool, origin):
        asking = asyncio.create_task(pool.send(origin, GET, idempotent=True))
        await server.asked.wait()  # there is no response yet
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        assert (await pool.send(origin, GET, idempotent=True)).body in (b"ok", b"no")
    assert server.connections == 2


async def test_slow_response_is_not_a_read_timeout() -> None:
    async def slowly(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        for byte in OK:
            writer.write(bytes((byte,)))
            await asyncio.sleep(0.02)
        writer.close()

    listening = await asyncio.start_server(slowly, "127.0.0.1", 0)
    pool = ConnectionPool(1, 5.0, 0.5)
    origin = ConnectionTarget("127.0.0.1", listening.sockets[0].getsockname()[1])
    assert (await pool.send(origin, GET, idempotent=False)).body == b"ok"
    pool.close()
    listening.close()


async def test_deadline_applies_to_each_request() -> None:
    answers = iter((OK, OK, OK[:-1], OK))
    server = Server(lambda *_: next(answers))
    async with asyncio.timeout(30), pool_of(server, connections=1, read_timeout=600.0) as (pool, origin):
        clock = asyncio.get_running_loop().time
        assert (await pool.send(origin, GET, idempotent=False)).body == b"ok"
        assert (await pool.send(origin, GET, idempotent=False, deadline=clock() + 60)).body == b"ok"
        with pytest.raises(TimeoutError):
            await pool.send(origin, GET, idempotent=False, deadline=clock() + 0.1)
        assert (await pool.send(origin, GET, idempotent=False)).body == b"ok"
    assert server.seen == [(1, 1), (1, 2), (1, 3), (2, 1)]


async def test_waiting_for_connection_ends_at_deadline() -> None:
    server = Server(lambda *_: b"")
    async with pool_of(server, connections=1) as (pool, origin):
        asking = asyncio.create_task(pool.send(origin, GET, idempotent=True))
        await server.asked.wait()
        with pytest.raises(TimeoutError):
            await pool.send(origin, GET, idempotent=True, deadline=asyncio.get_running_loop().time() + 0.05)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
    assert len(server.seen) == 1


async def test_idle_connection_is_closed_after_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("controller_manager.common.transport.connection_pool._IDLE", 0.05)
    server = Server(lambda *_: OK)
    async with pool_of(server) as (pool, origin):
        await pool.send(origin, GET, idempotent=False)
        async with asyncio.timeout(30):
            await server.ended.wait()
        await pool.send(origin, GET, idempotent=False)
    assert server.connections == 2


async def test_close_ends_running_requests() -> None:
    server = Server(lambda *_: b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n")
    async with pool_of(server) as (pool, origin), asyncio.timeout(30), asyncio.TaskGroup() as group:
        group.create_task(closed(pool, origin))
        await server.asked.wait()
        await asyncio.sleep(0.05)
        pool.close()


async def test_close_ends_requests_waiting_for_a_connection() -> None:
    server = Server(lambda *_: b"HTTP/1.1 200 OK\r\n\r\npart")
    async with pool_of(server, connections=1) as (pool, origin), asyncio.timeout(30), asyncio.TaskGroup() as group:
        for _ in range(3):
            group.create_task(closed(pool, origin))
        await server.asked.wait()
        await asyncio.sleep(0.05)
        pool.close()
    assert server.seen == [(1, 1)]
    async with pool_of(server) as (pool, origin), asyncio.timeout(30), asyncio.TaskGroup() as group:
        group.create_task(closed(pool, origin))
        await asyncio.sleep(0)
        pool.close()
    assert server.seen == [(1, 1)]


async def test_running_request_is_not_repeated_after_close() -> None:
    server = Server(lambda _, count: OK if count == 1 else b"")
    async with pool_of(server) as (pool, origin), asyncio.timeout(30):
        await pool.send(origin, GET, idempotent=True)
        server.asked.clear()
        async with asyncio.TaskGroup() as group:
            group.create_task(closed(pool, origin))
            await server.asked.wait()
            await asyncio.sleep(0.05)
            pool.close()
    assert server.seen == [(1, 1), (1, 2)]


async def test_idle_connections_are_closed_after_close_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("controller_manager.common.transport.connection_pool._IDLE", 0.05)
    server = Server(lambda *_: OK)
    async with pool_of(server) as (pool, origin):
        await pool.send(origin, GET, idempotent=False)
        pool.close()
        async with asyncio.timeout(30):
            await server.ended.wait()
            server.ended.clear()
            await pool.send(origin, GET, idempotent=False)
            await server.ended.wait()


async def closed(pool: ConnectionPool, origin: ConnectionTarget) -> None:
    with pytest.raises(TransportError, match="the connection was closed"):
        await pool.send(origin, GET, idempotent=True)


async def test_late_failure_is_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("controller_manager.common.transport.connection_pool._SOON", 0.005)  # the server takes 0.01
    server = Server(lambda connection, count: None if (connection, count) == (1, 2) else OK)
    async with pool_of(server) as (pool, origin):
        await pool.send(origin, GET, idempotent=True)
        with pytest.raises(ServerDisconnected):
            await pool.send(origin, GET, idempotent=True)
    assert server.seen == [(1, 1), (1, 2)]


class Loopless(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.written = b""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += bytes(data)

    def abort(self) -> None:
        pass


@pytest.mark.parametrize("error", [None, ConnectionResetError(), ssl.SSLError("refused")])
async def test_connection_lost_before_use_fails_at_once(error: Exception | None) -> None:
    connection, transport = ClientConnection(), Loopless()
    connection.connection_made(transport)
    connection.connection_lost(error)
    with pytest.raises(OSError if error is None else type(error)):
        async with asyncio.timeout(30):
            await connection.send(GET, 60.0)
    assert transport.written == b""


@pytest.mark.parametrize("error", [ConnectionResetError(), BrokenPipeError()])
async def test_truncated_response_raises_error(error: Exception) -> None:
    connection = ClientConnection()
    connection.connection_made(Loopless())
    asyncio.get_running_loop().call_soon(connection.data_received, b"HTTP/1.1 200 OK\r\n\r\npart")
    asyncio.get_running_loop().call_soon(connection.connection_lost, error)
    with pytest.raises(type(error)):
        await connection.send(GET, 60.0)
    connection = ClientConnection()
    connection.connection_made(Loopless())
    asyncio.get_running_loop().call_soon(connection.connection_lost, error)
    with pytest.raises(ServerDisconnected):
        await connection.send(GET, 60.0)


async def test_connection_is_not_reusable_after_eof() -> None:
    connection = ClientConnection()
    connection.connection_made(Loopless())
    asyncio.get_running_loop().call_soon(connection.data_received, OK)
    await connection.send(GET, 60.0)
    assert connection.open
    connection.eof_received()
    assert not connection.open


@pytest.mark.parametrize("response", [b"\x15\x03\x01\x00\x02", b"SSH-2.0-x\r\n"])
async def test_server_of_another_protocol_fails_at_once(response: bytes) -> None:
    async def speak(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(response)

    listening = await asyncio.start_server(speak, "127.0.0.1", 0)
    pool = ConnectionPool(1, 5.0, 60.0)
    origin = ConnectionTarget("127.0.0.1", listening.sockets[0].getsockname()[1])
    with pytest.raises(OSError):
        async with asyncio.timeout(30):
            await pool.send(origin, GET, idempotent=True)
    pool.close()
    listening.close()


async def test_unresponsive_address_leaves_time_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(lambda *_: OK)
    silent = socket.create_server(("127.0.0.2", 0), backlog=0)
    port = silent.getsockname()[1]
    fillers = [socket.socket() for _ in range(4)]
    for filler in fillers:
        filler.setblocking(False)
        filler.connect_ex(("127.0.0.2", port))
    listening = await asyncio.start_server(server, "127.0.0.1", port)
    addresses = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, port)) for host in ("127.0.0.2", "127.0.0.1")]

    async def resolve(*_: object, **__: object) -> list[object]:
        return list(addresses)

    pool = ConnectionPool(1, 1.6, 5.0)
    try:
        with monkeypatch.context() as patched:
            loop = asyncio.get_running_loop()
            real = loop.getaddrinfo
            patched.setattr(
                loop, "getaddrinfo", lambda host, *a, **k: (resolve if host == "twice" else real)(host, *a, **k)
            )
            assert (await pool.send(ConnectionTarget("twice", port), GET, idempotent=False)).body == b"ok"
    finally:
        pool.close()
        listening.close()
        for one in (silent, *fillers):
            one.close()
