"""A socket that listens, which addresses it stands for, and who lets connections in from it."""

import asyncio
import contextlib
import math
import os
import socket
import ssl
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from controller_manager.common.base.errors import CannotStart
from controller_manager.common.base.log import get_logger
from controller_manager.common.base.tasks import Tasks
from controller_manager.common.serving.limits import ConnectionLimiter

_LISTENS = "0A"  # in /proc/net/tcp
_LONGEST = 100  # characters of a command line

ALL_INTERFACES = frozenset({"", "0.0.0.0", "::"})  # noqa: S104 - the documented meaning of --bind-address
_BACKLOG = 1024
ContextChoice = Callable[[str], ssl.SSLContext | None]
"""The TLS context for a connection to this local address; None for one that is not secured."""
_FIRST_BYTE = 32.0  # seconds a client has to send it
_HANDSHAKE = 15.0  # seconds it has for that of TLS
_GOODBYE = 5.0  # seconds a client has to agree that a connection ends
_AT_ONCE = 100  # connections taken before others have a turn
_TELL_EVERY = 60.0  # seconds between two complaints about too many
_OUT_OF_FILES = 1.0  # seconds to wait when the process may open nothing more


class CannotListen(CannotStart, OSError):
    """The address is taken or not ours; the message is one sentence."""


def listen(host: str, port: int, *, share_port: bool = False) -> socket.socket:
    """Return a listening socket that does not block; empty, 0.0.0.0 and :: are all interfaces and both families.

    With `share_port` others that say so too may listen on the same port (SO_REUSEPORT). Connections that linger after
    an earlier process are no obstacle (SO_REUSEADDR), one that listens is. Raises CannotListen.
    """
    try:
        listener = _bind(host, port, share_port=share_port)
        try:
            listener.listen(_BACKLOG)
        except OSError:  # two may bind at once, but only one of them may listen
            listener.close()
            raise
    except OSError as error:
        raise _refusal(host, port, error) from error
    return listener


def _bind(host: str, port: int, *, share_port: bool) -> socket.socket:
    everywhere = host in ALL_INTERFACES
    both = everywhere and socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if both or ":" in host else socket.AF_INET
    one = socket.socket(family, socket.SOCK_STREAM)
    try:
        one.setblocking(False)
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(not both))
        if share_port:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        one.bind(("" if everywhere else host, port))
    except BaseException:
        one.close()
        raise
    return one


def _refusal(host: str, port: int, error: OSError) -> CannotListen:
    why = os.strerror(error.errno).lower() if error.errno and error.errno > 0 else str(error)
    return CannotListen(f"cannot listen on {host or '*'}:{port}: {why}")


def listener_on(port: int) -> str:
    """Return who listens on a TCP port, as `process 12 (program and arguments)`; empty if that cannot be known."""
    inodes = {f"socket:[{inode}]" for inode in _sockets(port)}
    if not inodes:
        return ""
    for process in Path("/proc").glob("[0-9]*"):
        if any(target in inodes for target in _open_files(process)):
            return f"process {process.name} ({_command(process)})"
    return ""


def _sockets(port: int) -> Iterator[str]:
    for name in ("tcp", "tcp6"):
        try:
            lines = Path("/proc/net", name).read_text().splitlines()[1:]
        except OSError:
            continue
        for fields in map(str.split, lines):
            if fields[3] == _LISTENS and int(fields[1].rpartition(":")[2], 16) == port:
                yield fields[9]


def _open_files(process: Path) -> Iterator[str]:
    try:
        for file in os.scandir(process / "fd"):
            yield os.readlink(file.path)
    except OSError:  # of another user, or gone
        return


def _command(process: Path) -> str:
    try:
        words = (process / "cmdline").read_bytes().decode("utf-8", "replace").replace("\0", " ").strip()
    except OSError:
        words = ""
    return words if len(words) <= _LONGEST else f"{words[:_LONGEST]}…"


class Acceptor:
    """Accepts connections of `listener` while open. The `limiter` counts each, unfinished handshakes included; while it
    has no room, what comes is closed at once.

    `connect` makes the protocol of a connection, which calls what it is given as soon as it is connected and then
    counts by itself. A connection that fails before it is one is nobody's problem but its client's: a debug line is all
    that remains of it. A client that has not sent a byte costs its socket alone: the state of TLS and of a protocol
    takes 50 KB, and clients speak first in both. From a listener that other processes share, one connection is taken at
    a time, so that who has nothing else to do takes the next.
    """

    def __init__(
        self,
        listener: socket.socket,
        connect: Callable[[Callable[[], None]], asyncio.Protocol],
        choose: ContextChoice,
        limiter: ConnectionLimiter,
        *,
        is_shared: bool = False,
    ) -> None:
        self._listener = listener
        self._at_once = 1 if is_shared else _AT_ONCE
        self._connect = connect
        self._choose = choose
        self._limiter = limiter
        self._reported = -math.inf
        self._silent: dict[socket.socket, asyncio.TimerHandle] = {}
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
        for client in tuple(self._silent):
            self._turn_away(client)
        await self._tasks.__aexit__(None, None, None)

    def _watch(self) -> None:
        if self._listener.fileno() >= 0:
            asyncio.get_running_loop().add_reader(self._listener, self._accept)

    def _unwatch(self) -> None:
        asyncio.get_running_loop().remove_reader(self._listener)

    def _accept(self) -> None:
        for _ in range(self._at_once):
            try:
                client, _address = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._log.error("no connection can be accepted for a moment", problem=error.strerror)
                self._limiter.drop_one()
                self._unwatch()
                asyncio.get_running_loop().call_later(_OUT_OF_FILES, self._watch)
                return
            if self._has_room():
                self._limiter.enter(client, partial(_hang_up, client))
                self._await_first_byte(client)
            else:
                client.close()

    def _await_first_byte(self, client: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        client.setblocking(False)
        self._silent[client] = loop.call_later(_FIRST_BYTE, self._turn_away, client)
        loop.add_reader(client, self._heard, client)

    def _heard(self, client: socket.socket) -> None:
        """Begin the connection of a client that has sent something, and close one that has left."""
        try:
            is_open = client.recv(1, socket.MSG_PEEK) != b""
        except BlockingIOError:
            return
        except OSError:
            is_open = False
        if not is_open:
            self._turn_away(client)
            return
        self._forget(client)
        self._tasks.start(self._greet(client), name="handshake")

    def _turn_away(self, client: socket.socket) -> None:
        """Close the connection of a client that has not sent anything."""
        self._forget(client)
        self._limiter.leave(client)
        client.close()

    def _forget(self, client: socket.socket) -> None:
        self._silent.pop(client).cancel()
        asyncio.get_running_loop().remove_reader(client)

    def _has_room(self) -> bool:
        now = asyncio.get_running_loop().time()
        if self._limiter.is_full and now - self._reported > _TELL_EVERY:
            self._reported = now
            self._log.warning(
                "too many connections: for each that comes, one is closed that does nothing", limit=self._limiter.limit
            )
        return self._limiter.make_room()

    async def _greet(self, client: socket.socket) -> None:
        try:
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # not every event loop does
            context = self._choose(client.getsockname()[0])
        except (OSError, ValueError) as error:
            client.close()
            self._log.error("a connection cannot be secured", problem=error)
        else:
            await self._shake_hands(client, context)
        finally:
            self._limiter.leave(client)

    async def _shake_hands(self, client: socket.socket, context: ssl.SSLContext | None) -> None:
        connect = partial(self._connect, partial(self._limiter.leave, client))
        bounds = {"ssl_handshake_timeout": _HANDSHAKE, "ssl_shutdown_timeout": _GOODBYE} if context else {}
        try:
            await asyncio.get_running_loop().connect_accepted_socket(connect, client, ssl=context, **bounds)
        except OSError as error:
            self._log.debug("a connection did not come about", problem=str(error) or "the client left")


def _hang_up(client: socket.socket) -> None:
    with contextlib.suppress(OSError):
        client.shutdown(socket.SHUT_RDWR)
