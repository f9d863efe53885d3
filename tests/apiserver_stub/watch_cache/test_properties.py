"""For any writes and selector, the events of a watch add up to the result of a list."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from apiserver_stub.encode.representations import RepresentationCache
from apiserver_stub.storage.backend import Done
from apiserver_stub.storage.embedded import EmbeddedStorage, StorageRules
from apiserver_stub.storage.interface import Write
from apiserver_stub.watch_cache.cache import WatchCache
from apiserver_stub.watch_cache.collection import Retention
from apiserver_stub.watch_cache.hub import Hub
from apiserver_stub.watch_cache.row import CorruptRow, Row
from apiserver_stub.watch_cache.stream import WatchStream
from apiserver_stub.watch_cache.watcher import WatchOptions
from controller_manager.common.api.selectors import LabelSelector
from controller_manager.testing import virtual
from tests.apiserver_stub.memory_backend import MemoryBackend

WRITES = st.lists(
    st.tuples(st.sampled_from(["x/a", "x/b", "y/a"]), st.sampled_from(["red", "blue", ""])), min_size=1, max_size=40
)
TRIGGERS = {"metadata.namespace": "x", "metadata.labels.colour": "red"}
"""By path, the value of every object that a selection of the path selects."""


def selection_of(namespace: str, labels: str, path: str) -> dict[str, Any]:
    applies = namespace == "x" if path == "metadata.namespace" else path != "" and labels == "colour=red"
    trigger = (path, TRIGGERS[path]) if applies else None
    return {"namespace": namespace, "labels": LabelSelector.parse(labels), "trigger": trigger}


SELECTIONS = st.builds(
    selection_of,
    st.sampled_from(["", "x"]),
    st.sampled_from(["", "colour=red", "colour!=red"]),
    st.sampled_from(["", *TRIGGERS]),
)


@given(writes=WRITES, selection=SELECTIONS, begin=st.floats(0, 1), resume=st.booleans())
@settings(max_examples=150, deadline=None)
def test_events_add_up_to_the_state(
    writes: list[tuple[str, str]], selection: dict[str, Any], begin: float, resume: bool
) -> None:
    virtual.run(_check(writes, selection, int(len(writes) * begin), resume))


async def _check(writes: list[tuple[str, str]], selection: dict[str, Any], begin: int, resume: bool) -> None:
    """Watch from write number `begin` on; with `resume` from the list of that moment, otherwise with the state."""
    store = WatchCache(EmbeddedStorage(MemoryBackend()), Retention())
    await store.start()
    hub = Hub(store, RepresentationCache(store))
    streams: list[tuple[WatchStream, dict[str, str]]] = []
    for number, (key, colour) in enumerate([*writes, ("x/z", "red")]):
        if number == begin:
            start = store.revision if resume else None
            listed = _selected(store, selection) if resume else {}
            streams.append((hub.open("pods", "v1", "Pod", WatchOptions(start=start, **selection)), listed))
        await _write(store, key, colour)
        if resume and number == begin + 3:
            streams.append((hub.open("pods", "v1", "Pod", WatchOptions(start=start, **selection)), listed.copy()))
    for stream, state in streams:
        await _follow(stream, state)
        assert state == _selected(store, selection)
    await store.close()


async def _write(store: WatchCache, key: str, colour: str) -> None:
    row = store.get("pods", key)
    metadata = {"name": key, "labels": {"colour": colour}, "resourceVersion": ""}
    data = msgspec.json.encode({"metadata": metadata})
    if colour or row is not None:
        await store.commit(Write("pods", key, row.revision if row else 0, data, deleted=not colour))


def _selected(store: WatchCache, selection: dict[str, Any]) -> dict[str, str]:
    prefix = f"{selection['namespace']}/" if selection["namespace"] else ""
    rows = store.snapshot("pods").items(prefix=prefix)
    return {row.key: str(row.revision) for row in rows if selection["labels"].matches(row.labels)}


async def _follow(stream: WatchStream, state: dict[str, str]) -> None:
    """Apply the events to `state`; each must be valid there, and revisions only increase."""
    reached = 0
    try:
        async with asyncio.timeout(1):
            async for chunk in stream:
                for line in chunk.splitlines():
                    event = json.loads(line)
                    metadata = event["object"]["metadata"]
                    name, revision = metadata["name"], metadata["resourceVersion"]
                    assert (name in state) is (event["type"] != "ADDED")
                    if event["type"] == "DELETED":
                        del state[name]
                    else:
                        state[name] = revision
                    reached = max(reached, int(revision))
    except TimeoutError:
        pass


_STEPS = st.lists(
    st.tuples(
        st.sampled_from(["pods", "nodes"]), st.sampled_from(["a", "b", "c"]), st.sampled_from(["put", "gone", "bad"])
    ),
    max_size=30,
)


@given(steps=_STEPS, compacted=st.floats(0, 1), jump=st.sampled_from([0, 5]), leaves=st.booleans())
@settings(max_examples=150, deadline=None)
def test_start_during_writes_equals_list_and_watch(
    steps: list[tuple[str, str, str]], compacted: float, jump: int, leaves: bool
) -> None:
    virtual.run(_start_both_ways(steps, int(len(steps) * compacted), jump, leaves))


class _JumpingBackend(MemoryBackend):
    """A backend that reports, after its replay, that history begins `jump` after its end; with `leaves`, obsolete
    records cannot be removed.
    """

    jump = 0
    leaves = False

    async def begin(self) -> int:
        return max(self._records, default=1) + self.jump if self.jump else 0

    def compact(self, compacted: int, revisions: Sequence[int], done: Done) -> None:
        super().compact(compacted, () if self.leaves else revisions, done)


async def _start_both_ways(steps: list[tuple[str, str, str]], compacted: int, jump: int, leaves: bool) -> None:
    log = _JumpingBackend()
    log.leaves = leaves
    storage, revisions = EmbeddedStorage(log), dict[tuple[str, str], int]()
    await storage.open()
    for number, (resource, key, what) in enumerate(steps):
        data = b"bad" if what == "bad" else b'{"metadata":{"resourceVersion":"","name":"%b"},"kind":""}' % key.encode()
        known = revisions.get((resource, key), 0)
        if what == "gone" and not known:
            continue
        revisions[resource, key] = await storage.txn([Write(resource, key, known, data, deleted=what == "gone")])
        if what == "gone":
            del revisions[resource, key]
        if number == compacted:
            await storage.compact(await storage.current_revision())
    await storage.close()
    log.jump = jump
    replayed, listed = [await _started(log, opened_before) for opened_before in (False, True)]
    assert replayed == listed


async def _started(log: _JumpingBackend, opened_before: bool) -> Any:
    """Return the state of a cache started on a log."""
    storage = EmbeddedStorage(log, StorageRules(lambda data: "bad" if data == b"bad" else ""))
    if opened_before:
        await storage.open()
    store = WatchCache(storage, Retention(seconds=1e9))
    await store.start()
    known = {resource: _known(store, resource) for resource in store.snapshots()}
    found = store.revision, {resource: one for resource, one in known.items() if any(one[:2])}
    await store.close()
    if opened_before:
        await storage.close()
    return found


def _known(store: WatchCache, resource: str) -> Any:
    """Return rows and changes of a resource, and the start of its history."""
    window = store.history(resource)
    changes = [
        (_described(change.row), _described(change.before), change.deleted) for change in window.since(window.first)
    ]
    return [_described(row) for row in store.snapshot(resource).items()], changes, window.trimmed


def _described(row: Row | None) -> Any:
    if row is None:
        return None
    return row.key, row.revision, row.decode_error if isinstance(row, CorruptRow) else row.data
