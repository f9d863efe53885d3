"""Requests for the status of device pools, in a whole cluster, in virtual time."""

from typing import Any

import pytest

from controller_manager.common.api.devices import (
    RESOURCE_CLAIMS,
    RESOURCE_POOL_STATUS_REQUESTS,
    RESOURCE_SLICES,
    ResourcePoolStatusRequest,
    ResourceSlice,
)
from controller_manager.common.api.errors import NotFound
from controller_manager.common.api.resource import Key
from controller_manager.common.api.wire import Request
from controller_manager.testing import Cluster
from tests.scenarios.devices import allocate, claim, tree

pytestmark = pytest.mark.virtual

GATE = "--feature-gates=DRAResourcePoolStatus=true"
SERVER = (GATE, "--runtime-config=resource.k8s.io/v1alpha3=true")
FLAGS = ("--leader-elect=false", GATE, "--controllers=resourcepoolstatusrequest-controller")


async def publish(cluster: Cluster, name: str, pool: str = "node-1", devices: int = 2, **more: Any) -> None:
    made = {"name": pool, "generation": 1, "resourceSliceCount": 1, **more.pop("pool_spec", {})}
    listed = [{"name": f"gpu-{number}"} for number in range(devices)]
    spec = {"driver": "gpu.example.org", "nodeName": "node-1", "pool": made, "devices": listed, **more}
    await cluster.client.create(RESOURCE_SLICES, ResourceSlice.decode(tree(RESOURCE_SLICES, name, spec=spec)))


async def ask(cluster: Cluster, name: str = "q", **spec: Any) -> None:
    body = tree(RESOURCE_POOL_STATUS_REQUESTS, name, spec={"driver": "gpu.example.org", **spec})
    await cluster.client.create(RESOURCE_POOL_STATUS_REQUESTS, ResourcePoolStatusRequest.decode(body))


async def get_request(cluster: Cluster, name: str = "q") -> ResourcePoolStatusRequest | None:
    try:
        return await cluster.client.get(RESOURCE_POOL_STATUS_REQUESTS, Key("", name))
    except NotFound:
        return None


async def test_request_is_answered_once_and_deleted_after_an_hour() -> None:
    async with Cluster(SERVER) as cluster:
        replica = await cluster.manage(*FLAGS, "--authorization-always-allow-paths=/metrics")
        await publish(cluster, "a", pool_spec={"generation": 2})
        await publish(cluster, "old", devices=5)
        await publish(cluster, "b", "shared", allNodes=True, nodeName=None)
        await publish(cluster, "c", driver="nic.example.org")
        await allocate(cluster, await cluster.client.create(RESOURCE_CLAIMS, claim()))
        await ask(cluster)
        await cluster.settle()
        found = await get_request(cluster)
        assert found is not None
        assert found.status is not None
        assert found.status.pool_count == 2
        node, shared = found.status.pools
        assert (node.pool_name, node.node_name, node.generation) == ("node-1", "node-1", 2)
        assert (node.total_devices, node.allocated_devices, node.available_devices) == (2, 1, 1)
        assert (node.unavailable_devices, node.resource_slice_count) == (0, 1)
        assert (shared.pool_name, shared.node_name, shared.available_devices) == ("shared", None, 2)
        (condition,) = found.status.conditions
        assert (condition.type, condition.status, condition.reason) == ("Complete", "True", "CalculationComplete")
        await publish(cluster, "d", "more")
        await cluster.advance(3500)
        assert await get_request(cluster) == found
        await cluster.advance(110)
        assert await get_request(cluster) is None
        page = await replica.manager.pages.handle(Request("GET", "/metrics"))
        assert isinstance(page.body, bytes)
        counted = 'resourcepoolstatusrequest_controller_requests_processed_total{driver_name="gpu.example.org"} 1'
        assert counted in page.body.decode().splitlines()


async def test_incomplete_pool_is_reported_after_waiting() -> None:
    async with Cluster(SERVER) as cluster:
        await cluster.manage(*FLAGS)
        await publish(cluster, "a", pool_spec={"resourceSliceCount": 2})
        await ask(cluster)
        await cluster.sleep(5)
        found = await get_request(cluster)
        assert found is not None
        assert found.status is None
        await publish(cluster, "b", pool_spec={"resourceSliceCount": 2})
        await cluster.sleep(5)
        found = await get_request(cluster)
        assert found is not None
        assert found.status is not None
        assert found.status.pools[0].total_devices == 4
        await cluster.client.delete(RESOURCE_SLICES, Key("", "b"))
        await ask(cluster, "late")
        await cluster.advance(30)
        found = await get_request(cluster, "late")
        assert found is not None
        assert found.status is not None
        (pool,) = found.status.pools
        assert pool.total_devices is None
        assert pool.validation_error == (
            "pool gpu.example.org/node-1 is incomplete: observed 1/2 slices at generation 1"
        )


async def test_limit_bounds_reported_pools() -> None:
    async with Cluster(SERVER) as cluster:
        await cluster.manage(*FLAGS)
        for pool in ("c", "a", "b"):
            await publish(cluster, pool, pool)
        await ask(cluster, limit=2)
        await ask(cluster, "one", poolName="b")
        await cluster.settle()
        found, one = await get_request(cluster), await get_request(cluster, "one")
        assert found is not None
        assert one is not None
        assert found.status is not None
        assert one.status is not None
        assert (found.status.pool_count, [pool.pool_name for pool in found.status.pools]) == (3, ["a", "b"])
        assert (one.status.pool_count, [pool.pool_name for pool in one.status.pools]) == (1, ["b"])
