"""Watch events as a stream tells them, encoded at most once per change and representation and shared by all streams."""

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
    """Nothing was encoded that could be kept."""


class EventEncoder(msgspec.Struct, frozen=True):
    """The encoding of a stream's events: `frame(type, object)` sets an event down, of an object that `convert` has made
    of the stored one; both are JSON before. The same name means the same bytes. `row` does both at once where encoded
    rows are kept, and `keep` hands on those that it encoded, in the loop. `rest` tells all events but the first of a
    stream, if they are told in another way. What is not `lasting` says something else a moment later: nothing of it is
    shared. `is_costly` says of a stored object, given as JSON, whether its events take long.
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
        """Return whether an event takes no work but to copy the bytes of its object."""
        return self.convert is None and self.row is None and self.frame is encode

    def event(self, kind: str, data: bytes) -> bytes:
        """Return the event of a stored object."""
        return self.frame(kind, data if self.convert is None else self.convert(data))

    def event_of(self, kind: str, row: Row) -> bytes:
        """Return the event of a row."""
        return self.event(kind, row.data) if self.row is None else self.row(kind, row)

    def failure(self, error: ApiError) -> bytes:
        """Return the event that ends a stream which cannot go on."""
        return self.frame("ERROR", error.status().encode())


PLAIN = EventEncoder()


class EncodedEvent(msgspec.Struct, frozen=True):
    """The events of the changes at positions from `start` to before `end`, up to a revision; `form` says of what
    resource and namespace, and how they are told.
    """

    start: int
    end: int
    revision: int
    form: tuple[str, str, str]
    chunk: bytes


class EventCache(Protocol):
    """Keeps events as they were encoded, within bounds of its own, for all streams to send."""

    told: EncodedEvent | None
    """The events that were put together last: streams of the same position and form are told the same."""

    def find_event(self, row: Row, type_: str, name: str) -> bytes | None:
        """Return the event of that type which tells of `row`, as the encoder of that name encoded it."""

    def keep_event(self, row: Row, type_: str, name: str, line: bytes) -> None:
        """Keep it."""


def event_of_change(change: Change, type_: str, encoder: EventEncoder) -> bytes:
    """Return the event of a change, encoded now.

    A deletion seen only through a selector carries the state that was last selected, as of this revision.
    """
    if type_ == "DELETED" and not change.deleted and change.before is not None:
        return encoder.event(type_, as_of(change.before.data, change.revision))
    return encoder.event_of(type_, change.row)


def bookmark(
    api_version: str, kind: str, revision: int, zero: Mapping[str, Any], *, initial_end: bool = False
) -> bytes:
    """Return the object of a BOOKMARK event: the `zero` object of its kind, with the revision that is reached."""
    metadata = {**zero.get("metadata", {}), "resourceVersion": str(revision)}
    if initial_end:
        metadata["annotations"] = {INITIAL_EVENTS_END: "true", **metadata.get("annotations", {})}
    return msgspec.json.encode({"kind": kind, "apiVersion": api_version, **zero, "metadata": metadata})
