"""All informers of one process: one per selection, shared by all callers, each running in its own task."""

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
from controller_manager.framework.client.client import Client
from controller_manager.framework.client.discovery import DiscoveryClient

T = TypeVar("T", bound=Object)


class Informers:
    """The shared informers of a process. They run while `run` runs; an informer requested later starts at once.

    With `resync`, every informer notifies its subscribers of all objects again after a random time between `resync` and
    twice `resync` seconds. With `streams`, informers use streaming lists if the server supports them.
    """

    def __init__(self, client: Client, runtime: Runtime, *, resync: float = 0.0, streams: bool = True) -> None:
        self._client = client
        self.discovery = DiscoveryClient(client)
        """The resources that the server serves, shared by all controllers that follow every resource."""
        self._log = runtime.log("cache")
        self._resync = resync
        self._streams = streams
        self._deadlines = MovingDeadlines()  # shared by all watches
        self._informers: dict[Selection[Any], Informer[Any]] = {}
        # The same informers by group and plural of their resource, for all versions.
        self._alike: dict[tuple[str, str], tuple[Informer[Any], ...]] = {}
        # Informers that exist only for borrowers, with the number of borrowers.
        self._shared: dict[Selection[Any], int] = {}
        self._tasks: Tasks | None = None
        self._running: dict[Selection[Any], asyncio.Task[None]] = {}
        runtime.registry.register(CacheMetrics(self, runtime.name))

    def __iter__(self) -> Iterator[Informer[Any]]:
        return iter(tuple(self._informers.values()))

    def get(self, resource: Resource[T], *, namespace: str = "", labels: str = "", fields: str = "") -> Informer[T]:
        """Return the informer of these objects; all callers with the same arguments share it."""
        selection = Selection(resource, namespace, labels, fields)
        self._shared.pop(selection, None)
        informer = self._informers.get(selection)
        return self._make(selection) if informer is None else informer

    def acquire(self, resource: Resource[Any]) -> Informer[Any]:
        """Borrow an informer of all objects of a resource until `release`.

        It may be an existing informer that reads another version or form of the resource. A new one does not affect
        the health of the process.
        """
        for informer in self._of(resource):
            if _is_whole(informer.selection):
                return self.borrow(informer.selection)
        return self.borrow(Selection(resource))

    def borrow(self, selection: Selection[T]) -> Informer[T]:
        """Borrow the informer of a selection until `release`; create it if it does not exist."""
        informer = self._informers.get(selection)
        if informer is None:
            informer = self._make(selection)
            self._shared[selection] = 0
        if selection in self._shared:
            self._shared[selection] += 1
        return informer

    def release(self, informer: Informer[Any]) -> None:
        """Return a borrowed informer. An informer that exists only for borrowers stops with the last of them."""
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
        """The informers that do not exist only for borrowers."""
        return tuple(informer for chosen, informer in self._informers.items() if chosen not in self._shared)

    @property
    def filling(self) -> tuple[Informer[Any], ...]:
        """The informers that are not synced, without failing ones that exist only for borrowers."""
        unread = (informer for informer in self if not informer.is_synced)
        return tuple(one for one in unread if one.selection not in self._shared or not one.reflector.is_failing)

    def covering(self, resource: Resource[Any], key: Key) -> Iterator[Informer[Any]]:
        """Yield the informers that see every write to that object: they select by namespace and name at most."""
        for informer in self._of(resource):
            chosen = informer.selection
            by_name = chosen.fields in ("", f"metadata.name={key.name}")
            if chosen.namespace in ("", key.namespace) and by_name and not chosen.labels:
                yield informer

    async def run(self) -> None:
        """Run all informers until cancelled. A failing informer does not affect the others."""
        async with Tasks() as self._tasks:
            for informer in self:
                self._start(informer)
            try:
                await asyncio.Event().wait()
            finally:
                self._tasks = None
                self._running.clear()

    def _of(self, resource: Resource[Any]) -> Iterator[Informer[Any]]:
        """Yield the informers of a resource in any version, except those of shards."""
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
    """The informers of one shard, borrowed from those of the process until `close`.

    Cluster-scoped objects and those of the `undivided` resources are complete, in informers that all shards share. Of
    other resources the server sends all changes, and the informers drop the objects of other shards.
    """

    def __init__(self, whole: Informers, shard: Shard, undivided: Collection[str] = ()) -> None:
        self._whole = whole
        self._shard = shard
        self._undivided = undivided
        self._borrowed: dict[Selection[Any], Informer[Any]] = {}

    def __iter__(self) -> Iterator[Informer[Any]]:
        return iter(tuple(self._borrowed.values()))

    def get(self, resource: Resource[T], *, namespace: str = "", labels: str = "", fields: str = "") -> Informer[T]:
        """Return the informer of these objects, limited to those that belong to the shard."""
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
        """Release all borrowed informers."""
        for informer in self._borrowed.values():
            self._whole.release(informer)
        self._borrowed.clear()


def _is_whole(chosen: Selection[Any]) -> bool:
    """Return whether a selection has all objects of a resource."""
    return not (chosen.namespace or chosen.labels or chosen.fields or chosen.shard)
