"""Replica sets and replication controllers in a cluster with running pods, in virtual time."""

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from controller_manager.common.api.apps import REPLICA_SETS, REPLICATION_CONTROLLERS, ReplicaSet
from controller_manager.common.api.core import EVENTS, NAMESPACES, PODS
from controller_manager.common.api.errors import Forbidden
from controller_manager.common.api.resource import Key
from controller_manager.common.api.wire import Request, Response
from controller_manager.framework import controller_of
from controller_manager.testing import Cluster, Replica, builders
from controller_manager.testing.pod_agent import PodAgent
from tests.scenarios.test_manager_flags import most_in_work
from tests.scenarios.workloads import events, label, owned, pods, replica_set, replication_controller, set_status

pytestmark = pytest.mark.virtual

FLAGS = ("--leader-elect=false", "--controllers=replicaset,replicationcontroller")
WEB = Key("default", "web")
KINDS = pytest.mark.parametrize(
    ("kind", "make"),
    [(REPLICA_SETS, replica_set), (REPLICATION_CONTROLLERS, replication_controller)],
    ids=["ReplicaSet", "ReplicationController"],
)
Make = Callable[..., Any]


async def scale(cluster: Cluster, kind: Any, replicas: int) -> None:
    await cluster.client.patch(kind, WEB, {"spec": {"replicas": replicas}})


async def numbers(cluster: Cluster, kind: Any = REPLICA_SETS) -> tuple[int, ...]:
    """Return the numbers of replicas, and of fully labeled, ready and available ones."""
    status = (await cluster.client.get(kind, WEB)).status
    return status.replicas, status.fully_labeled_replicas, status.ready_replicas, status.available_replicas


def refuse(replica: Replica, method: str) -> None:
    """Reject all pod requests of the manager with that method."""
    answer = Response(403, {}, Forbidden("the quota is used up").status().encode())
    asked = "/api/v1/namespaces/default/pods"
    replica.network.intercept(lambda it: answer if it.method == method and it.path.startswith(asked) else None)


@KINDS
async def test_pods_follow_replica_count(kind: Any, make: Make) -> None:
    async with Cluster() as cluster, PodAgent(cluster):
        await cluster.manage(*FLAGS)
        made = await cluster.client.create(kind, make(replicas=5))
        await cluster.settle()
        assert await numbers(cluster, kind) == (5, 5, 5, 5)
        (one, *_) = found = await owned(cluster)
        assert len(found) == 5
        assert one.metadata.name.startswith("web-")
        assert one.metadata.generate_name == "web-"
        reference = controller_of(one)
        assert reference is not None
        assert (reference.kind, reference.uid, reference.block_owner_deletion) == (kind.kind, made.metadata.uid, True)
        assert b'"env":[{"name":"A","value":"b"}]' in one.raw
        await scale(cluster, kind, 2)
        await cluster.settle()
        assert await numbers(cluster, kind) == (2, 2, 2, 2)
        assert len(await owned(cluster)) == 2
        written = [reason for _, reason in await events(cluster)]
        assert (written.count("SuccessfulCreate"), written.count("SuccessfulDelete")) == (5, 3)
        found = await cluster.client.get(kind, WEB)
        assert found.status.observed_generation == found.metadata.generation


@pytest.mark.parametrize(
    ("kind", "make", "reporter"),
    [
        (REPLICA_SETS, replica_set, "replicaset-controller"),
        (REPLICATION_CONTROLLERS, replication_controller, "replication-controller"),
    ],
)
async def test_events_have_upstream_component_name(kind: Any, make: Make, reporter: str) -> None:
    async with Cluster() as cluster:
        await cluster.manage(*FLAGS)
        await cluster.client.create(kind, make(replicas=1))
        await cluster.settle()
        (event,) = (await cluster.client.list(EVENTS, "default")).items
        assert event.reporting_component == reporter


@KINDS
async def test_new_set_makes_only_needed_writes(kind: Any, make: Make) -> None:
    async with Cluster() as cluster:
        await cluster.manage(*FLAGS)
        writes: list[str] = []
        cluster.api.store.subscribe(lambda changes: writes.extend(change.row.resource for change in changes))
        await cluster.client.create(kind, make(replicas=7))
        await cluster.advance(3600)
        others = [resource for resource in writes if resource != EVENTS.name]
        assert others == [kind.name, *[PODS.name] * 7, kind.name]


@KINDS
async def test_matching_pods_are_adopted_and_others_released(kind: Any, make: Make) -> None:
    async with Cluster() as cluster, PodAgent(cluster):
        await cluster.manage(*FLAGS)
        await cluster.client.create(PODS, builders.pod("orphan", labels={"app": "web"}))
        await cluster.client.create(PODS, builders.pod("stranger", labels={"app": "other"}))
        await cluster.client.create(kind, make(replicas=2))
        await cluster.settle()
        mine = await owned(cluster)
        assert len(mine) == 2
        assert "orphan" in {pod.metadata.name for pod in mine}
        await label(cluster, mine[0], app="released")
        await cluster.settle()
        assert mine[0].metadata.name not in {pod.metadata.name for pod in await owned(cluster)}
        (released,) = (pod for pod in await pods(cluster) if pod.metadata.name == mine[0].metadata.name)
        assert released.metadata.owner_references == ()
        assert await numbers(cluster, kind) == (2, 2, 2, 2)
        await label(cluster, released, app="web")
        await cluster.settle()
        # It is adopted again, and one of the three is surplus.
        assert await numbers(cluster, kind) == (2, 2, 2, 2)
        assert len([pod for pod in await pods(cluster) if pod.metadata.labels == {"app": "web"}]) == 2


async def test_released_pod_is_adopted_by_another_set() -> None:
    async with Cluster() as cluster:
        await cluster.manage(*FLAGS)
        await cluster.client.create(REPLICA_SETS, replica_set("web", 1))
        await cluster.client.create(REPLICA_SETS, replica_set("other", 1))
        await cluster.settle()
        (pod,) = await owned(cluster)
        await label(cluster, pod, app="other")
        await cluster.settle()
        assert len(await owned(cluster, "other")) == 1
        assert len(await owned(cluster, "web")) == 1


@KINDS
@pytest.mark.parametrize("phase", ["Failed", "Succeeded"])
async def test_finished_pod_is_replaced_but_not_deleted(kind: Any, make: Make, phase: str) -> None:
    async with Cluster() as cluster, PodAgent(cluster):
        await cluster.manage(*FLAGS)
        await cluster.client.create(kind, make(replicas=2))
        await cluster.settle()
        await set_status(cluster, (await owned(cluster))[0], phase=phase)
        await cluster.settle()
        assert await numbers(cluster, kind) == (2, 2, 2, 2)
        assert len(await owned(cluster)) == 3


@KINDS
async def test_pod_is_available_after_min_ready_seconds(kind: Any, make: Make) -> None:
    async with Cluster() as cluster, PodAgent(cluster, start=5):
        await cluster.manage(*FLAGS)
        await cluster.client.create(kind, make(replicas=2, minReadySeconds=60))
        await cluster.advance(30)
        assert await numbers(cluster, kind) == (2, 2, 2, 0)
        await cluster.advance(40)
        assert await numbers(cluster, kind) == (2, 2, 2, 2)


async def test_terminating_pods_are_counted_separately() -> None:
    async with Cluster() as cluster, PodAgent(cluster, stop=30) as agent:
        await cluster.manage(*FLAGS)
        await cluster.client.create(REPLICA_SETS, replica_set(replicas=3))
        await cluster.settle()
        await scale(cluster, REPLICA_SETS, 1)
        await cluster.settle()
        status = (await cluster.client.get(REPLICA_SETS, WEB)).status
        assert (status.replicas, status.terminating_replicas) == (1, 2)
        await cluster.advance(agent.stop + 10)
        status = (await cluster.client.get(REPLICA_SETS, WEB)).status
        assert (status.replicas, status.terminating_replicas) == (1, 0)


async def test_replication_controller_status_omits_terminating_pods() -> None:
    async with Cluster() as cluster, PodAgent(cluster, stop=30):
        await cluster.manage(*FLAGS)
        await cluster.client.create(REPLICATION_CONTROLLERS, replication_controller(replicas=1))
        await cluster.settle()
        assert b"terminatingReplicas" not in (await cluster.client.get(REPLICATION_CONTROLLERS, WEB)).raw


@KINDS
async def test_rejected_pods_are_retried_singly_and_reported(kind: Any, make: Make) -> None:
    async with Cluster() as cluster:
        replica = await cluster.manage(*FLAGS, strict=False)
        await cluster.settle()
        tried: list[Request] = []
        refusal = Response(403, {}, Forbidden("the quota is used up").status().encode())

        def answer(request: Request) -> Response | None:
            if request.method == "POST" and request.path.endswith("/pods"):
                tried.append(request)
                return refusal
            return None

        replica.network.intercept(answer)
        await cluster.client.create(kind, make(replicas=100))
        await cluster.sleep(0.001)
        assert len(tried) == 2  # at once, and when the watch reports its own status write
        await cluster.sleep(10)
        assert len(tried) < 20
        found = await cluster.client.get(kind, WEB)
        (condition,) = found.status.conditions
        assert (condition.type, condition.status, condition.reason) == ("ReplicaFailure", "True", "FailedCreate")
        assert condition.message == "the quota is used up"
        assert ("Warning", "FailedCreate") in await events(cluster)
        replica.network.intercept(None)
        await cluster.advance(60)
        assert (await cluster.client.get(kind, WEB)).status.conditions == ()
        assert len(await owned(cluster)) == 100


async def test_rejected_pod_deletion_does_not_block_others() -> None:
    async with Cluster() as cluster, PodAgent(cluster):
        replica = await cluster.manage(*FLAGS, strict=False)
        await cluster.client.create(REPLICA_SETS, replica_set(replicas=4))
        await cluster.settle()
        kept = (await owned(cluster))[0].metadata.name
        refusal = Response(403, {}, Forbidden("it is held").status().encode())
        replica.network.intercept(lambda it: refusal if it.method == "DELETE" and it.path.endswith(kept) else None)
        await scale(cluster, REPLICA_SETS, 0)
        await cluster.sleep(30)
        assert [pod.metadata.name for pod in await owned(cluster)] == [kept]
        found = await cluster.client.get(REPLICA_SETS, WEB)
        assert [one.reason for one in found.status.conditions] == ["FailedDelete"]
        assert ("Warning", "FailedDelete") in await events(cluster)
        replica.network.intercept(None)
        await cluster.advance(600)
        assert await owned(cluster) == []
        assert (await cluster.client.get(REPLICA_SETS, WEB)).status.conditions == ()


async def test_terminating_namespace_gets_no_pods_and_no_errors() -> None:
    async with Cluster() as cluster:
        await cluster.manage(*FLAGS)
        await cluster.client.create(NAMESPACES, builders.namespace("old"))
        wanted = replica_set(replicas=3)
        old = replace(wanted, metadata=replace(wanted.metadata, namespace="old"))
        await cluster.client.create(REPLICA_SETS, replace(old, spec=replace(old.spec, replicas=0)))
        await cluster.client.delete(NAMESPACES, Key("", "old"))
        await cluster.client.patch(REPLICA_SETS, Key("old", "web"), {"spec": {"replicas": 3}})
        await cluster.advance(60)
        found = await cluster.client.get(REPLICA_SETS, Key("old", "web"))
        assert (found.status.replicas, found.status.conditions) == (0, ())
        assert (await cluster.client.list(EVENTS, "old")).items == []


async def test_deleting_set_does_not_change_its_pods() -> None:
    async with Cluster() as cluster:
        await cluster.manage(*FLAGS)
        await cluster.client.create(REPLICA_SETS, replica_set(replicas=2))
        await cluster.settle()
        # No garbage collector runs, so a set with orphaning deletion stays.
        await cluster.client.delete(REPLICA_SETS, WEB, propagation="Orphan")
        await scale(cluster, REPLICA_SETS, 5)
        (first, _) = await owned(cluster)
        await label(cluster, first, app="else")
        await cluster.settle()
        assert len(await owned(cluster)) == 2
        assert (await numbers(cluster))[0] == 1


async def test_scale_down_prefers_pods_on_crowded_nodes() -> None:
    async with Cluster() as cluster:
        await cluster.manage(*FLAGS)
        owner = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d", "uid": "d-uid", "controller": True}
        for name, number in (("web", 2), ("other", 3)):
            made = await cluster.client.create(REPLICA_SETS, replica_set(name, number))
            change = {"metadata": {"ownerReferences": [owner]}}
            await cluster.client.patch(REPLICA_SETS, Key("default", made.metadata.name), change)
        await cluster.settle()
        places = zip(await owned(cluster) + await owned(cluster, "other"), ("a", "b", "b", "b", "c"), strict=True)
        agent = PodAgent(cluster)
        for pod, node in places:
            await agent.bind(pod, node)
            await agent.begin(pod)
        await scale(cluster, REPLICA_SETS, 1)
        await cluster.settle()
        (left,) = await owned(cluster)
        assert left.spec.node_name == "a"


def stop_watches(replica: Replica, path: str = "/api/v1/pods") -> None:
    """Stop the watch of a collection; everything else works."""
    replica.network.intercept(lambda request: Response(500, {}, b"") if request.path == path else None)
    replica.network.cut()
    replica.network.heal()


async def test_stale_pod_cache_creates_no_pod_twice() -> None:
    async with Cluster() as cluster, PodAgent(cluster):
        replica = await cluster.manage(*FLAGS)
        await cluster.client.create(REPLICA_SETS, replica_set(replicas=2))
        await cluster.settle()
        stop_watches(replica)
        for wanted in (10, 4, 7):
            await scale(cluster, REPLICA_SETS, wanted)
            # The controller waits up to 10 seconds for its cache, then continues without.
            await cluster.sleep(25)
            assert len(await owned(cluster)) == wanted
        replica.network.intercept(None)
        await cluster.advance(600)
        assert await numbers(cluster) == (7, 7, 7, 7)
        assert len(await owned(cluster)) == 7


async def test_lost_create_answer_creates_no_second_pod() -> None:
    async with Cluster() as cluster:
        replica = await cluster.manage(*FLAGS)
        await cluster.settle()
        lost: list[Request] = []
        most = 0

        def answer(request: Request) -> Response | None:
            if request.method == "POST" and request.path.endswith("/pods") and not lost:
                lost.append(request)
                return Response(500, {}, b"")
            return None

        replica.network.intercept(answer)
        await cluster.client.create(REPLICA_SETS, replica_set(replicas=3))
        while not lost:
            await cluster.sleep(0.0001)
        # The server had created it.
        made = await cluster.client.get(REPLICA_SETS, WEB)
        pod = builders.pod("web-lost", labels={"app": "web"}, ownerReferences=[_reference(made)])
        await cluster.client.create(PODS, pod)
        for _ in range(100):
            await cluster.sleep(0.01)
            most = max(most, len(await owned(cluster)))
        assert most == 3
        await cluster.settle()
        assert len(await owned(cluster)) == 3


def _reference(made: ReplicaSet) -> dict[str, Any]:
    meta = made.metadata
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "name": meta.name,
        "uid": meta.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


@pytest.mark.flag("concurrent-replicaset-syncs", "concurrent-rc-syncs")
@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize(
    ("controller", "flag", "kind", "make"),
    [
        ("replicaset-controller", "concurrent-replicaset-syncs", REPLICA_SETS, replica_set),
        (
            *("replicationcontroller-controller", "concurrent-rc-syncs"),
            *(REPLICATION_CONTROLLERS, replication_controller),
        ),
    ],
)
async def test_concurrent_syncs_flags_set_workers(
    controller: str, flag: str, kind: Any, make: Make, workers: int
) -> None:
    async with Cluster() as cluster:
        slow = ("--leader-elect=false", f"--controllers={controller}", "--kube-api-qps=0.1", "--kube-api-burst=1")
        replica = await cluster.manage(*slow, f"--{flag}={workers}")
        await cluster.sleep(60)
        for number in range(6):
            await cluster.client.create(kind, make(f"web-{number}"))
        assert await most_in_work(cluster, replica, controller) == workers


async def test_scale_down_is_measured() -> None:
    async with Cluster() as cluster, PodAgent(cluster):
        replica = await cluster.manage(*FLAGS, "--authorization-always-allow-paths=/metrics")
        await cluster.client.create(REPLICA_SETS, replica_set(replicas=3))
        await cluster.advance(100)
        await scale(cluster, REPLICA_SETS, 1)
        await cluster.settle()
        page = await replica.manager.pages.handle(Request("GET", "/metrics"))
        assert isinstance(page.body, bytes)
        lines = page.body.decode().splitlines()
        assert "replicaset_controller_sorting_deletion_age_ratio_count 2" in [line.removesuffix(".0") for line in lines]
