"""Pod disruption budgets in a whole cluster, in virtual time: evictions follow the existing pods."""

import json
from typing import Any

import pytest

from controller_manager.common.api.apps import REPLICA_SETS, ReplicaSet
from controller_manager.common.api.core import PODS, Pod
from controller_manager.common.api.errors import TooManyRequests
from controller_manager.common.api.policy import POD_DISRUPTION_BUDGETS, PodDisruptionBudget
from controller_manager.common.api.resource import Key
from controller_manager.framework.client.rest_client import Call
from controller_manager.testing import Cluster
from controllers.disruption import SPECS
from tests.scenarios.workloads import events, replica_set

pytestmark = pytest.mark.virtual
ON = ("--leader-elect=false",)
BUDGET = Key("default", "b")


async def protect(cluster: Cluster, **spec: Any) -> None:
    tree = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "b", "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": "web"}}, **spec},
    }
    await cluster.client.create(POD_DISRUPTION_BUDGETS, PodDisruptionBudget.decode(json.dumps(tree).encode()))


async def add_pods(cluster: Cluster, count: int, owner: ReplicaSet | None = None, first: int = 0) -> None:
    """Create ready pods, with an owner if it is given."""
    reference = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "controller": True}
    for number in range(first, first + count):
        meta: dict[str, Any] = {"name": f"p{number}", "namespace": "default", "labels": {"app": "web"}}
        if owner is not None:
            meta["ownerReferences"] = [{**reference, "name": owner.metadata.name, "uid": owner.metadata.uid}]
        spec = {"containers": [{"name": "c", "image": "i"}], "terminationGracePeriodSeconds": 0}
        await cluster.client.create(PODS, Pod.decode(json.dumps({"metadata": meta, "spec": spec}).encode()))
        await set_ready(cluster, f"p{number}", "True")


async def set_ready(cluster: Cluster, name: str, status: str) -> None:
    condition = {"type": "Ready", "status": status}
    change = {"status": {"phase": "Running", "conditions": [condition]}}
    await cluster.client.patch(PODS, Key("default", name), change, subresource="status")


async def evict(cluster: Cluster, name: str) -> None:
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": "default"}}
    path = PODS.path("default", name, "eviction")
    await cluster.client.raw(Call("POST", path, body=json.dumps(body).encode()))


async def numbers(cluster: Cluster) -> tuple[int, int, int, int]:
    """Return the numbers of expected, desired healthy and healthy pods, and of allowed disruptions."""
    status = (await cluster.client.get(POD_DISRUPTION_BUDGETS, BUDGET)).status
    return status.expected_pods, status.desired_healthy, status.current_healthy, status.disruptions_allowed


async def test_budget_status_follows_pods() -> None:
    async with Cluster() as cluster:
        await cluster.manage(*ON, specs=SPECS)
        await protect(cluster, minAvailable=2)
        await cluster.settle()
        assert await numbers(cluster) == (0, 2, 0, 0)
        assert ("Normal", "NoPods") in await events(cluster)
        await add_pods(cluster, 3)
        await cluster.settle()
        assert await numbers(cluster) == (3, 2, 3, 1)
        await set_ready(cluster, "p0", "False")
        await cluster.settle()
        assert await numbers(cluster) == (3, 2, 2, 0)
        await cluster.client.patch(PODS, Key("default", "p0"), {"metadata": {"labels": {"app": "other"}}})
        await cluster.settle()
        assert await numbers(cluster) == (2, 2, 2, 0)


async def test_evictions_continue_as_pods_are_replaced() -> None:
    async with Cluster() as cluster:
        await cluster.manage(*ON, specs=SPECS)
        owner = await cluster.client.create(REPLICA_SETS, replica_set(replicas=3))
        await protect(cluster, maxUnavailable=1)
        await add_pods(cluster, 3, owner)
        await cluster.settle()
        assert await numbers(cluster) == (3, 2, 3, 1)
        await evict(cluster, "p0")
        with pytest.raises(TooManyRequests):
            await evict(cluster, "p1")
        await cluster.settle()
        assert await numbers(cluster) == (3, 2, 2, 0)
        await add_pods(cluster, 1, owner, first=3)
        await cluster.settle()
        await evict(cluster, "p1")
        await cluster.settle()
        assert await numbers(cluster) == (3, 2, 2, 0)


async def test_evicted_pod_that_stays_counts_again_after_two_minutes() -> None:
    async with Cluster() as cluster:
        await cluster.manage(*ON, specs=SPECS)
        await add_pods(cluster, 3)
        await protect(cluster, minAvailable=2)
        await cluster.settle()
        now = (await cluster.client.get(PODS, Key("default", "p0"))).metadata.creation_timestamp
        change = {"status": {"disruptedPods": {"p0": now}, "disruptionsAllowed": 0}}
        await cluster.client.patch(POD_DISRUPTION_BUDGETS, BUDGET, change, subresource="status")
        await cluster.settle()
        assert await numbers(cluster) == (3, 2, 2, 0)
        await cluster.advance(122)
        assert await numbers(cluster) == (3, 2, 3, 1)
        assert ("Warning", "NotDeleted") in await events(cluster)


async def test_missing_pod_owner_allows_no_disruptions() -> None:
    async with Cluster() as cluster:
        await cluster.manage(*ON, specs=SPECS)
        owner = await cluster.client.create(REPLICA_SETS, replica_set(replicas=3))
        await protect(cluster, maxUnavailable="50%")
        await add_pods(cluster, 3, owner)
        await cluster.settle()
        assert await numbers(cluster) == (3, 1, 3, 2)
        await cluster.client.delete(REPLICA_SETS, Key("default", "web"), propagation="Background")
        await set_ready(cluster, "p0", "False")
        await cluster.settle()
        status = (await cluster.client.get(POD_DISRUPTION_BUDGETS, BUDGET)).status
        (condition,) = status.conditions
        assert (status.disruptions_allowed, condition.status, condition.reason) == (0, "False", "SyncFailed")
        assert ("Warning", "CalculateExpectedPodCountFailed") in await events(cluster)


async def test_stale_disruption_target_condition_is_reset() -> None:
    async with Cluster() as cluster:
        await cluster.manage(*ON, specs=SPECS)
        await add_pods(cluster, 1)
        now = (await cluster.client.get(PODS, Key("default", "p0"))).metadata.creation_timestamp
        target = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
        change = {"status": {"conditions": [{**target, "lastTransitionTime": now}]}}
        await cluster.client.patch(PODS, Key("default", "p0"), change, subresource="status")
        await cluster.advance(110)
        assert await announced(cluster) == ("True", "PreemptionByScheduler")
        await cluster.advance(15)
        assert await announced(cluster) == ("False", "")


async def announced(cluster: Cluster) -> tuple[str, str]:
    pod = await cluster.client.get(PODS, Key("default", "p0"))
    return next((one.status, one.reason) for one in pod.status.conditions if one.type == "DisruptionTarget")
