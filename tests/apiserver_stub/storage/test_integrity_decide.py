"""What counts as a loss, and what a checksum detects."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apiserver_stub.storage.integrity import (
    Acknowledged,
    Damage,
    StartupFacts,
    Tally,
    checksum,
    damage,
    in_doubt,
    losses,
)
from apiserver_stub.watch_cache.row import Record

ACKNOWLEDGED = Acknowledged(b"a" * 16, 3, 10, Tally(5, 50))


WHOLE: dict[str, Any] = {
    "acknowledged": ACKNOWLEDGED, "exists": True, "store": b"a" * 16, "epoch": 3, "revision": 10,
    "present": Tally(4, 30), "removed": Tally(1, 20),
}  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({}, []),
        ({"revision": 12, "epoch": 4}, []),
        ({"acknowledged": None, "exists": False}, []),
        ({"acknowledged": None, "epoch": 0}, []),
        ({"acknowledged": ACKNOWLEDGED._replace(revision=0), "exists": False}, []),
        ({"exists": False}, ["the database is missing, and with it everything up to revision 10"]),
        ({"acknowledged": None}, ["is missing"]),
        ({"acknowledged": None, "unreadable": True}, ["is damaged"]),
        ({"acknowledged": None, "exists": False, "orphan": True}, ["only its write-ahead log"]),
        ({"store": b"b" * 16}, ["to another store"]),
        ({"epoch": 2}, ["its write-ahead log is missing, and with it what was written last"]),
        ({"revision": 9}, ["revisions 10 to 10 are gone"]),
        ({"present": Tally(2, 30)}, ["2 records up to revision 10 missing"]),
        ({"present": Tally(4, 31)}, ["not those that were written"]),
        ({"present": Tally(3, 31), "damaged": ["revision 4"]}, ["damaged: revision 4"]),
        ({"stateless": True, "store": b"", "epoch": 0}, ["its own record is damaged"]),
    ],
)  # fmt: skip
def test_losses_are_recognized(changes: Any, found: list[str]) -> None:
    found_losses = losses(StartupFacts(**{**WHOLE, **changes}))
    assert len(found_losses) == len(found)
    for sentence, part in zip(found_losses, found, strict=True):
        assert part in sentence


def test_end_of_log_is_in_doubt_after_reboot() -> None:
    assert not in_doubt(StartupFacts(acknowledged=None, boot="b"))
    assert not in_doubt(StartupFacts(acknowledged=ACKNOWLEDGED._replace(boot="b"), boot="b"))
    assert not in_doubt(StartupFacts(acknowledged=ACKNOWLEDGED._replace(boot="a", closed=True), boot="b"))
    assert in_doubt(StartupFacts(acknowledged=ACKNOWLEDGED._replace(boot="a"), boot="b"))


records = st.builds(
    Record, st.integers(1, 2**40), st.text(max_size=9), st.text(max_size=9), st.binary(max_size=30), st.booleans(),
    st.floats(0, 1e10), st.sampled_from([0.0, 60.0, 3600.0]),
)  # fmt: skip


def damage_of(record: Record, expected: int) -> Damage:
    revision, resource, key, data, deleted, at, ttl, _ = record
    return damage(revision, resource.encode(), key.encode(), data, deleted, at, ttl, expected)


@given(records, records, st.integers(0, 61))
def test_checksum_distinguishes_records(one: Record, other: Record, bit: int) -> None:
    expected = checksum(one)
    assert damage_of(one, expected) is Damage.NONE
    assert damage_of(one, expected ^ (1 << bit)) is Damage.RECORD
    if other.data != one.data:
        assert damage_of(one._replace(data=other.data), expected) is Damage.VALUE
    if other[:3] != one[:3] or other[4:7] != one[4:7]:
        assert damage_of(other, expected) is Damage.RECORD
