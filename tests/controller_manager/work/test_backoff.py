"""Delays between tries."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller_manager.work.backoff import Exponential, TokenBucket


@pytest.mark.parametrize(
    ("failures", "seconds"), [(1, 0.005), (2, 0.01), (5, 0.08), (18, 655.36), (19, 1000), (10_000, 1000)]
)
def test_doubles_up_to_the_bound(failures: int, seconds: float) -> None:
    assert Exponential().delay(failures) == pytest.approx(seconds)


def test_a_burst_is_free_and_the_rest_comes_at_the_rate() -> None:
    bucket = TokenBucket(rate=10, burst=3)
    assert [bucket.reserve(0.0) for _ in range(5)] == pytest.approx([0, 0, 0, 0.1, 0.2])
    assert bucket.reserve(0.2) == pytest.approx(0.1)


def test_a_rested_bucket_is_full_but_not_fuller() -> None:
    bucket = TokenBucket(rate=10, burst=3)
    bucket.reserve(0.0)
    assert [bucket.reserve(1000.0) for _ in range(4)] == pytest.approx([0, 0, 0, 0.1])


@given(st.lists(st.floats(0, 0.5), min_size=1, max_size=60))
def test_never_more_than_burst_plus_rate(gaps: list[float]) -> None:
    bucket, now, granted = TokenBucket(rate=4, burst=5), 0.0, []
    for gap in gaps:
        now += gap
        granted.append(now + bucket.reserve(now))
    for start in granted:
        within = [at for at in granted if start <= at <= start + 1.0 - 1e-6]
        assert len(within) <= 5 + 4
