"""Nodes and zones of endpoints, and hints that keep traffic in its zone."""

import pytest

from controller_manager.common.api.core import NODES, SERVICES, ZONE
from controller_manager.common.api.resource import Key
from controller_manager.testing import Cluster
from controllers.endpoint_slices.decide import TOPOLOGY_MODE
from tests.scenarios.endpoint_slices import ONLY, WEB, events, node, run_node, run_pod, serve, slices

pytestmark = pytest.mark.virtual


async def hints(cluster: Cluster) -> list[str]:
    """Return the hinted zones of all endpoints, sorted."""
    ready = [e for s in await slices(cluster) for e in s.endpoints or () if e.conditions.ready]
    return sorted(zone.name for e in ready if e.hints for zone in e.hints.for_zones)


async def test_endpoint_waits_for_its_node_and_gets_its_zone() -> None:
    async with Cluster() as cluster:
        await cluster.manage(*ONLY)
        await serve(cluster)
        await run_pod(cluster, 1, node="n1")
        await cluster.settle()
        assert [s.endpoints for s in await slices(cluster)] in ([()], [None])
        await run_node(cluster, node("n1"))
        await cluster.settle()
        assert [e.zone for s in await slices(cluster) for e in s.endpoints or ()] == [None]
        await cluster.client.patch(NODES, Key("", "n1"), {"metadata": {"labels": {ZONE: "b"}}})
        await cluster.settle()
        assert [e.zone for s in await slices(cluster) for e in s.endpoints or ()] == ["b"]


async def test_pod_of_missing_node_is_listed_when_publishing_unready() -> None:
    async with Cluster() as cluster:
        await cluster.manage(*ONLY)
        await serve(cluster, publishNotReadyAddresses=True)
        await run_pod(cluster, 1, node="n1", ready=False)
        await cluster.settle()
        (found,) = await slices(cluster)
        assert [(e.conditions.ready, e.conditions.serving) for e in found.endpoints or ()] == [(True, False)]


@pytest.mark.parametrize(
    ("wanted", "zones", "nodes"),
    [("PreferClose", ["a"], []), ("PreferSameZone", ["a"], []), ("PreferSameNode", ["a"], ["n1"]), (None, [], [])],
)
async def test_traffic_distribution_sets_hints(wanted: str | None, zones: list[str], nodes: list[str]) -> None:
    async with Cluster() as cluster:
        await cluster.manage(*ONLY)
        await run_node(cluster, node("n1", "a"))
        await serve(cluster, trafficDistribution=wanted)
        await run_pod(cluster, 1, node="n1")
        await run_pod(cluster, 2, node="n1", ready=False)
        await cluster.settle()
        (found,) = await slices(cluster)
        ready, waiting = found.endpoints or ()
        assert ([z.name for z in ready.hints.for_zones] if ready.hints else []) == zones
        assert ([n.name for n in ready.hints.for_nodes] if ready.hints else []) == nodes
        assert waiting.hints is None


async def test_topology_hints_follow_nodes_and_are_reported() -> None:
    async with Cluster() as cluster:
        await cluster.manage(*ONLY)
        await run_node(cluster, node("n1", "a"))
        await run_node(cluster, node("n2", "b"))
        await serve(cluster)
        for number in range(4):
            await run_pod(cluster, number, node="n1" if number < 2 else "n2")
        await cluster.settle()
        assert await hints(cluster) == []
        await cluster.client.patch(SERVICES, WEB, {"metadata": {"annotations": {TOPOLOGY_MODE: "Auto"}}})
        await cluster.settle()
        assert await hints(cluster) == ["a", "a", "b", "b"]
        expected = [("TopologyAwareHintsEnabled", "endpoint-slice-controller")]
        assert await events(cluster) == expected

        await set_cpu(cluster, "n2", "12")
        await cluster.settle()
        assert await hints(cluster) == ["a", "b", "b", "b"]
        await cluster.client.delete(NODES, Key("", "n1"))
        await cluster.settle()
        assert await hints(cluster) == []
        assert (await events(cluster))[1:] == [("TopologyAwareHintsDisabled", "endpoint-slice-controller")]


async def set_cpu(cluster: Cluster, name: str, cpu: str) -> None:
    await cluster.client.patch(NODES, Key("", name), {"status": {"allocatable": {"cpu": cpu}}}, subresource="status")


async def test_hints_are_removed_with_the_annotation() -> None:
    async with Cluster() as cluster:
        await cluster.manage(*ONLY)
        await run_node(cluster, node("n1", "a"))
        await run_node(cluster, node("n2", "b"))
        await serve(cluster)
        await cluster.client.patch(SERVICES, WEB, {"metadata": {"annotations": {TOPOLOGY_MODE: "auto"}}})
        for number in range(4):
            await run_pod(cluster, number, node="n1")
        await cluster.settle()
        assert await hints(cluster) == ["a", "a", "b", "b"]
        await cluster.client.patch(SERVICES, WEB, {"metadata": {"annotations": None}})
        await cluster.settle()
        assert await hints(cluster) == []
