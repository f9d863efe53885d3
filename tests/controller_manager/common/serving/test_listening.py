"""Listening sockets: families, shared ports, and lingering connections."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from controller_manager.common.serving.listening import CannotListen, listen


@contextmanager
def listening(host: str = "127.0.0.1", port: int = 0, *, share_port: bool = False) -> Iterator[int]:
    with listen(host, port, share_port=share_port) as listener:
        yield listener.getsockname()[1]


def reaches(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), 5).close()
    except OSError:
        return False
    return True


@pytest.mark.parametrize(
    ("bound", "reached"),
    [
        ("127.0.0.1", {"127.0.0.1"}),
        ("::1", {"::1"}),
        ("", {"127.0.0.1", "::1"}),
        ("0.0.0.0", {"127.0.0.1", "::1"}),
        ("::", {"127.0.0.1", "::1"}),
    ],
)
def test_bind_address_limits_reachable_addresses(bound, reached):
    with listening(bound) as port:
        assert {host for host in ("127.0.0.1", "127.0.0.2", "::1") if reaches(host, port)} - {"127.0.0.2"} == reached
        assert reaches("127.0.0.2", port) is (len(reached) == 2)


@pytest.mark.parametrize("theirs", ["127.0.0.1", ""])
@pytest.mark.parametrize("ours", ["127.0.0.1", "0.0.0.0"])
def test_address_in_use_is_refused(theirs, ours):
    with listening(theirs) as port, pytest.raises(CannotListen) as caught:
        listen(ours, port)
    assert str(caught.value) == f"cannot listen on {ours}:{port}: address already in use"


def test_second_bound_socket_cannot_listen():
    """Both may have bound before either of them listens."""
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", 0))
        with listening(port=other.getsockname()[1]), pytest.raises(OSError, match="Address already in use"):
            other.listen()


def test_shared_port_refuses_listener_without_sharing():
    with listening(share_port=True) as port, listening(port=port, share_port=True), pytest.raises(CannotListen):
        listen("127.0.0.1", port)


def test_lingering_connections_do_not_block_the_port():
    listener = listen("127.0.0.1", 0)
    port = int(listener.getsockname()[1])
    client = socket.create_connection(("127.0.0.1", port))
    listener.setblocking(True)
    listener.accept()[0].close()
    client.recv(1)
    client.close()
    listener.close()
    with listening(port=port):
        assert reaches("127.0.0.1", port)


@pytest.mark.parametrize("host", ["192.0.2.1", "2001:db8::1"])
def test_foreign_address_raises_cannot_listen(host):
    with pytest.raises(CannotListen, match=f"^cannot listen on {host}:0: "):
        listen(host, 0)
