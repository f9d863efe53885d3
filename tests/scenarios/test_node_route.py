"""Routes to the pods of nodes in a simulated cloud, in virtual time."""

import pytest

from controller_manager.common.api.conditions import condition_of
from controller_manager.common.api.core import NODES
from controller_manager.common.api.resource import Key
from controller_manager.common.api.wire import Request
from controller_manager.framework.cloud_provider import CloudError, Route
from controller_manager.testing import Cluster, Replica
from controller_manager.testing.cloud import SimulatedCloud, SimulatedRoutes
from controllers.node_route import CONDITION, WATCHES
from tests.scenarios.cloud import ALLOW, add_node, events, manage

pytestmark = pytest.mark.virtual

ONLY = ("--controllers=node-route-controller", "--cluster-cidr=10.0.0.0/16,fd00::/48")


def spec(*ranges: str) -> dict[str, object]:
    return {"podCIDR": ranges[0], "podCIDRs": ranges}


def routes(cloud: SimulatedCloud) -> set[tuple[str, str]]:
    return {(route.node, route.destination) for route in cloud.table}


async def condition(cluster: Cluster, name: str) -> tuple[str, str] | None:
    node = await cluster.client.get(NODES, Key("", name))
    found = condition_of(node.status.conditions, CONDITION)
    return None if found is None else (found.status, found.reason)


async def start(cluster: Cluster, cloud: SimulatedCloud, *flags: str) -> Replica:
    replica = await manage(cluster, cloud, *ONLY, *flags)
    await cluster.advance(1)
    return replica


async def test_each_node_range_has_a_route_while_node_exists() -> None:
    cloud = SimulatedCloud(table=[Route("10.0.77.0/24", "gone"), Route("172.16.0.0/24", "gone")])
    async with Cluster() as cluster:
        await add_node(cluster, "a", spec=spec("10.0.0.0/24", "fd00::/64"))
        await add_node(cluster, "b")
        replica = await start(cluster, cloud, ALLOW)
        assert routes(cloud) == {("a", "10.0.0.0/24"), ("a", "fd00::/64"), ("gone", "172.16.0.0/24")}
        assert await condition(cluster, "a") == ("False", "RouteCreated")
        assert await condition(cluster, "b") is None
        revision = cluster.api.store.revision
        await cluster.advance(60)
        assert cluster.api.store.revision == revision
        await cluster.client.delete(NODES, Key("", "a"))
        await cluster.advance(11)
        assert routes(cloud) == {("gone", "172.16.0.0/24")}
        page = await replica.manager.pages.handle(Request("GET", "/metrics"))
        assert isinstance(page.body, bytes)
        assert f"route_controller_route_sync_total {cloud.calls['list_routes']}" in page.body.decode().splitlines()


class Refusing(SimulatedRoutes):
    """Rejects routes to some ranges."""

    refused: tuple[str, ...] = ()

    async def create(self, hint: str, route: Route) -> None:
        if route.destination in self.refused:
            raise CloudError("no room for routes")
        await super().create(hint, route)


async def test_failed_route_is_reported_in_node_condition() -> None:
    cloud = SimulatedCloud()
    cloud.routes = refusing = Refusing(cloud)
    refusing.refused = ("fd00::/64",)
    async with Cluster() as cluster:
        await add_node(cluster, "a", spec=spec("10.0.0.0/24", "fd00::/64"))
        await add_node(cluster, "b", spec=spec("10.0.1.0/24", "fd00:0:0:1::/64"))
        await start(cluster, cloud)
        assert await condition(cluster, "a") == ("True", "NoRouteCreated")
        assert await condition(cluster, "b") == ("False", "RouteCreated")
        assert await events(cluster, "route_controller") == ["FailedToCreateRoute!"]
        refusing.refused = ()
        await cluster.advance(60)
        assert await condition(cluster, "a") == ("False", "RouteCreated")


async def test_routes_by_address_follow_node_addresses() -> None:
    cloud = SimulatedCloud(by_address=True)
    async with Cluster() as cluster:
        await add_node(cluster, "a", spec=spec("10.0.0.0/24"))
        await start(cluster, cloud)
        for address in ("192.0.2.1", "192.0.2.2"):
            change = {"status": {"addresses": [{"type": "InternalIP", "address": address}]}}
            await cluster.client.patch(NODES, Key("", "a"), change, subresource="status")
            await cluster.advance(11)
            assert [[one.address for one in route.addresses] for route in cloud.table] == [[address]]


@pytest.mark.flag("route-reconciliation-period")
@pytest.mark.parametrize(("period", "looks"), [("10s", 10), ("50s", 2)])
async def test_route_reconciliation_period_flag_sets_interval(period: str, looks: int) -> None:
    cloud = SimulatedCloud()
    async with Cluster() as cluster:
        await manage(cluster, cloud, *ONLY, f"--route-reconciliation-period={period}")
        await cluster.sleep(99.5)
        assert cloud.calls == {"list_routes": looks}


async def test_watch_based_routes_reconcile_only_after_node_changes() -> None:
    cloud = SimulatedCloud()
    async with Cluster() as cluster:
        await start(cluster, cloud, f"--feature-gates={WATCHES}=true")
        await cluster.advance(300)
        looks = cloud.calls["list_routes"]
        for number in range(12):
            await add_node(cluster, f"n-{number}", spec=spec(f"10.0.{number}.0/24"))
            await cluster.sleep(2)
        assert 2 <= cloud.calls["list_routes"] - looks <= 4
        await cluster.advance(20)
        assert len(cloud.table) == 12
        looks = cloud.calls["list_routes"]
        await cluster.client.patch(NODES, Key("", "n-0"), {"metadata": {"labels": {"a": "b"}}})
        await cluster.advance(300)
        assert cloud.calls["list_routes"] == looks


async def test_watch_based_routes_retry_failures() -> None:
    cloud = SimulatedCloud()
    cloud.routes = refusing = Refusing(cloud)
    refusing.refused = ("10.0.0.0/24",)
    async with Cluster() as cluster:
        await add_node(cluster, "a", spec=spec("10.0.0.0/24"))
        await start(cluster, cloud, f"--feature-gates={WATCHES}=true")
        await cluster.advance(5)
        refusing.refused = ()
        await cluster.advance(120)
        assert routes(cloud) == {("a", "10.0.0.0/24")}
        assert await condition(cluster, "a") == ("False", "RouteCreated")


@pytest.mark.flag("configure-cloud-routes")
@pytest.mark.parametrize(
    ("flags", "runs"),
    [
        (ONLY, True),
        ((*ONLY, "--configure-cloud-routes=false"), False),
        (("--controllers=route",), False),
        ((*ONLY, "--cloud-provider=external"), False),
        ((*ONLY, "--cloud-provider="), False),
    ],
)
async def test_configure_cloud_routes_flag_enables_controller(flags: tuple[str, ...], runs: bool) -> None:
    cloud = SimulatedCloud()
    async with Cluster() as cluster:
        replica = await manage(cluster, cloud, *flags)
        await cluster.advance(1)
        assert bool(cloud.calls) is runs
        assert [one.name for one in replica.manager.state().controllers] == ["node-route-controller"] * runs


async def test_hanging_cloud_call_times_out() -> None:
    cloud = SimulatedCloud(delay=1e6)
    async with Cluster() as cluster:
        await add_node(cluster, "a", spec=spec("10.0.0.0/24"))
        await manage(cluster, cloud, *ONLY)
        await cluster.sleep(1)
        cloud.delay = 0
        await cluster.advance(700)
        assert routes(cloud) == {("a", "10.0.0.0/24")}
