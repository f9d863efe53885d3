"""The token bucket keeps its rate, and waiting is bounded and cancellable."""

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller_manager.api.errors import TooManyRequests
from controller_manager.base.clock import monotonic
from controller_manager.client.throttle import Throttle, TokenBucket


@settings(max_examples=200, deadline=None)
@given(st.floats(0.1, 100), st.integers(1, 20), st.lists(st.floats(0, 3), min_size=1, max_size=60))
def test_no_interval_sees_more_than_burst_and_rate_allow(rate: float, burst: int, gaps: list[float]) -> None:
    bucket, now, due = TokenBucket(rate, burst, 0.0), 0.0, []
    for gap in gaps:
        now += gap
        due.append(now + bucket.take(now))
    assert due == sorted(due)
    for first in range(len(due)):
        for last in range(first, len(due)):
            assert last - first + 1 <= burst + rate * (due[last] - due[first]) + 1e-6


def test_tokens_come_back_with_time_up_to_the_burst() -> None:
    bucket = TokenBucket(1.0, 2, 0.0)
    assert [bucket.try_take(0.0) for _ in range(3)] == [True, True, False]
    assert bucket.try_take(1.0)
    assert [bucket.try_take(100.0) for _ in range(3)] == [True, True, False]


def test_a_clock_that_steps_back_earns_nothing_and_takes_nothing() -> None:
    bucket = TokenBucket(1.0, 1, 10.0)
    assert bucket.try_take(10.0)
    assert not bucket.try_take(5.0)
    assert not bucket.try_take(10.5)
    assert bucket.try_take(11.0)


@pytest.mark.virtual
async def test_a_cancelled_wait_gives_its_turn_back() -> None:
    throttle = Throttle(1, 1)
    await throttle.wait()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.5):
            await throttle.wait()
    assert await throttle.wait() == pytest.approx(0.5)


@pytest.mark.virtual
async def test_a_queue_that_is_too_long_is_refused_and_costs_no_token() -> None:
    throttle = Throttle(1, 1, longest=1.5)
    await throttle.wait()
    async with asyncio.TaskGroup() as group:
        group.create_task(throttle.wait())
        await asyncio.sleep(0)
        with pytest.raises(TooManyRequests):
            await throttle.wait()
    began = monotonic()
    await throttle.wait()
    assert monotonic() - began == pytest.approx(1.0)


@pytest.mark.virtual
@pytest.mark.parametrize("qps", [0, -1])
async def test_without_a_rate_nothing_waits(qps: float) -> None:
    throttle = Throttle(qps, 1)
    for _ in range(100):
        assert await throttle.wait() == 0.0
