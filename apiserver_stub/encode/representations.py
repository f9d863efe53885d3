"""The cache of encoded objects for all lists, gets and watches, limited in bytes; and list documents made of them."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import msgspec
from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from apiserver_stub.kinds.resource_info import ResourceInfo
from apiserver_stub.watch_cache.cache import WatchCache
from apiserver_stub.watch_cache.event_encoder import EncodedEvent
from apiserver_stub.watch_cache.row import Change, Row, in_pieces, sizes_of
from controller_manager.common.base.clock import monotonic
from controller_manager.common.base.metrics import Family, Shown

DEFAULT_SIZE = 256 << 20
"""Size of the cache in bytes. A pod of 4.8 KB in the store takes 3.8 KB in protobuf and 0.3 KB as a table row, so
50,000 pods fit in both forms.
"""

_BYTES = Family(
    "apiserver_representation_cache_bytes",
    "Bytes of cached encoded objects (in other formats than JSON) and watch events.",
    "gauge",
    ("content",),
)
_EVENT_SHARE = 16  # fraction of the cache for events: one part in 16
_ENTRY = 128  # bytes of overhead per entry
_IDLE = 300.0  # seconds without a request after which a representation is evicted first

_EventKey = tuple[Row, str, str]


class RepresentationCache:
    """Caches current rows in any number of representations, and the latest watch events.

    A superseded or deleted row loses its representations. If the cache is full, the largest representation evicts the
    rows it added last, unless it is the one that needs room. So part of a list larger than the cache stays cached, and
    smaller lists fit beside it. Events have a sixteenth of the cache, oldest evicted first. Use it on the event loop
    only.
    """

    def __init__(self, store: WatchCache, size: int = DEFAULT_SIZE) -> None:
        self._store = store
        self._event_limit = size // _EVENT_SHARE
        self._row_limit = size - self._event_limit
        self._row_size = 0
        self._rows: dict[str, list[_EncodedRows]] = {}  # by resource; the lists are never empty
        self._event_size = 0
        self._events: dict[_EventKey, bytes] = {}
        self._event_order: deque[_EventKey] = deque()
        self.last_batch: EncodedEvent | None = None
        store.subscribe(self._drop_superseded)

    @property
    def sizes(self) -> tuple[int, int]:
        """The bytes used by rows and by events."""
        return self._row_size, self._event_size

    def rows(self, resource: str, name: str) -> "CachedRows":
        """Return the rows of a resource in a named representation. The same name must always mean the same bytes."""
        return CachedRows(self, self._find(resource, name) or _EncodedRows(resource, name))

    def find_event(self, row: Row, type_: str, name: str) -> bytes | None:
        """Return the cached event of a row, or None."""
        return self._events.get((row, type_, name))

    def keep_event(self, row: Row, type_: str, name: str, line: bytes) -> None:
        """Cache an encoded event."""
        key = row, type_, name
        if key in self._events:
            return
        self._events[key] = line
        self._event_order.append(key)
        self._event_size += _event_size(row, line)
        while self._event_size > self._event_limit:
            oldest = self._event_order.popleft()
            self._event_size -= _event_size(oldest[0], self._events.pop(oldest))

    def keep_rows(self, rows: "_EncodedRows", encoded: Sequence[tuple[Row, bytes]]) -> "_EncodedRows":
        """Add encoded rows that are current, as far as they fit. Return all rows of their representation."""
        rows = self._find(rows.resource, rows.name) or rows
        for row, data in encoded:
            if row in rows or self._store.get(row.resource, row.key) is not row:
                continue
            if not self._make_room(rows, len(data) + _ENTRY):
                break
            if not rows:
                self._rows.setdefault(rows.resource, []).append(rows)
            self._row_size += rows.add(row, data)
        return rows

    def _find(self, resource: str, name: str) -> "_EncodedRows | None":
        for rows in self._rows.get(resource, ()):
            if rows.name == name:
                rows.used_at = monotonic()
                return rows
        return None

    def _make_room(self, rows: "_EncodedRows", size: int) -> bool:
        while self._row_size + size > self._row_limit:
            idle = monotonic() - _IDLE
            others = (other for some in self._rows.values() for other in some if other is not rows)
            most = max(others, key=lambda other: (other.used_at < idle, other.size), default=None)
            if most is None or (most.size <= rows.size + size and most.used_at >= idle):
                return False
            self._remove(most, next(reversed(most)))
        return True

    def _drop_superseded(self, changes: Sequence[Change]) -> None:
        for change in changes:
            if change.before is not None:
                for rows in tuple(self._rows.get(change.before.resource, ())):
                    self._remove(rows, change.before)

    def _remove(self, rows: "_EncodedRows", row: Row) -> None:
        self._row_size -= rows.remove(row)
        if not rows:
            names = self._rows[rows.resource]
            names.remove(rows)
            if not names:
                del self._rows[rows.resource]


class _EncodedRows(dict[Row, bytes]):
    """Rows of a resource in a named representation, and their size in bytes."""

    __slots__ = ("name", "resource", "size", "used_at")

    def __init__(self, resource: str, name: str) -> None:
        super().__init__()
        self.resource = resource
        self.name = name
        self.size = 0
        self.used_at = monotonic()

    def add(self, row: Row, encoded: bytes) -> int:
        """Add a row; return the added bytes."""
        self[row] = encoded
        size = len(encoded) + _ENTRY
        self.size += size
        return size

    def remove(self, row: Row) -> int:
        """Remove a row; return the freed bytes, 0 if it is not there."""
        encoded = self.pop(row, None)
        if encoded is None:
            return 0
        size = len(encoded) + _ENTRY
        self.size -= size
        return size


class RepresentationMetrics(Collector):
    """Collects the size of the cache."""

    def __init__(self, cache: RepresentationCache, registry: CollectorRegistry) -> None:
        self._cache = cache
        registry.register(self)

    def collect(self) -> Iterable[Metric]:
        """Called by the registry."""
        rows, events = self._cache.sizes
        yield Shown(_BYTES, [(("objects",), rows), (("events",), events)])


class CachedRows:
    """The rows of one resource in one representation: the cached ones, and those that one reader has added."""

    __slots__ = ("_cache", "_made", "_rows")

    def __init__(self, cache: RepresentationCache, rows: "_EncodedRows") -> None:
        self._cache = cache
        self._rows = rows
        self._made: list[tuple[Row, bytes]] = []

    def get(self, row: Row) -> bytes | None:
        """Return the encoded row, or None."""
        return self._rows.get(row)

    def add(self, row: Row, encoded: bytes) -> None:
        """Add an encoded row. This may be called in another thread."""
        self._made.append((row, encoded))

    def keep(self) -> None:
        """Move the added rows to the cache. Call this on the event loop."""
        if self._made:
            made, self._made = self._made, []
            self._rows = self._cache.keep_rows(self._rows, made)


def _event_size(row: Row, line: bytes) -> int:
    """Return the memory that an event takes; it includes the row, since the cache may hold the only reference."""
    return max(len(line), row.size) + _ENTRY


Show = Callable[[Row, bytes], bytes]
_INSIDE = slice(1, None)

CHUNK = 512 * 1024
"""Bytes of a list after which a chunk is sent."""


class ListDocument(msgspec.Struct, frozen=True):
    """A list or a `Table`. `head` is the document without the field `array`, whose elements are the `objects` (JSON)
    after `show(row, object)`. They are of `kind` and come from `rows`; `cached` are those already encoded. List items
    are written without the prefix `typed`, their stored apiVersion and kind.
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
        """Yield the elements of the array as JSON, each made on demand."""
        if self.show is not None:
            return map(self.show, self.rows, self.objects)
        return (self._bare(data) for data in self.objects) if self.typed else iter(self.objects)

    def _bare(self, data: bytes) -> bytes:
        return b"{" + data[len(self.typed) :] if data.startswith(self.typed) else data

    def chunks(self) -> Iterator[bytes]:
        """Yield the objects as array elements, without apiVersion, kind and the opening brace, in chunks made on demand
        from the pieces of the objects.
        """
        typed, rest = self.typed, slice(len(self.typed), None)
        parts: list[bytes | memoryview] = []
        size, before = 0, b""
        for pieces, more in in_pieces(self.objects):
            first = pieces[0]
            is_typed = first.startswith(typed)
            if not is_typed and len(pieces) > 1:
                pieces = (b"".join(pieces),)
                first = pieces[0]
                is_typed = first.startswith(typed)
            parts += before, memoryview(first)[rest if is_typed else _INSIDE], *pieces[1:]
            size, before = size + more, b",{"
            if size >= CHUNK:
                yield b"".join(parts)
                parts, size = [], 0
        if parts:
            yield b"".join(parts)


def type_prefix(api_version: str, kind: str) -> bytes:
    """Return the bytes with which stored objects of a type begin."""
    return b'{"apiVersion":"%b","kind":"%b",' % (api_version.encode(), kind.encode())


def chunk_bounds(objects: Sequence[bytes]) -> Iterator[tuple[int, int]]:
    """Yield the start and end index of each chunk of a list. Objects are read only as far as chunks are requested."""
    start = size = 0
    for end, more in enumerate(sizes_of(objects), start=1):
        size += more
        if size >= CHUNK:
            yield start, end
            start, size = end, 0
    if start < len(objects):
        yield start, len(objects)
