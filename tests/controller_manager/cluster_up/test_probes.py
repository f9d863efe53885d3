"""Free ports."""

import socket

from controller_manager.cluster_up.probes import free_ports, is_free


def test_free_ports_are_consecutive_and_free() -> None:
    first = free_ports(3)
    assert all(is_free(port) for port in range(first, first + 3))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", first + 1))
        taken.listen()
        assert free_ports(3) != first
