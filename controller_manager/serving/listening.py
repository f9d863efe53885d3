"""A socket that listens, and which addresses it stands for."""

import os
import socket

from controller_manager.base.errors import CannotStart

ALL_INTERFACES = frozenset({"", "0.0.0.0", "::"})  # noqa: S104 - the documented meaning of --bind-address
_BACKLOG = 1024


class CannotListen(CannotStart, OSError):
    """The address is taken or not ours; the message is one sentence."""


def listen(host: str, port: int, *, share_port: bool = False) -> socket.socket:
    """A listening socket that does not block; empty, 0.0.0.0 and :: are all interfaces and both families.

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
