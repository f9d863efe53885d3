"""Nodes whose machines are deleted or shut down in a simulated cloud, in virtual time."""

import pytest

from controller_manager.common.api.core import NODES
from controller_manager.common.api.resource import Key
from controller_manager.framework.cloud_provider import CloudError
from controller_manager.testing import Cluster, Replica
from controller_manager.testing.cloud import SimulatedCloud
from controllers.cloud_node_lifecycle import SHUTDOWN
from tests.scenarios.cloud import add_node, events, manage, set_ready

pytestmark = pytest.mark.virtual

ONLY = "--controllers=cloud-node-lifecycle-controller"


async def there(cluster: Cluster) -> dict[str, bool]:
    """Return by node whether it has the shutdown taint."""
    nodes = (await cluster.client.list(NODES)).items
    return {node.metadata.name: any(taint.key == SHUTDOWN for taint in node.spec.taints) for node in nodes}


async def start(
    cluster: Cluster, cloud: SimulatedCloud, *flags: str, faults: float = 0.0, strict: bool = True
) -> Replica:
    replica = await manage(cluster, cloud, ONLY, *flags, faults=faults, strict=strict)
    await cluster.advance(6)
    return replica


async def test_unready_nodes_follow_machine_state_of_cloud() -> None:
    cloud = SimulatedCloud(machines={"runs": True, "off": False, "ready": False})
    async with Cluster() as cluster:
        for name in ("runs", "off", "gone"):
            await add_node(cluster, name, ready=False)
        for name in ("ready", "unknown-to-the-cloud"):
            await add_node(cluster, name)
        await start(cluster, cloud)
        assert await there(cluster) == {"off": True, "ready": False, "runs": False, "unknown-to-the-cloud": False}
        assert await events(cluster, "cloud-node-lifecycle-controller") == ["DeletingNode"]
        cloud.machines["off"] = True
        await cluster.advance(6)
        assert (await there(cluster))["off"] is True
        await set_ready(cluster, "off", ready="True")
        await cluster.advance(6)
        assert (await there(cluster))["off"] is False


async def test_node_with_unknown_readiness_counts_as_unready() -> None:
    cloud = SimulatedCloud()
    async with Cluster() as cluster:
        await add_node(cluster, "a")
        await start(cluster, cloud)
        await set_ready(cluster, "a", ready="Unknown")
        await cluster.advance(6)
        assert await there(cluster) == {}


async def test_shutdown_taint_keeps_other_taints() -> None:
    cloud = SimulatedCloud(machines={"a": False})
    async with Cluster() as cluster:
        mine = {"key": "mine", "effect": "NoExecute", "value": "1"}
        await add_node(cluster, "a", ready=False, spec={"taints": [mine]})
        await start(cluster, cloud)
        node = await cluster.client.get(NODES, Key("", "a"))
        found = {(taint.key, taint.effect, taint.value) for taint in node.spec.taints}
        assert {("mine", "NoExecute", "1"), (SHUTDOWN, "NoSchedule", "")} <= found
        await set_ready(cluster, "a", ready="True")
        await cluster.advance(6)
        node = await cluster.client.get(NODES, Key("", "a"))
        assert [taint.key for taint in node.spec.taints if taint.key in ("mine", SHUTDOWN)] == ["mine"]


async def test_node_ready_again_during_cloud_call_is_not_deleted() -> None:
    cloud = SimulatedCloud(delay=3)
    async with Cluster() as cluster:
        await add_node(cluster, "a", ready=False)
        await manage(cluster, cloud, ONLY)
        await cluster.sleep(1)
        await set_ready(cluster, "a", ready="True")
        await cluster.advance(20)
        assert await there(cluster) == {"a": False}


class FailingMachines:
    """Machines whose lookups fail."""

    async def exists(self, _: object) -> bool:
        raise CloudError("no answer")

    async def is_shut_down(self, _: object) -> bool:
        raise CloudError("no answer")


async def test_node_stays_when_cloud_calls_fail() -> None:
    cloud = SimulatedCloud()
    cloud.instances = FailingMachines()  # type: ignore[assignment]
    async with Cluster() as cluster:
        await add_node(cluster, "a", ready=False)
        await start(cluster, cloud, strict=False)
        await cluster.advance(120)
        assert await there(cluster) == {"a": False}


async def test_hanging_cloud_call_does_not_block_other_nodes() -> None:
    cloud = SimulatedCloud(machines={"b": False}, delay=1e6)
    async with Cluster() as cluster:
        await add_node(cluster, "a", ready=False)
        await manage(cluster, cloud, ONLY)
        await cluster.sleep(6)
        cloud.delay = 0
        await add_node(cluster, "b", ready=False)
        await cluster.sleep(6)
        assert await there(cluster) == {"a": False, "b": True}


@pytest.mark.parametrize(("period", "asked"), [("5s", 12), ("20s", 3)])
async def test_cloud_is_queried_once_per_monitor_period(period: str, asked: int) -> None:
    cloud = SimulatedCloud(machines={"a": True})
    async with Cluster() as cluster:
        await add_node(cluster, "a", ready=False)
        await manage(cluster, cloud, ONLY, f"--node-monitor-period={period}")
        await cluster.sleep(59.5)
        assert cloud.calls["exists"] == asked


class BuggyMachines(FailingMachines):
    """A provider that raises an unexpected exception."""

    async def exists(self, _: object) -> bool:
        raise KeyError("zone")


async def test_any_provider_exception_counts_as_cloud_failure() -> None:
    cloud = SimulatedCloud()
    cloud.instances = BuggyMachines()  # type: ignore[assignment]
    async with Cluster() as cluster:
        await add_node(cluster, "a", ready=False)
        replica = await start(cluster, cloud, strict=False)
        await cluster.advance(120)
        (controller,) = replica.manager.state().controllers
        assert controller.work is not None
        assert [one.defect for one in controller.work.failing] == [False]
        assert await there(cluster) == {"a": False}
