"""Checksums of the records of a log: one each, and one of all that were ever written, whatever is removed; pure."""

import struct
from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

from isal.isal_zlib import crc32

from apiserver_stub.storage.interface import Record

_HALF = 31
_NUMBERS = struct.Struct("<qdqB").pack
_LIFETIME = struct.Struct("<d").pack
_LOW = (1 << _HALF) - 1
_WHOLE = (1 << 2 * _HALF) - 1


class Damage(Enum):
    """The verdict of a checksum on a record: nothing wrong, other bytes of the object than were written, or nothing
    about the record can be believed.
    """

    NONE = 0
    VALUE = 1
    RECORD = 2


def checksum(record: Record) -> int:
    """Return 62 bits: one half covers the object, the other that half and everything else, so that a damaged object is
    told from a damaged record.
    """
    value = crc32(record.data) & _LOW
    return value << _HALF | _of_the_rest(record, value)


def damage(record: Record, expected: int) -> Damage:
    """Return what became of a record since its checksum was made; of one that was read its columns may be anything."""
    try:
        value = expected >> _HALF
        if _of_the_rest(record, value) != expected & _LOW:
            return Damage.RECORD
        return Damage.NONE if crc32(record.data) & _LOW == value else Damage.VALUE
    except (TypeError, struct.error):
        return Damage.RECORD


def _of_the_rest(record: Record, value: int) -> int:
    """A record without a lifetime has the checksum it had before there were any."""
    revision, resource, key, _, deleted, at, ttl, _ = record
    numbers = crc32(_NUMBERS(revision, at, value, deleted))
    if ttl:
        numbers = crc32(_LIFETIME(ttl), numbers)
    return crc32(f"{resource}\0{key}".encode("utf-8", "surrogatepass"), numbers) & _LOW


class Tally(NamedTuple):
    """The number of records, and the sum of their checksums, which does not depend on their order."""

    records: int = 0
    total: int = 0

    def plus(self, sums: Sequence[int]) -> "Tally":
        """Return the tally with some records more."""
        return Tally(self.records + len(sums), (self.total + sum(sums)) & _WHOLE)

    def joined(self, other: "Tally") -> "Tally":
        """Return the tally of the records of both."""
        return Tally(self.records + other.records, (self.total + other.total) & _WHOLE)
