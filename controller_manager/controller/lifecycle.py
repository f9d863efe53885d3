"""The life of a controller between the start and the stop of its process; pure.

    phase      left when                                    then
    standby    this replica leads and its turn has come     waiting
    waiting    its informers have read everything           running
    running    it is asked to stop                          stopped
    any        it fails                                     crashed, and after a pause waiting again

A pause is twice as long as the one before it, at most `LONGEST_PAUSE`; a run that lasted longer than that makes them
short again, and is taken for recovery.
"""

from dataclasses import dataclass
from enum import StrEnum

from controller_manager.base.errors import describe
from controller_manager.work import LoopState


class Phase(StrEnum):
    """A phase in the life of a controller."""

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

    `crash` is what ended it last, so many `crash_seconds` ago, empty if nothing ever did; `failing_seconds` is how long
    it has been failing without a recovery in between, 0 while it is well. `waits_for` are the local copies that are not
    complete, and why. `work` is there while it runs. `component` is who runs it instead, if it is elsewhere.
    """

    name: str
    phase: Phase
    seconds: float = 0.0
    restarts: int = 0
    crash: str = ""
    crash_seconds: float = 0.0
    failing_seconds: float = 0.0
    waits_for: tuple[str, ...] = ()
    work: LoopState | None = None
    component: str = ""


LONGEST_PAUSE = 60.0


class Lifecycle:
    """The past of one controller as far as it matters."""

    def __init__(self, now: float) -> None:
        self._phase, self._since = Phase.STANDBY, now
        self._restarts = 0
        self._crash, self._crashed_at = "", 0.0
        # Since when it has been failing without a recovery in between; None while it is well.
        self._failing_since: float | None = None

    def enter(self, phase: Phase, now: float) -> None:
        """It is in that phase from now on."""
        self._phase, self._since = phase, now

    def crash(self, error: BaseException, now: float) -> None:
        """It failed, and will be started again."""
        if self._failing_since is None or self._has_recovered(now):
            self._failing_since = now
        self._restarts += 1
        self._crash, self._crashed_at = describe(error), now
        self.enter(Phase.CRASHED, now)

    def state(self, name: str, now: float, waits_for: tuple[str, ...], work: LoopState | None) -> ControllerState:
        """Everything about the controller at a time, with what others know about it."""
        well = self._failing_since is None or self._has_recovered(now)
        return ControllerState(
            name=name,
            phase=self._phase,
            seconds=now - self._since,
            restarts=self._restarts,
            crash=self._crash,
            crash_seconds=now - self._crashed_at if self._crash else 0.0,
            failing_seconds=0.0 if well or self._failing_since is None else now - self._failing_since,
            waits_for=waits_for,
            work=work,
        )

    def _has_recovered(self, now: float) -> bool:
        return self._phase is Phase.RUNNING and now - self._since > LONGEST_PAUSE
