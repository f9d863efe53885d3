"""An informer: a local cache of one collection that follows the server and notifies subscribers of changes."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import aclosing
from typing import Generic, TypeVar

from msgspec.structs import replace

from controller_manager.common.api import errors
from controller_manager.common.api.model import Object
from controller_manager.common.api.platform import GROUP_DOMAIN
from controller_manager.common.api.resource import Key, key_of
from controller_manager.common.base import clock
from controller_manager.common.base.deadlines import MovingDeadlines
from controller_manager.common.base.errors import describe
from controller_manager.common.base.log import Logger
from controller_manager.common.base.metrics import Distribution
from controller_manager.common.base.random import random_source
from controller_manager.framework.cache.change import Change, InformerState, Progress, Selection, Subscriber
from controller_manager.framework.cache.indexer import Index, Indexer, Staged, UnreadableObjects
from controller_manager.framework.cache.metrics import PROCESSING
from controller_manager.framework.cache.reflector import (
    READ_TIMEOUT,
    List,
    Pause,
    Reflector,
    ReflectorAction,
    StreamingList,
    WatchFrom,
)
from controller_manager.framework.client.client import Client
from controller_manager.framework.client.codec import WatchEvent, WriteResult

T = TypeVar("T", bound=Object)

_END_OF_STATE = f"{GROUP_DOMAIN}/initial-events-end"


class Informer(Generic[T]):
    """A local cache of one collection. Reads are served from memory; the returned objects are shared and read-only.

    The cache is complete once `synced` returns, and follows the server while `run` runs.

    An object that cannot be decoded is left out and listed in `unreadable`. If it was cached before, subscribers get a
    `missed` change, because the old state is no longer valid although the object was not deleted.
    """

    def __init__(
        self,
        client: Client,
        selection: Selection[T],
        log: Logger,
        *,
        resync: float = 0.0,
        streams: bool = True,
        deadlines: MovingDeadlines | None = None,
    ) -> None:
        self.selection = selection
        self.processing = Distribution(PROCESSING.buckets)
        self._client = client
        self._log = log.bind(informer=str(selection))
        self._resync = resync
        self._resync_timer: asyncio.TimerHandle | None = None
        self._deadlines = MovingDeadlines() if deadlines is None else deadlines
        self._store: Indexer[T] = Indexer()
        self.unreadable = UnreadableObjects(self._log)
        self._reflector = Reflector(lambda low, high: random_source().uniform(low, high), streams)
        self._progress = Progress()
        self._subscribers: tuple[Subscriber[T], ...] = ()
        self._synced = asyncio.Event()
        # Callbacks by the uid of a cached object, called when it leaves the cache.
        self._until_gone: dict[str, list[Callable[[], None]]] = {}
        self._last_received: float | None = None

    def __len__(self) -> int:
        return len(self._store)

    def get(self, key: Key) -> T | None:
        """Return the object with that key; None if it is not cached."""
        return self._store.get(key)

    def by_index(self, name: str, value: str) -> list[T]:
        """Return the objects under `value` of the index `name`. Raises KeyError if the index was not declared."""
        return self._store.by_index(name, value)

    def list(self, namespace: str = "", labels: Mapping[str, str] | None = None) -> list[T]:
        """Return the objects of a namespace, or of all namespaces; with `labels`, only those that have all of them."""
        return self._store.list(namespace, labels)

    def add_indexes(self, indexes: Mapping[str, Index[T]]) -> None:
        """Add indexes. Raises ValueError if another function already has one of the names."""
        self._store.add_indexes(indexes)

    def subscribe(self, subscriber: Subscriber[T]) -> Callable[[], None]:
        """Call `subscriber` with every change, synchronously; return a function that unsubscribes.

        Cached objects come first, as initial changes. A subscriber must be fast and must not raise.
        """
        self._subscribers = (*self._subscribers, subscriber)
        for obj in self._store:
            subscriber(Change(None, obj, initial=True))
        return lambda: self._unsubscribe(subscriber)

    async def synced(self) -> None:
        """Wait until the whole collection has been read once."""
        await self._synced.wait()

    @property
    def is_synced(self) -> bool:
        """Return whether the whole collection has been read once."""
        return self._synced.is_set()

    @property
    def last_revision(self) -> str:
        """The resourceVersion up to which all changes are known; empty before the first listing."""
        return self._progress.revision

    @property
    def reflector(self) -> Reflector:
        """The reflector, with its counts and last error."""
        return self._reflector

    def age(self) -> float:
        """Seconds since the last message of the server (0 before the start); normally not much over a minute."""
        return 0.0 if self._last_received is None else clock.monotonic() - self._last_received

    def state(self) -> InformerState:
        """Return the state of the informer as plain data."""
        made = self._reflector
        return InformerState(
            selection=str(self.selection),
            objects=len(self),
            synced=self.is_synced,
            age=self.age(),
            revision=self.last_revision,
            lists=made.lists,
            watches=made.watches,
            failures=made.failures,
            last_error=made.last_error,
            unreadable=self.unreadable.sentences(),
        )

    def has_seen(self, write: WriteResult) -> bool:
        """Return whether the cache has observed the result of that write."""
        found = self._store.get(write.key)
        if write.gone:
            return found is None or found.metadata.uid != write.gone
        known = found is not None and found.metadata.resource_version == write.version
        return known or self._progress.reached(write.version)

    def has_reached(self, version: str) -> bool:
        """Return whether the cache has observed all changes up to a resourceVersion."""
        return self._progress.reached(version)

    def when_seen(self, write: WriteResult, call: Callable[[], None]) -> None:
        """Call `call` once the cache has observed that write, at once if it already has."""
        if self.has_seen(write):
            call()
        elif write.gone:
            self._until_gone.setdefault(write.gone, []).append(call)
        else:
            self._progress.when_reached(write.version, call)

    async def run(self) -> None:
        """List and watch the collection until cancelled; never returns."""
        self._last_received = clock.monotonic()
        if self._resync:
            self._resync_later()
        try:
            while True:
                await self._perform(self._reflector.step(clock.monotonic()))
        finally:
            if self._resync_timer is not None:
                self._resync_timer.cancel()

    async def _perform(self, step: ReflectorAction) -> None:
        try:
            match step:
                case Pause(seconds, failures):
                    # A single broken connection is normal, and so is the deletion of a CRD with its resource.
                    quiet = failures == 1 or (self.is_synced and self._reflector.is_unserved)
                    log = self._log.debug if quiet else self._log.warning
                    log("can't follow the collection", error=self._reflector.last_error, again_in=round(seconds, 3))
                    await asyncio.sleep(seconds)
                case List():
                    await self._read_pages(step)
                case StreamingList() | WatchFrom():
                    await self._follow(step)
                    self._reflector.ended(clock.monotonic())
        except errors.ApiError as refusal:
            self._reflector.refused(refusal)
        except TimeoutError:
            self._reflector.silent()
        except OSError as error:
            self._reflector.disconnected(describe(error))

    async def _read_pages(self, step: List) -> None:
        chosen, token = self.selection, ""
        staged: Staged[T] = Staged()
        while True:
            async with asyncio.timeout(step.read_timeout):
                page = await self._client.list(
                    chosen.resource,
                    chosen.namespace,
                    labels=chosen.labels,
                    fields=chosen.fields,
                    limit=step.page,
                    continue_token=token,
                )
            staged.page(page if chosen.shard is None else replace(page, items=list(filter(chosen.keeps, page.items))))
            token = page.continue_token
            if not token:
                break
        self._replace(staged, page.resource_version)

    async def _follow(self, step: StreamingList | WatchFrom) -> None:
        chosen = self.selection
        # The state that a streaming list has sent so far; None once it is complete.
        staged: Staged[T] | None = Staged() if isinstance(step, StreamingList) else None
        time, deadline = clock.loop_clock(), self._deadlines.deadline(step.read_timeout)

        def bookmarked(revision: str) -> None:
            if staged is None:
                self._last_received = now = time()
                deadline.due = now + READ_TIMEOUT
                self._advance(revision)

        events = self._client.watch(
            chosen.resource,
            chosen.namespace,
            resource_version=step.revision if isinstance(step, WatchFrom) else "",
            labels=chosen.labels,
            fields=chosen.fields,
            send_initial_events=isinstance(step, StreamingList),
            timeout=step.timeout,
            opened=lambda: self._reflector.opened(time()),
            bookmarked=bookmarked,
        )
        async with deadline, aclosing(events):
            async for event in events:
                now = self._last_received = time()
                staged = self._take(event, staged)
                if event.type != "BOOKMARK":
                    self.processing.observe(time() - now)
                deadline.due = now + (step.read_timeout if staged is not None else READ_TIMEOUT)

    def _take(self, event: WatchEvent[T], staged: Staged[T] | None) -> Staged[T] | None:
        """Apply one event; return the listing in progress after it, if any."""
        meta = event.object.metadata
        if event.type == "BOOKMARK":
            if staged is None:
                self._advance(meta.resource_version)
            elif (meta.annotations or {}).get(_END_OF_STATE) == "true":
                self._replace(staged, meta.resource_version)
                return None
        elif not self.selection.keeps(event.object):
            self._lose(key_of(event.object), staged)
            if staged is None:
                self._advance(meta.resource_version)
        elif staged is not None:
            staged.event(event)
        else:
            self._change(event)
            self._advance(meta.resource_version)
        return staged

    def _replace(self, complete: Staged[T], revision: str) -> None:
        """Replace the cache with a complete listing as of `revision`, and notify subscribers of the differences."""
        first, before, staged = not self.is_synced, self._store, complete.objects
        self.unreadable.replace(complete.unreadable)
        staged.add_indexes(before.indexes)
        self._store = staged
        for obj in before:
            if staged.get(key_of(obj)) is None:
                self._compare(obj, None, missed=True)
        if self._subscribers or len(before):
            for obj in staged.list():
                known = before.get(key_of(obj))
                if known is not None and _is_same(known, obj):
                    staged.put(known)
                else:
                    self._compare(known, obj, initial=first)
        self._reflector.listed(revision)
        self._progress.advance(revision)
        self._last_received = clock.monotonic()
        self._synced.set()

    def _change(self, event: WatchEvent[T]) -> None:
        """Apply an ADDED, MODIFIED or DELETED event to the cache."""
        obj, gone = event.object, event.type == "DELETED"
        key = key_of(obj)
        known = self._store.get(key)
        if event.unreadable and not gone:
            self.unreadable.add(key, event.unreadable)
        elif self.unreadable:
            self.unreadable.discard(key)
        if event.unreadable or gone:
            self._store.drop(key)
            self._compare(known, None, missed=not gone)
        elif known is None or not _is_same(known, obj):
            self._store.put(obj)
            self._compare(known, obj)

    def _lose(self, key: Key, staged: Staged[T] | None) -> None:
        """Remove an object that is not, or no longer, part of the selection."""
        if staged is not None:
            staged.objects.drop(key)
        else:
            self._compare(self._store.drop(key), None, missed=True)

    def _compare(self, before: T | None, after: T | None, *, initial: bool = False, missed: bool = False) -> None:
        """Notify subscribers of the change of one key. An object with another uid is another object."""
        if before is not None and (after is None or after.metadata.uid != before.metadata.uid):
            self._notify(Change(before, None, missed=missed))
            for call in self._until_gone.pop(before.metadata.uid, ()):
                call()
            before = None
        if after is not None:
            self._notify(Change(before, after, initial))

    def _advance(self, revision: str) -> None:
        self._reflector.note_revision(revision)
        self._progress.advance(self._reflector.revision)

    def _notify(self, change: Change[T]) -> None:
        for subscriber in self._subscribers:
            subscriber(change)

    def _unsubscribe(self, subscriber: Subscriber[T]) -> None:
        self._subscribers = tuple(other for other in self._subscribers if other is not subscriber)

    def _resync_later(self) -> None:
        pause = random_source().uniform(self._resync, 2 * self._resync)
        self._resync_timer = asyncio.get_running_loop().call_later(pause, self._resync_now)

    def _resync_now(self) -> None:
        self._resync_later()
        for obj in self._store.list():
            self._notify(Change(obj, obj, initial=True))


def _is_same(one: Object, other: Object) -> bool:
    """Return whether these are the same state of the same object."""
    mine, its = one.metadata, other.metadata
    return mine.uid == its.uid and mine.resource_version == its.resource_version
