"""Sets of completion indexes as ranges, in the text form of a job's status (`1,3-5,7`), and the index of a
pod; pure.
"""

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from heapq import merge
from itertools import islice
from typing import NamedTuple

import msgspec

from controller_manager.common.api.core import Pod
from controller_manager.common.api.platform import PLATFORM_DOMAIN

COMPLETION_INDEX = f"batch.{PLATFORM_DOMAIN}/job-completion-index"
"""Both a label and an annotation of a pod."""

_INDEX = re.compile(r"[+-]?[0-9]{1,10}", re.ASCII)


class IndexRange(NamedTuple):
    """All indexes from the first to the last one."""

    first: int
    last: int


class Indexes(msgspec.Struct, frozen=True):
    """A set of indexes as sorted ranges that neither overlap nor touch."""

    ranges: tuple[IndexRange, ...] = ()

    @classmethod
    def of(cls, indexes: Iterable[int]) -> "Indexes":
        """Return the set of these indexes."""
        return cls(_joined(IndexRange(one, one) for one in sorted(indexes)))

    @classmethod
    def parse(cls, text: str, completions: int) -> "Indexes":
        """Return the indexes of a text that are less than `completions`. Invalid parts are ignored."""
        found = (_range(part) for part in text.split(",")) if text else ()
        cut = (IndexRange(one.first, min(one.last, completions - 1)) for one in found if one is not None)
        return cls(_joined(sorted(one for one in cut if one.first <= one.last)))

    def __contains__(self, index: int) -> bool:
        at = bisect_left(self.ranges, index, key=lambda one: one.last)
        return at < len(self.ranges) and self.ranges[at].first <= index

    def __len__(self) -> int:
        return sum(last - first + 1 for first, last in self.ranges)

    def __or__(self, other: "Indexes") -> "Indexes":
        return Indexes(_joined(merge(self.ranges, other.ranges))) if other.ranges else self

    def __and__(self, other: "Indexes") -> "Indexes":
        return Indexes(tuple(_common(self.ranges, other.ranges)))

    def __str__(self) -> str:
        return ",".join(_text(one) for one in self.ranges)

    def missing(self, completions: int) -> Iterator[int]:
        """Yield the indexes less than `completions` that are not in the set, in order."""
        free = 0
        for first, last in self.ranges:
            yield from range(free, min(first, completions))
            free = last + 1
        yield from range(free, completions)

    def first_missing(self, count: int, completions: int) -> list[int]:
        """Return the first `count` missing indexes."""
        return list(islice(self.missing(completions), max(count, 0)))


def index_of(pod: Pod) -> int | None:
    """Return the completion index of a pod, or None if its annotation is missing or invalid."""
    text = (pod.metadata.annotations or {}).get(COMPLETION_INDEX, "")
    return int(text) if _INDEX.fullmatch(text) and int(text) >= 0 else None


def _range(text: str) -> IndexRange | None:
    first, *last = text.split("-")
    if not (_INDEX.fullmatch(first) and (not last or _INDEX.fullmatch(last[0]))):
        return None
    return IndexRange(int(first), int(last[0] if last else first))


def _joined(ranges: Iterable[IndexRange]) -> tuple[IndexRange, ...]:
    """Merge sorted ranges that touch or overlap."""
    found: list[IndexRange] = []
    for one in ranges:
        if found and one.first <= found[-1].last + 1:
            found[-1] = IndexRange(found[-1].first, max(found[-1].last, one.last))
        else:
            found.append(one)
    return tuple(found)


def _common(ours: tuple[IndexRange, ...], theirs: tuple[IndexRange, ...]) -> Iterator[IndexRange]:
    """Yield the intersections of two sorted sequences of ranges."""
    i, j = 0, 0
    while i < len(ours) and j < len(theirs):
        both = IndexRange(max(ours[i].first, theirs[j].first), min(ours[i].last, theirs[j].last))
        if both.first <= both.last:
            yield both
        if ours[i].last < theirs[j].last:
            i += 1
        else:
            j += 1


def _text(one: IndexRange) -> str:
    """Return the text of a range. A range of two indexes is written as `1,2`."""
    match one.last - one.first:
        case 0:
            return str(one.first)
        case 1:
            return f"{one.first},{one.last}"
    return f"{one.first}-{one.last}"
