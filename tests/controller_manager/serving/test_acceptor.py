"""Who is let in at a moment when the process can open nothing more."""

import asyncio
import errno
import socket
from functools import partial

import pytest
import structlog.testing

from controller_manager.serving.limits import ConnectionLimiter
from controller_manager.serving.listening import Acceptor


class Tired(socket.socket):
    """A listening socket that cannot accept for as long as somebody says."""

    tired = True

    def accept(self) -> tuple[socket.socket, object]:
        if self.tired:
            raise OSError(errno.EMFILE, "too many open files")
        return super().accept()


class Greeting(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.write(b"welcome")
        transport.close()


@pytest.mark.virtual
async def test_a_process_out_of_files_tries_again_and_loses_nobody():
    loop = asyncio.get_running_loop()
    with Tired() as listener:
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
            listener.tired = False
            assert await reader.read() == b"welcome"
        assert 3.5 < loop.time() < 5
        writer.close()
        await acceptor.close()
