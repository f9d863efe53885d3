"""Snapshots: restore and fork, at a cost that is independent of the number of objects."""

import asyncio
import sys
from types import FrameType
from typing import Any

import msgspec
import pytest

from apiserver_stub import storage, watch_cache
from controller_manager.common.api.apps import DEPLOYMENTS, REPLICA_SETS, Deployment
from controller_manager.common.api.coordination import LEASES
from controller_manager.common.api.core import EVENTS, NAMESPACES, PODS, Event, ObjectReference
from controller_manager.common.api.errors import Expired, NotFound
from controller_manager.common.api.model import ObjectMeta
from controller_manager.common.api.resource import Key
from controller_manager.common.base.clock import utc_now
from controller_manager.common.base.random import random_source
from controller_manager.framework import TransportError
from controller_manager.testing import Cluster, builders, run
from controller_manager.testing.pod_agent import PodAgent

WEB = Key("default", "web")
LEASE = Key("kube-system", "cluster-controller-manager")


def deployment(replicas: int) -> Deployment:
    labels = {"app": "web"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "example.org/web:1"}]}}
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
    metadata = {"name": "web", "namespace": "default"}
    tree = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec}
    return Deployment.decode(msgspec.json.encode(tree))


async def state(cluster: Cluster) -> Any:
    """Return the content of a cluster without leases, which are renewed, and without revisions."""
    rows = cluster.rows.at(cluster.rows.revision, None)
    trees = [(row.resource, row.key, msgspec.json.decode(row.data)) for row in rows if row.resource != LEASES.name]
    for _, _, tree in trees:
        del tree["metadata"]["resourceVersion"]
    return [tree for tree in trees if tree[0] != "events"]


async def uids(cluster: Cluster) -> dict[str, str]:
    pods = (await cluster.client.list(PODS)).items
    return {pod.metadata.name: pod.metadata.uid for pod in pods}


@pytest.mark.virtual
async def test_restored_cluster_equals_snapshot_and_continues() -> None:
    async with Cluster() as cluster, PodAgent(cluster):
        replica = await cluster.manage()
        await cluster.client.create(DEPLOYMENTS, deployment(3))
        await cluster.advance(60)
        snapshot, before, pods, began = cluster.snapshot(), await state(cluster), await uids(cluster), utc_now()
        newest = cluster.rows.revision
        holder = (await cluster.client.get(LEASES, LEASE)).spec.holder_identity

        await cluster.client.patch(DEPLOYMENTS, WEB, {"spec": {"replicas": 1}})
        await cluster.client.create(NAMESPACES, builders.namespace("later"))
        await cluster.advance(minutes=5)
        assert len(await uids(cluster)) == 1
        given = cluster.rows.revision
        await cluster.restore(snapshot)

        assert (await state(cluster), await uids(cluster), utc_now()) == (before, pods, began)
        assert cluster.rows.revision > given > newest
        await cluster.advance(5)  # it holds the lease itself and need not wait for its expiry
        assert not replica.has_ended
        assert (await cluster.client.get(LEASES, LEASE)).spec.holder_identity == holder
        await cluster.client.patch(DEPLOYMENTS, WEB, {"spec": {"replicas": 4}})
        await cluster.settle()
        assert pods.items() <= (await uids(cluster)).items()
        assert len(await uids(cluster)) == 4
        assert {(await cluster.client.get(PODS, Key("default", name))).status.phase for name in pods} == {"Running"}
        with pytest.raises(NotFound):
            await cluster.client.get(NAMESPACES, Key("", "later"))


@pytest.mark.virtual
async def test_restore_is_reproducible_by_seed() -> None:
    async with Cluster() as cluster, PodAgent(cluster):
        await cluster.manage(faults=0.1)
        await cluster.settle()
        snapshot, ends = cluster.snapshot(), []
        for seed in (None, None, 1):
            await cluster.restore(snapshot, seed=seed)
            await cluster.client.create(DEPLOYMENTS, deployment(5))
            await cluster.advance(60)
            ends.append((await state(cluster), random_source().uid()))
        assert ends[0] == ends[1]
        assert ends[2] != ends[0]


@pytest.mark.virtual
async def test_restore_stops_later_managers_and_restarts_killed() -> None:
    async with Cluster() as cluster:
        first = await cluster.manage(name="first")
        await cluster.settle()
        snapshot = cluster.snapshot()
        await first.kill()
        second = await cluster.manage(name="second")
        await cluster.advance(30)
        await cluster.restore(snapshot)
        await cluster.settle()
        assert list(cluster.replicas) == [first]
        assert not first.has_ended
        assert second.has_ended


@pytest.mark.virtual
async def test_restore_breaks_watches_and_expires_revisions() -> None:
    async with Cluster() as cluster:
        snapshot = cluster.snapshot()
        seen = (await cluster.client.list(NAMESPACES)).resource_version

        async def follow() -> None:
            async for _ in cluster.client.watch(NAMESPACES, resource_version=seen, timeout=600):
                pass

        watch = asyncio.ensure_future(follow())
        await cluster.sleep(10)
        await cluster.restore(snapshot)
        with pytest.raises(TransportError):
            await watch
        with pytest.raises(Expired):
            async for _ in cluster.client.watch(NAMESPACES, resource_version=seen, timeout=1):
                pass


@pytest.mark.virtual
async def test_forks_are_independent() -> None:
    async with Cluster() as cluster:
        await cluster.manage()
        await cluster.client.create(DEPLOYMENTS, deployment(3))
        await cluster.settle()
        before = await uids(cluster)
        async with cluster.fork() as other, PodAgent(other):
            assert await uids(other) == before
            await other.client.patch(DEPLOYMENTS, WEB, {"spec": {"replicas": 1}})
            await cluster.client.create(NAMESPACES, builders.namespace("here"))
            await other.advance(60)
            await cluster.settle()
            assert len(await uids(other)) == 1
            assert [replica.plan for replica in other.replicas] == [replica.plan for replica in cluster.replicas]
            assert await uids(cluster) == before
            with pytest.raises(NotFound):
                await other.client.get(NAMESPACES, Key("", "here"))
        await cluster.client.delete(DEPLOYMENTS, WEB)
        await cluster.settle()
        assert (await cluster.client.list(REPLICA_SETS)).items == []


@pytest.mark.virtual
async def test_restore_starts_a_stopped_api_server() -> None:
    async with Cluster() as cluster:
        snapshot = cluster.snapshot()
        await cluster.client.create(NAMESPACES, builders.namespace("later"))
        await cluster.kill_api()
        await cluster.restore(snapshot)
        with pytest.raises(NotFound):
            await cluster.client.get(NAMESPACES, Key("", "later"))


@pytest.mark.virtual
async def test_events_expire_after_restore() -> None:
    async with Cluster(["--event-ttl=10m"]) as cluster:
        regarded = ObjectReference(kind="Pod", namespace="default")
        event = Event(metadata=ObjectMeta(name="e", namespace="default"), involved_object=regarded)
        await cluster.client.create(EVENTS, event)
        await cluster.sleep(300)
        snapshot = cluster.snapshot()
        for _ in range(2):
            await cluster.sleep(290)
            assert len((await cluster.client.list(EVENTS)).items) == 1
            await cluster.sleep(20)
            assert (await cluster.client.list(EVENTS)).items == []
            await cluster.restore(snapshot)


class Work:
    """Counts calls and generator steps of the store while it is entered."""

    _FOLDERS = (*storage.__path__, *watch_cache.__path__)

    def __enter__(self) -> "Work":
        self.calls = 0
        sys.setprofile(self._note)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _note(self, frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(self._FOLDERS):
            self.calls += 1


async def work(objects: int) -> dict[str, int]:
    """Return the work of a snapshot, a restore and a fork of a cluster with this number of objects."""
    async with Cluster() as cluster:
        rows, found = cluster.rows, {}
        like = rows.at(rows.revision, "namespaces")[0]
        for number in range(objects):
            revision, key = rows.revision + 1, f"n-{number:05}"
            rows.add(like._replace(revision=revision, key=key, resource="things", data=like.data + b" "))
        await cluster.stop_api()
        await cluster.start_api()
        with Work() as counted:
            snapshot = cluster.snapshot()
        found["snapshot"] = counted.calls
        with Work() as counted:
            await cluster.restore(snapshot)
        found["restore"] = counted.calls
        with Work() as counted:
            async with cluster.fork() as other:
                assert cluster.api.store.count("things") == other.api.store.count("things") == objects
        found["fork"] = counted.calls
        return found


def test_snapshot_cost_is_independent_of_object_count() -> None:
    run(work(1))  # creates what is cached per process
    assert run(work(10)) == run(work(10_000))
