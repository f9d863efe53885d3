"""Shards of a collection: ranges of the hash of an immutable field (KEP-5866, `shardRange`). They are pure."""

import dataclasses
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

import msgspec

# Hashes are from 0 to this, exclusive.
SPACE = 1 << 64
UID, NAMESPACE = "object.metadata.uid", "object.metadata.namespace"
FIELDS = (UID, NAMESPACE)

_OFFSET, _PRIME, _MASK = 0xCBF29CE484222325, 0x100000001B3, SPACE - 1


@lru_cache(maxsize=4096)
def hash_of(value: str) -> int:
    """Return the 64-bit FNV-1a hash of a text in UTF-8; takes 3 µs for a uid that is not cached."""
    found = _OFFSET
    for byte in value.encode():
        found = ((found ^ byte) * _PRIME) & _MASK
    return found


class ShardRange(msgspec.Struct, frozen=True):
    """Hashes from `start` to `end`, exclusive."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class ShardSelector:
    """Selects the objects whose hash of `field` is in one of `ranges`, which is not empty."""

    field: str
    ranges: tuple[ShardRange, ...]
    # Starts and ends of the merged ranges, in order.
    _bounds: tuple[int, ...] = dataclasses.field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_bounds", tuple(_union(self.ranges)))

    def has(self, value: str) -> bool:
        """Return whether objects with this value of the field are selected."""
        return bisect_right(self._bounds, hash_of(value)) % 2 == 1

    def __str__(self) -> str:
        parts = (f"shardRange({self.field}, '0x{one.start:016x}', '0x{one.end:016x}')" for one in self.ranges)
        return " || ".join(parts)


def even_shard(field: str, index: int, count: int) -> ShardSelector:
    """Return shard `index` (from 0) of `count` equal shards."""
    return ShardSelector(field, (ShardRange(index * SPACE // count, (index + 1) * SPACE // count),))


def _union(ranges: Iterable[ShardRange]) -> Iterable[int]:
    bounds: list[int] = []
    for one in sorted(ranges, key=lambda one: one.start):
        if bounds and one.start <= bounds[-1]:
            bounds[-1] = max(bounds[-1], one.end)
        else:
            bounds += (one.start, one.end)
    return bounds
