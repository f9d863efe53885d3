"""A store with a hub, and readers of its watches."""

import asyncio
import json
from dataclasses import dataclass, field
from typing import Any

import msgspec

from apiserver_stub.encode.representations import RepresentationCache
from apiserver_stub.storage.interface import Write, as_of
from apiserver_stub.watch_cache.cache import WatchCache
from apiserver_stub.watch_cache.event_encoder import PLAIN, EventEncoder
from apiserver_stub.watch_cache.hub import Hub
from apiserver_stub.watch_cache.stream import WatchStream
from apiserver_stub.watch_cache.watcher import WatchOptions


@dataclass
class Cluster:
    """A store with a hub, and shorthand for writing Pods and reading events."""

    store: WatchCache
    representations: RepresentationCache
    hub: Hub
    readers: list[asyncio.Task[None]] = field(default_factory=list)

    async def put(self, name: str, text: str = "", node: str = "", **labels: str) -> int:
        """Write a Pod; returns its revision."""
        namespace, _, short = name.partition("/")

        metadata = {"name": short, "namespace": namespace, "labels": labels, "resourceVersion": ""}
        data = msgspec.json.encode({"metadata": metadata, "spec": {"nodeName": node}, "text": text})
        row = self.store.get("pods", name)
        return (await self.store.commit(Write("pods", name, row.revision if row else 0, data))).revision

    async def delete(self, name: str) -> int:
        row = self.store.get("pods", name)
        assert row is not None
        data = as_of(row.data, "")
        return (await self.store.commit(Write("pods", name, row.revision, data, deleted=True))).revision

    def watch(self, represent: EventEncoder = PLAIN, **options: Any) -> "WatchReader":
        """Open a watch and read it until it ends."""
        stream = self.hub.open("pods", "v1", "Pod", WatchOptions(**options), represent)
        seen = WatchReader(stream)
        self.readers.append(asyncio.get_running_loop().create_task(seen.read()))
        return seen


class WatchReader:
    """The chunks and events of a stream so far."""

    def __init__(self, stream: WatchStream) -> None:
        self.stream = stream
        self.chunks: list[bytes] = []
        self.ended = False

    async def read(self) -> None:
        async for chunk in self.stream:
            assert chunk.endswith(b"\n")
            self.chunks.append(chunk)
        self.ended = True

    @property
    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in b"".join(self.chunks).splitlines()]

    @property
    def short(self) -> list[str]:
        """Events in the form `ADDED a 5`."""
        return [
            f"{event['type']} {event['object']['metadata'].get('name', '-')} "
            f"{event['object']['metadata'].get('resourceVersion', '-')}"
            for event in self.events
        ]
