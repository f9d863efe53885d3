"""A local copy of one collection that keeps itself up to date and tells subscribers what changed."""

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
from controller_manager.framework.client import Client, WatchEvent, WriteResult

T = TypeVar("T", bound=Object)

_END_OF_STATE = f"{GROUP_DOMAIN}/initial-events-end"


class Informer(Generic[T]):
    """Reads are answered from memory, once `synced`; what they return is shared and must not be changed.

    It keeps itself up to date while `run` runs, whatever the server does meanwhile.

    An object that does not fit its type is left out and in `unreadable`; the others are as ever. If it was here before,
    it leaves with a `missed` change: an old state must not pass for what there is, and nobody said it was deleted.
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
        # By uid of an object that is here: whom to call when it no longer is.
        self._until_gone: dict[str, list[Callable[[], None]]] = {}
        self._last_heard: float | None = None

    def __len__(self) -> int:
        return len(self._store)

    def get(self, key: Key) -> T | None:
        """The object of that key."""
        return self._store.get(key)

    def by_index(self, name: str, value: str) -> list[T]:
        """The objects under `value` of the index `name`; KeyError if nobody declared that index."""
        return self._store.by_index(name, value)

    def list(self, namespace: str = "", labels: Mapping[str, str] | None = None) -> list[T]:
        """The objects of a namespace, or all; with `labels`, those that have all of them."""
        return self._store.list(namespace, labels)

    def add_indexes(self, indexes: Mapping[str, Index[T]]) -> None:
        """Keep these indexes too. Another function under a name that is taken is a ValueError."""
        self._store.add_indexes(indexes)

    def subscribe(self, subscriber: Subscriber[T]) -> Callable[[], None]:
        """Call `subscriber` with every change, right when it is made; the returned function ends that.

        Objects known already come first, as initial changes. A subscriber only takes note: it must not raise.
        """
        self._subscribers = (*self._subscribers, subscriber)
        for obj in self._store:
            subscriber(Change(None, obj, initial=True))
        return lambda: self._unsubscribe(subscriber)

    async def synced(self) -> None:
        """Wait until the whole collection was read once."""
        await self._synced.wait()

    @property
    def is_synced(self) -> bool:
        """Return whether the whole collection was read once."""
        return self._synced.is_set()

    @property
    def last_revision(self) -> str:
        """The resourceVersion up to which every change is known; empty before the first listing."""
        return self._progress.revision

    @property
    def reflector(self) -> Reflector:
        """Its counts, and what went wrong last."""
        return self._reflector

    def age(self) -> float:
        """Seconds since anything was heard from the server (0 before the start); normally not much over a minute."""
        return 0.0 if self._last_heard is None else clock.monotonic() - self._last_heard

    def state(self) -> InformerState:
        """Return what it holds now, and how it came to that."""
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
        """Return whether what became of the object by that write is known here."""
        found = self._store.get(write.key)
        if write.gone:
            return found is None or found.metadata.uid != write.gone
        known = found is not None and found.metadata.resource_version == write.version
        return known or self._progress.reached(write.version)

    def has_reached(self, version: str) -> bool:
        """Return whether every change up to a resourceVersion is known here."""
        return self._progress.reached(version)

    def when_seen(self, write: WriteResult, call: Callable[[], None]) -> None:
        """Call `call` once that is known here: at once if it is."""
        if self.has_seen(write):
            call()
        elif write.gone:
            self._until_gone.setdefault(write.gone, []).append(call)
        else:
            self._progress.when_reached(write.version, call)

    async def run(self) -> None:
        """Keep the copy up to date; never returns."""
        self._last_heard = clock.monotonic()
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
                    # One broken connection is everyday life, and so is that a definition is deleted with its resource.
                    quiet = failures == 1 or (self.is_synced and self._reflector.is_unserved)
                    tell = self._log.debug if quiet else self._log.warning
                    tell("can't follow the collection", error=self._reflector.last_error, again_in=round(seconds, 3))
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
        # The state as a stream tells it, until it is complete.
        staged: Staged[T] | None = Staged() if isinstance(step, StreamingList) else None
        time, deadline = clock.loop_clock(), self._deadlines.deadline(step.read_timeout)

        def bookmarked(revision: str) -> None:
            if staged is None:
                self._last_heard = now = time()
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
                now = self._last_heard = time()
                staged = self._take(event, staged)
                if event.type != "BOOKMARK":
                    self.processing.observe(time() - now)
                deadline.due = now + (step.read_timeout if staged is not None else READ_TIMEOUT)

    def _take(self, event: WatchEvent[T], staged: Staged[T] | None) -> Staged[T] | None:
        """Take in one event; return what is staged after it."""
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
        """The copy is `complete` now, as of `revision`; what differs from the one before is a change."""
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
        self._last_heard = clock.monotonic()
        self._synced.set()

    def _change(self, event: WatchEvent[T]) -> None:
        """An object is as it is told now, or was when it went."""
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
        """The object of that key is none of the selection, any more if it was."""
        if staged is not None:
            staged.objects.drop(key)
        else:
            self._compare(self._store.drop(key), None, missed=True)

    def _compare(self, before: T | None, after: T | None, *, initial: bool = False, missed: bool = False) -> None:
        """Tell what became of the object of one key; one with another uid is another object."""
        if before is not None and (after is None or after.metadata.uid != before.metadata.uid):
            self._tell(Change(before, None, missed=missed))
            for call in self._until_gone.pop(before.metadata.uid, ()):
                call()
            before = None
        if after is not None:
            self._tell(Change(before, after, initial))

    def _advance(self, revision: str) -> None:
        self._reflector.heard(revision)
        self._progress.advance(self._reflector.revision)

    def _tell(self, change: Change[T]) -> None:
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
            self._tell(Change(obj, obj, initial=True))


def _is_same(one: Object, other: Object) -> bool:
    """Return whether these are the same state of the same object."""
    mine, its = one.metadata, other.metadata
    return mine.uid == its.uid and mine.resource_version == its.resource_version
