"""All informers of one process: one per selection, shared by whoever asks, each running on its own."""

import asyncio
from collections.abc import Iterator
from typing import Any, TypeVar

from controller_manager.api.model import Object
from controller_manager.api.resource import Key, Resource
from controller_manager.base.runtime import Runtime
from controller_manager.base.tasks import Tasks, keep_running
from controller_manager.cache.change import Selection
from controller_manager.cache.informer import Informer
from controller_manager.cache.metrics import CacheMetrics
from controller_manager.client import Client

T = TypeVar("T", bound=Object)


class Informers:
    """Informers run while `run` runs; one that is first asked for after that starts at once.

    With `resync`, every informer shows all its objects again after a random time between that and twice that. With
    `streams` they are filled by streaming lists where the server offers them.
    """

    def __init__(self, client: Client, runtime: Runtime, *, resync: float = 0.0, streams: bool = True) -> None:
        self._client = client
        self._log = runtime.log("cache")
        self._resync = resync
        self._streams = streams
        self._informers: dict[Selection[Any], Informer[Any]] = {}
        self._tasks: Tasks | None = None
        runtime.registry.register(CacheMetrics(self, runtime.name))

    def __iter__(self) -> Iterator[Informer[Any]]:
        return iter(tuple(self._informers.values()))

    def get(self, resource: Resource[T], *, namespace: str = "", labels: str = "", fields: str = "") -> Informer[T]:
        """The informer of these objects; the same one for everybody who asks for the same."""
        selection = Selection(resource, namespace, labels, fields)
        informer = self._informers.get(selection)
        if informer is None:
            informer = Informer(self._client, selection, self._log, resync=self._resync, streams=self._streams)
            self._informers[selection] = informer
            self._start(informer)
        return informer

    def covering(self, resource: Resource[Any], key: Key) -> Iterator[Informer[Any]]:
        """The informers that are sure to hear of every write to that object: those without selectors."""
        for informer in self:
            chosen = informer.selection
            if (
                chosen.resource.name == resource.name
                and chosen.namespace in ("", key.namespace)
                and not (chosen.labels or chosen.fields)
            ):
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

    def _start(self, informer: Informer[Any]) -> None:
        if self._tasks is not None:
            name = f"informer {informer.selection}"
            self._tasks.start(keep_running(informer.run, self._log, name=name), name=name)
