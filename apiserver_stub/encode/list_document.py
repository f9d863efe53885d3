"""A collection that is to be written: a document that is mostly one long array."""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from apiserver_stub.encode.representations import CachedRows
from apiserver_stub.kinds.resource_info import ResourceInfo
from apiserver_stub.watch_cache.row import Row

Show = Callable[[Row, bytes], bytes]
_INSIDE = slice(1, None)

CHUNK = 512 * 1024
"""Bytes of a list after which a chunk is sent."""


@dataclass(frozen=True, slots=True)
class ListDocument:
    """A list, or a `Table`: `head` is all of the document but the field `array`, whose elements are the `objects`
    (JSON) as `show(row, object)` shows them. They are of `kind`, and come from `rows`; `cached` are those that were
    encoded before. Objects of a list are written without the prefix `typed`, their type as it stands in the store.
    """

    head: dict[str, Any]
    kind: ResourceInfo
    rows: Sequence[Row]
    objects: Sequence[bytes]
    cached: CachedRows
    array: str = "items"
    show: Show | None = None
    typed: bytes = b""

    def elements(self) -> Iterator[bytes]:
        """Yield the elements of the array as JSON, each made when it is asked for."""
        if self.show is not None:
            return map(self.show, self.rows, self.objects)
        return (b"{" + bare for bare in self.bare(0, len(self.objects))) if self.typed else iter(self.objects)

    def bare(self, start: int, end: int) -> list[memoryview]:
        """Return views of some of the objects without their type, and without their opening brace."""
        typed, rest = self.typed, slice(len(self.typed), None)
        return [memoryview(data)[rest if data.startswith(typed) else _INSIDE] for data in self.objects[start:end]]


def type_prefix(api_version: str, kind: str) -> bytes:
    """Return how objects of a type begin in the store."""
    return b'{"apiVersion":"%b","kind":"%b",' % (api_version.encode(), kind.encode())


def chunk_bounds(ends: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield the first object and the one behind the last of each chunk of a list; `ends` are the sizes of the objects
    up to and with each.
    """
    start = reached = 0
    while start < len(ends):
        end = bisect_left(ends, reached + CHUNK, start) + 1
        yield start, end
        start, reached = end, ends[min(end, len(ends)) - 1]
