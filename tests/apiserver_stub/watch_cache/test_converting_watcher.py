"""For any writes of rows of two versions, a converting watch equals a watch of rows of one version."""

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apiserver_stub.encode.representations import RepresentationCache
from apiserver_stub.storage.embedded import EmbeddedStorage
from apiserver_stub.storage.interface import Write
from apiserver_stub.watch_cache import converting_watcher
from apiserver_stub.watch_cache.cache import WatchCache
from apiserver_stub.watch_cache.hub import Hub
from apiserver_stub.watch_cache.row import Row
from apiserver_stub.watch_cache.stream import WatchStream
from apiserver_stub.watch_cache.watcher import WatchOptions
from controller_manager.common.api.selectors import LabelSelector
from controller_manager.testing import virtual
from tests.apiserver_stub.memory_backend import MemoryBackend

KEYS = [f"{namespace}/{name}" for namespace in "xy" for name in "abcd"]
WRITES = st.lists(
    st.tuples(
        st.sampled_from(KEYS), st.sampled_from(["red", "blue", ""]), st.booleans(), st.sampled_from([0, 0, 2000])
    ),
    min_size=1,
    max_size=40,
)
SELECTIONS = st.builds(
    lambda namespace, name, labels, initial: {
        "namespace": namespace,
        "name": name,
        "labels": LabelSelector.parse(labels),
        "initial_end": initial,
    },
    st.sampled_from(["", "x"]),
    st.sampled_from(["", "", "a"]),
    st.sampled_from(["", "colour=red", "colour!=red"]),
    st.booleans(),
)


class ColorConverter:
    """Rows of the old version have the length of the color's name; the conversion takes time."""

    def is_served(self, row: Row) -> bool:
        return "length" not in row.labels

    async def convert(self, rows: Sequence[Row]) -> list[Row]:
        await asyncio.sleep(0.1)
        return [self._converted(row) for row in rows]

    def _converted(self, row: Row) -> Row:
        assert not self.is_served(row)
        tree = msgspec.json.decode(row.data)
        length = tree["metadata"]["labels"].pop("length")
        tree["metadata"]["labels"]["colour"] = "red" if length == "3" else "blue"
        return Row(row.resource, row.key, row.revision, msgspec.json.encode(tree))


@given(writes=WRITES, selection=SELECTIONS, begin=st.floats(0, 1), resume=st.booleans())
@settings(max_examples=100, deadline=None)
def test_converted_watch_equals_unconverted_watch(
    writes: list[Any], selection: dict[str, Any], begin: float, resume: bool
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(converting_watcher, "_MOST", 3)
        patch.setattr(converting_watcher, "_MOST_BYTES", 4000)
        start = int(len(writes) * begin)
        mixed = virtual.run(_received(writes, selection, start, resume, converting=True))
        plain = virtual.run(_received(writes, selection, start, resume, converting=False))
    assert mixed == plain


async def _received(
    writes: list[Any], selection: dict[str, Any], begin: int, resume: bool, converting: bool
) -> list[bytes]:
    """The events of a watch from write number `begin` on; with `resume`, only changes."""
    store = WatchCache(EmbeddedStorage(MemoryBackend()))
    await store.start()
    hub = Hub(store, RepresentationCache(store))
    stream: WatchStream | None = None
    for number, (key, colour, old, size) in enumerate([*writes, ("x/z", "red", True, 0)]):
        if number == begin:
            options = WatchOptions(start=store.revision if resume else None, **selection)
            stream = hub.open("pods", "v1", "Pod", options, converter=ColorConverter() if converting else None)
        await _write(store, key, colour, size, old=old and converting)
    assert stream is not None
    lines: list[bytes] = []
    try:
        async with asyncio.timeout(30):
            async for chunk in stream:
                lines += chunk.splitlines()
    except TimeoutError:
        pass  # no more events come
    await stream.aclose()
    await store.close()
    return lines


async def _write(store: WatchCache, key: str, colour: str, size: int, *, old: bool) -> None:
    row = store.get("pods", key)
    if not colour and row is None:
        return
    labels = {"length": str(len(colour))} if old and colour else {"colour": colour}
    tree = {"metadata": {"resourceVersion": "", "name": key, "labels": labels}, "text": "x" * size}
    data = msgspec.json.encode(tree)
    await store.commit(Write("pods", key, row.revision if row else 0, data, deleted=not colour))
