"""How responses change the adaptive rate."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller_manager.common.api.core import NAMESPACES
from controller_manager.common.api.resource import Key
from controller_manager.common.api.wire import Request, Response
from controller_manager.common.base import clock
from controller_manager.common.transport.authenticated import InProcessTransport
from controller_manager.framework import Client
from controller_manager.framework.client.adaptive_rate import FLOOR, STEP, AdaptiveRate
from controller_manager.framework.client.requests import AdaptiveThrottle, Throttle


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ([(200, 0.0)], 100.0),
        ([(429, 0.0)], 50.0),
        ([(429, 0.0), (429, 0.5)], 50.0),
        ([(429, 0.0), (429, 1.0)], 25.0),
        ([(429, 0.0), (200, 0.5)], 50.0),
        ([(429, 0.0), (200, 1.0)], 52.0),
        ([(429, 0.0), (200, 1.0), (200, 1.5)], 52.0),
        ([(429, 0.0), (200, 1.0), (201, 2.0)], 54.0),
        ([(429, 0.0), (500, 1.0)], 52.0),
        ([(429, float(number)) for number in range(20)], 5.0),
        ([(429, 0.0), *((200, float(number)) for number in range(1, 27))], 100.0),
    ],
)
def test_rate_follows_responses(answers: list[tuple[int, float]], expected: float) -> None:
    rate = AdaptiveRate(100.0)
    for status, now in answers:
        rate.answered(status, now)
    assert rate.rate == pytest.approx(expected)


@given(st.floats(0.1, 1e4), st.lists(st.tuples(st.sampled_from((200, 404, 429, 500)), st.floats(0.0, 3.0))))
def test_rate_stays_within_bounds_and_recovers(ceiling: float, answers: list[tuple[int, float]]) -> None:
    rate, now = AdaptiveRate(ceiling), 0.0
    for status, seconds in answers:
        now += seconds
        rate.answered(status, now)
        assert FLOOR * ceiling <= rate.rate <= ceiling
    for second in range(1, round(1 / STEP) + 3):
        rate.answered(200, now + second * 1.001)
    assert rate.rate == ceiling


def test_ceiling_must_be_above_zero() -> None:
    with pytest.raises(ValueError, match="above 0"):
        AdaptiveRate(0.0)


class Busy:
    """A server with a capacity of `room` requests per second; it refuses others."""

    def __init__(self, room: float) -> None:
        self.room = room
        self.taken: list[float] = []
        self.refused = 0

    async def handle(self, _: Request) -> Response:
        now = clock.monotonic()
        self.taken = [at for at in self.taken if now - at < 1.0]
        if len(self.taken) >= self.room:
            self.refused += 1
            return Response(429, {"content-type": "application/json", "retry-after": "1"}, b"{}")
        self.taken.append(now)
        return Response(200, {"content-type": "application/json"}, b"{}")


@pytest.mark.virtual
async def test_overloaded_server_refuses_few_and_clients_share() -> None:
    """Three clients with a limit of 100 requests per second, a server with a capacity of 60, over two minutes."""
    server, done = Busy(60.0), [0, 0, 0]
    throttles = [AdaptiveThrottle(100.0, 10) for _ in done]

    async def ask(number: int) -> None:
        throttle = throttles[number]
        while True:
            await throttle.wait()
            status = (await server.handle(Request("GET", "/"))).status
            throttle.answered(status)
            if status == 429:
                await asyncio.sleep(1.0)
            else:
                done[number] += 1

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(ask(number % 3)) for number in range(30)]
        await asyncio.sleep(120)
        for task in tasks:
            task.cancel()
    assert sum(done) > 0.5 * 60 * 120
    assert server.refused < 0.25 * sum(done)
    assert min(done) > 0.5 * max(done)
    assert all(5.0 <= throttle.rate <= 100.0 for throttle in throttles)


@pytest.mark.virtual
async def test_client_reports_responses_to_throttle() -> None:
    answers = [429, 200]

    async def handle(_: Request) -> Response:
        status = answers.pop(0)
        headers = {"content-type": "application/json", "retry-after": "0"}
        return Response(status, headers, b'{"metadata":{"name":"a"}}')

    throttle = AdaptiveThrottle(100.0, 10)
    await Client(InProcessTransport(handle), throttle=throttle).get(NAMESPACES, Key("", "a"))
    assert throttle.rate == 50.0
    assert not answers


async def test_fixed_throttle_ignores_responses() -> None:
    throttle = Throttle(100.0, 10)
    throttle.answered(429)
    assert throttle.rate == 100.0
