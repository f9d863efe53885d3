"""Listening sockets, and accepting connections from them."""

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

_LISTENS = "0A"  # the state LISTEN in /proc/net/tcp
_LONGEST = 100  # characters of a command line

ALL_INTERFACES = frozenset({"", "0.0.0.0", "::"})  # noqa: S104 - the documented meaning of --bind-address
_BACKLOG = 1024
ContextChoice = Callable[[str], ssl.SSLContext | None]
"""Returns the TLS context for a connection to a local address; None for plaintext."""
_FIRST_BYTE = 32.0  # seconds for a client to send its first byte
_HANDSHAKE = 15.0  # seconds for the TLS handshake
_GOODBYE = 5.0  # seconds for the TLS shutdown
_AT_ONCE = 100  # connections accepted per loop iteration
_WARN_EVERY = 60.0  # seconds between two warnings about too many connections
_OUT_OF_FILES = 1.0  # seconds to wait when the process has no file descriptors left


class CannotListen(CannotStart, OSError):
    """The address is in use or not available on this machine; the message is one sentence."""


def listen(host: str, port: int, *, share_port: bool = False) -> socket.socket:
    """Return a non-blocking listening socket. An empty host, 0.0.0.0 and :: mean all interfaces, IPv4 and IPv6.

    With `share_port`, other processes that do the same may listen on the port (SO_REUSEPORT). Old connections of an
    earlier process do not block the port (SO_REUSEADDR), a listening socket does. Raises CannotListen.
    """
    try:
        listener = _bind(host, port, share_port=share_port)
        try:
            listener.listen(_BACKLOG)
        except OSError:  # two sockets may bind the port, but only one of them may listen
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
    """Return the process that listens on a TCP port, as `process 12 (program and arguments)`; empty if unknown."""
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
    except OSError:  # process of another user, or ended
        return


def _command(process: Path) -> str:
    try:
        words = (process / "cmdline").read_bytes().decode("utf-8", "replace").replace("\0", " ").strip()
    except OSError:
        words = ""
    return words if len(words) <= _LONGEST else f"{words[:_LONGEST]}…"


class Acceptor:
    """Accepts connections of `listener`. The `limiter` counts each one, including unfinished handshakes; connections
    above the limit are closed at once.

    `connect` creates the protocol of a connection, which calls its argument when it is connected and then registers
    with the limiter itself. A connection that fails before is only logged at debug level. A client that has not sent a
    byte costs only its socket: the state of TLS and of a protocol takes 50 KB, and in both the client speaks first.
    From a shared listener one connection is accepted at a time, so that an idle process accepts the next one.
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
        """Start to accept connections."""
        await self._tasks.__aenter__()
        self._watch()

    async def close(self) -> None:
        """Stop accepting; clients with an unfinished handshake are disconnected."""
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
                self._log.error("failed to accept connection; retrying in 1s", problem=error.strerror)
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
        """Start the connection of a client that has sent data, or close it if the client has disconnected."""
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
        """Close the connection of a client that has not sent any data."""
        self._forget(client)
        self._limiter.leave(client)
        client.close()

    def _forget(self, client: socket.socket) -> None:
        self._silent.pop(client).cancel()
        asyncio.get_running_loop().remove_reader(client)

    def _has_room(self) -> bool:
        now = asyncio.get_running_loop().time()
        if self._limiter.is_full and now - self._reported > _WARN_EVERY:
            self._reported = now
            self._log.warning("too many connections; closing an idle one for each new one", limit=self._limiter.limit)
        return self._limiter.make_room()

    async def _greet(self, client: socket.socket) -> None:
        try:
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # not every event loop sets it
            client.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            context = self._choose(client.getsockname()[0])
        except (OSError, ValueError) as error:
            client.close()
            self._log.error("failed to configure TLS for connection", problem=error)
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
            self._log.debug("handshake failed", problem=str(error) or "the client left")


def _hang_up(client: socket.socket) -> None:
    with contextlib.suppress(OSError):
        client.shutdown(socket.SHUT_RDWR)
