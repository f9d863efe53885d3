"""The controllers that handle a failed node and its pods, together, in virtual time."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import pytest

from controller_manager.common.api.core import NODES, PODS, Pod
from controller_manager.common.api.errors import NotFound
from controller_manager.common.api.resource import Key
from controller_manager.common.base.clock import monotonic
from controller_manager.common.base.tasks import Tasks
from controller_manager.testing import Cluster
from controller_manager.testing.agents import Agents

pytestmark = pytest.mark.virtual

CONTROLLERS = "--controllers=node-lifecycle-controller,taint-eviction-controller,pod-garbage-collector-controller"
FLAGS = ("--leader-elect=false", CONTROLLERS)
UNREACHABLE = ("node.kubernetes.io/unreachable", "NoExecute")
SPEC = {"containers": [{"name": "main", "image": "example.org/app"}]}
FOR_GOOD = [{"operator": "Exists", "effect": "NoExecute"}]
# Default grace period, toleration and slack in seconds: nodes renew every 10 s
# and are checked every 5 s.
GRACE, PATIENCE, SLACK = 50, 300, 16


@asynccontextmanager
async def three_nodes() -> AsyncIterator[tuple[Cluster, Agents]]:
    """Start three nodes in one zone; the first two run a pod `on-<node>` each, and `daemon-<node>` with unlimited
    tolerations.
    """
    async with Cluster() as cluster, Tasks() as tasks:
        agents = Agents(cluster)
        for name in "abc":
            await agents.join(name, "zone")
        tasks.start(agents.run(), name="agents")
        for node in "ab":
            await make_pod(cluster, f"on-{node}", nodeName=node)
            await make_pod(cluster, f"daemon-{node}", nodeName=node, tolerations=FOR_GOOD)
        await cluster.manage(*FLAGS)
        await cluster.sleep(120)
        yield cluster, agents


async def make_pod(cluster: Cluster, name: str, **spec: object) -> None:
    metadata = {"name": name, "namespace": "default"}
    await cluster.client.create(PODS, Pod.decode(msgspec.json.encode({"metadata": metadata, "spec": SPEC | spec})))
    running = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}
    await cluster.client.patch(PODS, Key("default", name), running, subresource="status")


async def taints(cluster: Cluster, node: str) -> set[tuple[str, str]]:
    found = await cluster.client.get(NODES, Key("", node))
    return {(taint.key, taint.effect) for taint in found.spec.taints}


async def staying(cluster: Cluster) -> set[str]:
    """Return the pods that are not being deleted."""
    pods = (await cluster.client.list(PODS)).items
    return {pod.metadata.name for pod in pods if pod.metadata.deletion_timestamp is None}


async def until(cluster: Cluster, node: str, taint: tuple[str, str]) -> float:
    """Wait for a taint; return the seconds that it took."""
    begun = monotonic()
    while taint not in await taints(cluster, node):
        await cluster.sleep(1)
        assert monotonic() - begun < 200
    return monotonic() - begun


async def test_pods_of_unreachable_node_are_evicted_after_toleration() -> None:
    async with three_nodes() as (cluster, agents):
        agents.silent.add("a")
        took = await until(cluster, "a", UNREACHABLE)
        assert GRACE - 10 <= took <= GRACE + SLACK
        await cluster.sleep(PATIENCE - 2)
        assert await staying(cluster) == {"on-a", "daemon-a", "on-b", "daemon-b"}
        await cluster.sleep(4)
        assert await staying(cluster) == {"daemon-a", "on-b", "daemon-b"}
        gone = await cluster.client.get(PODS, Key("default", "on-a"))
        assert {c.type: c.reason for c in gone.status.conditions}["DisruptionTarget"] == "DeletionByTaintManager"


async def test_pods_stay_when_node_recovers_in_time() -> None:
    async with three_nodes() as (cluster, agents):
        agents.silent.add("a")
        await until(cluster, "a", UNREACHABLE)
        await cluster.sleep(PATIENCE - 30)
        agents.silent.clear()
        await cluster.sleep(PATIENCE)
        assert await taints(cluster, "a") == set()
        assert await staying(cluster) == {"on-a", "daemon-a", "on-b", "daemon-b"}


async def test_pods_of_deleted_node_are_collected_after_quarantine() -> None:
    async with three_nodes() as (cluster, agents):
        agents.silent.add("a")
        await until(cluster, "a", UNREACHABLE)
        await agents.leave("a")
        await cluster.sleep(39)
        assert await staying(cluster) == {"on-a", "daemon-a", "on-b", "daemon-b"}
        await cluster.sleep(42)
        assert {pod.metadata.name for pod in (await cluster.client.list(PODS)).items} == {"on-b", "daemon-b"}


async def test_stuck_pod_is_deleted_with_out_of_service_taint() -> None:
    async with three_nodes() as (cluster, agents):
        agents.silent.add("a")
        await until(cluster, "a", UNREACHABLE)
        await cluster.sleep(PATIENCE + 100)
        assert "on-a" not in await staying(cluster)
        await cluster.client.get(PODS, Key("default", "on-a"))
        node = await cluster.client.get(NODES, Key("", "a"))
        out = {"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"}
        there = [msgspec.to_builtins(taint) for taint in node.spec.taints]
        await cluster.client.patch(NODES, Key("", "a"), {"spec": {"taints": [*there, out]}})
        await cluster.sleep(25)
        with pytest.raises(NotFound):
            await cluster.client.get(PODS, Key("default", "on-a"))
