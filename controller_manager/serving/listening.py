"""A socket that listens: which addresses it stands for, and with whom it may share them."""

import asyncio
import errno
import os
import socket
from dataclasses import dataclass, replace

from controller_manager.base.log import get_logger

ALL_INTERFACES = frozenset({"", "0.0.0.0", "::"})  # noqa: S104 - the documented meaning of --bind-address
_BACKLOG = 1024
_TRY_AGAIN = 1.0  # seconds
_PATIENCE = 75  # tries; a connection that was closed lingers for 60 seconds


class CannotListen(OSError):
    """The address is taken or not ours; the message is one sentence."""


@dataclass(frozen=True, slots=True)
class Sharing:
    """With what the address may be shared: connections that linger after their process (SO_REUSEADDR), and other
    processes that listen on it with the same leave (SO_REUSEPORT). `advice` says how to be given the former.
    """

    leftovers: bool = True
    listeners: bool = False
    advice: str = ""


async def listen(host: str, port: int, sharing: Sharing) -> socket.socket:
    """A listening socket that does not block; empty, 0.0.0.0 and :: are all interfaces and both families.

    Where only leftovers are in the way and may not be shared with, it is tried again until they are gone. Raises
    CannotListen.
    """
    for tried in range(_PATIENCE + 1):
        try:
            return _listen(host, port, sharing)
        except OSError as error:
            if error.errno != errno.EADDRINUSE or tried == _PATIENCE:
                raise _refusal(host, port, error) from error
            check(host, port, sharing)
        if not tried:
            get_logger("serving").warning(
                "waiting for connections of an earlier process to be forgotten", port=port, advice=sharing.advice
            )
        await asyncio.sleep(_TRY_AGAIN)
    raise AssertionError("the last try returns or raises")


def check(host: str, port: int, sharing: Sharing) -> None:
    """Return if `listen` has but leftovers to wait for, if anything. Raises CannotListen."""
    try:
        _bind(host, port, replace(sharing, leftovers=True)).close()  # it could not beside one that listens
    except OSError as error:
        raise _refusal(host, port, error) from error


def _listen(host: str, port: int, sharing: Sharing) -> socket.socket:
    listener = _bind(host, port, sharing)
    # What lingers of connections carries their listener's leave to be shared with: a successor that asks may bind.
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.listen(_BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener


def _bind(host: str, port: int, sharing: Sharing) -> socket.socket:
    everywhere = host in ALL_INTERFACES
    both = everywhere and socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if both or ":" in host else socket.AF_INET
    one = socket.socket(family, socket.SOCK_STREAM)
    try:
        one.setblocking(False)
        if family == socket.AF_INET6:
            one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(not both))
        if sharing.leftovers:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if sharing.listeners:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        one.bind(("" if everywhere else host, port))
    except BaseException:
        one.close()
        raise
    return one


def _refusal(host: str, port: int, error: OSError) -> CannotListen:
    why = os.strerror(error.errno).lower() if error.errno and error.errno > 0 else str(error)
    return CannotListen(f"cannot listen on {host or '*'}:{port}: {why}")
