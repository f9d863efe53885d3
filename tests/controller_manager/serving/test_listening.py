"""Listening sockets: families, sharing, and patience with what an earlier process left behind."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import structlog.testing

from controller_manager.serving.listening import CannotListen, Sharing, listen

ALONE = Sharing(leftovers=False, advice="--permit-address-sharing")


@asynccontextmanager
async def listening(host: str = "127.0.0.1", port: int = 0, sharing: Sharing = ALONE) -> AsyncIterator[int]:
    listener = await listen(host, port, sharing)
    try:
        yield listener.getsockname()[1]
    finally:
        listener.close()


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
async def test_an_address_stands_for_itself_and_none_for_all(bound, reached):
    async with listening(bound) as port:
        assert {host for host in ("127.0.0.1", "127.0.0.2", "::1") if reaches(host, port)} - {"127.0.0.2"} == reached
        assert reaches("127.0.0.2", port) is (len(reached) == 2)


@pytest.mark.parametrize("theirs", [Sharing(), ALONE])
@pytest.mark.parametrize("ours", [Sharing(), ALONE])
@pytest.mark.virtual
async def test_an_address_somebody_listens_on_is_refused_at_once(theirs, ours):
    loop = asyncio.get_running_loop()
    async with listening(sharing=theirs) as port:
        with pytest.raises(CannotListen) as caught:
            await listen("127.0.0.1", port, ours)
    assert str(caught.value) == f"cannot listen on 127.0.0.1:{port}: address already in use"
    assert loop.time() == 0


async def test_two_that_may_share_the_port_do_and_a_third_that_may_not_does_not():
    both = Sharing(listeners=True)
    async with listening(sharing=both) as port, listening(port=port, sharing=both):
        with pytest.raises(CannotListen):
            await listen("127.0.0.1", port, Sharing())


async def leave_something_behind(sharing: Sharing) -> int:
    """A port on which a connection lingers that its server has closed."""
    listener = await listen("127.0.0.1", 0, sharing)
    port = int(listener.getsockname()[1])
    client = socket.create_connection(("127.0.0.1", port))
    listener.setblocking(True)
    listener.accept()[0].close()
    client.recv(1)
    client.close()
    listener.close()
    return port


@pytest.mark.parametrize("before", [Sharing(), ALONE])
async def test_leftovers_can_be_shared_with(before):
    port = await leave_something_behind(before)
    async with listening(port=port, sharing=Sharing()):
        assert reaches("127.0.0.1", port)


@pytest.mark.virtual
async def test_leftovers_are_waited_for_with_one_word_in_the_log_and_for_no_longer_than_they_last():
    loop = asyncio.get_running_loop()
    port = await leave_something_behind(ALONE)
    with structlog.testing.capture_logs() as lines, pytest.raises(CannotListen, match="address already in use"):
        await listen("127.0.0.1", port, ALONE)
    assert loop.time() == 75
    assert [(line["port"], line["advice"]) for line in lines] == [(port, "--permit-address-sharing")]


@pytest.mark.parametrize("host", ["192.0.2.1", "2001:db8::1"])
async def test_an_address_that_is_not_ours_is_one_sentence(host):
    with pytest.raises(CannotListen, match=f"^cannot listen on {host}:0: "):
        await listen(host, 0, Sharing())
