"""Checksums of records, and the check that a log still has everything that was acknowledged. Pure."""

import struct
from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

import msgspec
from isal.isal_zlib import crc32

from apiserver_stub.storage.interface import Record

_HALF = 31
_NUMBERS = struct.Struct("<qdqB").pack
_LIFETIME = struct.Struct("<d").pack
_LOW = (1 << _HALF) - 1
_WHOLE = (1 << 2 * _HALF) - 1
_NAMED = 3  # damaged records listed in a message


class Damage(Enum):
    """The result of a checksum: the record is valid, the object's bytes are damaged, or the whole record is."""

    NONE = 0
    VALUE = 1
    RECORD = 2


def checksum(record: Record) -> int:
    """Return 62 bits: one half covers the object, the other covers that half and the rest. So a damaged object and a
    damaged record can be distinguished.
    """
    revision, resource, key, data, deleted, at, ttl, _ = record
    value = crc32(data) & _LOW
    name = f"{resource}\0{key}".encode("utf-8", "surrogatepass")
    return value << _HALF | _of_the_rest(revision, name, value, deleted, at, ttl)


def damage(
    revision: int, resource: bytes, key: bytes, data: bytes, deleted: int, at: float, ttl: float, expected: int
) -> Damage:
    """Return the damage of a record since its checksum was made. Its columns can have any type."""
    try:
        value = expected >> _HALF
        if _of_the_rest(revision, resource + b"\0" + key, value, deleted, at, ttl) != expected & _LOW:
            return Damage.RECORD
        return Damage.NONE if isinstance(data, bytes) and crc32(data) & _LOW == value else Damage.VALUE
    except (TypeError, struct.error):
        return Damage.RECORD


def _of_the_rest(revision: int, name: bytes, value: int, deleted: int, at: float, ttl: float) -> int:
    """Return the checksum of all but the object. A record without a lifetime has the same checksum as before lifetimes
    existed.
    """
    numbers = crc32(_NUMBERS(revision, at, value, deleted))
    if ttl:
        numbers = crc32(_LIFETIME(ttl), numbers)
    return crc32(name, numbers) & _LOW


class Tally(NamedTuple):
    """The number of records and the sum of their checksums, independent of their order."""

    records: int = 0
    total: int = 0

    def plus(self, sums: Sequence[int]) -> "Tally":
        """Return the tally with more records."""
        return Tally(self.records + len(sums), (self.total + sum(sums)) & _WHOLE)

    def joined(self, other: "Tally") -> "Tally":
        """Return the combined tally."""
        return Tally(self.records + other.records, (self.total + other.total) & _WHOLE)


JUMP = 1_000_000_000
"""The number of revisions to skip if acknowledged ones may have been lost, as etcd recommends."""
_NONE = Tally()


class Acknowledged(NamedTuple):
    """The acknowledged writes of a store.

    `epoch` counts the write-ahead logs, `revision` is the newest acknowledged one, and `written` is the tally of all
    records up to it, including removed ones. `closed` is set by an orderly shutdown; `boot` identifies the boot of the
    operating system in which it was recorded.
    """

    store: bytes
    epoch: int = 0
    revision: int = 0
    written: Tally = Tally()
    closed: bool = False
    boot: str = ""


class StartupFacts(msgspec.Struct):
    """The facts that a start finds.

    `acknowledged` is the content of the witness (None: nothing; `unreadable`: it is damaged). The rest describes the
    database: whether it `exists`, whether only its write-ahead log exists (`orphan`), its `store`, its `epoch`, whether
    its own record is damaged (`stateless`), its newest `revision`, the records `present` up to the acknowledged
    revision or `removed` by compaction, and descriptions of the `damaged` ones.
    """

    acknowledged: Acknowledged | None = None
    unreadable: bool = False
    exists: bool = False
    orphan: bool = False
    store: bytes = b""
    epoch: int = 0
    stateless: bool = False
    revision: int = 0
    present: Tally = _NONE
    removed: Tally = _NONE
    damaged: list[str] = []
    boot: str = ""


def losses(seen: StartupFacts) -> list[str]:
    """Return descriptions of acknowledged writes that are lost or unverifiable; empty if there are none.

    | witness | database | lost |
    |--|--|--|
    | empty | absent, or never used | nothing |
    | empty | used before, or only a write-ahead log | unknown |
    | has content | absent | everything |
    | has content | of another store | unknown |
    | has a later epoch or revision | | the end of the log |
    | has another tally up to its revision | | some records |
    | | its own record or other records are damaged | those |
    """
    found = _beside(seen) or (_end(seen) + _middle(seen) if seen.acknowledged else [])
    if seen.stateless:
        found.append("its own record is damaged")
    if seen.damaged:
        more = f" and {len(seen.damaged) - _NAMED} more" if len(seen.damaged) > _NAMED else ""
        found.append(f"damaged: {', '.join(seen.damaged[:_NAMED])}{more}")
    return found


def _beside(seen: StartupFacts) -> list[str]:
    """Return the problems of the files; if there are any, nothing else can be checked."""
    acknowledged = seen.acknowledged
    if not seen.exists and acknowledged is not None and acknowledged.revision:
        return [f"the database is missing, and with it everything up to revision {acknowledged.revision}"]
    if not seen.exists and seen.orphan:
        return ["the database is missing; only its write-ahead log exists"]
    if seen.unreadable:
        return ["its witness file, which records the acknowledged writes, is damaged"]
    if acknowledged is None and seen.exists and (seen.epoch or seen.stateless):
        return ["its witness file, which records the acknowledged writes, is missing"]
    if acknowledged is not None and seen.exists and not seen.stateless and acknowledged.store != seen.store:
        return ["its witness file belongs to another store"]
    return []


def _end(seen: StartupFacts) -> list[str]:
    acknowledged = seen.acknowledged
    assert acknowledged is not None
    if seen.revision < acknowledged.revision:
        why = "its write-ahead log is missing or damaged, or it is an older copy"
        return [f"revisions {seen.revision + 1} to {acknowledged.revision} are gone ({why})"]
    if seen.exists and seen.epoch < acknowledged.epoch and not seen.stateless:
        return ["its write-ahead log is missing, and with it what was written last"]
    return []


def _middle(seen: StartupFacts) -> list[str]:
    acknowledged = seen.acknowledged
    assert acknowledged is not None
    if seen.revision < acknowledged.revision or seen.stateless:
        return []  # they differ in any case
    found = seen.present.joined(seen.removed)
    if found == acknowledged.written:
        return []
    missing = acknowledged.written.records - found.records - len(seen.damaged)
    if missing > 0:
        what = "1 record" if missing == 1 else f"{missing} records"
        return [f"{what} up to revision {acknowledged.revision} missing"]
    return [] if seen.damaged else [f"records up to revision {acknowledged.revision} are not those that were written"]


def in_doubt(seen: StartupFacts) -> bool:
    """Return whether the last writes before a crash of the machine may be unknown: the last update of the witness may
    not have reached the disk.
    """
    return seen.acknowledged is not None and not seen.acknowledged.closed and seen.acknowledged.boot != seen.boot
