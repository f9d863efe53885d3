"""Checksums of the records of a log: one each, and one of all that were ever written, whatever is removed; pure."""

import struct
from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

from isal.isal_zlib import crc32

from apiserver_stub.store.row import Record

_HALF = 31
_NUMBERS = struct.Struct("<qdqB").pack
_LOW = (1 << _HALF) - 1
_WHOLE = (1 << 2 * _HALF) - 1


class Damage(Enum):
    """What a checksum says of a record: nothing wrong, other bytes of the object than were written, or nothing about
    the record can be believed.
    """

    NONE = 0
    VALUE = 1
    RECORD = 2


def checksum(record: Record) -> int:
    """62 bits: one half covers the object, the other that half and everything else, so that a damaged object is told
    from a damaged record.
    """
    revision, resource, key, data, deleted, at, _ = record
    value = crc32(data) & _LOW
    names = f"{resource}\0{key}".encode("utf-8", "surrogatepass")
    return value << _HALF | crc32(names, crc32(_NUMBERS(revision, at, value, deleted))) & _LOW


def damage(record: Record, expected: int) -> Damage:
    """What became of a record since its checksum was made; of one that was read its columns may be anything."""
    revision, resource, key, data, deleted, at, _ = record
    try:
        names = f"{resource}\0{key}".encode("utf-8", "surrogatepass")
        value = expected >> _HALF
        if crc32(names, crc32(_NUMBERS(revision, at, value, deleted))) & _LOW != expected & _LOW:
            return Damage.RECORD
        return Damage.NONE if crc32(data) & _LOW == value else Damage.VALUE
    except (TypeError, struct.error):
        return Damage.RECORD


class Tally(NamedTuple):
    """How many records there are, and the sum of their checksums, which does not depend on their order."""

    records: int = 0
    total: int = 0

    def plus(self, sums: Sequence[int]) -> "Tally":
        """With some records more."""
        return Tally(self.records + len(sums), (self.total + sum(sums)) & _WHOLE)

    def joined(self, other: "Tally") -> "Tally":
        """The records of both."""
        return Tally(self.records + other.records, (self.total + other.total) & _WHOLE)
