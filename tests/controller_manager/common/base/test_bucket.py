"""The token bucket keeps its rate."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller_manager.common.base.bucket import TokenBucket


@settings(max_examples=200, deadline=None)
@given(st.floats(0.1, 100), st.integers(1, 20), st.lists(st.floats(0, 3), min_size=1, max_size=60))
def test_takes_stay_within_burst_and_rate(rate: float, burst: int, gaps: list[float]) -> None:
    bucket, now, due = TokenBucket(rate, burst), 0.0, []
    for gap in gaps:
        now += gap
        due.append(now + bucket.take(now))
    assert due == sorted(due)
    for first in range(len(due)):
        for last in range(first, len(due)):
            assert last - first + 1 <= burst + rate * (due[last] - due[first]) + 1e-6


def test_tokens_refill_up_to_the_burst() -> None:
    bucket = TokenBucket(1.0, 2)
    assert [bucket.try_take(0.0) for _ in range(3)] == [True, True, False]
    assert bucket.try_take(1.0)
    assert [bucket.try_take(100.0) for _ in range(3)] == [True, True, False]


def test_clock_stepping_back_adds_no_tokens() -> None:
    bucket = TokenBucket(1.0, 1)
    assert bucket.try_take(10.0)
    assert not bucket.try_take(5.0)
    assert not bucket.try_take(10.5)
    assert bucket.try_take(11.0)


def test_takes_beyond_burst_wait_at_the_rate() -> None:
    bucket = TokenBucket(rate=10, burst=3)
    assert [bucket.take(5.0) for _ in range(5)] == pytest.approx([0, 0, 0, 0.1, 0.2])
    assert bucket.take(5.2) == pytest.approx(0.1)
