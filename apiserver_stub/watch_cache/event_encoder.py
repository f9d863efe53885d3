"""Encoding of watch events. Each change is encoded at most once per representation and shared by all streams."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import msgspec

from apiserver_stub.common.offload import is_large
from apiserver_stub.storage.interface import as_of
from apiserver_stub.watch_cache.row import Change, Row
from controller_manager.common.api.errors import ApiError
from controller_manager.common.api.platform import GROUP_DOMAIN

INITIAL_EVENTS_END = f"{GROUP_DOMAIN}/initial-events-end"


def encode(kind: str, data: bytes) -> bytes:
    """Return one event as a line of JSON, around an object's JSON."""
    return b'{"type":"%b","object":%b}\n' % (kind.encode(), data)


def _keep_nothing() -> None:
    """Do nothing: no encoded row to cache."""


class EventEncoder(msgspec.Struct, frozen=True):
    """The encoding of a stream's events. `convert` changes the stored JSON of an object, and `frame(type, object)`
    writes the event. The same `name` always means the same bytes. `row` does both at once for cached rows, and `keep`
    stores the rows it encoded; call it on the event loop. `rest` encodes all events but the first of a stream, if they
    differ. An encoding that is not `lasting` depends on the time and is never shared. `is_costly` returns whether the
    events of a stored object (JSON) are expensive.
    """

    name: str = ""
    convert: Callable[[bytes], bytes] | None = None
    frame: Callable[[str, bytes], bytes] = encode
    rest: "EventEncoder | None" = None
    row: Callable[[str, Row], bytes] | None = None
    keep: Callable[[], None] = _keep_nothing
    lasting: bool = True
    is_costly: Callable[[bytes], bool] = is_large

    @property
    def frames_only(self) -> bool:
        """Return whether an event only copies the bytes of its object."""
        return self.convert is None and self.row is None and self.frame is encode

    def event(self, kind: str, data: bytes) -> bytes:
        """Return the event of a stored object."""
        return self.frame(kind, data if self.convert is None else self.convert(data))

    def event_of(self, kind: str, row: Row) -> bytes:
        """Return the event of a row."""
        return self.event(kind, row.data) if self.row is None else self.row(kind, row)

    def failure(self, error: ApiError) -> bytes:
        """Return the event that ends a stream with an error."""
        return self.frame("ERROR", error.status().encode())


PLAIN = EventEncoder()


class EncodedEvent(msgspec.Struct, frozen=True):
    """The events of changes at positions from `start` to before `end`, up to a revision. `form` identifies the
    resource, the namespace and the encoding.
    """

    start: int
    end: int
    revision: int
    form: tuple[str, str, str]
    chunk: bytes


class EventCache(Protocol):
    """Caches encoded events, within its own limits, for all streams."""

    last_batch: EncodedEvent | None
    """The last encoded batch: streams with the same position and form send the same bytes."""

    def find_event(self, row: Row, type_: str, name: str) -> bytes | None:
        """Return the cached event of `row` by the encoder of that name."""

    def keep_event(self, row: Row, type_: str, name: str, line: bytes) -> None:
        """Cache the event."""


def event_of_change(change: Change, type_: str, encoder: EventEncoder) -> bytes:
    """Encode the event of a change.

    If an object stops matching a selector, its DELETED event has the last matching state with the revision of this
    change.
    """
    if type_ == "DELETED" and not change.deleted and change.before is not None:
        return encoder.event(type_, as_of(change.before.data, change.revision))
    return encoder.event_of(type_, change.row)


def bookmark(
    api_version: str, kind: str, revision: int, zero: Mapping[str, Any], *, initial_end: bool = False
) -> bytes:
    """Return the object of a BOOKMARK event: the `zero` object of its kind with the current revision."""
    metadata = {**zero.get("metadata", {}), "resourceVersion": str(revision)}
    if initial_end:
        metadata["annotations"] = {INITIAL_EVENTS_END: "true", **metadata.get("annotations", {})}
    return msgspec.json.encode({"kind": kind, "apiVersion": api_version, **zero, "metadata": metadata})
