"""Which process listens on a port."""

import os
import socket

import pytest

from controller_manager.common.serving.listening import listener_on


@pytest.mark.parametrize(("family", "host"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::")])
def test_listening_process_is_named(family, host):
    with socket.socket(family) as one:
        one.bind((host, 0))
        one.listen()
        description = listener_on(one.getsockname()[1])
    assert description.startswith(f"process {os.getpid()} (")
    assert len(description) < 140


def test_free_port_has_no_listener():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        assert listener_on(one.getsockname()[1]) == ""
