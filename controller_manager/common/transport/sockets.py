"""Socket pairs whose bytes are forwarded by a task, so that tunnels can be used as sockets."""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from functools import partial

from controller_manager.common.base.log import Logger
from controller_manager.common.base.tasks import Tasks, all_of, contain
from controller_manager.common.transport.duplex import SocketStream, StreamOpener, relay
from controller_manager.common.transport.transport import TransportError

Carry = Callable[[SocketStream], Awaitable[None]]
"""Carries bytes between a stream and a server until one of them ends."""


class CarriedSockets:
    """Socket pairs: one end is returned to the caller, a task forwards the bytes of the other, 64 KiB at a time.
    `close` ends all tasks.
    """

    def __init__(self, log: Logger) -> None:
        self._log = log
        self._tasks: Tasks | None = None
        self._closed = False

    async def open(self, carry: Carry) -> socket.socket:
        """Return a connected socket. Raises `TransportError` after `close`."""
        if self._closed:
            raise TransportError("the server is stopping")
        if self._tasks is None:
            self._tasks = await Tasks().__aenter__()
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        theirs.setblocking(False)
        try:
            _, opener = await asyncio.get_running_loop().create_connection(StreamOpener, sock=ours)
        except BaseException:
            ours.close()
            theirs.close()
            raise
        stream = opener.stream
        work = partial(contain, partial(carry, stream), self._log, name="tunnel")
        self._tasks.start(work(), name="tunnel").add_done_callback(lambda _: stream.close())
        return theirs

    async def close(self) -> None:
        """End all tasks and close their connections."""
        self._closed = True
        if self._tasks is not None:
            tasks, self._tasks = self._tasks, None
            await tasks.__aexit__(None, None, None)


async def carry(stream: SocketStream, connection: SocketStream, early: bytes = b"") -> None:
    """Forward bytes until either side ends or fails; data sent before the end is delivered."""
    try:
        await stream.write(early)
        await relay(stream, connection)
        await all_of(stream.aclose(), connection.aclose())
    except ConnectionError:
        return  # both sides see the end of their stream
    finally:
        for one in (stream, connection):
            if not one.is_lost:
                one.abort()
