"""The record of an election in a Lease: reading and writing it; pure."""

import math
from dataclasses import dataclass
from datetime import datetime

from msgspec.structs import replace

from controller_manager.api.coordination import Lease, LeaseSpec
from controller_manager.api.timestamps import format_micro, nonzero_time


@dataclass(frozen=True, slots=True)
class LeaderElectionRecord:
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
