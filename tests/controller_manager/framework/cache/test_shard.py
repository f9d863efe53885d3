"""Shards: each key is in one shard, caches have what an owner needs, and names are balanced."""

from collections import Counter
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller_manager.common.api.apps import CONTROLLER_REVISIONS, DEPLOYMENTS, REPLICA_SETS, STATEFUL_SETS
from controller_manager.common.api.batch import CRON_JOBS, JOBS
from controller_manager.common.api.core import NAMESPACES, PODS
from controller_manager.common.api.model import Object, ObjectMeta, OwnerReference, PartialObject
from controller_manager.common.api.resource import Key, Resource
from controller_manager.framework.cache.shard import Shard, root_of
from controller_manager.framework.leader.assignment import assign

KEYED = (DEPLOYMENTS, REPLICA_SETS, STATEFUL_SETS, JOBS, CRON_JOBS)
NAMES = frozenset(one.name for one in KEYED)
names = st.text("abc0123456789-", min_size=1, max_size=16)
keys = st.builds(Key, st.sampled_from(("red", "blue")), names)
counts = st.integers(1, 9)


def shards(count: int) -> list[Shard]:
    return [Shard(index, count, NAMES) for index in range(count)]


def made(key: Key, controller: tuple[Resource[Object], str] | None = None) -> Object:
    references = ()
    if controller is not None:
        kind, name = controller
        uid = f"uid of {name}"
        reference = OwnerReference(api_version=kind.api_version, kind=kind.kind, name=name, uid=uid, controller=True)
        references = (reference,)
    meta = ObjectMeta(name=key.name, namespace=key.namespace, uid="u", owner_references=references)
    return PartialObject(metadata=meta)


@given(keys, st.sampled_from(KEYED), counts)
def test_every_key_is_in_exactly_one_shard(key: Key, kind: Resource[Object], count: int) -> None:
    assert sum(shard.has(kind, key) for shard in shards(count)) == 1
    assert sum(Shard(index, count).has(kind, key) for index in range(count)) == 1


@given(keys, st.sampled_from(KEYED), names, st.sampled_from((PODS, REPLICA_SETS, JOBS, CONTROLLER_REVISIONS)), counts)
def test_shard_of_owner_keeps_its_controlled_objects(
    key: Key, kind: Resource[Object], name: str, children: Resource[Object], count: int
) -> None:
    child = Key(key.namespace, name)
    for shard in shards(count):
        if shard.has(kind, key):
            assert shard.keeps(kind, made(key))
            assert shard.keeps(kind, made(key, (CRON_JOBS, "other")))
            assert shard.keeps(children, made(child, (kind, key.name)))
            assert children is JOBS or shard.keeps(children, made(child))


@given(keys, st.sampled_from(KEYED), names, counts)
def test_controlled_object_is_in_one_shard(key: Key, kind: Resource[Object], name: str, count: int) -> None:
    assert sum(shard.keeps(PODS, made(Key(key.namespace, name), (kind, key.name))) for shard in shards(count)) == 1


@pytest.mark.parametrize("name", ["web", "web-2", "a-b-c"])
def test_deployment_and_its_pods_are_in_one_shard(name: str) -> None:
    replica_set = Key("red", f"{name}-788899dfc9")
    for shard in shards(7):
        here = shard.has(DEPLOYMENTS, Key("red", name))
        assert shard.has(REPLICA_SETS, replica_set) == here
        assert shard.keeps(REPLICA_SETS, made(replica_set, (DEPLOYMENTS, name))) == here
        assert shard.keeps(PODS, made(Key("red", "p"), (REPLICA_SETS, replica_set.name))) == here


@pytest.mark.parametrize(
    ("kind", "name", "root"),
    [
        ("ReplicaSet", "web-788899dfc9", "web"),
        ("ReplicaSet", "web-api-645c49f6b4", "web-api"),
        ("ReplicaSet", "web", "web"),
        ("ReplicaSet", "team-01", "team-01"),
        ("ReplicaSet", "-788899dfc9", "-788899dfc9"),
        ("ReplicationController", "web-788899dfc9", "web-788899dfc9"),
        ("Job", "nightly-29483920", "nightly"),
        ("Job", "nightly-20261123", "nightly-20261123"),
        ("Job", "nightly-1", "nightly-1"),
        ("CronJob", "nightly-29483920", "nightly-29483920"),
    ],
)
def test_root_name_of_generated_names(kind: str, name: str, root: str) -> None:
    assert root_of(kind, name) == root


def test_namespace_sharding_keeps_a_namespace_together() -> None:
    for shard in (Shard(index, 3) for index in range(3)):
        here = shard.has(NAMESPACES, Key("", "red"))
        assert shard.has(PODS, Key("red", "a")) == shard.keeps(PODS, made(Key("red", "b"))) == here


TEAMS = [f"team-{number:02}" for number in range(1, 100)]
SHAPES = {
    "namespaces": [(NAMESPACES, Key("", name)) for name in TEAMS],
    "deployments": [(DEPLOYMENTS, Key("big", name)) for name in TEAMS],
    "words": [
        (DEPLOYMENTS, Key("big", f"{one}-{two}"))
        for one, two in product(("api", "web", "cart", "auth", "mail", "search"), (*"abcdefgh", "blue", "green"))
    ],
    "versions": [(DEPLOYMENTS, Key("big", f"service-v{number}")) for number in range(200)],
    "jobs": [(JOBS, Key("big", f"batch-{number:08}")) for number in range(200)],
    "replica sets": [(REPLICA_SETS, Key("big", f"service-{number}-788899dfc9")) for number in range(200)],
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("count", "replicas"), [(2, 2), (3, 3), (4, 4), (8, 2), (12, 3), (16, 4)])
def test_shards_are_balanced_over_replicas(shape: str, count: int, replicas: int) -> None:
    by = frozenset() if shape == "namespaces" else NAMES
    every = [Shard(index, count, by) for index in range(count)]
    held = assign({str(shard): "d" for shard in every}, [f"manager-{number}" for number in range(replicas)])
    load = Counter(held[str(shard)] for shard in every for kind, key in SHAPES[shape] if shard.has(kind, key))
    assert max(load.values()) <= 1.5 * len(SHAPES[shape]) / replicas
    assert len(load) == replicas
