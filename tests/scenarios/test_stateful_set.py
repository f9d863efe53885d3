"""Stateful sets in a cluster with running pods, in virtual time."""

import msgspec
import pytest
from msgspec.structs import replace

from controller_manager.common.api.apps import STATEFUL_SETS
from controller_manager.common.api.core import NAMESPACES, PODS
from controller_manager.common.api.errors import Forbidden
from controller_manager.common.api.policy import POD_DISRUPTION_BUDGETS, PodDisruptionBudget
from controller_manager.common.api.resource import Key
from controller_manager.common.api.storage import PERSISTENT_VOLUME_CLAIMS
from controller_manager.common.api.wire import Response
from controller_manager.framework import controller_of
from controller_manager.testing import Cluster, builders
from controller_manager.testing.pod_agent import PodAgent
from tests.scenarios.stateful_sets import (
    COLLECTING,
    FLAGS,
    PARALLEL,
    WEB,
    Log,
    change,
    claims,
    found,
    images,
    numbers,
    revisions,
)
from tests.scenarios.test_manager_flags import most_in_work
from tests.scenarios.workloads import claim_template, events, label, owned, pods, set_status, stateful_set

pytestmark = pytest.mark.virtual


async def test_pods_start_in_order_and_stop_in_reverse() -> None:
    async with Cluster() as cluster, PodAgent(cluster):
        await cluster.manage(*FLAGS)
        log = Log(cluster)
        await cluster.client.create(STATEFUL_SETS, stateful_set())
        await cluster.settle()
        assert log.pods == ["+web-0", "web-0", "+web-1", "web-1", "+web-2", "web-2"]
        assert await numbers(cluster) == (3, 3, 3, 3, 3)
        log.pods.clear()
        await change(cluster, replicas=1)
        await cluster.settle()
        assert log.pods == ["-web-2", "-web-1"]
        assert await numbers(cluster) == (1, 1, 1, 1, 1)
        status = (await found(cluster)).status
        (revision,) = await revisions(cluster)
        assert {status.current_revision, status.update_revision} == {revision.metadata.name}
        assert (status.observed_generation, status.collision_count) == (2, 0)
        written = [reason for _, reason in await events(cluster)]
        assert (written.count("SuccessfulCreate"), written.count("SuccessfulDelete")) == (3, 2)


async def test_parallel_pods_start_and_stop_at_once() -> None:
    async with Cluster() as cluster, PodAgent(cluster):
        await cluster.manage(*FLAGS)
        log = Log(cluster)
        await cluster.client.create(STATEFUL_SETS, stateful_set(**PARALLEL))
        await cluster.settle()
        assert sorted(log.pods[:3]) == ["+web-0", "+web-1", "+web-2"]
        log.pods.clear()
        await change(cluster, replicas=0)
        await cluster.sleep(1.5)
        assert sorted(log.pods) == ["-web-0", "-web-1", "-web-2"]
        await cluster.settle()
        assert await numbers(cluster) == (0, 0, 0, 0, 0)


async def test_status_is_written_once_per_change() -> None:
    async with Cluster() as cluster, PodAgent(cluster):
        await cluster.manage(*FLAGS)
        log = Log(cluster)
        await cluster.client.create(STATEFUL_SETS, stateful_set())
        await cluster.settle()
        assert log.statuses == 1 + 4  # the set; each pod with readiness of the one before; the last one
        await change(cluster, replicas=2)
        await cluster.settle()
        assert log.statuses == 5 + 4  # the change; pod terminating, finished, deleted


async def test_pod_has_ordinal_name_labels_and_claim() -> None:
    async with Cluster() as cluster, PodAgent(cluster):
        await cluster.manage(*FLAGS)
        spec = {"ordinals": {"start": 5}, "volumeClaimTemplates": [claim_template(labels={"a": "b"})]}
        made = await cluster.client.create(STATEFUL_SETS, stateful_set(replicas=2, **spec))
        await cluster.settle()
        one, _ = await pods(cluster)
        (revision,) = await revisions(cluster)
        assert one.metadata.labels == {
            "app": "web",
            "statefulset.kubernetes.io/pod-name": "web-5",
            "apps.kubernetes.io/pod-index": "5",
            "controller-revision-hash": revision.metadata.name,
        }
        assert (one.spec.hostname, one.spec.subdomain) == ("web-5", "web")
        (volume,) = one.spec.volumes
        assert volume.persistent_volume_claim is not None
        assert (volume.name, volume.persistent_volume_claim.claim_name) == ("data", "data-web-5")
        assert b'"env":[{"name":"A","value":"b"}]' in one.raw
        reference = controller_of(one)
        assert reference is not None
        assert (reference.kind, reference.uid) == ("StatefulSet", made.metadata.uid)
        assert await claims(cluster) == {"data-web-5": [], "data-web-6": []}
        claim = await cluster.client.get(PERSISTENT_VOLUME_CLAIMS, Key("default", "data-web-5"))
        assert claim.metadata.labels == {"a": "b", "app": "web"}


async def test_changed_ordinal_start_moves_pods() -> None:
    async with Cluster() as cluster, PodAgent(cluster):
        await cluster.manage(*FLAGS)
        await cluster.client.create(STATEFUL_SETS, stateful_set(replicas=3))
        await cluster.settle()
        await change(cluster, ordinals={"start": 2})
        await cluster.settle()
        assert sorted(await images(cluster)) == ["web-2", "web-3", "web-4"]
        assert await numbers(cluster) == (3, 3, 3, 3, 3)


@pytest.mark.parametrize("phase", ["Failed", "Succeeded"])
async def test_finished_pod_is_recreated(phase: str) -> None:
    async with Cluster() as cluster, PodAgent(cluster):
        await cluster.manage(*FLAGS)
        await cluster.client.create(STATEFUL_SETS, stateful_set())
        await cluster.settle()
        before = {pod.metadata.name: pod.metadata.uid for pod in await pods(cluster)}
        one = next(pod for pod in await pods(cluster) if pod.metadata.name == "web-1")
        await set_status(cluster, one, phase=phase)
        await cluster.settle()
        after = {pod.metadata.name: pod.metadata.uid for pod in await pods(cluster)}
        assert {name for name in before if before[name] != after[name]} == {"web-1"}
        assert await numbers(cluster) == (3, 3, 3, 3, 3)


async def test_next_pod_waits_for_min_ready_seconds() -> None:
    async with Cluster() as cluster, PodAgent(cluster):
        await cluster.manage(*FLAGS)
        await cluster.client.create(STATEFUL_SETS, stateful_set(replicas=2, minReadySeconds=30))
        await cluster.sleep(20)
        assert await numbers(cluster) == (1, 1, 0, 1, 1)
        await cluster.sleep(20)
        assert await numbers(cluster) == (2, 2, 1, 2, 2)
        await cluster.advance(40)
        assert await numbers(cluster) == (2, 2, 2, 2, 2)


async def test_pods_are_adopted_by_name_and_released() -> None:
    async with Cluster() as cluster, PodAgent(cluster):
        replica = await cluster.manage(*FLAGS)
        spec = {"volumeClaimTemplates": [claim_template()]}
        await cluster.client.create(STATEFUL_SETS, stateful_set(replicas=2, **spec))
        await cluster.settle()
        await replica.stop()
        await cluster.client.delete(STATEFUL_SETS, WEB, propagation="Orphan")
        await cluster.client.patch(STATEFUL_SETS, WEB, {"metadata": {"finalizers": None}})
        for name in ("web-0", "web-1"):
            await cluster.client.patch(PODS, Key("default", name), {"metadata": {"ownerReferences": None}})
        marks = {"statefulset.kubernetes.io/pod-name": None, "apps.kubernetes.io/pod-index": None}
        await label(cluster, builders.pod("web-1"), **marks)
        await cluster.client.create(PODS, builders.pod("web-x", labels={"app": "web"}))
        await cluster.manage(*FLAGS, strict=False)
        again = await cluster.client.create(STATEFUL_SETS, stateful_set(replicas=2, **spec))
        await cluster.settle()
        found_pods = {pod.metadata.name: pod for pod in await pods(cluster)}
        owners = {name: controller_of(pod) for name, pod in found_pods.items()}
        assert {name: one.uid if one else "" for name, one in owners.items()} == {
            "web-0": again.metadata.uid,
            "web-1": again.metadata.uid,
            "web-x": "",
        }
        assert (found_pods["web-1"].metadata.labels or {})["statefulset.kubernetes.io/pod-name"] == "web-1"
        assert "SuccessfulUpdate" in [reason for _, reason in await events(cluster)]
        await label(cluster, found_pods["web-1"], app="else")
        await cluster.sleep(5)
        assert len(await owned(cluster)) == 1  # the released pod has its name


async def test_foreign_pod_with_same_name_blocks_creation() -> None:
    async with Cluster() as cluster, PodAgent(cluster):
        await cluster.manage(*FLAGS, strict=False)
        await cluster.client.create(PODS, builders.pod("web-0", labels={"app": "else"}))
        await cluster.client.create(STATEFUL_SETS, stateful_set(replicas=2))
        await cluster.sleep(10)
        assert await owned(cluster) == []
        await cluster.client.delete(PODS, Key("default", "web-0"))
        await cluster.advance(60)
        assert await numbers(cluster) == (2, 2, 2, 2, 2)


async def test_rejected_pod_is_reported_and_retried() -> None:
    async with Cluster() as cluster, PodAgent(cluster):
        replica = await cluster.manage(*FLAGS)
        answer = Response(403, {}, Forbidden("the quota is used up").status().encode())
        asked = "/api/v1/namespaces/default/pods"
        replica.network.intercept(lambda it: answer if (it.method, it.path) == ("POST", asked) else None)
        await cluster.client.create(STATEFUL_SETS, stateful_set(replicas=2))
        await cluster.sleep(2)
        assert ("Warning", "FailedCreate") in await events(cluster)
        status = (await found(cluster)).status
        assert (status.observed_generation, status.replicas) == (1, 0)
        replica.network.intercept(None)
        await cluster.advance(60)
        assert await numbers(cluster) == (2, 2, 2, 2, 2)


async def test_terminating_namespace_gets_no_pods() -> None:
    async with Cluster() as cluster, PodAgent(cluster):
        await cluster.manage("--leader-elect=false", "--controllers=statefulset,namespace,garbage-collector-controller")
        await cluster.client.create(NAMESPACES, builders.namespace("short"))
        made = stateful_set(volumeClaimTemplates=[claim_template()])
        await cluster.client.create(STATEFUL_SETS, replace(made, metadata=replace(made.metadata, namespace="short")))
        await cluster.sleep(1.5)
        await cluster.client.delete(NAMESPACES, Key("", "short"))
        await cluster.sleep(5)
        assert [event for event in await events(cluster) if event[0] == "Warning"] == []
        assert (await cluster.client.list(PODS, "short")).items == []


async def test_deleted_set_deletes_its_pods_and_revisions() -> None:
    async with Cluster() as cluster, PodAgent(cluster):
        await cluster.manage(*COLLECTING)
        await cluster.client.create(STATEFUL_SETS, stateful_set())
        await cluster.settle()
        await cluster.client.delete(STATEFUL_SETS, WEB, propagation="Foreground")
        await cluster.settle()
        assert (await pods(cluster), await revisions(cluster)) == ([], [])
        assert (await cluster.client.list(STATEFUL_SETS, "default")).items == []


async def test_disruption_budget_counts_its_pods() -> None:
    async with Cluster() as cluster, PodAgent(cluster):
        await cluster.manage("--leader-elect=false", "--controllers=statefulset,disruption")
        await cluster.client.create(STATEFUL_SETS, stateful_set())
        budget = {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "web"}}}
        meta = {"name": "web", "namespace": "default"}
        kind = POD_DISRUPTION_BUDGETS
        tree = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": meta, "spec": budget}
        await cluster.client.create(kind, PodDisruptionBudget.decode(msgspec.json.encode(tree)))
        await cluster.advance(60)
        status = (await cluster.client.get(kind, WEB)).status
        assert (status.expected_pods, status.current_healthy, status.disruptions_allowed) == (3, 3, 1)


async def test_new_leader_continues_scale_up() -> None:
    async with Cluster() as cluster, PodAgent(cluster):
        replica = await cluster.manage(*FLAGS)
        await cluster.client.create(STATEFUL_SETS, stateful_set(replicas=4))
        await cluster.sleep(1.5)
        await replica.kill()
        log = Log(cluster)
        await cluster.manage(*FLAGS)
        await cluster.settle()
        assert await numbers(cluster) == (4, 4, 4, 4, 4)
        assert sum(one.startswith("-") for one in log.pods) == 0
        before = cluster.api.store.revision
        await cluster.advance(60)
        assert cluster.api.store.revision == before


@pytest.mark.flag("concurrent-statefulset-syncs")
@pytest.mark.parametrize("workers", [1, 3])
async def test_concurrent_statefulset_syncs_flag_sets_workers(workers: int) -> None:
    async with Cluster() as cluster:
        slow = ("--leader-elect=false", "--controllers=statefulset", "--kube-api-qps=0.1", "--kube-api-burst=1")
        replica = await cluster.manage(*slow, f"--concurrent-statefulset-syncs={workers}")
        await cluster.sleep(60)
        for number in range(6):
            await cluster.client.create(STATEFUL_SETS, stateful_set(f"web-{number}"))
        assert await most_in_work(cluster, replica, "statefulset-controller") == workers
