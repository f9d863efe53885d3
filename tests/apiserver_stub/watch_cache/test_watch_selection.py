"""Selective watches: what wakes them, and their events, in virtual time."""

import asyncio
from typing import Any

import pytest

from apiserver_stub.storage.interface import Record
from controller_manager.common.api.selectors import FieldSelector, LabelSelector
from tests.apiserver_stub.watch_cache.conftest import ready
from tests.apiserver_stub.watch_cache.watch_readers import Cluster, WatchReader

pytestmark = pytest.mark.virtual


def on_node(node: str) -> dict[str, Any]:
    return {"fields": FieldSelector.parse(f"spec.nodeName={node}"), "trigger": ("spec.nodeName", node)}


def count_looks(seen: WatchReader, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return a list that grows whenever the watcher of a stream is polled."""
    looks: list[float] = []
    watcher = seen.stream._watcher
    take = watcher.take

    def counted(now: float) -> bytes:
        looks.append(now)
        return take(now)

    monkeypatch.setattr(watcher, "take", counted)
    return looks


async def test_watch_of_one_node_wakes_only_for_its_pods(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    await cluster.put("ns/mine", node="n1")
    seen = cluster.watch(start=2, **on_node("n1"))
    await ready()
    looks = count_looks(seen, monkeypatch)
    for number in range(150):  # more than the history holds
        await cluster.put(f"ns/{number}", node="n2")
    await ready()
    assert looks == []
    await cluster.put("ns/0", node="n1")
    await cluster.put("ns/mine", node="n3")
    await cluster.put("ns/1", node="n3")
    await ready()
    assert seen.short == ["ADDED 0 153", "DELETED mine 154"]
    await cluster.delete("ns/0")
    await ready()
    assert seen.short[2:] == ["DELETED 0 156"]


async def test_idle_selective_watch_is_current_at_its_bookmark(cluster: Cluster) -> None:
    seen = cluster.watch(start=1, bookmarks=True, timeout=3600, **on_node("n1"))
    await ready()
    for number in range(150):
        await cluster.put(f"ns/{number}", node="n2")
    await asyncio.sleep(61)
    assert seen.short == ["BOOKMARK - 151"]
    await cluster.put("ns/a", node="n1")
    await ready()
    assert seen.short == ["BOOKMARK - 151", "ADDED a 152"]


async def test_many_watches_are_woken_in_rounds(cluster: Cluster) -> None:
    watches = [cluster.watch(start=1) for _ in range(200)]
    await ready()
    await cluster.put("ns/a")
    notified = []
    while len(notified) < 20 and (not notified or notified[-1] < len(watches)):
        await asyncio.sleep(0)
        notified.append(sum(map(bool, (seen.chunks for seen in watches))))
    assert max(after - before for before, after in zip([0, *notified], notified, strict=False)) <= 64
    assert [seen.short for seen in watches] == [["ADDED a 2"]] * 200


@pytest.mark.parametrize("namespace", ["", "ns"])
async def test_namespace_watch_equals_selective_watch(cluster: Cluster, namespace: str) -> None:
    first = await cluster.put("ns/a", app="web")
    await cluster.put("ns/b", app="web")
    row = cluster.store.get("pods", "ns/b")
    assert row is not None
    row.hold((row.data[:20], row.data[20:]))
    if not namespace:
        await cluster.put("other/c", app="web")
    chosen = LabelSelector.parse("app=web")
    starts = None, first
    watches = [
        (cluster.watch(start=start, namespace=namespace), cluster.watch(start=start, namespace="ns", labels=chosen))
        for start in starts
    ]
    await cluster.put("ns/a", app="web")
    await cluster.delete("ns/b")
    await cluster.delete("ns/a")
    await ready()
    for whole, chosen_of in watches:
        of_all = [event for event in whole.events if event["object"]["metadata"]["namespace"] == "ns"]
        assert of_all == chosen_of.events
        assert len(of_all) == len(whole.events) - (not namespace)
    assert watches[0][0].short[:2] == ["ADDED a 2", "ADDED b 3"]


async def test_bookmark_timer_skips_no_pending_event(cluster: Cluster) -> None:
    watches = [cluster.watch(start=1) for _ in range(200)]
    last = cluster.watch(start=1, bookmarks=True, timeout=3600, **on_node("n1"))
    await ready()
    cluster.store.subscribe(lambda changes: last.stream._ring())  # when some are already woken
    await cluster.put("ns/a", node="n1")
    await asyncio.sleep(1)
    assert last.short == watches[0].short == ["ADDED a 2"]


async def test_watch_of_one_node_ends_at_unreadable_object(cluster: Cluster) -> None:
    seen = cluster.watch(start=1, **on_node("n1"))
    await ready()
    broken = Record(2, "pods", "ns/broken", b"", False, 0.0, decode_error="it is no object")
    cluster.store._deliver([broken], 2)
    await ready()
    assert seen.ended
