"""Objects held in pieces are unchanged, and similar ones share most of their bytes."""

import asyncio
import json
from collections.abc import Iterable
from pathlib import Path
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apiserver_stub.storage.embedded import EmbeddedStorage
from apiserver_stub.storage.interface import Write
from apiserver_stub.storage.sqlite import SqliteBackend
from apiserver_stub.watch_cache import shared_bytes
from apiserver_stub.watch_cache.cache import WatchCache
from apiserver_stub.watch_cache.row import CorruptRow, Row
from apiserver_stub.watch_cache.shared_bytes import RowPacker, Templates
from tests.apiserver_stub.memory_backend import MemoryBackend

WORDS = st.text(st.sampled_from('abc"\\{}:,'), max_size=40)
SHAPES = ("spec", "status", "data")


def pod(name: str, node: str = "node-1", image: str = "web", **more: object) -> bytes:
    tree = {
        "kind": "Pod",
        "metadata": {"resourceVersion": "1", "name": name, "uid": f"{crc32(name.encode()):032x}", **more},
        "spec": {
            "containers": [{"name": "main", "image": image, "env": [{"name": f"S{n}"} for n in range(20)]}],
            "tolerations": [{"key": f"node.kubernetes.io/{n}", "effect": "NoExecute"} for n in range(5)],
            "nodeName": node,
        },
        "status": {"phase": "Running", "conditions": [{"type": f"C{n}", "status": "True"} for n in range(10)]},
    }
    return json.dumps(tree).encode()


def size_of_pieces(objects: Iterable[tuple[bytes, ...] | None]) -> int:
    """Return the total bytes of all pieces, each counted once."""
    pieces = {id(piece): len(piece) for parts in objects if parts for piece in parts}
    return sum(pieces.values())


@st.composite
def documents(draw: st.DrawFn) -> list[bytes]:
    """Objects of a few shapes with any values."""
    made = []
    for shape in draw(st.lists(st.sampled_from(SHAPES), min_size=1, max_size=30)):
        tree = {"shape": shape * 20, "a": draw(WORDS), "fixed": {"x" * 30: shape, "y": "z" * 90}, "b": draw(WORDS)}
        made.append(json.dumps(tree).encode() + draw(st.binary(max_size=5)))
    return made


@given(documents())
def test_pieces_join_to_the_object(objects: list[bytes]) -> None:
    templates = Templates()
    for data in objects:
        pieces = templates.cut(data)
        assert pieces is None or b"".join(pieces) == data


@given(st.lists(st.binary(max_size=400) | st.integers(0, 3).map(lambda n: b'"a":"%d"' % n * 60), max_size=30))
def test_pieces_of_any_bytes_join_to_them(objects: list[bytes]) -> None:
    templates = Templates()
    for data in objects:
        pieces = templates.cut(data)
        assert pieces is None or b"".join(pieces) == data


@pytest.mark.parametrize(
    "objects",
    [
        [pod(f"web-{n}") for n in range(200)],
        [pod(f"web-{n}", node=f"node-{n % 7}", image=f"registry/{n % 20}") for n in range(200)],
        [pod(f"web-{n}", labels={f"label-{k}": "x" * 10 for k in range(n % 4)}) for n in range(200)],
    ],
    ids=["of one template", "of many templates", "with different labels"],
)
def test_similar_objects_share_most_bytes(objects: list[bytes]) -> None:
    templates = Templates()
    cut = [templates.cut(data) for data in objects]
    whole = sum(len(data) for data, pieces in zip(objects, cut, strict=True) if pieces is None)
    assert size_of_pieces(cut) + whole < sum(map(len, objects)) / 3


def test_unique_objects_are_rarely_compared() -> None:
    templates = Templates()
    strange = [json.dumps({f"{n}-{k}": f"{k}+{n}" for k in range(60)}).encode() for n in range(500)]
    assert not any(map(templates.cut, strange))
    assert sum(pieces is not None for pieces in (templates.cut(pod(f"web-{n}")) for n in range(2000))) > 900


def test_long_runs_of_one_letter_are_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[int] = []
    usual = shared_bytes._alike
    monkeypatch.setattr(shared_bytes, "_alike", lambda *of: looked.append(0) or usual(*of))
    templates = Templates()
    for n in range(8):
        templates.cut(pod(f"web-{n}", annotations={"padding": "x" * (900 - 7 * n)}))
    assert 0 < len(looked) < 80


def test_recently_written_rows_are_not_packed() -> None:
    packer = RowPacker()
    rows = [Row("pods", f"ns/web-{n}", n, pod(f"web-{n}")) for n in range(1100)]
    wanted = [row.data for row in rows]
    packer.add(rows)
    packer.pack(2000)
    assert packer.excess == 0
    assert all(row.is_whole for row in rows[-1024:])
    assert not any(row.is_whole for row in rows[10:70])
    assert [row.data for row in rows] == wanted
    assert [row.size for row in rows] == list(map(len, wanted))


def test_unreadable_and_very_large_rows_are_not_packed() -> None:
    packer = RowPacker()
    corrupt = [CorruptRow("pods", f"ns/{n}", n, b"x" * 500, decode_error="damaged") for n in range(5)]
    large = [Row("configmaps", f"ns/{n}", n, pod("a" * 20_000)) for n in range(5)]
    packer.add([*corrupt, *large, *(Row("pods", f"ns/{n}", n, b"{}") for n in range(1024))])
    packer.pack(2000)
    assert all(row.is_whole for row in large)


async def opened(path: Path) -> WatchCache:
    store = WatchCache(EmbeddedStorage(SqliteBackend(path)))
    await store.start()
    return store


async def test_cache_packs_written_and_loaded_rows(tmp_path: Path) -> None:
    wanted = {f"ns/web-{n:04}": pod(f"web-{n:04}").replace(b'"1"', b'""', 1) for n in range(1300)}
    store = await opened(tmp_path / "store.db")
    writes = (store.commit(Write("pods", key, 0, data.replace(b": ", b":"))) for key, data in wanted.items())
    await asyncio.gather(*writes)
    rows = list(store.snapshot("pods").items())
    assert 200 < sum(not row.is_whole for row in rows) < 300
    before = {row.key: row.data for row in rows}
    await store.close()

    store = await opened(tmp_path / "store.db")
    rows = list(store.snapshot("pods").items())
    assert 200 < sum(not row.is_whole for row in rows) < 300
    assert {row.key: row.data for row in rows} == before
    assert all(json.loads(row.data)["metadata"]["resourceVersion"] == str(row.revision) for row in rows)
    await store.close()


@pytest.mark.parametrize("past", ["listed", "replayed"])
async def test_cache_packs_rows_of_other_servers(past: str) -> None:
    storage = EmbeddedStorage(MemoryBackend())
    first, second = WatchCache(storage), WatchCache(storage)
    await first.start()
    writes = [
        Write("pods", f"ns/web-{n:04}", 0, pod(f"web-{n:04}").replace(b'"1"', b'""', 1).replace(b": ", b":"))
        for n in range(1300)
    ]
    await asyncio.gather(*map(first.commit, writes))
    if past == "listed":
        await storage.compact(first.revision)
    await second.start()
    rows = list(second.snapshot("pods").items())
    assert len(rows) == 1300
    assert 200 < sum(not row.is_whole for row in rows) < 300
    await second.close()
    await first.close()
