"""The indexed store, in examples and compared with a scan."""

from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller_manager.common.api.core import Pod, PodSpec
from controller_manager.common.api.model import ObjectMeta
from controller_manager.common.api.resource import Key, key_of
from controller_manager.framework.cache.indexer import Indexer


def pod(namespace: str, name: str, node: str = "", **labels: str) -> Pod:
    meta = ObjectMeta(namespace=namespace, name=name, labels=labels)
    return Pod(metadata=meta, spec=PodSpec(node_name=node))


def node_of(pod: Pod) -> Iterable[str]:
    return (pod.spec.node_name,) if pod.spec.node_name else ()


def labels_of(pod: Pod) -> Iterable[str]:
    return [f"{name}={value}" for name, value in (pod.metadata.labels or {}).items()]


def test_get_returns_the_same_object() -> None:
    store: Indexer[Pod] = Indexer()
    mine = pod("a", "x")
    assert store.put(mine) is None
    assert store.get(Key("a", "x")) is mine
    assert store.put(pod("a", "x")) is mine
    assert len(store) == 1


def test_lists_by_namespace_and_index() -> None:
    store: Indexer[Pod] = Indexer()
    store.add_indexes({"node": node_of})
    for one in (pod("a", "x", "n1"), pod("a", "y", "n2"), pod("b", "x", "n1")):
        store.put(one)
    assert [key_of(one) for one in store.list("a")] == [("a", "x"), ("a", "y")]
    assert len(store.list()) == 3
    assert [key_of(one) for one in store.by_index("node", "n1")] == [("a", "x"), ("b", "x")]
    store.put(pod("a", "x", "n2"))
    assert [key_of(one) for one in store.by_index("node", "n1")] == [("b", "x")]
    store.drop(Key("b", "x"))
    assert store.by_index("node", "n1") == []
    assert store.drop(Key("b", "x")) is None


def test_lists_by_labels() -> None:
    store: Indexer[Pod] = Indexer()
    for one in (
        pod("a", "x", app="web", tier="front"),
        pod("a", "y", app="web"),
        pod("a", "z"),
        pod("b", "x", app="web"),
    ):
        store.put(one)
    assert [key_of(one) for one in store.list("a", {"app": "web"})] == [("a", "x"), ("a", "y")]
    assert [key_of(one) for one in store.list("", {"app": "web", "tier": "front"})] == [("a", "x")]
    assert len(store.list("", {})) == 4


def test_indexes_may_be_added_late_but_not_redefined() -> None:
    store: Indexer[Pod] = Indexer()
    store.put(pod("a", "x", "n1"))
    store.add_indexes({"node": node_of})
    store.add_indexes({"node": node_of})
    assert len(store.by_index("node", "n1")) == 1
    with pytest.raises(ValueError, match="'node'"):
        store.add_indexes({"node": labels_of})
    with pytest.raises(KeyError):
        store.by_index("owner", "x")


PODS = st.builds(
    lambda namespace, name, node, app: pod(namespace, name, node, app=app),
    st.sampled_from("ab"),
    st.sampled_from("xyz"),
    st.sampled_from(["", "n1", "n2"]),
    st.sampled_from("pq"),
)


@settings(deadline=None)
@given(st.lists(st.tuples(st.booleans(), PODS)))
def test_indexes_equal_a_scan(steps: list[tuple[bool, Pod]]) -> None:
    store: Indexer[Pod] = Indexer()
    store.add_indexes({"node": node_of})
    model: dict[Key, Pod] = {}
    for number, (drop, one) in enumerate(steps):
        if number == 3:
            store.add_indexes({"labels": labels_of})
        if drop:
            assert store.drop(key_of(one)) is model.pop(key_of(one), None)
        else:
            assert store.put(one) is model.get(key_of(one))
            model[key_of(one)] = one
    assert len(store) == len(model)
    assert {key_of(one): one for one in store} == model
    for namespace in "ab":
        assert {key_of(one) for one in store.list(namespace)} == {key for key in model if key.namespace == namespace}
    checks = {"node": (node_of, ["n1", "n2", "n3"])}
    if len(steps) > 3:
        checks["labels"] = (labels_of, ["app=p", "app=q"])
    for name, (index, values) in checks.items():
        for value in values:
            expected = {key for key, one in model.items() if value in index(one)}
            assert {key_of(one) for one in store.by_index(name, value)} == expected
