"""The hub where streams wait for changes: publishing wakes those of the resources concerned and copies nothing."""

from collections.abc import Sequence
from itertools import count
from weakref import WeakValueDictionary

from apiserver_stub.offload import Offload
from apiserver_stub.watch_cache.cache import WatchCache
from apiserver_stub.watch_cache.event_encoder import PLAIN, EventCache, EventEncoder
from apiserver_stub.watch_cache.options import WatchOptions
from apiserver_stub.watch_cache.row import Change
from apiserver_stub.watch_cache.stream import Stream
from apiserver_stub.watch_cache.watcher import Target, Watcher
from controller_manager.base.clock import monotonic


class Hub:
    """All watches of one server. There are no queues: a stream that is read slowly holds nothing but its position."""

    def __init__(self, cache: WatchCache, events: EventCache, offload: Offload | None = None) -> None:
        self._offload = offload or Offload()
        self._cache = cache
        self._events = events
        self._waiting: dict[str, dict[Stream, None]] = {}
        self._streams: WeakValueDictionary[int, Stream] = WeakValueDictionary()
        self._numbers = count()
        self._closed = False
        cache.subscribe(self._publish)

    def open(
        self, resource: str, api_version: str, kind: str, options: WatchOptions, represent: EventEncoder = PLAIN
    ) -> Stream:
        """Watch `resource` from now on; `api_version` and `kind` are those of the objects of bookmarks.

        A start that lies too far back, or ahead, is told by an ERROR event, as is falling behind later on.
        """
        target = Target(resource, api_version, kind, represent)
        watcher = Watcher(self._cache, self._events, target, options, monotonic())
        stream = Stream(self, resource, watcher, self._offload)
        self._streams[next(self._numbers)] = stream
        if self._closed:
            stream.end()
        return stream

    def close(self) -> None:
        """End every stream at once, and those still to be opened."""
        self._closed = True
        for stream in tuple(self._streams.values()):
            stream.end()

    def end(self, resource: str, api_version: str) -> None:
        """End the streams of a resource in one version: it is served no longer, or in another form. Their clients may
        go on from where they were.
        """
        for stream in tuple(self._streams.values()):
            if (stream.target.resource, stream.target.api_version) == (resource, api_version):
                stream.end()

    def join(self, resource: str, stream: Stream) -> None:
        """Wake `stream` at the next change of `resource`."""
        self._waiting.setdefault(resource, {})[stream] = None

    def leave(self, resource: str, stream: Stream) -> None:
        """The stream waits no more."""
        self._waiting.get(resource, {}).pop(stream, None)

    def _publish(self, changes: Sequence[Change]) -> None:
        for resource in {change.row.resource: None for change in changes}:
            for stream in self._waiting.pop(resource, ()):
                stream.wake()
