"""Lets connections in: takes them from a listening socket up to a limit, and secures each as its context says."""

import asyncio
import contextlib
import math
import socket
import ssl
from collections.abc import Callable
from functools import partial

from controller_manager.base.log import get_logger
from controller_manager.base.tasks import Tasks
from controller_manager.serving.connection_limiter import ConnectionLimiter

ContextChoice = Callable[[str], ssl.SSLContext | None]
"""The TLS context for a connection to this local address; None for one that is not secured."""

_HANDSHAKE = 15.0  # seconds a client has for it
_GOODBYE = 5.0  # seconds a client has to agree that a connection ends
_AT_ONCE = 100  # connections taken before others have a turn
_TELL_EVERY = 60.0  # seconds between two complaints about too many
_OUT_OF_FILES = 1.0  # seconds to wait when the process may open nothing more


class Acceptor:
    """Stands at `listener` while open. Whoever comes is one of the `crowd`, unfinished handshakes included; while there
    is no room in it, what comes is closed at once.

    `connect` makes the protocol of a connection, which calls what it is given as soon as it is connected and then
    counts by itself. A connection that fails before it is one is nobody's problem but its client's: a debug line is
    all that remains of it.
    """

    def __init__(
        self,
        listener: socket.socket,
        connect: Callable[[Callable[[], None]], asyncio.Protocol],
        choose: ContextChoice,
        crowd: ConnectionLimiter,
    ) -> None:
        self._listener = listener
        self._connect = connect
        self._choose = choose
        self._crowd = crowd
        self._told = -math.inf
        self._tasks = Tasks()
        self._log = get_logger("serving")

    async def open(self) -> None:
        """Let clients in from now on."""
        await self._tasks.__aenter__()
        self._watch()

    async def close(self) -> None:
        """Let nobody in any more; whoever has not finished the handshake is turned away."""
        self._unwatch()
        self._listener.close()
        await self._tasks.__aexit__(None, None, None)

    def _watch(self) -> None:
        if self._listener.fileno() >= 0:
            asyncio.get_running_loop().add_reader(self._listener, self._accept)

    def _unwatch(self) -> None:
        asyncio.get_running_loop().remove_reader(self._listener)

    def _accept(self) -> None:
        for _ in range(_AT_ONCE):
            try:
                client, _address = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._log.error("no connection can be accepted for a moment", problem=error.strerror)
                self._crowd.drop_one()
                self._unwatch()
                asyncio.get_running_loop().call_later(_OUT_OF_FILES, self._watch)
                return
            if self._has_room():
                self._crowd.enter(client, partial(_hang_up, client))
                self._tasks.start(self._greet(client), name="handshake")
            else:
                client.close()

    def _has_room(self) -> bool:
        now = asyncio.get_running_loop().time()
        if self._crowd.is_full and now - self._told > _TELL_EVERY:
            self._told = now
            self._log.warning(
                "too many connections: for each that comes, one is closed that does nothing", limit=self._crowd.limit
            )
        return self._crowd.make_room()

    async def _greet(self, client: socket.socket) -> None:
        try:
            client.setblocking(False)
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # not every event loop does
            context = self._choose(client.getsockname()[0])
        except (OSError, ValueError) as error:
            client.close()
            self._log.error("a connection cannot be secured", problem=error)
        else:
            await self._shake_hands(client, context)
        finally:
            self._crowd.leave(client)

    async def _shake_hands(self, client: socket.socket, context: ssl.SSLContext | None) -> None:
        connect = partial(self._connect, partial(self._crowd.leave, client))
        bounds = {"ssl_handshake_timeout": _HANDSHAKE, "ssl_shutdown_timeout": _GOODBYE} if context else {}
        try:
            await asyncio.get_running_loop().connect_accepted_socket(connect, client, ssl=context, **bounds)
        except OSError as error:
            self._log.debug("a connection did not come about", problem=str(error) or "the client left")


def _hang_up(client: socket.socket) -> None:
    with contextlib.suppress(OSError):
        client.shutdown(socket.SHUT_RDWR)
