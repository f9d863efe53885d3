"""The acceptor without free file descriptors, and before the first byte."""

import asyncio
import errno
import socket
from collections.abc import Callable, Hashable
from functools import partial
from typing import cast

import pytest
import structlog.testing

from controller_manager.common.serving.limits import ConnectionLimiter, Drop
from controller_manager.common.serving.listening import Acceptor, listen


class ExhaustedListener(socket.socket):
    """A listening socket that cannot accept while `exhausted` is set."""

    exhausted = True

    def accept(self) -> tuple[socket.socket, object]:
        if self.exhausted:
            raise OSError(errno.EMFILE, "too many open files")
        return super().accept()


class Greeting(asyncio.Protocol):
    """Answers the first bytes and closes."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self.transport.write(b"welcome")
        self.transport.close()


@pytest.mark.virtual
async def test_acceptor_without_file_descriptors_retries():
    loop = asyncio.get_running_loop()
    with ExhaustedListener() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        listener.setblocking(False)
        limiter, dropped = ConnectionLimiter(10), list[str]()
        for number in range(3):
            limiter.enter(number, partial(dropped.append, f"{number} for its file"))
        acceptor = Acceptor(listener, lambda arrived: Greeting(), lambda address: None, limiter)
        await acceptor.open()
        with structlog.testing.capture_logs() as lines:
            reader, writer = await asyncio.open_connection(*listener.getsockname())
            await asyncio.sleep(3.5)
            assert len(lines) == 4
            assert dropped == ["0 for its file", "1 for its file", "2 for its file"]
            listener.exhausted = False
            writer.write(b"?")
            assert await reader.read() == b"welcome"
        assert 3.5 < loop.time() < 5
        writer.close()
        await acceptor.close()


class WatchedLimiter(ConnectionLimiter):
    """A limiter that lets a test wait for a number of members."""

    def __init__(self, limit: float) -> None:
        super().__init__(limit)
        self._changed = asyncio.Event()

    def enter(self, member: Hashable, drop: Drop) -> None:
        super().enter(member, drop)
        self._changed.set()

    def leave(self, member: Hashable) -> None:
        super().leave(member)
        self._changed.set()

    async def has(self, count: int) -> None:
        while len(self) != count:
            self._changed.clear()
            await self._changed.wait()


@pytest.mark.both_loops
async def test_client_gets_no_state_before_its_first_byte():
    """10,000 silent clients would take 500 MB for TLS alone."""
    protocols: list[Greeting] = []

    def connect(arrived: Callable[[], None]) -> Greeting:
        protocols.append(Greeting())
        return protocols[-1]

    limiter, listener = WatchedLimiter(10), listen("127.0.0.1", 0)
    acceptor = Acceptor(listener, connect, lambda address: None, limiter)
    await acceptor.open()
    clients = [socket.create_connection(listener.getsockname()) for _ in range(3)]
    await limiter.has(3)
    assert protocols == []
    silent, leaving, speaking = clients
    leaving.close()
    speaking.sendall(b"?")
    await limiter.has(1)
    assert len(protocols) == 1
    await acceptor.close()
    assert len(limiter) == 0
    silent.close()
    speaking.close()
