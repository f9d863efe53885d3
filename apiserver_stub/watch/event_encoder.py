"""Watch events as a stream tells them, encoded at most once per change and representation and shared by all streams."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from apiserver_stub.store.row import Change, Row, as_of
from controller_manager.api.errors import ApiError
from controller_manager.api.platform import GROUP_DOMAIN

INITIAL_EVENTS_END = f"{GROUP_DOMAIN}/initial-events-end"

_SHARED_SIZE = 16 << 20  # bytes of encoded lines kept for streams that are about to send them


def encode(kind: str, data: bytes) -> bytes:
    """One event as a line of JSON, around an object's JSON."""
    return b'{"type":"%b","object":%b}\n' % (kind.encode(), data)


@dataclass(frozen=True, slots=True)
class EventEncoder:
    """How a stream tells events: `frame(type, object)` sets an event down, of an object that `convert` has made of the
    stored one; both are JSON before. The same name means the same bytes. `row` does both at once where rows keep what
    they were written as. `rest` tells all events but the first of a stream, if they are told in another way. What is
    not `lasting` says something else a moment later: nothing of it is shared.
    """

    name: str = ""
    convert: Callable[[bytes], bytes] | None = None
    frame: Callable[[str, bytes], bytes] = encode
    rest: "EventEncoder | None" = None
    row: Callable[[str, Row], bytes] | None = None
    lasting: bool = True

    @property
    def frames_only(self) -> bool:
        """Whether an event takes no work but to copy the bytes of its object."""
        return self.convert is None and self.row is None and self.frame is encode

    def event(self, kind: str, data: bytes) -> bytes:
        """The event of a stored object."""
        return self.frame(kind, data if self.convert is None else self.convert(data))

    def event_of(self, kind: str, row: Row) -> bytes:
        """The event of a row."""
        return self.event(kind, row.data) if self.row is None else self.row(kind, row)

    def failure(self, error: ApiError) -> bytes:
        """The event that ends a stream which cannot go on."""
        return self.frame("ERROR", error.status().encode())


PLAIN = EventEncoder()


class EventCache:
    """Encodes changes, and keeps the newest lines with their changes within a bound of bytes."""

    def __init__(self) -> None:
        self._kept: deque[tuple[Change, int]] = deque()
        self._size = 0

    def of(self, change: Change, kind: str, represent: EventEncoder) -> bytes:
        """The line that tells `change` as an event of type `kind`.

        A deletion seen only through a selector carries the state that was last selected, as of this revision.
        """
        known = self.known(change, kind, represent)
        if known is not None:
            return known
        line = made(change, kind, represent)
        self.keep(change, kind, represent, line)
        return line

    def known(self, change: Change, kind: str, represent: EventEncoder) -> bytes | None:
        """The same if it has been encoded before."""
        return None if change.lines is None else change.lines.get((kind, represent.name))

    def keep(self, change: Change, kind: str, represent: EventEncoder, line: bytes) -> None:
        """Share a line that was made."""
        if not represent.lasting:
            return
        if change.lines is None:
            change.lines = {}
        change.lines[kind, represent.name] = line
        self._kept.append((change, len(line)))
        self._size += len(line)
        while self._size > _SHARED_SIZE and self._kept:
            oldest, size = self._kept.popleft()
            oldest.lines = None
            self._size -= size


def made(change: Change, kind: str, represent: EventEncoder) -> bytes:
    """The line, encoded now."""
    if kind == "DELETED" and not change.deleted and change.before is not None:
        return represent.event(kind, as_of(change.before.data, change.revision))
    return represent.event_of(kind, change.row)


def bookmark(api_version: str, kind: str, revision: int, initial_end: bool = False) -> bytes:
    """The object of a BOOKMARK event: nothing but the revision that is reached."""
    metadata: dict[str, object] = {"resourceVersion": str(revision), "creationTimestamp": None}
    if initial_end:
        metadata["annotations"] = {INITIAL_EVENTS_END: "true"}
    return msgspec.json.encode({"kind": kind, "apiVersion": api_version, "metadata": metadata})
