"""Watches that push to a sink at once and leave the rest to their reader, in virtual time."""

import asyncio
import json
import math
from itertools import pairwise
from typing import Any

import pytest

from apiserver_stub.common.streams import EndingStream, ObservedStream
from apiserver_stub.watch_cache.event_encoder import PLAIN, EventEncoder
from apiserver_stub.watch_cache.stream import WatchStream
from apiserver_stub.watch_cache.watcher import WatchOptions
from controller_manager.common.base.fair_loop import Share, Slices
from tests.apiserver_stub.watch_cache.conftest import ready
from tests.apiserver_stub.watch_cache.watch_readers import Cluster, WatchReader
from tests.pace import end_slices_at_each_look

pytestmark = pytest.mark.virtual

LOWER = EventEncoder("lower", frame=lambda kind, data: PLAIN.event(kind.lower(), data))


class Pushed(WatchReader):
    """The chunks pushed to a sink and those read; the reader gets an empty chunk when it should check the sink."""

    def __init__(self, stream: WatchStream) -> None:
        super().__init__(stream)
        self.is_taken = True
        self.looked = 0
        stream.push_to(self.take)

    def take(self, chunk: bytes) -> bool:
        self.chunks.append(chunk)
        return self.is_taken

    async def read(self) -> None:
        async for chunk in self.stream:
            self.looked += not chunk
            self.chunks.append(chunk)
        self.ended = True


def pushed(cluster: Cluster, **options: Any) -> Pushed:
    seen = Pushed(cluster.hub.open("pods", "v1", "Pod", WatchOptions(**options)))
    cluster.readers.append(asyncio.get_running_loop().create_task(seen.read()))
    return seen


async def test_stream_with_sink_pushes_and_its_reader_gets_the_rest(cluster: Cluster) -> None:
    await cluster.put("ns/a")
    seen = pushed(cluster, timeout=90, bookmarks=True)
    await ready()
    assert seen.short == ["ADDED a 2"]  # by its reader
    await cluster.put("ns/b")
    await ready()
    await cluster.delete("ns/a")
    await ready()
    assert (seen.short, seen.looked) == (["ADDED a 2", "ADDED b 3", "DELETED a 4"], 0)
    await asyncio.sleep(61)
    assert seen.short[3:] == ["BOOKMARK - 4"]
    seen.is_taken = False
    await cluster.put("ns/c")
    await ready()
    assert seen.looked == 1
    await cluster.put("ns/d", text="x" * 300_000)  # too much to be pushed at once
    await asyncio.sleep(30)
    assert seen.short[3:] == ["BOOKMARK - 4", "ADDED c 5", "ADDED d 6", "BOOKMARK - 6"]
    assert seen.ended


class PushedBookmarks(Pushed):
    """The bookmarks pushed to a sink, separate from the chunks of the reader."""

    def __init__(self, stream: WatchStream) -> None:
        WatchReader.__init__(self, stream)
        self.is_taken, self.looked = True, 0
        self.sunk: list[bytes] = []
        ObservedStream(stream, lambda: None).push_bookmarks_to(self.take)

    def take(self, chunk: bytes) -> bool:
        self.sunk.append(chunk)
        return self.is_taken

    @property
    def reached(self) -> list[str]:
        return [json.loads(chunk)["object"]["metadata"]["resourceVersion"] for chunk in self.sunk]


async def test_bookmarks_are_pushed_and_other_events_read(cluster: Cluster) -> None:
    options = WatchOptions(start=1, timeout=200, bookmarks=True)
    seen = PushedBookmarks(cluster.hub.open("pods", "v1", "Pod", options))
    cluster.readers.append(asyncio.get_running_loop().create_task(seen.read()))
    await ready()
    await cluster.put("ns/a")
    await asyncio.sleep(61)
    assert (seen.reached, seen.short, seen.looked) == (["2"], ["ADDED a 2"], 0)
    await cluster.put("other/b")
    seen.is_taken = False
    await asyncio.sleep(60)
    assert (seen.reached, seen.short, seen.looked) == (["2", "3"], ["ADDED a 2", "ADDED b 3"], 1)
    seen.is_taken = True
    await asyncio.sleep(60)
    assert not seen.ended
    await asyncio.sleep(30)
    assert seen.reached == ["2", "3", "3", "3"]
    assert seen.ended


async def test_streams_send_changes_that_collected_together(cluster: Cluster) -> None:
    end_slices_at_each_look()
    Share(Slices(asyncio.get_running_loop())).enter()
    watches = [pushed(cluster, start=1) for _ in range(100)]
    await ready()
    for name in ("a", "b", "c"):
        await cluster.put(f"ns/{name}")
    await asyncio.sleep(1)
    assert watches[-1].short == ["ADDED a 2", "ADDED b 3", "ADDED c 4"]
    assert len(watches[-1].chunks) == 1
    assert len({id(seen.chunks[-1]) for seen in watches[-20:]}) == 1, "they share the bytes"


async def test_changes_after_a_round_wait_for_the_next_one(cluster: Cluster) -> None:
    Share(Slices(asyncio.get_running_loop())).enter()
    watches = [pushed(cluster, start=1) for _ in range(100)]
    await ready()
    await cluster.put("ns/a")
    while not watches[0].chunks:  # noqa: ASYNC110 - there is no event to wait for
        await asyncio.sleep(0)
    for name in ("b", "c"):
        await cluster.put(f"ns/{name}")
    await asyncio.sleep(0.009)  # a round of 100 streams takes 10 ms at least
    assert len(watches[0].chunks) == 1
    await asyncio.sleep(0.01)
    assert [chunk.count(b"\n") for chunk in watches[0].chunks] == [1, 2]


async def test_streams_give_way_to_requests_between_pushes(cluster: Cluster) -> None:
    end_slices_at_each_look()
    Share(Slices(asyncio.get_running_loop())).enter()
    watches = [pushed(cluster, start=1) for _ in range(100)]
    await ready()
    await cluster.put("ns/a")
    counts = [0]
    while counts[-1] < len(watches):
        await asyncio.sleep(0)
        counts.append(sum(bool(seen.chunks) for seen in watches))
    assert max(after - before for before, after in pairwise(counts)) == 1


async def test_joined_chunks_are_shared_by_position_and_form(cluster: Cluster) -> None:
    Share(Slices(asyncio.get_running_loop())).enter()
    await cluster.put("ns/z")
    for name in ("ns/a", "of/b", "ns/c"):
        await cluster.put(name)
    whole, late = pushed(cluster, start=2), pushed(cluster, start=3)
    ours, theirs = (pushed(cluster, start=2, namespace=name) for name in ("ns", "of"))
    lower = Pushed(cluster.hub.open("pods", "v1", "Pod", WatchOptions(start=2), LOWER))
    cluster.readers.append(asyncio.get_running_loop().create_task(lower.read()))
    for number in range(3):
        await asyncio.sleep(0.1)
        assert whole.short[1:] == late.short
        assert [line.lower() for line in whole.short] == lower.short
        for seen, namespace in ((ours, "ns"), (theirs, "of")):
            of_it = [event for event in whole.events if event["object"]["metadata"]["namespace"] == namespace]
            assert seen.events == of_it
        await asyncio.gather(cluster.put(f"ns/n{number}"), cluster.put(f"of/n{number}"))
    assert len(whole.events) >= 7


async def test_ended_stream_pushes_nothing(cluster: Cluster) -> None:
    stream = cluster.hub.open("pods", "v1", "Pod", WatchOptions(start=1))
    ending = EndingStream(ObservedStream(stream, lambda: None), math.inf)
    chunks: list[bytes] = []

    def take(chunk: bytes) -> bool:
        chunks.append(chunk)
        return True

    async def read() -> None:
        async for chunk in ending:
            take(chunk)

    ending.push_to(take)
    cluster.readers.append(asyncio.get_running_loop().create_task(read()))
    await ready()
    await cluster.put("ns/a")
    await ready()
    assert len(chunks) == 1
    ending.end()
    assert stream._sink is not None
    assert stream._sink(b"late")  # in the same round of the loop, before its reader runs
    await cluster.put("ns/b")
    await ready()
    assert len(chunks) == 1
