"""Load balancers of services in a simulated cloud, in virtual time."""

from collections.abc import Sequence
from itertools import pairwise

import pytest

from controller_manager.common.api.core import NODES, SERVICES, LoadBalancerStatus, Node, Service
from controller_manager.common.api.errors import NotFound
from controller_manager.common.api.resource import Key
from controller_manager.common.api.wire import Request, Response
from controller_manager.common.base.clock import monotonic
from controller_manager.framework.cloud_provider import CloudError, ImplementedElsewhere, RetryLater
from controller_manager.testing import Cluster, Replica
from controller_manager.testing.cloud import SimulatedCloud, SimulatedLoadBalancers
from controllers.service_load_balancers import FINALIZER
from controllers.shared.cloud import EXCLUDED
from tests.scenarios.cloud import ALLOW, WEB, add_node, add_service, events, manage, set_ready

pytestmark = pytest.mark.virtual

ONLY = "--controllers=service-lb-controller"


async def start(cluster: Cluster, cloud: SimulatedCloud, *flags: str) -> Replica:
    for name in ("a", "b"):
        await add_node(cluster, name)
    replica = await manage(cluster, cloud, ONLY, *flags)
    await cluster.settle()
    return replica


async def reasons(cluster: Cluster) -> list[str]:
    return await events(cluster, "service-controller")


async def addresses(cluster: Cluster, key: Key = WEB) -> list[str]:
    service = await cluster.client.get(SERVICES, key)
    return [one.ip for one in service.status.load_balancer.ingress]


async def test_load_balancer_exists_as_long_as_its_service() -> None:
    cloud = SimulatedCloud()
    async with Cluster() as cluster:
        await start(cluster, cloud)
        made = await add_service(cluster, externalTrafficPolicy="Local", loadBalancerSourceRanges=["10.0.0.0/8"])
        await cluster.settle()
        balancer = cloud.balancers[made.metadata.uid]
        assert (balancer.nodes, balancer.ports, balancer.local) == (("a", "b"), (80,), True)
        assert balancer.sources == ("10.0.0.0/8",)
        assert await addresses(cluster) == [balancer.address]
        assert FINALIZER in (await cluster.client.get(SERVICES, WEB)).metadata.finalizers
        assert sorted(await reasons(cluster)) == ["EnsuredLoadBalancer", "EnsuringLoadBalancer"]
        await cluster.client.delete(SERVICES, WEB)
        await cluster.settle()
        with pytest.raises(NotFound):
            await cluster.client.get(SERVICES, WEB)
        assert cloud.balancers == {}
        assert sorted((await reasons(cluster))[2:]) == ["DeletedLoadBalancer", "DeletingLoadBalancer"]


async def test_service_deleted_before_finalizer_gets_no_load_balancer() -> None:
    def gone(request: Request) -> Response | None:
        is_late = request.method == "PATCH" and request.path.startswith(SERVICES.path("default"))
        return Response(404, {}, b"") if is_late else None

    cloud = SimulatedCloud()
    async with Cluster() as cluster:
        replica = await start(cluster, cloud)
        replica.network.intercept(gone)
        await add_service(cluster)
        await cluster.settle()
        assert cloud.balancers == {}


async def test_load_balancer_follows_only_relevant_service_changes() -> None:
    cloud = SimulatedCloud()
    async with Cluster() as cluster:
        await start(cluster, cloud)
        made = await add_service(cluster)
        await cluster.settle()
        await cluster.client.patch(SERVICES, WEB, {"spec": {"selector": {"app": "other"}}})
        await cluster.settle()
        assert cloud.calls == {"ensure": 1}
        await cluster.client.patch(SERVICES, WEB, {"spec": {"ports": [{"port": 81}]}})
        await cluster.settle()
        assert cloud.calls == {"ensure": 2}
        assert cloud.balancers[made.metadata.uid].ports == (81,)


async def test_changed_service_type_deletes_load_balancer() -> None:
    cloud = SimulatedCloud()
    async with Cluster() as cluster:
        await start(cluster, cloud)
        await add_service(cluster)
        await cluster.settle()
        await cluster.client.patch(SERVICES, WEB, {"spec": {"type": "ClusterIP"}})
        await cluster.settle()
        found = await cluster.client.get(SERVICES, WEB)
        assert (cloud.balancers, found.metadata.finalizers, found.status.load_balancer.ingress) == ({}, (), ())


async def test_other_classes_and_types_of_services_are_left_alone() -> None:
    cloud = SimulatedCloud()
    async with Cluster() as cluster:
        await start(cluster, cloud)
        await add_service(cluster, "a", loadBalancerClass="example.org/mine")
        await add_service(cluster, "b", type="NodePort")
        await cluster.settle()
        assert cloud.calls == {}
        for name in ("a", "b"):
            assert (await cluster.client.get(SERVICES, Key("default", name))).metadata.finalizers == ()


async def test_load_balancer_follows_eligible_nodes() -> None:
    cloud = SimulatedCloud()
    async with Cluster() as cluster:
        replica = await start(cluster, cloud, ALLOW)
        made = await add_service(cluster)
        await cluster.settle()
        balancer = cloud.balancers[made.metadata.uid]
        await add_node(cluster, "c")
        await cluster.settle()
        assert balancer.nodes == ("a", "b", "c")
        await set_ready(cluster, "b", ready="False")
        await cluster.client.patch(NODES, Key("", "c"), {"spec": {"unschedulable": True}})
        await cluster.settle()
        assert cloud.calls == {"ensure": 1, "update": 1}
        await cluster.client.patch(NODES, Key("", "a"), {"metadata": {"labels": {EXCLUDED: ""}}})
        await cluster.settle()
        assert balancer.nodes == ("b", "c")
        await cluster.client.patch(NODES, Key("", "b"), {"spec": {"providerID": "simulated://b"}})
        await cluster.client.delete(NODES, Key("", "c"))
        await cluster.settle()
        assert balancer.nodes == ("b",)
        await cluster.client.delete(NODES, Key("", "b"))
        await cluster.settle()
        assert balancer.nodes == ()
        assert sorted(set(await reasons(cluster))) == [
            *("EnsuredLoadBalancer", "EnsuringLoadBalancer", "UnAvailableLoadBalancer!", "UpdatedLoadBalancer"),
        ]
        page = await replica.manager.pages.handle(Request("GET", "/metrics"))
        assert isinstance(page.body, bytes)
        lines = page.body.decode().splitlines()
        assert f"service_controller_loadbalancer_sync_total {cloud.calls['update']}" in lines
        assert "service_controller_nodesync_error_total 0" in lines
        for name in ("nodesync_latency_seconds", "update_loadbalancer_host_latency_seconds"):
            assert any(line.startswith(f'service_controller_{name}_bucket{{le="16384"}}') for line in lines)


async def test_missing_load_balancer_is_ensured_on_node_change() -> None:
    cloud = SimulatedCloud()
    async with Cluster() as cluster:
        await start(cluster, cloud)
        made = await add_service(cluster)
        await cluster.settle()
        del cloud.balancers[made.metadata.uid]  # the load balancer is lost in the cloud
        await add_node(cluster, "c")
        await cluster.settle()
        assert cloud.balancers[made.metadata.uid].nodes == ("a", "b", "c")
        assert "UpdateLoadBalancerFailed!" not in await reasons(cluster)


class FailingLoadBalancers(SimulatedLoadBalancers):
    """Raises each configured exception once."""

    def __init__(self, cloud: SimulatedCloud, *moods: Exception) -> None:
        super().__init__(cloud)
        self.moods = list(moods)
        self.at: list[float] = []

    async def ensure(self, service: Service, nodes: Sequence[Node]) -> LoadBalancerStatus:
        self.at.append(monotonic())
        if self.moods:
            raise self.moods.pop(0)
        return await super().ensure(service, nodes)

    async def update(self, service: Service, nodes: Sequence[Node]) -> None:
        if self.moods:
            raise self.moods.pop(0)
        await super().update(service, nodes)


def gaps(times: list[float]) -> list[float]:
    return [round(later - earlier) for earlier, later in pairwise(times)]


async def test_failures_are_reported_and_retried_with_backoff() -> None:
    cloud = SimulatedCloud()
    cloud.load_balancers = failing = FailingLoadBalancers(cloud, *(OSError("no") for _ in range(8)))
    async with Cluster() as cluster:
        await start(cluster, cloud)
        await add_service(cluster)
        await cluster.advance(2000)
        assert gaps(failing.at) == [5, 10, 20, 40, 80, 160, 300, 300]
        assert await addresses(cluster) == ["192.0.2.1"]
        assert sorted((await reasons(cluster))[:2]) == ["EnsuringLoadBalancer", "SyncLoadBalancerFailed!"]


async def test_retry_later_of_provider_sets_retry_delay() -> None:
    cloud = SimulatedCloud()
    cloud.load_balancers = failing = FailingLoadBalancers(cloud, RetryLater(7, "not yet"), RetryLater(7, "not yet"))
    async with Cluster() as cluster:
        await start(cluster, cloud)
        await add_service(cluster)
        await cluster.advance(60)
        assert gaps(failing.at) == [7, 7]
        assert await addresses(cluster) == ["192.0.2.1"]


async def test_load_balancer_implemented_elsewhere_gets_only_finalizer() -> None:
    cloud = SimulatedCloud()
    cloud.load_balancers = FailingLoadBalancers(cloud, ImplementedElsewhere())
    async with Cluster() as cluster:
        await start(cluster, cloud)
        await add_service(cluster)
        await cluster.settle()
        found = await cluster.client.get(SERVICES, WEB)
        assert (found.metadata.finalizers, await addresses(cluster)) == ((FINALIZER,), [])
        assert await reasons(cluster) == ["EnsuringLoadBalancer"]


class AnswerLosingLoadBalancers(SimulatedLoadBalancers):
    """Carries out the first call and loses its answer."""

    loses = False

    async def ensure(self, service: Service, nodes: Sequence[Node]) -> LoadBalancerStatus:
        status = await super().ensure(service, nodes)
        if self.loses:
            self.loses = False
            raise CloudError("the answer was lost")
        return status


async def test_load_balancer_is_ensured_again_after_lost_answer() -> None:
    cloud = SimulatedCloud()
    cloud.load_balancers = losing = AnswerLosingLoadBalancers(cloud)
    async with Cluster() as cluster:
        await start(cluster, cloud)
        made = await add_service(cluster)
        await cluster.settle()
        losing.loses = True
        for port in (81, 80):
            await cluster.client.patch(SERVICES, WEB, {"spec": {"ports": [{"port": port}]}})
            await cluster.sleep(1)
        await cluster.advance(30)
        assert cloud.balancers[made.metadata.uid].ports == (80,)


async def test_failed_update_is_reported() -> None:
    cloud = SimulatedCloud()
    cloud.load_balancers = failing = FailingLoadBalancers(cloud)
    async with Cluster() as cluster:
        await start(cluster, cloud)
        made = await add_service(cluster)
        await cluster.settle()
        failing.moods.append(OSError("no"))
        await add_node(cluster, "c")
        await cluster.advance(30)
        assert "UpdateLoadBalancerFailed!" in await reasons(cluster)
        assert cloud.balancers[made.metadata.uid].nodes == ("a", "b", "c")


async def test_hanging_cloud_call_times_out_and_is_retried() -> None:
    cloud = SimulatedCloud(delay=1e6)
    async with Cluster() as cluster:
        await start(cluster, cloud)
        await add_service(cluster)
        await cluster.sleep(601)
        assert (await reasons(cluster))[-1] == "SyncLoadBalancerFailed!"
        cloud.delay = 0
        await cluster.advance(60)
        assert await addresses(cluster) == ["192.0.2.1"]


async def test_deleted_service_without_finalizer_frees_load_balancer() -> None:
    cloud = SimulatedCloud()
    async with Cluster() as cluster:
        await start(cluster, cloud)
        await add_service(cluster)
        await cluster.settle()
        await cluster.client.patch(SERVICES, WEB, {"metadata": {"finalizers": None}})
        await cluster.client.delete(SERVICES, WEB)
        made = await add_service(cluster)
        await cluster.settle()
        assert list(cloud.balancers) == [made.metadata.uid]


async def test_restart_ensures_once_and_deletes_leftovers() -> None:
    cloud = SimulatedCloud()
    async with Cluster() as cluster:
        replica = await start(cluster, cloud)
        await add_service(cluster)
        await add_service(cluster, "other")
        await cluster.settle()
        await replica.stop()
        assert cloud.closed
        await cluster.client.delete(SERVICES, WEB)
        revision = cluster.api.store.revision
        await manage(cluster, cloud, "--controllers=service")
        await cluster.settle()
        assert len(cloud.balancers) == 1
        assert cloud.calls == {"ensure": 3, "get": 1, "delete": 1}
        assert cluster.api.store.revision > revision


@pytest.mark.flag("concurrent-service-syncs")
@pytest.mark.parametrize(("workers", "seconds"), [(1, 40), (4, 10)])
async def test_concurrent_service_syncs_flag_sets_workers(workers: int, seconds: int) -> None:
    cloud = SimulatedCloud(delay=10)
    async with Cluster() as cluster:
        await start(cluster, cloud, f"--concurrent-service-syncs={workers}")
        began = monotonic()
        for number in range(4):
            await add_service(cluster, f"web-{number}")
        while len(cloud.balancers) < 4:
            await cluster.sleep(0.5)
        assert monotonic() - began == pytest.approx(seconds, abs=1)
