"""Deployments in a cluster whose pods run, in virtual time."""

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from controller_manager.common.api.apps import DEPLOYMENTS, REPLICA_SETS, Deployment, ReplicaSet
from controller_manager.common.api.conditions import condition_of
from controller_manager.common.api.core import EVENTS, NAMESPACES, PODS
from controller_manager.common.api.errors import Forbidden
from controller_manager.common.api.resource import Key
from controller_manager.common.api.wire import Response
from controller_manager.testing import Cluster, builders
from controller_manager.testing.pod_agent import PodAgent
from controllers.deployment.revisions import DESIRED, HISTORY, MAXIMUM, REVISION, ROLLBACK
from controllers.deployment.templates import HASH
from tests.scenarios.test_manager_flags import most_in_work
from tests.scenarios.workloads import Counted, deployment, events, owned, pods, replica_set, template

pytestmark = pytest.mark.virtual

FLAGS = ("--leader-elect=false", "--controllers=replicaset,deployment")
WEB = Key("default", "web")
OLD, NEW, BAD = "example.org/app:1", "example.org/app:2", "example.org/app:bad"


async def get(cluster: Cluster) -> Deployment:
    return await cluster.client.get(DEPLOYMENTS, WEB)


async def change(cluster: Cluster, **spec: Any) -> None:
    await cluster.client.patch(DEPLOYMENTS, WEB, {"spec": spec})


async def use(cluster: Cluster, image: str) -> None:
    await change(cluster, template=template(image, app="web"))


async def sets(cluster: Cluster) -> dict[str, ReplicaSet]:
    """Return the replica sets by the image of their template."""
    found = (await cluster.client.list(REPLICA_SETS, "default")).items
    return {msgspec.json.decode(one.spec.template.spec)["containers"][0]["image"]: one for one in found}


async def reason(cluster: Cluster, kind: str = "Progressing") -> str:
    found = condition_of((await get(cluster)).status.conditions, kind)
    return found.reason if found is not None else ""


def note_of(one: ReplicaSet, name: str) -> str:
    return (one.metadata.annotations or {}).get(name, "")


async def test_new_deployment_gets_its_pods_and_status() -> None:
    async with Cluster() as cluster, PodAgent(cluster):
        await cluster.manage(*FLAGS)
        made = await cluster.client.create(DEPLOYMENTS, deployment(replicas=3, minReadySeconds=5))
        await cluster.settle(pending=0)
        assert await reason(cluster) == "ReplicaSetUpdated"
        assert await reason(cluster, "Available") == "MinimumReplicasUnavailable"
        await cluster.advance(10)
        found = await get(cluster)
        status = found.status
        assert (status.replicas, status.updated_replicas, status.ready_replicas) == (3, 3, 3)
        assert (status.available_replicas, status.unavailable_replicas, status.terminating_replicas) == (3, 0, 0)
        assert status.observed_generation == found.metadata.generation
        assert await reason(cluster) == "NewReplicaSetAvailable"
        assert await reason(cluster, "Available") == "MinimumReplicasAvailable"
        assert (found.metadata.annotations or {})[REVISION] == "1"
        one = (await sets(cluster))[OLD]
        code = (one.metadata.labels or {})[HASH]
        assert one.metadata.name == f"web-{code}"
        assert (one.spec.selector.match_labels or {}) == {"app": "web", HASH: code}
        assert one.spec.template.metadata.labels == {"app": "web", HASH: code}
        assert one.metadata.owner_references[0].uid == made.metadata.uid
        assert (note_of(one, REVISION), note_of(one, DESIRED), note_of(one, MAXIMUM)) == ("1", "3", "4")
        assert one.spec.min_ready_seconds == 5
        assert await events(cluster) == [("Normal", "ScalingReplicaSet"), *[("Normal", "SuccessfulCreate")] * 3]
        scaled = (await cluster.client.list(EVENTS, "default")).items
        assert {event.reporting_component for event in scaled} == {"deployment-controller", "replicaset-controller"}


@pytest.mark.parametrize(
    ("surge", "unavailable", "most", "least"), [(1, 0, 5, 4), (0, 1, 4, 3), ("50%", "25%", 6, 3), (0, "100%", 4, 0)]
)
async def test_a_rolling_update_keeps_its_limits(
    surge: int | str, unavailable: int | str, most: int, least: int
) -> None:
    async with Cluster() as cluster, PodAgent(cluster, start=3, stop=5):
        await cluster.manage(*FLAGS)
        rolling = {"maxSurge": surge, "maxUnavailable": unavailable}
        wanted = deployment(replicas=4, strategy={"type": "RollingUpdate", "rollingUpdate": rolling})
        await cluster.client.create(DEPLOYMENTS, wanted)
        await cluster.advance(10)
        counted = Counted(cluster)
        for pod in await pods(cluster):  # so that caches have them
            await cluster.client.patch(PODS, Key("default", pod.metadata.name), {"metadata": {"labels": {"seen": ""}}})
        await cluster.settle()
        counted.active.clear()
        counted.ready.clear()
        await use(cluster, NEW)
        await cluster.advance(120)
        assert max(counted.active) <= most
        assert min(counted.ready) >= least
        found = await sets(cluster)
        assert (found[NEW].spec.replicas, found[OLD].spec.replicas) == (4, 0)
        assert (note_of(found[NEW], REVISION), note_of(found[OLD], REVISION)) == ("2", "1")
        assert await reason(cluster) == "NewReplicaSetAvailable"


async def test_recreate_never_runs_pods_of_two_templates() -> None:
    async with Cluster() as cluster, PodAgent(cluster, stop=20):
        await cluster.manage(*FLAGS)
        counted = Counted(cluster)
        await cluster.client.create(DEPLOYMENTS, deployment(replicas=3, strategy={"type": "Recreate"}))
        await cluster.settle()
        await use(cluster, NEW)
        await cluster.sleep(10)
        assert list(await sets(cluster)) == [OLD]
        await cluster.advance(30)
        assert max(counted.templates) == 1
        found = await sets(cluster)
        assert (found[NEW].spec.replicas, found[OLD].spec.replicas) == (3, 0)
        assert note_of(found[NEW], MAXIMUM) == "3"
        assert await reason(cluster) == "NewReplicaSetAvailable"


async def test_paused_deployment_is_scaled_but_not_rolled_out() -> None:
    async with Cluster() as cluster, PodAgent(cluster):
        await cluster.manage(*FLAGS)
        await cluster.client.create(DEPLOYMENTS, deployment(replicas=3))
        await cluster.settle()
        await change(cluster, paused=True)
        await cluster.settle()
        assert await reason(cluster) == "DeploymentPaused"
        await use(cluster, NEW)
        await change(cluster, replicas=5)
        await cluster.settle()
        found = await sets(cluster)
        assert list(found) == [OLD]
        assert (found[OLD].spec.replicas, note_of(found[OLD], DESIRED)) == (5, "5")
        await change(cluster, paused=False)
        await cluster.settle()
        found = await sets(cluster)
        assert (found[NEW].spec.replicas, found[OLD].spec.replicas) == (5, 0)
        assert await reason(cluster) == "NewReplicaSetAvailable"


async def test_restored_template_gets_new_revision_of_old_replica_set() -> None:
    async with Cluster() as cluster, PodAgent(cluster):
        await cluster.manage(*FLAGS)
        await cluster.client.create(DEPLOYMENTS, deployment())
        await cluster.settle()
        for image, cause in ((NEW, "second"), (OLD, "third"), (NEW, "fourth"), (OLD, "fifth")):
            reasons = {"metadata": {"annotations": {"kubernetes.io/change-cause": cause}}}
            await cluster.client.patch(DEPLOYMENTS, WEB, {**reasons, "spec": {"template": template(image, app="web")}})
            await cluster.settle()
        found = await sets(cluster)
        assert len(found) == 2
        assert (note_of(found[OLD], REVISION), note_of(found[OLD], HISTORY)) == ("5", "1,3")
        assert (note_of(found[NEW], REVISION), note_of(found[NEW], HISTORY)) == ("4", "2")
        assert note_of(found[NEW], "kubernetes.io/change-cause") == "fourth"
        assert ((await get(cluster)).metadata.annotations or {})[REVISION] == "5"


async def test_progress_deadline_is_reported_until_progress() -> None:
    async with Cluster() as cluster, PodAgent(cluster, runs=lambda pod: b"bad" not in pod.raw) as agent:
        await cluster.manage(*FLAGS)
        await cluster.client.create(DEPLOYMENTS, deployment(replicas=3, progressDeadlineSeconds=60))
        await cluster.settle()
        await use(cluster, BAD)
        await cluster.sleep(50)
        assert await reason(cluster) == "ReplicaSetUpdated"
        await cluster.advance(15)
        assert await reason(cluster) == "ProgressDeadlineExceeded"
        assert await reason(cluster, "Available") == "MinimumReplicasAvailable"
        revision = cluster.api.store.revision
        await cluster.advance(1800)  # shorter than the lifetime of events
        assert cluster.api.store.revision == revision
        agent.runs = lambda _: True
        await use(cluster, NEW)
        await cluster.settle()
        assert await reason(cluster) == "NewReplicaSetAvailable"
        assert {image: one.spec.replicas for image, one in (await sets(cluster)).items()} == {OLD: 0, BAD: 0, NEW: 3}


async def test_stuck_rollout_is_scaled_proportionally() -> None:
    async with Cluster() as cluster, PodAgent(cluster, runs=lambda pod: b"bad" not in pod.raw):
        await cluster.manage(*FLAGS)
        rolling = {"maxSurge": 3, "maxUnavailable": 2}
        wanted = deployment(replicas=10, strategy={"type": "RollingUpdate", "rollingUpdate": rolling})
        await cluster.client.create(DEPLOYMENTS, wanted)
        await cluster.settle()
        await use(cluster, BAD)
        await cluster.settle()
        found = await sets(cluster)
        assert (found[OLD].spec.replicas, found[BAD].spec.replicas) == (8, 5)
        await change(cluster, replicas=20)
        await cluster.settle()
        found = await sets(cluster)
        assert found[OLD].spec.replicas + found[BAD].spec.replicas == 23
        assert found[OLD].spec.replicas == 14


async def test_rollout_continues_after_desired_annotation_is_edited() -> None:
    async with Cluster() as cluster, PodAgent(cluster):
        await cluster.manage(*FLAGS)
        await cluster.client.create(DEPLOYMENTS, deployment(replicas=3))
        await cluster.settle()
        one = (await sets(cluster))[OLD]
        stale = {"metadata": {"annotations": {DESIRED: "2"}}}
        await cluster.client.patch(REPLICA_SETS, Key("default", one.metadata.name), stale)
        await cluster.settle()
        assert note_of((await sets(cluster))[OLD], DESIRED) == "3"
        await use(cluster, NEW)
        await cluster.settle()
        assert (await sets(cluster))[NEW].spec.replicas == 3


async def test_rollout_switched_to_recreate_while_scaled_continues() -> None:
    async with Cluster() as cluster, PodAgent(cluster, runs=lambda pod: b"bad" not in pod.raw):
        await cluster.manage(*FLAGS)
        await cluster.client.create(DEPLOYMENTS, deployment(replicas=3))
        await cluster.settle()
        await use(cluster, BAD)
        await cluster.settle()
        await change(cluster, replicas=5, strategy={"type": "Recreate", "rollingUpdate": None})
        await cluster.settle()
        assert {image: one.spec.replicas for image, one in (await sets(cluster)).items()} == {OLD: 0, BAD: 5}


@pytest.mark.parametrize(("limit", "left"), [(0, 1), (2, 3), (10, 5)])
async def test_replica_sets_beyond_history_limit_are_deleted(limit: int, left: int) -> None:
    async with Cluster() as cluster, PodAgent(cluster):
        await cluster.manage(*FLAGS)
        await cluster.client.create(DEPLOYMENTS, deployment(revisionHistoryLimit=limit))
        await cluster.settle()
        for number in range(2, 6):
            await use(cluster, f"example.org/app:{number}")
            await cluster.settle()
        found = await sets(cluster)
        assert len(found) == left
        assert sorted(int(note_of(one, REVISION)) for one in found.values()) == list(range(6 - left, 6))


async def test_taken_replica_set_name_counts_as_collision() -> None:
    async with Cluster() as cluster, PodAgent(cluster):
        await cluster.manage(*FLAGS)
        await cluster.client.create(DEPLOYMENTS, deployment())
        await cluster.settle()
        name = (await sets(cluster))[OLD].metadata.name
        await cluster.client.delete(DEPLOYMENTS, WEB, propagation="Orphan")
        await cluster.client.patch(DEPLOYMENTS, WEB, {"metadata": {"finalizers": None}})
        await cluster.client.delete(REPLICA_SETS, Key("default", name))
        other = replica_set("other", 0)
        await cluster.client.create(REPLICA_SETS, replace(other, metadata=replace(other.metadata, name=name)))
        await cluster.client.create(DEPLOYMENTS, deployment())
        await cluster.settle()
        found = await get(cluster)
        assert (found.status.collision_count, found.status.updated_replicas) == (1, 3)
        made = (await cluster.client.list(REPLICA_SETS, "default")).items
        (mine,) = (one for one in made if one.metadata.name != name)
        assert mine.metadata.name.startswith("web-")
        assert mine.spec.replicas == 3


async def test_matching_replica_sets_are_adopted_and_released() -> None:
    async with Cluster() as cluster, PodAgent(cluster):
        await cluster.manage(*FLAGS)
        one = await cluster.client.create(REPLICA_SETS, replica_set("web", 2))
        await cluster.client.patch(REPLICA_SETS, WEB, {"metadata": {"labels": {"app": "web"}}})
        await cluster.settle()
        await cluster.client.create(DEPLOYMENTS, deployment(replicas=3))
        await cluster.settle()
        (found,) = (await cluster.client.list(REPLICA_SETS, "default")).items
        assert (found.metadata.uid, found.spec.replicas, note_of(found, REVISION)) == (one.metadata.uid, 3, "1")
        assert await reason(cluster) == "NewReplicaSetAvailable"
        label = {"metadata": {"labels": {"app": "else"}}}
        await cluster.client.patch(REPLICA_SETS, Key("default", "web"), {**label, "spec": {"replicas": 0}})
        await cluster.settle()
        found = await cluster.client.get(REPLICA_SETS, Key("default", "web"))
        assert (found.metadata.owner_references, len(await owned(cluster, "web"))) == ((), 0)
        assert (await get(cluster)).status.available_replicas == 3


async def test_failed_replica_set_creation_is_reported() -> None:
    async with Cluster() as cluster, PodAgent(cluster):
        replica = await cluster.manage(*FLAGS, strict=False)
        await cluster.settle()
        refusal = Response(403, {}, Forbidden("there are enough").status().encode())
        replica.network.intercept(
            lambda it: refusal if it.method == "POST" and it.path.endswith("/replicasets") else None
        )
        await cluster.client.create(DEPLOYMENTS, deployment())
        await cluster.sleep(10)
        assert await reason(cluster) == "ReplicaSetCreateError"
        assert ("Warning", "ReplicaSetCreateError") in await events(cluster)
        replica.network.intercept(None)
        await cluster.advance(60)
        assert await reason(cluster) == "NewReplicaSetAvailable"


async def test_failed_pod_creation_is_reported_on_deployment() -> None:
    async with Cluster() as cluster, PodAgent(cluster):
        replica = await cluster.manage(*FLAGS, strict=False)
        await cluster.settle()
        refusal = Response(403, {}, Forbidden("the quota is used up").status().encode())
        replica.network.intercept(lambda it: refusal if it.method == "POST" and it.path.endswith("/pods") else None)
        await cluster.client.create(DEPLOYMENTS, deployment())
        await cluster.sleep(10)
        assert await reason(cluster, "ReplicaFailure") == "FailedCreate"
        replica.network.intercept(None)
        await cluster.advance(60)
        assert await reason(cluster, "ReplicaFailure") == ""


@pytest.mark.parametrize(
    ("revision", "image", "expected_reason"),
    [
        ("0", OLD, "DeploymentRollback"),
        ("1", OLD, "DeploymentRollback"),
        ("2", NEW, "DeploymentRollbackTemplateUnchanged"),
        ("7", NEW, "DeploymentRollbackRevisionNotFound"),
    ],
)
async def test_rollback_annotation_of_old_clients_is_honoured(revision: str, image: str, expected_reason: str) -> None:
    async with Cluster() as cluster, PodAgent(cluster):
        await cluster.manage(*FLAGS)
        await cluster.client.create(DEPLOYMENTS, deployment())
        await cluster.settle()
        await use(cluster, NEW)
        await cluster.settle()
        await cluster.client.patch(DEPLOYMENTS, WEB, {"metadata": {"annotations": {ROLLBACK: revision}}})
        await cluster.settle()
        assert expected_reason in [reason for _, reason in await events(cluster)]
        assert ROLLBACK not in ((await get(cluster)).metadata.annotations or {})
        assert (await sets(cluster))[image].spec.replicas == 3


async def test_change_outside_template_starts_no_rollout() -> None:
    async with Cluster() as cluster, PodAgent(cluster):
        await cluster.manage(*FLAGS)
        await cluster.client.create(DEPLOYMENTS, deployment())
        await cluster.settle()
        await change(cluster, minReadySeconds=7, revisionHistoryLimit=3)
        await cluster.settle()
        (one,) = (await cluster.client.list(REPLICA_SETS, "default")).items
        assert (one.spec.min_ready_seconds, note_of(one, REVISION)) == (7, "1")


async def test_rolling_update_makes_few_writes() -> None:
    async with Cluster() as cluster, PodAgent(cluster):
        await cluster.manage(*FLAGS)
        await cluster.client.create(DEPLOYMENTS, deployment(replicas=1))
        await cluster.settle()
        writes: list[str] = []
        cluster.api.store.subscribe(lambda changes: writes.extend(one.row.resource for one in changes))
        await use(cluster, NEW)
        await cluster.advance(3600)
        # The edit; new set, its pod, pod ready; one pod fewer, terminating, deleted.
        assert writes.count(DEPLOYMENTS.name) <= 7
        # Of the new set: created, a pod, ready; of the old one: its size, pod terminating, pod deleted.
        assert writes.count(REPLICA_SETS.name) <= 7


async def test_deleting_deployment_starts_no_rollout() -> None:
    async with Cluster() as cluster, PodAgent(cluster):
        await cluster.manage(*FLAGS)
        await cluster.client.create(DEPLOYMENTS, deployment())
        await cluster.settle()
        await cluster.client.delete(DEPLOYMENTS, WEB, propagation="Orphan")
        await use(cluster, NEW)
        await change(cluster, replicas=7)
        await cluster.settle()
        found = await sets(cluster)
        assert [(image, one.spec.replicas) for image, one in found.items()] == [(OLD, 3)]
        status = (await get(cluster)).status
        assert (status.observed_generation, status.updated_replicas) == ((await get(cluster)).metadata.generation, 0)


async def test_terminating_namespace_gets_no_replica_sets() -> None:
    async with Cluster() as cluster:
        await cluster.manage(*FLAGS)
        await cluster.client.create(NAMESPACES, builders.namespace("old"))
        wanted = deployment(paused=True)
        await cluster.client.create(DEPLOYMENTS, replace(wanted, metadata=replace(wanted.metadata, namespace="old")))
        await cluster.client.delete(NAMESPACES, Key("", "old"))
        await cluster.client.patch(DEPLOYMENTS, Key("old", "web"), {"spec": {"paused": False}})
        await cluster.advance(60)
        assert (await cluster.client.list(REPLICA_SETS, "old")).items == []


async def test_recreate_continues_after_last_old_pod_fails() -> None:
    async with Cluster() as cluster, PodAgent(cluster, stop=100):
        await cluster.manage(*FLAGS)
        await cluster.client.create(DEPLOYMENTS, deployment(replicas=1, strategy={"type": "Recreate"}))
        await cluster.settle()
        await use(cluster, NEW)
        await cluster.advance(50)
        assert list(await sets(cluster)) == [OLD]
        (pod,) = await pods(cluster)
        done = {"status": {"phase": "Failed"}}
        await cluster.client.patch(PODS, Key("default", pod.metadata.name), done, subresource="status")
        await cluster.sleep(5)
        assert set(await sets(cluster)) == {OLD, NEW}


@pytest.mark.parametrize(("gate", "counted"), [("true", 0), ("false", None)])
async def test_terminating_replicas_are_counted_by_feature_gate(gate: str, counted: int | None) -> None:
    async with Cluster() as cluster, PodAgent(cluster):
        await cluster.manage(*FLAGS, f"--feature-gates=DeploymentReplicaSetTerminatingReplicas={gate}")
        await cluster.client.create(DEPLOYMENTS, deployment())
        await cluster.settle()
        assert (await get(cluster)).status.terminating_replicas == counted
        assert (await sets(cluster))[OLD].status.terminating_replicas == counted


@pytest.mark.flag("concurrent-deployment-syncs")
@pytest.mark.parametrize("workers", [1, 3])
async def test_concurrent_deployment_syncs_flag_sets_workers(workers: int) -> None:
    async with Cluster() as cluster:
        slow = ("--leader-elect=false", "--controllers=deployment", "--kube-api-qps=0.1", "--kube-api-burst=1")
        replica = await cluster.manage(*slow, f"--concurrent-deployment-syncs={workers}")
        await cluster.sleep(60)
        for number in range(6):
            await cluster.client.create(DEPLOYMENTS, deployment(f"web-{number}"))
        assert await most_in_work(cluster, replica, "deployment-controller") == workers


async def test_adopted_replica_set_revision_precedes_newest() -> None:
    async with Cluster() as cluster, PodAgent(cluster):
        await cluster.manage(*FLAGS)
        large = "3546343826724305832"
        old = replica_set("web", 1)
        meta = replace(old.metadata, labels={"app": "web"}, annotations={REVISION: large})
        await cluster.client.create(REPLICA_SETS, replace(old, metadata=meta))
        await cluster.settle()
        await cluster.client.create(DEPLOYMENTS, deployment(image=NEW))
        await cluster.settle()
        found = await sets(cluster)
        assert (note_of(found[OLD], REVISION), note_of(found[NEW], REVISION)) == (large, "3546343826724305833")
        assert (found[OLD].spec.replicas, found[NEW].spec.replicas) == (0, 3)
        assert ((await get(cluster)).metadata.annotations or {})[REVISION] == "3546343826724305833"
