"""Lease decisions, timings and records."""

from datetime import UTC, datetime

import pytest

from controller_manager.common.api.coordination import Lease, LeaseSpec
from controller_manager.framework.leader.lease import (
    LeaderElectionRecord,
    LeaseAction,
    LeaseTimings,
    Seen,
    decide,
    held,
    observe,
    read,
    released,
)

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def record(holder: str = "other", renewed: str = "t0", seconds: float = 15.0) -> LeaderElectionRecord:
    return LeaderElectionRecord(holder, seconds, renewed, "t0", 1)


@pytest.mark.parametrize(
    ("seen", "move"),
    [
        (Seen(), LeaseAction.CREATE),
        (Seen(None, "other", until=99.0), LeaseAction.CREATE),
        (Seen(None, "other", until=101.0), LeaseAction.WAIT),
        (Seen(None, "me", until=101.0), LeaseAction.CREATE),
        (Seen(record(""), "", until=99.0), LeaseAction.TAKE),
        (Seen(record("me"), "me", until=101.0), LeaseAction.RENEW),
        (Seen(record("me"), "me", until=99.0), LeaseAction.RENEW),
        (Seen(record(), "other", until=100.1), LeaseAction.WAIT),
        (Seen(record(), "other", until=100.0), LeaseAction.TAKE),
    ],
)
def test_lease_action_by_record_and_time(seen: Seen, move: LeaseAction) -> None:
    assert decide("me", seen, 100.0) is move


def test_lease_duration_starts_at_observed_change() -> None:
    seen = observe(Seen(), record(renewed="long ago, by its clock"), 50.0)
    assert seen.until == 65.0
    assert observe(seen, record(renewed="long ago, by its clock"), 60.0).until == 65.0
    assert observe(seen, record(renewed="later"), 60.0).until == 75.0


def test_lease_duration_is_read_from_record() -> None:
    assert observe(Seen(), record(seconds=40), 50.0).until == 90.0


def test_released_lease_ends_term_and_deleted_one_does_not() -> None:
    seen = observe(Seen(), record(), 50.0)
    assert observe(seen, None, 51.0) == Seen(None, "other", 65.0)
    assert decide("me", observe(seen, record("", seconds=1), 51.0), 51.0) is LeaseAction.TAKE


@pytest.mark.parametrize(
    ("lease", "renew", "retry", "words"),
    [(10, 10, 2, "lease duration"), (15, 2.4, 2, "renew deadline"), (15, 10, 0, "retry period")],
)
def test_unsafe_lease_timings_are_refused(lease: float, renew: float, retry: float, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        LeaseTimings(lease, renew, retry)


def test_takeover_counts_transition_and_renewal_does_not() -> None:
    first = held(Lease(), "a", 15, NOON)
    assert read(first) == LeaderElectionRecord(
        "a", 15.0, "2026-01-01T12:00:00.000000Z", "2026-01-01T12:00:00.000000Z", 0
    )
    later = held(first, "a", 15, NOON.replace(hour=13))
    assert (later.spec.acquire_time, later.spec.lease_transitions) == (first.spec.acquire_time, 0)
    taken = held(later, "b", 2.5, NOON.replace(hour=14))
    assert taken.spec == LeaseSpec(
        holder_identity="b",
        lease_duration_seconds=3,
        acquire_time="2026-01-01T14:00:00.000000Z",
        renew_time="2026-01-01T14:00:00.000000Z",
        lease_transitions=1,
    )


def test_released_lease_has_no_holder_and_one_second() -> None:
    free = released(held(Lease(), "a", 15, NOON), NOON)
    assert (free.spec.holder_identity, free.spec.lease_duration_seconds) == ("", 1)
    assert held(free, "b", 15, NOON).spec.lease_transitions == 1


def test_leases_of_client_go_are_read() -> None:
    spec = (
        b'{"acquireTime":"2026-11-20T20:26:57.539148Z","holderIdentity":"go1","leaseDurationSeconds":15,'
        b'"leaseTransitions":1,"renewTime":"2026-11-20T20:27:03.568953Z"}'
    )
    kept = Lease.decode(b'{"metadata":{"name":"manager","namespace":"kube-system"},"spec":%s}' % spec)
    assert read(kept).holder == "go1"
    assert held(kept, "b", 15, NOON).spec.lease_transitions == 2
    # It omits the holder of a released lease.
    spec = (
        b'{"acquireTime":"2026-11-20T20:27:54.531000Z","leaseDurationSeconds":1,"leaseTransitions":4,'
        b'"renewTime":"2026-11-20T20:27:54.531000Z"}'
    )
    free = Lease.decode(b'{"metadata":{"name":"manager","namespace":"kube-system"},"spec":%s}' % spec)
    assert decide("b", observe(Seen(), read(free), 100.0), 100.0) is LeaseAction.TAKE
    assert held(free, "b", 15, NOON).spec.lease_transitions == 5
