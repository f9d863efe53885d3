"""Delays between tries."""

import pytest

from controller_manager.work.backoff import Exponential


@pytest.mark.parametrize(
    ("failures", "seconds"), [(1, 0.005), (2, 0.01), (5, 0.08), (18, 655.36), (19, 1000), (10_000, 1000)]
)
def test_doubles_up_to_the_bound(failures: int, seconds: float) -> None:
    assert Exponential().delay(failures) == pytest.approx(seconds)
