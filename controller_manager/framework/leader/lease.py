"""The lease of an election: its record, and the next action, which depends on what was observed and when; pure.

    lease                      term of its holder       action
    missing                    expired, or mine         CREATE
    missing                    not expired              WAIT      deleted while its holder may still act
    without a holder           expired when seen        TAKE
    mine                       -                        RENEW
    of another holder          not expired              WAIT
    of another holder          expired                  TAKE

A term expires a lease duration after *we observed* the last change of the record, by the local clock. The holder
measures from before it sent that change, so it stops earlier. Clocks of different machines are never compared.
"""

import math
from datetime import datetime
from enum import Enum

import msgspec
from msgspec.structs import replace

from controller_manager.common.api.coordination import Lease, LeaseSpec
from controller_manager.common.api.timestamps import format_micro, nonzero_time


class LeaderElectionRecord(msgspec.Struct, frozen=True):
    """The record in a lease: holder, lease duration in seconds, renew and acquire time, and number of transitions.

    `renewed` is only compared with earlier values of `renewed`, because clocks of different machines differ.
    """

    holder: str
    seconds: float
    renewed: str
    acquired: str
    transitions: int


def read(lease: Lease) -> LeaderElectionRecord:
    """Return the record of a lease."""
    spec = lease.spec
    return LeaderElectionRecord(
        holder=spec.holder_identity,
        seconds=float(spec.lease_duration_seconds or 0),
        renewed=nonzero_time(spec.renew_time),
        acquired=nonzero_time(spec.acquire_time),
        transitions=spec.lease_transitions or 0,
    )


def held(lease: Lease, me: str, seconds: float, moment: datetime) -> Lease:
    """Return the lease as taken or renewed by `me`. Fractions of a second are rounded up to be safe."""
    before, now = read(lease), format_micro(moment)
    mine = before.holder == me
    spec = LeaseSpec(
        holder_identity=me,
        lease_duration_seconds=max(1, math.ceil(seconds)),
        acquire_time=before.acquired if mine and before.acquired else now,
        renew_time=now,
        lease_transitions=before.transitions + (0 if mine or not before.renewed else 1),
    )
    return replace(lease, spec=spec)


def released(lease: Lease, moment: datetime) -> Lease:
    """Return the lease as released by its holder: any candidate may take it at once."""
    now = format_micro(moment)
    spec = LeaseSpec(
        holder_identity="",
        lease_duration_seconds=1,
        acquire_time=now,
        renew_time=now,
        lease_transitions=lease.spec.lease_transitions,
    )
    return replace(lease, spec=spec)


# The renew deadline must be longer than the retry period by this factor, as in kube-controller-manager. A leader starts
# to renew one retry period after the last renewal; the rest of the deadline is the time for the request.
_DEADLINE_FACTOR = 1.2


class LeaseTimings(msgspec.Struct, frozen=True):
    """The lease duration, renew deadline and retry period of an election, in seconds.

    Raises ValueError for values that `check_timings` rejects.
    """

    lease: float = 15.0
    renew: float = 10.0
    retry: float = 2.0

    def __post_init__(self) -> None:
        check_timings(self.lease, self.renew, self.retry)


def check_timings(
    lease: float,
    renew: float,
    retry: float,
    names: tuple[str, str, str] = ("the lease duration", "the renew deadline", "the retry period"),
) -> None:
    """Raise ValueError unless `lease` > `renew` > 1.2 * `retry` > 0. `names` are what its message calls the three."""
    lease_name, renew_name, retry_name = names
    if retry <= 0:
        raise ValueError(f"{retry_name} must be more than 0 s")
    if _DEADLINE_FACTOR * retry >= renew:
        raise ValueError(f"{retry_name} times {_DEADLINE_FACTOR} must be less than {renew_name}")
    if renew >= lease:
        raise ValueError(f"{renew_name} must be less than {lease_name}")


class Seen(msgspec.Struct, frozen=True):
    """The last observed record (None: the lease does not exist), its last holder, and when its term expires locally."""

    record: LeaderElectionRecord | None = None
    holder: str = ""
    until: float = 0.0


class LeaseAction(Enum):
    """The next action on the lease."""

    CREATE = "create"
    TAKE = "take"
    RENEW = "renew"
    WAIT = "wait"


def observe(seen: Seen, record: LeaderElectionRecord | None, now: float) -> Seen:
    """Return the state after reading `record`. Only a changed record starts a term; a missing lease ends none."""
    if record is None:
        return Seen(None, seen.holder, seen.until)
    if record == seen.record:
        return seen
    return Seen(record, record.holder, now + record.seconds if record.holder else now)


def decide(me: str, seen: Seen, now: float) -> LeaseAction:
    """Return the next action, by the table of the module."""
    mine, over = seen.holder == me, now >= seen.until
    if seen.record is None:
        return LeaseAction.CREATE if mine or over else LeaseAction.WAIT
    if mine:
        return LeaseAction.RENEW
    return LeaseAction.TAKE if over else LeaseAction.WAIT
