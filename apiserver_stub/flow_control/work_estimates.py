"""The seats of a request (KEP-1040, Width of the request): lists by the objects they read, writes by the watches they
notify.
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping
from itertools import islice

from apiserver_stub.flow_control.seat_requests import ONE_SEAT, WorkEstimate
from apiserver_stub.kinds.registry import ResourceRegistry
from apiserver_stub.request.request_info import RequestInfo, exact_field
from apiserver_stub.watch_cache.cache import WatchCache
from controller_manager.common.base.clock import monotonic

_BYTES_A_SEAT = 100_000
_MOST_BYTES = 1_000_000  # of a list that is read from the watch cache and streamed
_MOST_OF_A_LIST, _MOST_OF_A_WRITE = 100, 10  # seats
_WATCHES_A_SEAT = 10
_SECONDS_AN_EVENT = 0.005  # seconds that a write holds its seats, per event
_LARGEST = 1_500_000  # bytes of an object
_SAMPLE = 64  # objects sampled for the average size
_FRESH = 60.0  # seconds that a size is cached
_WRITES = frozenset({"create", "update", "patch", "delete"})
_ON = frozenset({"true", "1"})

Query = Mapping[str, str]
Identifier = tuple[str, str, str, str]  # group, resource, namespace, name
CountOf = Callable[[RequestInfo], tuple[int, int] | None]
"""Returns the number of objects of a resource and their size on average, in bytes; None if it is served elsewhere."""


class WatchCounts:
    """The open watches, by watched objects."""

    def __init__(self) -> None:
        self._counts: Counter[Identifier] = Counter()

    def opened(self, info: RequestInfo, query: Query) -> Identifier | None:
        """Count a watch; return the argument for `closed`. Watches of the pods of one node are not counted, because
        only few of them receive an event.
        """
        if (info.group, info.resource) == ("", "pods") and _required(query, "spec.nodeName"):
            return None
        identifier = info.group, info.resource, info.namespace, info.name or _required(query, "metadata.name")
        self._counts[identifier] += 1
        return identifier

    def closed(self, identifier: Identifier) -> None:
        """Count a watch no longer."""
        self._counts[identifier] -= 1
        if not self._counts[identifier]:
            del self._counts[identifier]

    def interested(self, info: RequestInfo) -> int:
        """Return the number of watches that may receive an event of a write."""
        counts = self._counts
        if not counts:
            return 0
        group, resource, namespace, name = info.group, info.resource, info.namespace, info.name
        found = counts.get((group, resource, "", ""), 0)
        if namespace:
            found += counts.get((group, resource, namespace, ""), 0)
        if name:
            found += counts.get((group, resource, namespace, name), 0)
        return found


class StoredSizes:
    """The number and average size of stored objects; sizes are sampled at most once per minute."""

    def __init__(self, store: WatchCache, kinds: ResourceRegistry) -> None:
        self._store = store
        self._kinds = kinds
        self._sizes: dict[str, tuple[float, int]] = {}

    def of(self, info: RequestInfo) -> tuple[int, int] | None:
        """Return the number of objects of a resource and their average bytes; None if it is not served here."""
        kind = self._kinds.find(info.group, info.version, info.resource)
        if kind is None:
            return None
        count = self._store.count(kind.storage) if kind.persisted else 0
        return (count, self._size(kind.storage)) if count else (0, 0)

    def _size(self, storage: str) -> int:
        now = monotonic()
        at, size = self._sizes.get(storage, (-math.inf, 0))
        if now - at > _FRESH:
            rows = list(islice(self._store.snapshot(storage).items(), _SAMPLE))
            size = sum(row.size for row in rows) // max(1, len(rows))
            self._sizes[storage] = now, size
        return size


def list_estimate(info: RequestInfo, query: Query, count_of: CountOf, most: int) -> WorkEstimate:
    """Return the estimate of a list, or of a watch, which may begin with a list; `most` is the limit of its level (0:
    none).

    A watch from a resource version takes one seat.
    """
    if info.verb == "watch":
        begins_with_state = query.get("sendInitialEvents", "") in _ON
        if not begins_with_state and query.get("resourceVersion", "0") not in ("", "0"):
            return ONE_SEAT
    found = count_of(info)
    if found is None:
        return ONE_SEAT
    count, size = found
    read = 1 if info.name or _required(query, "metadata.name") else min(count, _limit(query) or count)
    size = size or (_LARGEST if count else 0)
    seats = math.ceil(min(read * size, _MOST_BYTES) / _BYTES_A_SEAT)
    seats = min(max(seats, 1), min(most or _MOST_OF_A_LIST, _MOST_OF_A_LIST))
    return ONE_SEAT if seats == 1 else WorkEstimate(seats)


def write_estimate(watches: int, most: int) -> WorkEstimate:
    """Return the estimate of a write that `watches` watches receive; their cost is charged after the response.

    A request gets at most `most` seats (0: the general limit), and holds them longer instead.
    """
    if watches < _WATCHES_A_SEAT:
        return ONE_SEAT
    seats = math.ceil(watches / _WATCHES_A_SEAT)
    given = min(seats, min(most or _MOST_OF_A_WRITE, _MOST_OF_A_WRITE))
    return WorkEstimate(1, given, seats * _SECONDS_AN_EVENT / given)


def is_write(info: RequestInfo) -> bool:
    """Return whether a request may cause watch events; creating a service account token does not."""
    return info.verb in _WRITES and not (info.resource == "serviceaccounts" and info.subresource == "token")


def _limit(query: Query) -> int:
    text = query.get("limit", "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0


def _required(query: Query, path: str) -> str:
    """Return the value that the field selector requires of a field; empty without such a requirement."""
    return exact_field(query.get("fieldSelector", ""), path)
