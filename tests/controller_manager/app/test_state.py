"""Health summaries of controllers and informers."""

import pytest
from msgspec.structs import replace

from controller_manager.app.state import WELL, HealthSummary, Severity, of_controller, of_informer
from controller_manager.framework.cache.change import InformerState
from controller_manager.framework.controller.runner import ControllerState, Phase
from controller_manager.framework.work.failures import Failing, LoopState, Running
from controller_manager.framework.work.spinning import Spinning

IDLE = LoopState("c", 5, 0, 0, (), (), (), 0, "", 0.0, {"done": 9})
FAILS = Failing("a", "NotFound: gone", 3, 2, given_up=False, defect=False)
GIVEN_UP = replace(FAILS, given_up=True)
DEFECT = replace(FAILS, defect=True)
BROKEN, STRUGGLING, WAITING = Severity.BROKEN, Severity.STRUGGLING, Severity.WAITING


def running(**changes: object) -> ControllerState:
    return ControllerState("c", Phase.RUNNING, 3600, work=replace(IDLE, **changes))  # type: ignore[arg-type]  # any


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (running(), WELL),
        (running(ready=500, delayed=500), WELL),
        (running(last_error="a: NotFound: gone", last_error_seconds=3), WELL),
        (running(running=(Running("a", 59, ()),)), WELL),
        (running(running=(Running("a", 60, ()),)), HealthSummary(BROKEN, "1 key is worked on for over a minute")),
        (running(failing=(FAILS,), failing_keys=1), HealthSummary(STRUGGLING, "1 key is failing")),
        (running(failing=(GIVEN_UP,), failing_keys=1), HealthSummary(STRUGGLING, "1 key is failing")),
        (running(failing=(FAILS,), failing_keys=1200), HealthSummary(STRUGGLING, "1,200 keys are failing")),
        (
            running(failing=(FAILS,), failing_keys=1000, failing_more=True),
            HealthSummary(STRUGGLING, "1,000 keys or more are failing"),
        ),
        (running(failing_more=True), HealthSummary(STRUGGLING, "some keys may still be failing")),
        (running(failing=(FAILS,), failing_keys=1, failures_in_a_row=4), HealthSummary(STRUGGLING, "1 key is failing")),
        (
            running(failing=(FAILS,), failing_keys=1, failures_in_a_row=5),
            HealthSummary(BROKEN, "the last 5 runs failed"),
        ),
        (
            running(failing=(DEFECT, DEFECT, FAILS), failing_keys=3),
            HealthSummary(BROKEN, "2 keys are failing; not retried until the objects change"),
        ),
        (
            running(spinning=(Spinning("a", 9, ()), Spinning("b", 5, ()))),
            HealthSummary(STRUGGLING, "2 keys are requeued at once again and again"),
        ),
        (ControllerState("c", Phase.CRASHED, 3, 1, "no", 3, 3), HealthSummary(BROKEN, "crashed")),
        (replace(running(), failing_seconds=9), HealthSummary(STRUGGLING, "crashed lately, and runs again")),
        (replace(running(failing_keys=1), failing_seconds=9), HealthSummary(STRUGGLING, "1 key is failing")),
        (
            ControllerState("c", Phase.WAITING, 29, waits_for=("pods",)),
            HealthSummary(WAITING, "waits for local copies"),
        ),
        (
            ControllerState("c", Phase.WAITING, 30, waits_for=("pods",)),
            HealthSummary(STRUGGLING, "waits for local copies"),
        ),
        (ControllerState("c", Phase.STANDBY, 9999), HealthSummary(WAITING, "stands by")),
        (ControllerState("c", Phase.STOPPED, 9999), HealthSummary(WAITING, "stopped")),
        (ControllerState("c", Phase.ELSEWHERE, component="x"), HealthSummary(WAITING, "runs in another component")),
        (ControllerState("c", Phase.RUNNING, 1), WELL),
    ],
)
def test_health_of_controller_states(state: ControllerState, expected: HealthSummary) -> None:
    assert of_controller(state) == expected


COPY = InformerState("pods", 3, True, 1.0, "12", 1, 0, 0, "")


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (COPY, WELL),
        (replace(COPY, failures=3, last_error="ServiceUnavailable"), WELL),
        (replace(COPY, age=90), WELL),
        (replace(COPY, age=91), HealthSummary(STRUGGLING, "nothing heard from the server")),
        (replace(COPY, unreadable=("a/b: no number",)), HealthSummary(STRUGGLING, "1 unreadable")),
        (replace(COPY, synced=False), HealthSummary(WAITING, "being read")),
        (replace(COPY, synced=False, last_error="Forbidden"), HealthSummary(BROKEN, "cannot be read")),
    ],
)
def test_health_of_informer_states(state: InformerState, expected: HealthSummary) -> None:
    assert of_informer(state) == expected
