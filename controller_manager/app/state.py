"""The state of a whole manager as plain data: who leads, how each controller fares, how fresh each local copy is."""

from collections.abc import Iterable, Sequence
from enum import IntEnum

import msgspec

from controller_manager.framework.cache import InformerState
from controller_manager.framework.controller.runner import ControllerState, Phase
from controller_manager.framework.work import LoopState

# The verdict on a controller or a local copy: does somebody need to look at it, and why; pure.

# Seconds without a word from the server that are worth a look: watches send bookmarks every minute.
SILENT = 90.0
# Seconds of work on one key after which it probably hangs.
HANGING = 60.0
# Seconds in which local copies are read, usually.
FILLING = 30.0
# Leases that are named where one replica holds many.
_NAMED = 3
# So many failed runs in a row, of whatever keys, are no accident of one object.
ALL_FAIL = 5


class Severity(IntEnum):
    """The condition of a part of a manager, worst first."""

    BROKEN = 0
    """It does nothing of use, or what no retry will mend."""
    STRUGGLING = 1
    """It works, but not on everything."""
    WAITING = 2
    """It does not work, and should not."""
    WELL = 3


class HealthSummary(msgspec.Struct, frozen=True):
    """A severity and its reason in a few words; the reason is empty where all is well."""

    severity: Severity
    why: str = ""

    @property
    def needs_a_look(self) -> bool:
        """Return whether somebody should look."""
        return self.severity <= Severity.STRUGGLING


WELL = HealthSummary(Severity.WELL)


def of_controller(one: ControllerState) -> HealthSummary:
    """The worst that can be said of a controller.

    | what is seen | severity |
    |--|--|
    | it crashed, and was not started again yet | broken |
    | a key has been worked on for a minute | broken |
    | keys fail in a way that no retry will mend | broken |
    | the last five runs or more failed, whatever their keys | broken |
    | it crashed lately, and runs again | struggling |
    | it has waited for local copies for half a minute | struggling |
    | some keys fail, or were given up | struggling |
    | some keys ask again and again to run at once | struggling |
    | it stands by, has just started, was stopped, or runs elsewhere | waiting |
    """
    if one.phase is Phase.CRASHED:
        return HealthSummary(Severity.BROKEN, "crashed")
    if one.phase is Phase.WAITING:
        return _of_waiting(one)
    if one.phase is not Phase.RUNNING:
        return HealthSummary(Severity.WAITING, _IDLE[one.phase])
    found = of_loop(one.work) if one.work is not None else WELL
    if one.failing_seconds and not found.needs_a_look:
        return HealthSummary(Severity.STRUGGLING, "crashed lately, and runs again")
    return found


def of_loop(work: LoopState) -> HealthSummary:
    """The worst that can be said of a control loop that runs."""
    hanging = sum(running.seconds >= HANGING for running in work.running)
    defects = sum(failing.defect for failing in work.failing)
    if hanging:
        return HealthSummary(Severity.BROKEN, f"{_keys(hanging)} worked on for over a minute")
    if work.failures_in_a_row >= ALL_FAIL:
        return HealthSummary(Severity.BROKEN, f"the last {work.failures_in_a_row} runs failed")
    if defects:
        return HealthSummary(Severity.BROKEN, f"{_keys(defects)} failing in a way that no retry will mend")
    if work.failing_keys or work.failing_more:
        return HealthSummary(Severity.STRUGGLING, f"{_keys(work.failing_keys, more=work.failing_more)} failing")
    if work.spinning:
        return HealthSummary(Severity.STRUGGLING, f"{_keys(len(work.spinning))} requeued at once again and again")
    return WELL


def of_informer(one: InformerState) -> HealthSummary:
    """The worst that can be said of a local copy.

    | what is seen | severity |
    |--|--|
    | it is not complete, and the last request failed | broken |
    | nothing was heard for a minute and a half | struggling |
    | some objects can't be read | struggling |
    | it is not complete yet | waiting |
    """
    if not one.synced:
        failed = bool(one.last_error)
        return (
            HealthSummary(Severity.BROKEN, "cannot be read")
            if failed
            else HealthSummary(Severity.WAITING, "being read")
        )
    if one.age > SILENT:
        return HealthSummary(Severity.STRUGGLING, "nothing heard from the server")
    if one.unreadable:
        return HealthSummary(Severity.STRUGGLING, f"{len(one.unreadable)} unreadable")
    return WELL


def controllers_judged(states: Iterable[ControllerState]) -> Sequence[tuple[HealthSummary, ControllerState]]:
    """Controllers with their verdicts, the worst first, then by name."""
    found = [(of_controller(one), one) for one in states]
    return sorted(found, key=lambda pair: (pair[0].severity, pair[1].name))


def informers_judged(states: Iterable[InformerState]) -> Sequence[tuple[HealthSummary, InformerState]]:
    """Local copies with their verdicts, the worst first, then by what they hold."""
    found = [(of_informer(one), one) for one in states]
    return sorted(found, key=lambda pair: (pair[0].severity, pair[1].selection))


_IDLE = {
    Phase.STANDBY: "stands by",
    Phase.STOPPED: "stopped",
    Phase.ELSEWHERE: "runs in another component",
}


def _of_waiting(one: ControllerState) -> HealthSummary:
    long = one.seconds >= FILLING
    return HealthSummary(Severity.STRUGGLING if long else Severity.WAITING, "waits for local copies")


def _keys(count: int, *, more: bool = False) -> str:
    if more:
        return f"{count:,} keys or more are" if count else "some keys may still be"
    return "1 key is" if count == 1 else f"{count:,} keys are"


class LockState(msgspec.Struct, frozen=True):
    """A lock and the controllers that run under it.

    `lease` is `namespace/name`, empty without election; `holder` is an identity, empty for nobody or not known yet;
    `since` is when that one acquired it (RFC 3339). `leads` says whether this process may act.
    """

    lease: str
    holder: str
    since: str
    leads: bool
    controllers: tuple[str, ...]


def standing_by(locks: Iterable[LockState]) -> str:
    """Return whom this process waits for under which lease, in words; empty where it leads, or nobody has been seen
    yet.
    """
    held: dict[str, list[str]] = {}
    for lock in locks:
        if lock.holder and not lock.leads:
            held.setdefault(lock.holder, []).append(lock.lease)
    waits = [f"{holder}, which holds {_leases(leases)}" for holder, leases in held.items()]
    return f"standing by for {'; for '.join(waits)}" if waits else ""


def _leases(names: Sequence[str]) -> str:
    if len(names) == 1:
        return f"the lease {names[0]}"
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"the leases {', '.join(names[:_NAMED])}{more}"


class ManagerState(msgspec.Struct, frozen=True):
    """One replica at the wall `time` (RFC 3339), `uptime` seconds after its start; `stopping` says why it stops.

    The first lock is the main one. Controllers and informers are in order of their names.
    """

    name: str
    identity: str
    time: str
    uptime: float
    stopping: str
    locks: tuple[LockState, ...]
    controllers: tuple[ControllerState, ...]
    informers: tuple[InformerState, ...]
