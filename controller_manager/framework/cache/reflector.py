"""Decides what to ask the API next so that a local copy stays true: list, stream, watch or wait; pure.

    revision unknown   -> StreamingList: the state and then the changes, in one request;
                          List if the server does not support it (API concepts, Streaming lists, Chunked listing),
                          or once if the server aborts the stream, as it does if its storage does not support it
    revision known     -> Watch from there; repeated after its timeout, a lost connection or silence
    revision refused   -> drop the revision (410, a malformed event, and other errors that a retry cannot solve)
    any failure        -> Pause first, longer each time until a watch makes progress

Both kinds of listing request the most recent state and never "any" (`resourceVersion=0`), so that a new leader does not
start with a state older than the one its predecessor acted on.
"""

from collections.abc import Callable

import msgspec

from controller_manager.common.api import errors
from controller_manager.framework.client.codec import UnreadableAnswer

PAGE = 500
# Servers send a bookmark about every minute. A watch without any message for this long counts as dead (seconds).
READ_TIMEOUT = 150.0
# A server that supports streaming lists starts at once. One that does not may never send the final bookmark.
STREAM_READ_TIMEOUT = 30.0
WATCH_SECONDS = (300.0, 600.0)
FIRST_PAUSE, LONGEST_PAUSE = 0.8, 30.0
# A watch that ends sooner than this without an event is a failure. One that lasts longer has delivered missed changes.
SHORTEST_WATCH = 1.0


class Pause(msgspec.Struct, frozen=True):
    """Wait for `seconds`, after `failures` failures in a row."""

    seconds: float
    failures: int


class List(msgspec.Struct, frozen=True):
    """List the collection in pages of `page` objects (0: one page), each within `read_timeout` seconds."""

    page: int
    read_timeout: float = READ_TIMEOUT


class StreamingList(msgspec.Struct, frozen=True):
    """Watch without a revision: the server sends the whole collection, a final bookmark, then changes."""

    timeout: float
    read_timeout: float = STREAM_READ_TIMEOUT


class WatchFrom(msgspec.Struct, frozen=True):
    """Watch for changes after `revision`, at most `timeout` seconds, and `read_timeout` seconds without a message."""

    revision: str
    timeout: float
    read_timeout: float = READ_TIMEOUT


ReflectorAction = Pause | List | StreamingList | WatchFrom


class Reflector:
    """State machine of list and watch. `step` returns the next action; the caller reports its results.

    For each action the caller calls `listed` and `note_revision` any number of times, then one of `ended`, `silent`,
    `disconnected` and `refused`. `uniform(low, high)` returns a random number; `streams` enables streaming lists.
    `lists`, `watches` and `failures` count for the metrics.
    """

    def __init__(self, uniform: Callable[[float, float], float], streams: bool = True) -> None:
        self._uniform = uniform
        # Empty while the state is unknown: list if it is empty, watch otherwise.
        self.revision = ""
        self._streams = streams
        # Whether the server aborted a streaming list since the last complete listing.
        self._gave_up = False
        self._page = PAGE
        # Failures since a watch last made progress, and the next pause in seconds (0: none).
        self._failed = 0
        self._pause = 0.0
        self._began = 0.0
        self._received = False
        # Whether changes may have been missed, since when, and when the server accepted the current watch.
        self._is_late = True
        self._late_since: float | None = None
        self._opened: float | None = None
        self.lists = 0
        self.watches = 0
        self.failures = 0
        self.last_error = ""
        # Whether the last error was a 404: the server does not serve the resource.
        self.is_unserved = False

    def step(self, now: float) -> ReflectorAction:
        """Return the next action."""
        if self._has_lasted(now):
            self._late_since = None
        self._opened = None
        if self._is_late and self._late_since is None:
            self._late_since = now
        if self._pause:
            seconds, self._pause = self._pause, 0.0
            return Pause(seconds, self._failed)
        self._began, self._received = now, False
        timeout = self._uniform(*WATCH_SECONDS)
        if self.revision:
            self.watches += 1
            return WatchFrom(self.revision, timeout)
        self.lists += 1
        return StreamingList(timeout) if self._is_streaming else List(self._page)

    @property
    def is_failing(self) -> bool:
        """Return whether there was a failure since a watch last made progress."""
        return self._failed > 0

    def late(self, now: float) -> float | None:
        """Return for how many seconds changes may have been missed; None if the watch is up to date."""
        if not self._is_late or (self.revision and self._has_lasted(now)):
            return None
        return 0.0 if self._late_since is None else now - self._late_since

    def opened(self, now: float) -> None:
        """Record that the server accepted a StreamingList or WatchFrom."""
        self._opened = now

    def listed(self, revision: str) -> None:
        """Record a complete listing as of `revision`. After a StreamingList, changes follow."""
        self.revision = revision
        self._page, self._gave_up = PAGE, False
        self._keep_up()

    def note_revision(self, revision: str) -> None:
        """Record a change or bookmark, which moves the known state to `revision` (empty if it was malformed)."""
        self.revision = revision or self.revision
        self._received = True
        self._failed = 0
        self._is_late, self._late_since = False, None

    def ended(self, now: float) -> None:
        """Record that the response ended normally."""
        if self.revision and self._has_lasted(now):
            self._keep_up()
        if not self.revision:
            self._stream_less("the stream ended before the state was complete")
        elif not self._received and now - self._began < SHORTEST_WATCH:
            self._fail("the watch ended at once")

    def silent(self) -> None:
        """Record that the read timeout passed without a message."""
        self._is_late = True
        if not self.revision:
            self._stream_less("the listing stalled")
            self._fail(self.last_error)
        else:
            self.last_error = "the watch fell silent"

    def disconnected(self, error: str) -> None:
        """Record that the connection failed."""
        self.is_unserved = False
        self._fail(error)

    def refused(self, error: errors.ApiError) -> None:
        """Record an error of the server, in the response or in an event."""
        self.last_error = str(error)
        self.is_unserved = error.code == 404
        if self.revision:
            self._refused_watch(error)
        elif self._streams and isinstance(error, errors.BadRequest | errors.Invalid | errors.MethodNotAllowed):
            self._stream_less(str(error))
        elif self._is_streaming and self._opened is not None and isinstance(error, errors.InternalError):
            self._gave_up = True
        elif _is_gone(error) and self._page and not self._is_streaming:
            # The revision of the pages was compacted before the last page was read: list without pages.
            self._page = 0
        else:
            self._fail(str(error))

    def _refused_watch(self, error: errors.ApiError) -> None:
        if _is_gone(error):
            self.revision = ""
            if self._failed:
                self._fail(str(error))
            # A single 410 is normal after a long pause of this process: list again without a delay.
            self._failed += 1
            self._is_late = True
            return
        is_final = 400 <= error.code < 500 and error.code not in (401, 403, 429)
        if is_final or isinstance(error, UnreadableAnswer):
            self.revision = ""
        self._fail(str(error))

    @property
    def _is_streaming(self) -> bool:
        return self._streams and not self._gave_up

    def _has_lasted(self, now: float) -> bool:
        return self._opened is not None and now - self._opened >= SHORTEST_WATCH

    def _keep_up(self) -> None:
        self._is_late, self._late_since = False, None

    def _stream_less(self, error: str) -> None:
        self._streams = False
        self.last_error = error

    def _fail(self, error: str) -> None:
        self.last_error = error
        self._is_late = True
        self.failures += 1
        seconds = min(FIRST_PAUSE * 2.0 ** min(self._failed, 16), LONGEST_PAUSE)
        self._failed += 1
        self._pause = self._uniform(seconds / 2, seconds)


def _is_gone(error: errors.ApiError) -> bool:
    """Return whether the revision is too old, or too new (after a restore of the server's storage)."""
    return error.code == 410 or "Too large resource version" in error.message
