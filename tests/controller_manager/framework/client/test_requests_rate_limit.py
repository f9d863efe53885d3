"""Client-side rate limiting: waits are bounded and cancellable."""

import asyncio

import pytest

from controller_manager.common.api.errors import TooManyRequests
from controller_manager.common.base.clock import monotonic
from controller_manager.framework.client.requests import Throttle


@pytest.mark.virtual
async def test_cancelled_wait_returns_its_token() -> None:
    throttle = Throttle(1, 1)
    await throttle.wait()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.5):
            await throttle.wait()
    assert await throttle.wait() == pytest.approx(0.5)


@pytest.mark.virtual
async def test_long_queue_is_refused_without_taking_a_token() -> None:
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
async def test_without_rate_requests_do_not_wait(qps: float) -> None:
    throttle = Throttle(qps, 1)
    for _ in range(100):
        assert await throttle.wait() == 0.0
