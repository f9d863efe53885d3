"""The hub of all watches. Publishing a change calls the streams that it may concern and copies nothing.

One task notifies the called streams in rounds, in slices between requests (`fair_loop`). Between two rounds changes
collect, and a stream sends all that it has missed together.
"""

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count
from weakref import WeakValueDictionary

from apiserver_stub.common.offload import Offload
from apiserver_stub.watch_cache.cache import WatchCache
from apiserver_stub.watch_cache.collection import Window
from apiserver_stub.watch_cache.converting_watcher import ConvertingWatcher, RowConverter
from apiserver_stub.watch_cache.event_encoder import PLAIN, EventCache, EventEncoder
from apiserver_stub.watch_cache.row import Change, Corrupt
from apiserver_stub.watch_cache.stream import ConvertingStream, WatchStream
from apiserver_stub.watch_cache.watcher import Watcher, WatchOptions, WatchTarget
from controller_manager.common.base.clock import monotonic
from controller_manager.common.base.fair_loop import Share, give_way, share_beside
from controller_manager.common.base.tasks import spawn

_WOKEN = 32  # readers woken per loop iteration
_EACH, _LONGEST = 0.0001, 0.05  # seconds per stream of a round until the next round, and at most


class Hub:
    """All watches of one server. There are no queues: a slow stream holds nothing but its position."""

    def __init__(self, cache: WatchCache, events: EventCache, offload: Offload | None = None) -> None:
        self._offload = offload or Offload()
        self._cache = cache
        self._events = events
        self._waiting: dict[str, _Waiting] = {}
        self._streams: WeakValueDictionary[int, WatchStream] = WeakValueDictionary()
        self._numbers = count()
        self._closed = False
        self._called: list[WatchStream] = []
        self._is_notifying = False
        self._next_round = 0.0  # loop time at which the next round may begin
        self._share: Share | None = None
        cache.subscribe(self._publish)

    def open(
        self,
        resource: str,
        api_version: str,
        kind: str,
        options: WatchOptions,
        represent: EventEncoder = PLAIN,
        converter: RowConverter | None = None,
    ) -> WatchStream:
        """Open a watch of `resource`. `api_version` and `kind` are used for the objects of bookmarks; `converter`
        converts rows to that version.

        A start that is too old or too new is reported by an ERROR event, and so is falling behind later.
        """
        target, now = WatchTarget(resource, api_version, kind, represent), monotonic()
        if converter is None:
            watcher = Watcher(self._cache, self._events, target, options, now)
            stream = WatchStream(self, resource, watcher, self._offload, options.trigger)
        else:
            converting = ConvertingWatcher(self._cache, self._events, target, options, now, converter.is_served)
            stream = ConvertingStream(self, resource, converting, self._offload, converter)
        self._streams[next(self._numbers)] = stream
        if self._closed:
            stream.end()
        return stream

    def close(self) -> None:
        """End every stream now, and every stream opened later."""
        self._closed = True
        for stream in tuple(self._streams.values()):
            stream.end()

    def sharded(self) -> Mapping[str, int]:
        """Return the number of open streams of a shard, by resource."""
        streams = (stream for stream in tuple(self._streams.values()) if stream.is_sharded and not stream.ended)
        return Counter(stream.target.resource for stream in streams)

    def end(self, resource: str, api_version: str) -> None:
        """End the streams of a resource in one version, because it is no longer served or has changed. They send the
        events of the changes so far; clients can resume.
        """
        for stream in tuple(self._streams.values()):
            if (stream.target.resource, stream.target.api_version) == (resource, api_version):
                stream.finish()

    def join(self, resource: str, stream: WatchStream) -> None:
        """Wake `stream` at the next change of `resource` that may concern it. It must have seen all existing
        changes.
        """
        waiting = self._waiting.get(resource)
        if waiting is None:
            waiting = self._waiting[resource] = _Waiting(self._cache.history(resource))
        waiting.join(stream)

    def leave(self, resource: str, stream: WatchStream) -> None:
        """Remove a waiting stream."""
        self._waiting[resource].leave(stream)

    def use_slices(self) -> None:
        """Notify streams in time slices like those of the running task."""
        if self._share is None:
            self._share = share_beside()

    def _publish(self, changes: Sequence[Change]) -> None:
        if len(changes) == 1:
            self._notify(changes[0].row.resource, changes)
            return
        by_resource: dict[str, list[Change]] = {}
        for change in changes:
            by_resource.setdefault(change.row.resource, []).append(change)
        for resource, its_changes in by_resource.items():
            self._notify(resource, its_changes)

    def _notify(self, resource: str, changes: Sequence[Change]) -> None:
        waiting = self._waiting.get(resource)
        if waiting is None:
            return
        self._called.extend(waiting.call(changes))
        if self._called and not self._is_notifying:
            self._is_notifying = True
            spawn(self._notify_called(), name="events of watches")

    async def _notify_called(self) -> None:
        """Notify the called streams in rounds. Streams called after a round began wait for the next one and send
        several changes together: without the interval, a third fewer GETs pass beside 400 watchers.
        """
        loop = asyncio.get_running_loop()
        if self._share is not None:
            self._share.enter()
        try:
            while self._called:
                if self._next_round > loop.time():
                    await asyncio.sleep(self._next_round - loop.time())
                called, self._called = self._called, []
                if self._share is not None:
                    self._next_round = loop.time() + min(len(called) * _EACH, _LONGEST)
                await self._notify_each(called)
        finally:  # a defect of one stream must not stop all others
            self._is_notifying = False

    async def _notify_each(self, called: Iterable[WatchStream]) -> None:
        """Notify streams between requests; those far behind without waiting for requests."""
        woken = 0
        for stream in called:
            if stream.is_late or woken >= _WOKEN:
                woken = 0
                await asyncio.sleep(0)
            else:
                await give_way()
            woken += not stream.speak()


class _Waiting:
    """The waiting streams of one resource: those that wait for any change, and, by path and value, those that wait for
    a change of an object that has this value before or after.
    """

    __slots__ = ("_begun", "_by_path", "_for_any", "_history")

    def __init__(self, history: Window) -> None:
        self._history = history
        self._begun = history.begun
        self._for_any: dict[WatchStream, None] = {}
        self._by_path: dict[str, dict[str, dict[WatchStream, None]]] = {}

    def __len__(self) -> int:
        by_value = (found for values in self._by_path.values() for found in values.values())
        return len(self._for_any) + sum(map(len, by_value))

    def join(self, stream: WatchStream) -> None:
        if stream.trigger is None:
            self._for_any[stream] = None
        else:
            path, value = stream.trigger
            self._by_path.setdefault(path, {}).setdefault(value, {})[stream] = None

    def leave(self, stream: WatchStream) -> None:
        if stream.trigger is None:
            self._for_any.pop(stream, None)
            return
        path, value = stream.trigger
        by_value = self._by_path.get(path)
        if by_value is None or value not in by_value:
            return
        by_value[value].pop(stream, None)
        if not by_value[value]:
            del by_value[value]
            if not by_value:
                del self._by_path[path]

    def call(self, changes: Sequence[Change]) -> Iterator[WatchStream]:
        """Call and yield the streams that the newest changes may concern; each continues at the first such change."""
        called, self._for_any = self._for_any, {}
        for stream in called:
            stream.called()
            yield stream
        if not self._by_path:
            return
        if self._history.begun != self._begun:
            yield from self._call_all()
            return
        position = self._history.end - len(changes)
        for at, change in enumerate(changes, position):
            for path in tuple(self._by_path):
                for stream in self._take_concerned(path, change):
                    stream.called(at, change.revision - 1)
                    yield stream

    def _take_concerned(self, path: str, change: Change) -> Iterator[WatchStream]:
        by_value = self._by_path[path]
        try:
            rows = (change.row,) if change.before is None else (change.before, change.row)
            values = dict.fromkeys(row.field(path) for row in rows)
        except Corrupt:
            values = dict.fromkeys(by_value)
        for value in values:
            yield from by_value.pop(value, ())
        if not by_value:
            del self._by_path[path]

    def _call_all(self) -> Iterator[WatchStream]:
        self._begun = self._history.begun
        called, self._by_path = self._by_path, {}
        for by_value in called.values():
            for streams in by_value.values():
                for stream in streams:
                    stream.called()
                    yield stream
