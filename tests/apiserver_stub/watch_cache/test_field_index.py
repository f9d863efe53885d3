"""A field index agrees with a full scan, whatever changes while it is built and afterwards."""

import json
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apiserver_stub.storage.interface import Record
from apiserver_stub.storage.ordered import OrderedMap
from apiserver_stub.watch_cache import collection as collection_module
from apiserver_stub.watch_cache.collection import Collection, Retention
from apiserver_stub.watch_cache.field_index import MOST, WORTH, FieldIndex
from apiserver_stub.watch_cache.row import CorruptRow, Row

KEYS = [f"{namespace}/{name}" for namespace in ("a", "b") for name in ("k", "l", "m", "n")]
NODES = ["", "one", "two"]
STEPS = st.lists(
    st.one_of(
        st.integers(0, 3),  # rows added per step of the index
        st.tuples(st.sampled_from(KEYS), st.sampled_from([*NODES, None])),  # None: the row is deleted
    ),
    max_size=40,
)


def row(key: str, node: str, revision: int = 1) -> Row:
    return Row("pods", key, revision, json.dumps({"spec": {"nodeName": node}}).encode())


def record(key: str, node: str, revision: int = 1, *, deleted: bool = False) -> Record:
    return Record(revision, "pods", key, row(key, node).data, deleted, 0.0)


def scan(rows: OrderedMap[Row], node: str, after: str = "", prefix: str = "") -> list[str]:
    return [found.key for found in rows.items(after, prefix) if found.field("spec.nodeName") == node]


@given(begin=st.dictionaries(st.sampled_from(KEYS), st.sampled_from(NODES)), steps=STEPS, node=st.sampled_from(NODES))
def test_index_agrees_with_full_scan(
    begin: dict[str, str], steps: list[int | tuple[str, str | None]], node: str
) -> None:
    rows = OrderedMap((key, row(key, at)) for key, at in sorted(begin.items()))
    index = FieldIndex(rows, "spec.nodeName")
    for step in steps:
        if isinstance(step, int):
            index.grow(step)
            continue
        key, value = step
        before, after = rows.get(key), None if value is None else row(key, value)
        if after is None:
            rows.remove(key)
        else:
            rows.put(key, after)
        index.note(before, after)
    while not index.complete:
        index.grow(2)
    for after, prefix in (("", ""), ("a/l", ""), ("", "b/"), ("b/l", "b/"), ("a/m", "b/")):
        found = index.find(node, after, prefix)
        assert [one.key for one in found] == scan(rows, node, after, prefix)
        assert all(rows.get(one.key) is one for one in found)


def test_unreadable_rows_match_any_value() -> None:
    broken = CorruptRow("pods", "a/l", 1, b"", decode_error="it is no object")
    rows = OrderedMap([("a/k", row("a/k", "one")), ("a/l", broken), ("a/m", row("a/m", "one"))])
    index = FieldIndex(rows, "spec.nodeName")
    index.grow(10)
    assert [found.key for found in index.find("one")] == ["a/k", "a/l", "a/m"]
    assert [found.key for found in index.find("two")] == ["a/l"]
    healed = row("a/l", "two")
    rows.put("a/l", healed)
    index.note(broken, healed)
    assert [found.key for found in index.find("one")] == ["a/k", "a/m"]


def filled(count: int) -> Collection:
    made = Collection(Retention())
    for number in range(count):
        made.apply(record(f"a/{number:04}", f"n{number % 7}", number + 1))
    return made


def grown(index: FieldIndex | None) -> FieldIndex:
    assert index is not None
    while not index.complete:
        index.grow(100)
    return index


def test_small_collections_are_not_indexed() -> None:
    assert filled(WORTH - 1).index("spec.nodeName") is None
    assert filled(WORTH).index("spec.nodeName") is not None


def test_index_is_dropped_when_unused(monkeypatch: pytest.MonkeyPatch) -> None:
    held = filled(WORTH)
    index = grown(held.index("spec.nodeName"))
    monkeypatch.setattr("apiserver_stub.watch_cache.field_index._LEAST_PATIENCE", 300)
    apply: Callable[[int], object] = lambda revision: held.apply(record("a/0000", "n1", revision))  # noqa: E731
    for revision in range(1000, 1300):
        apply(revision)
    assert [found.key for found in index.find("n0")][:2] == ["a/0007", "a/0014"]
    for revision in range(1300, 1600):
        apply(revision)
    assert not index.dropped
    apply(1600)
    assert index.dropped
    assert held.index("spec.nodeName") is not index


def test_least_recently_used_index_is_evicted() -> None:
    held = filled(WORTH)
    made = [held.index(f"spec.{number}") for number in range(MOST)]
    assert held.index("spec.0") is made[0]
    assert held.index("spec.another") is not None
    assert [index is not None and index.dropped for index in made] == [False, True, False, False]


def test_relisted_rows_update_the_index(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collection_module, "WORTH", 1)
    held = filled(3)
    index = grown(held.index("spec.nodeName"))
    listed = [record("a/0001", "n1", 2), record("a/0002", "n0", 9), record("a/0009", "n0", 8)]
    held.replace({one.key: one for one in listed}, seen=3, revision=9, at=0.0)
    assert [found.key for found in index.find("n0")] == ["a/0002", "a/0009"]
    assert [found.revision for found in index.find("n1")] == [2]
