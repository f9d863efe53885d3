"""Sockets that listen: which addresses one stands for, and which process has one."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path

from controller_manager.base.errors import CannotStart

_LISTENS = "0A"  # in /proc/net/tcp
_LONGEST = 100  # characters of a command line

ALL_INTERFACES = frozenset({"", "0.0.0.0", "::"})  # noqa: S104 - the documented meaning of --bind-address
_BACKLOG = 1024


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
