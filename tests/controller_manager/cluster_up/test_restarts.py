"""When a failed process is restarted."""

import pytest

from controller_manager.cluster_up.restarts import Restarts


def test_failing_process_restarts_with_backoff_then_stays_down() -> None:
    restarts = Restarts()
    pauses = [restarts.pause_after(1, 0.5) for _ in range(11)]
    assert pauses == [1, 2, 4, 8, 16, 30, 30, 30, 30, 30, None]


def test_restart_backoff_resets_after_a_minute() -> None:
    restarts = Restarts()
    assert [restarts.pause_after(-9, lived) for lived in (1, 1, 60, 1)] == [1, 2, 1, 2]


@pytest.mark.parametrize(("status", "pause"), [(0, None), (1, 1), (-9, 1)])
def test_process_that_was_stopped_is_not_restarted(status: int, pause: float | None) -> None:
    assert Restarts().pause_after(status, 1) == pause
