"""The lease of an election: the record in it, and the next action about it, by what was seen of it and when; pure.

    lease                      its holder's term        do
    none                       over, or mine            CREATE
    none                       not over                 WAIT      deleted under its holder, who does not know yet
    nobody's                   over when seen           TAKE
    mine                       -                        RENEW
    another's                  not over                 WAIT
    another's                  over                     TAKE

A term ends so many seconds after *we saw* the record change, by our own clock. The holder measures from before it sent
that change, so it ends its own term earlier; clocks are never compared.
"""

import math
from datetime import datetime
from enum import Enum

import msgspec
from msgspec.structs import replace

from controller_manager.common.api.coordination import Lease, LeaseSpec
from controller_manager.common.api.timestamps import format_micro, nonzero_time


class LeaderElectionRecord(msgspec.Struct, frozen=True):
    """The holder of a lease, for how many seconds after a renewal, since when, and the how-manieth holder that is.

    `renewed` is only ever compared with an earlier `renewed`: clocks of several machines do not agree.
    """

    holder: str
    seconds: float
    renewed: str
    acquired: str
    transitions: int


def read(lease: Lease) -> LeaderElectionRecord:
    """The record within a lease."""
    spec = lease.spec
    return LeaderElectionRecord(
        holder=spec.holder_identity,
        seconds=float(spec.lease_duration_seconds or 0),
        renewed=nonzero_time(spec.renew_time),
        acquired=nonzero_time(spec.acquire_time),
        transitions=spec.lease_transitions or 0,
    )


def held(lease: Lease, me: str, seconds: float, moment: datetime) -> Lease:
    """The lease as `me` takes or renews it; a fraction of a second is rounded up, which is the safe side."""
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
    """The lease as its holder leaves it: anybody may take it at once."""
    now = format_micro(moment)
    spec = LeaseSpec(
        holder_identity="",
        lease_duration_seconds=1,
        acquire_time=now,
        renew_time=now,
        lease_transitions=lease.spec.lease_transitions,
    )
    return replace(lease, spec=spec)


# How much longer than the retry period the renew deadline must be, so that a single lost request costs nothing.
_SLACK = 1.2


class LeaseTimings(msgspec.Struct, frozen=True):
    """Seconds: how long a lease lasts, how long its holder tries to renew it, and the time between two tries.

    Raises ValueError unless `lease` > `renew` > 1.2 * `retry` > 0.
    """

    lease: float = 15.0
    renew: float = 10.0
    retry: float = 2.0

    def __post_init__(self) -> None:
        if self.retry <= 0:
            raise ValueError("the retry period must be longer than 0 s")
        if self.renew <= _SLACK * self.retry:
            raise ValueError(
                f"the renew deadline ({self.renew:g} s) must be longer than {_SLACK} times the retry period"
                f" ({self.retry:g} s)"
            )
        if self.lease <= self.renew:
            raise ValueError(
                f"the lease duration ({self.lease:g} s) must be longer than the renew deadline ({self.renew:g} s)"
            )


class Seen(msgspec.Struct, frozen=True):
    """The lease's record as last read (None: there is no lease), who held it last, and until when by our clock."""

    record: LeaderElectionRecord | None = None
    holder: str = ""
    until: float = 0.0


class LeaseAction(Enum):
    """The next action about the lease."""

    CREATE = "create"
    TAKE = "take"
    RENEW = "renew"
    WAIT = "wait"


def observe(seen: Seen, record: LeaderElectionRecord | None, now: float) -> Seen:
    """Return what is known after reading `record`: only a change starts a term; a lease that is gone ends none."""
    if record is None:
        return Seen(None, seen.holder, seen.until)
    if record == seen.record:
        return seen
    return Seen(record, record.holder, now + record.seconds if record.holder else now)


def decide(me: str, seen: Seen, now: float) -> LeaseAction:
    """See the table above."""
    mine, over = seen.holder == me, now >= seen.until
    if seen.record is None:
        return LeaseAction.CREATE if mine or over else LeaseAction.WAIT
    if mine:
        return LeaseAction.RENEW
    return LeaseAction.TAKE if over else LeaseAction.WAIT
