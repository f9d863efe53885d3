"""When the API server counts as unreachable."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from controller_manager.app.reachability import ObservedTransport, Reachability
from controller_manager.common.api.wire import Request, Response
from controller_manager.common.transport.authenticated import InProcessTransport
from controller_manager.framework import TransportError

pytestmark = pytest.mark.virtual
GET = Request("GET", "/")


async def refuse(_: Request) -> Response:
    raise TransportError("no")


async def hang(_: Request) -> Response:
    await asyncio.sleep(3600)
    return Response(200)


async def answer(_: Request) -> Response:
    return Response(503)


async def give_up(handle: Callable[[Request], Awaitable[Response]], reachability: Reachability, seconds: float) -> None:
    with pytest.raises((TransportError, TimeoutError)):
        async with asyncio.timeout(seconds):
            await ObservedTransport(InProcessTransport(handle), reachability).send(GET)


@pytest.mark.parametrize(
    ("handle", "seconds", "unreachable"),
    [(refuse, 1.0, True), (hang, 5.0, True), (hang, 1.0, False)],
    ids=["refused", "given up after a while", "given up at once"],
)
async def test_api_server_without_an_answer_for_a_while_is_unreachable(
    handle: Callable[[Request], Awaitable[Response]], seconds: float, unreachable: bool
) -> None:
    reachability = Reachability()
    await give_up(handle, reachability, seconds)
    assert reachability.problem() == ""
    await asyncio.sleep(15)
    assert bool(reachability.problem()) is unreachable


async def test_any_answer_makes_the_api_server_reachable() -> None:
    reachability = Reachability()
    await give_up(refuse, reachability, 1.0)
    await asyncio.sleep(20)
    await ObservedTransport(InProcessTransport(answer), reachability).send(GET)
    assert reachability.problem() == ""
