"""All informers of one process: one per selection, shared by whoever asks, each running on its own."""

import asyncio
from collections.abc import Collection, Iterator
from typing import Any, TypeVar

from controller_manager.common.api.model import Object
from controller_manager.common.api.resource import Key, Resource
from controller_manager.common.base.deadlines import MovingDeadlines
from controller_manager.common.base.runtime import Runtime
from controller_manager.common.base.tasks import Tasks, keep_running
from controller_manager.framework.cache.change import Selection
from controller_manager.framework.cache.informer import Informer
from controller_manager.framework.cache.metrics import CacheMetrics
from controller_manager.framework.cache.shard import Shard
from controller_manager.framework.client import Client
from controller_manager.framework.client.discovery import DiscoveryClient

T = TypeVar("T", bound=Object)


class Informers:
    """Informers run while `run` runs; one that is first asked for after that starts at once.

    With `resync`, every informer shows all its objects again after a random time between that and twice that. With
    `streams` they are filled by streaming lists where the server offers them.
    """

    def __init__(self, client: Client, runtime: Runtime, *, resync: float = 0.0, streams: bool = True) -> None:
        self._client = client
        self.discovery = DiscoveryClient(client)
        """The resources that the server has, which all ask for who follow whatever there is."""
        self._log = runtime.log("cache")
        self._resync = resync
        self._streams = streams
        self._deadlines = MovingDeadlines()  # of all their watches
        self._informers: dict[Selection[Any], Informer[Any]] = {}
        # The same by group and plural of their resource, in whatever version.
        self._alike: dict[tuple[str, str], tuple[Informer[Any], ...]] = {}
        # Those that are there for borrowers alone, and how many of these there are.
        self._shared: dict[Selection[Any], int] = {}
        self._tasks: Tasks | None = None
        self._running: dict[Selection[Any], asyncio.Task[None]] = {}
        runtime.registry.register(CacheMetrics(self, runtime.name))

    def __iter__(self) -> Iterator[Informer[Any]]:
        return iter(tuple(self._informers.values()))

    def get(self, resource: Resource[T], *, namespace: str = "", labels: str = "", fields: str = "") -> Informer[T]:
        """The informer of these objects; the same one for everybody who asks for the same."""
        selection = Selection(resource, namespace, labels, fields)
        self._shared.pop(selection, None)
        informer = self._informers.get(selection)
        return self._make(selection) if informer is None else informer

    def acquire(self, resource: Resource[Any]) -> Informer[Any]:
        """An informer of all objects of a resource, until `release`: one that is there anyway, whatever version and
        form it reads, or else one of its own, which nobody's health depends on.
        """
        for informer in self._of(resource):
            if _is_whole(informer.selection):
                return self.borrow(informer.selection)
        return self.borrow(Selection(resource))

    def borrow(self, selection: Selection[T]) -> Informer[T]:
        """The informer of a selection, until `release`: one that is there anyway, or one of its own."""
        informer = self._informers.get(selection)
        if informer is None:
            informer = self._make(selection)
            self._shared[selection] = 0
        if selection in self._shared:
            self._shared[selection] += 1
        return informer

    def release(self, informer: Informer[Any]) -> None:
        """Borrow an informer no longer; one that was there for borrowers alone ends with the last of them."""
        chosen = informer.selection
        if chosen not in self._shared or self._informers.get(chosen) is not informer:
            return
        self._shared[chosen] -= 1
        if not self._shared[chosen]:
            del self._shared[chosen], self._informers[chosen]
            name = chosen.resource.group, chosen.resource.plural
            self._alike[name] = tuple(one for one in self._alike[name] if one is not informer)
            if not self._alike[name]:
                del self._alike[name]
            task = self._running.pop(chosen, None)
            if task is not None:
                task.cancel()

    @property
    def required(self) -> tuple[Informer[Any], ...]:
        """Those that are not there for borrowers alone."""
        return tuple(informer for chosen, informer in self._informers.items() if chosen not in self._shared)

    @property
    def filling(self) -> tuple[Informer[Any], ...]:
        """Those that have yet to read everything; of those that are there for borrowers, without those that fail."""
        unread = (informer for informer in self if not informer.is_synced)
        return tuple(one for one in unread if one.selection not in self._shared or not one.reflector.is_failing)

    def covering(self, resource: Resource[Any], key: Key) -> Iterator[Informer[Any]]:
        """The informers that are sure to hear of every write to that object: those that select by its name at most."""
        for informer in self._of(resource):
            chosen = informer.selection
            by_name = chosen.fields in ("", f"metadata.name={key.name}")
            if chosen.namespace in ("", key.namespace) and by_name and not chosen.labels:
                yield informer

    async def run(self) -> None:
        """Keep every informer up to date until cancelled; one that can't be holds up no other."""
        async with Tasks() as self._tasks:
            for informer in self:
                self._start(informer)
            try:
                await asyncio.Event().wait()
            finally:
                self._tasks = None
                self._running.clear()

    def _of(self, resource: Resource[Any]) -> Iterator[Informer[Any]]:
        """The informers of some of a resource's objects, in whatever version, but for those of shards."""
        alike = self._alike.get((resource.group, resource.plural), ())
        return (one for one in alike if one.selection.shard is None)

    def _make(self, selection: Selection[Any]) -> Informer[Any]:
        informer = Informer(
            self._client,
            selection,
            self._log,
            resync=self._resync,
            streams=self._streams,
            deadlines=self._deadlines,
        )
        self._informers[selection] = informer
        name = selection.resource.group, selection.resource.plural
        self._alike[name] = (*self._alike.get(name, ()), informer)
        self._start(informer)
        return informer

    def _start(self, informer: Informer[Any]) -> None:
        if self._tasks is not None:
            name = f"informer {informer.selection}"
            running = self._tasks.start(keep_running(informer.run, self._log, name=name), name=name, detached=True)
            self._running[informer.selection] = running


class ShardInformers(Informers):
    """The informers of one shard, in place of all informers of a process, until `close`.

    Objects without a namespace, and those of the resources named `undivided`, are all there, in informers that every
    shard shares. All changes come from the server, and what is of other shards is not held.
    """

    def __init__(self, whole: Informers, shard: Shard, undivided: Collection[str] = ()) -> None:
        self._whole = whole
        self._shard = shard
        self._undivided = undivided
        self._borrowed: dict[Selection[Any], Informer[Any]] = {}

    def __iter__(self) -> Iterator[Informer[Any]]:
        return iter(tuple(self._borrowed.values()))

    def get(self, resource: Resource[T], *, namespace: str = "", labels: str = "", fields: str = "") -> Informer[T]:
        """The informer of those of these objects that belong to the shard."""
        divided = resource.namespaced and resource.name not in self._undivided
        selection = Selection(resource, namespace, labels, fields, self._shard if divided else None)
        informer = self._borrowed.get(selection)
        if informer is None:
            informer = self._borrowed[selection] = self._whole.borrow(selection)
        return informer

    def _of(self, resource: Resource[Any]) -> Iterator[Informer[Any]]:
        name = resource.group, resource.plural
        return (one for one in self if (one.selection.resource.group, one.selection.resource.plural) == name)

    def close(self) -> None:
        """Give all of them back."""
        for informer in self._borrowed.values():
            self._whole.release(informer)
        self._borrowed.clear()


def _is_whole(chosen: Selection[Any]) -> bool:
    """Return whether a selection is that of all objects of a resource."""
    return not (chosen.namespace or chosen.labels or chosen.fields or chosen.shard)
