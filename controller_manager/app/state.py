"""The state of a manager as plain data: leadership, controllers and informers, with their severities."""

from collections.abc import Iterable, Sequence
from enum import IntEnum

import msgspec

from controller_manager.framework.cache.change import InformerState
from controller_manager.framework.controller.runner import ControllerState, Phase
from controller_manager.framework.work.failures import LoopState

# The health of a controller or an informer: whether it needs attention, and why; pure.

# Seconds without a message of the server that need attention: watches send bookmarks every minute.
SILENT = 90.0
# Seconds after which a reconcile of one key probably hangs.
HANGING = 60.0
# Seconds in which informers usually sync.
FILLING = 30.0
# Maximum number of leases that are named per holder.
_NAMED = 3
# After this number of failed runs in a row, the problem is not limited to one object.
ALL_FAIL = 5


class Severity(IntEnum):
    """The severity of the state of a controller, informer or object, worst first."""

    BROKEN = 0
    """It does not work, or has an error that retries cannot solve."""
    STRUGGLING = 1
    """It works, but not for all objects."""
    WAITING = 2
    """It is not expected to work now."""
    WELL = 3


class HealthSummary(msgspec.Struct, frozen=True):
    """A severity and a short reason, which is empty if all is well."""

    severity: Severity
    why: str = ""

    @property
    def needs_a_look(self) -> bool:
        """Whether it needs attention."""
        return self.severity <= Severity.STRUGGLING


WELL = HealthSummary(Severity.WELL)


def of_controller(one: ControllerState) -> HealthSummary:
    """Return the worst health finding of a controller.

    | finding | severity |
    |--|--|
    | crashed, not restarted yet | broken |
    | a reconcile has been running for a minute | broken |
    | keys fail with errors that retries cannot solve | broken |
    | at least the last five runs failed, for any keys | broken |
    | crashed recently, runs again | struggling |
    | has waited for informers for half a minute | struggling |
    | some keys fail, or were given up | struggling |
    | some keys repeatedly ask to be requeued at once | struggling |
    | stands by, has just started, was stopped, or runs elsewhere | waiting |
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
    """Return the worst health finding of a running control loop."""
    hanging = sum(running.seconds >= HANGING for running in work.running)
    defects = sum(failing.defect for failing in work.failing)
    if hanging:
        return HealthSummary(Severity.BROKEN, f"{_keys(hanging)} worked on for over a minute")
    if work.failures_in_a_row >= ALL_FAIL:
        return HealthSummary(Severity.BROKEN, f"the last {work.failures_in_a_row} runs failed")
    if defects:
        return HealthSummary(Severity.BROKEN, f"{_keys(defects)} failing; not retried until the objects change")
    if work.failing_keys or work.failing_more:
        return HealthSummary(Severity.STRUGGLING, f"{_keys(work.failing_keys, more=work.failing_more)} failing")
    if work.spinning:
        return HealthSummary(Severity.STRUGGLING, f"{_keys(len(work.spinning))} requeued at once again and again")
    return WELL


def of_informer(one: InformerState) -> HealthSummary:
    """Return the worst health finding of an informer.

    | finding | severity |
    |--|--|
    | not synced, and the last request failed | broken |
    | no message of the server for a minute and a half | struggling |
    | some objects cannot be decoded | struggling |
    | not synced yet | waiting |
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
    """Return controllers with their health, worst first, then by name."""
    found = [(of_controller(one), one) for one in states]
    return sorted(found, key=lambda pair: (pair[0].severity, pair[1].name))


def informers_judged(states: Iterable[InformerState]) -> Sequence[tuple[HealthSummary, InformerState]]:
    """Return informers with their health, worst first, then by selection."""
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

    `lease` is `namespace/name`, empty without leader election. `holder` is an identity, empty if there is none or it is
    not known yet; `since` is when it acquired the lease (RFC 3339). `leads` is whether this process may act.
    """

    lease: str
    holder: str
    since: str
    leads: bool
    controllers: tuple[str, ...]


def standing_by(locks: Iterable[LockState]) -> str:
    """Describe the holders and leases that this process waits for; empty if it leads or no holder is known yet."""
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
    """The state of one replica at `time` (RFC 3339), `uptime` seconds after its start; `stopping` is why it stops.

    The first lock is the main one. Controllers and informers are sorted by name.
    """

    name: str
    identity: str
    time: str
    uptime: float
    stopping: str
    locks: tuple[LockState, ...]
    controllers: tuple[ControllerState, ...]
    informers: tuple[InformerState, ...]
