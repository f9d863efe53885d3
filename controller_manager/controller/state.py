"""How a controller fares, as plain data for people, pages and health checks."""

from dataclasses import dataclass
from enum import StrEnum

from controller_manager.work import LoopState


class Phase(StrEnum):
    """Where a controller stands in its life."""

    STANDBY = "standby"
    """Another replica leads, or its turn to start has not come."""
    WAITING = "waiting"
    """Its informers have not read everything yet."""
    RUNNING = "running"
    CRASHED = "crashed"
    """It failed and will be started again."""
    STOPPED = "stopped"
    ELSEWHERE = "elsewhere"
    """Leader migration gives it to another component."""


@dataclass(frozen=True, slots=True)
class ControllerState:
    """One controller: in its phase since so many `seconds`; `restarts` counts its crashes since the process began.

    `crash` is what ended it last, so many `crash_seconds` ago, empty if nothing ever did; `ailing_seconds` is how long
    it has been failing without a recovery in between, 0 while it is well. `waits_for` are the local copies that are not
    complete, and why. `work` is there while it runs. `component` is who runs it instead, if it is elsewhere.
    """

    name: str
    phase: Phase
    seconds: float = 0.0
    restarts: int = 0
    crash: str = ""
    crash_seconds: float = 0.0
    ailing_seconds: float = 0.0
    waits_for: tuple[str, ...] = ()
    work: LoopState | None = None
    component: str = ""
