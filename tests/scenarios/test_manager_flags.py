"""Flags of controllers and of their life: what changes in a whole cluster when one of them does, in virtual time."""

import itertools

import pytest

from controller_manager.common.api.core import (
    ENDPOINTS,
    NAMESPACES,
    PODS,
    SERVICES,
    EndpointAddress,
    EndpointPort,
    Endpoints,
    EndpointSubset,
)
from controller_manager.common.api.model import ObjectMeta
from controller_manager.common.api.resource import Key
from controller_manager.common.api.wire import Request
from controller_manager.common.options.flag import Options
from controller_manager.framework import Context, ControllerSpec, For
from controller_manager.testing import Cluster, Replica, builders

pytestmark = pytest.mark.virtual


def keys_in_work(replica: Replica, controller: str) -> int:
    (work,) = (one.work for one in replica.manager.state().controllers if one.name == controller)
    return len(work.running) if work is not None else 0


async def most_in_work(cluster: Cluster, replica: Replica, controller: str) -> int:
    """The highest number of keys in work at the same time, looked at for a while."""
    most = 0
    for _ in range(50):
        await cluster.sleep(0.2)
        most = max(most, keys_in_work(replica, controller))
    return most


@pytest.mark.flag("concurrent-endpoint-syncs")
@pytest.mark.parametrize("workers", [1, 3])
async def test_so_many_services_are_worked_on_at_once(workers: int) -> None:
    async with Cluster() as cluster:
        slow = ("--leader-elect=false", "--controllers=endpoint", "--kube-api-qps=0.1", "--kube-api-burst=1")
        replica = await cluster.manage(*slow, f"--concurrent-endpoint-syncs={workers}")
        await cluster.sleep(60)
        for number in range(6):
            await cluster.client.create(SERVICES, builders.service(f"web-{number}", {"app": "web"}))
        assert await most_in_work(cluster, replica, "endpoints-controller") == workers


@pytest.mark.flag("concurrent-service-endpoint-syncs", "mirroring-concurrent-service-endpoint-syncs")
@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize(
    ("controller", "flag", "selector"),
    [
        ("endpointslice-controller", "concurrent-service-endpoint-syncs", {"app": "web"}),
        ("endpointslice-mirroring-controller", "mirroring-concurrent-service-endpoint-syncs", None),
    ],
)
async def test_so_many_services_are_cut_into_slices_at_once(
    controller: str, flag: str, selector: dict[str, str] | None, workers: int
) -> None:
    async with Cluster() as cluster:
        slow = ("--leader-elect=false", f"--controllers={controller}", "--kube-api-qps=0.1", "--kube-api-burst=1")
        replica = await cluster.manage(*slow, f"--{flag}={workers}")
        await cluster.sleep(60)
        subset = EndpointSubset(addresses=(EndpointAddress(ip="192.0.2.1"),), ports=(EndpointPort(port=80),))
        for number in range(6):
            service = await cluster.client.create(SERVICES, builders.service(f"web-{number}", selector))
            meta = ObjectMeta(namespace="default", name=service.metadata.name)
            await cluster.client.create(ENDPOINTS, Endpoints(metadata=meta, subsets=(subset,)))
        assert await most_in_work(cluster, replica, controller) == workers


@pytest.mark.flag("concurrent-namespace-syncs")
@pytest.mark.parametrize("workers", [1, 3])
async def test_so_many_namespaces_are_emptied_at_once(workers: int) -> None:
    async with Cluster() as cluster:
        slow = ("--leader-elect=false", "--controllers=namespace", "--kube-api-qps=0.1", "--kube-api-burst=1")
        replica = await cluster.manage(*slow, f"--concurrent-namespace-syncs={workers}")
        for number in range(6):
            await cluster.client.create(NAMESPACES, builders.namespace(f"n-{number}"))
            await cluster.client.delete(NAMESPACES, Key("", f"n-{number}"))
        assert await most_in_work(cluster, replica, "namespace-controller") == workers


@pytest.mark.flag("namespace-sync-period")
@pytest.mark.parametrize(("period", "least", "most"), [("2s", 140, 160), ("5m", 10, 60)])
async def test_a_namespace_that_is_held_up_is_looked_at_again_in_its_time(period: str, least: int, most: int) -> None:
    async with Cluster() as cluster:
        replica = await cluster.manage("--leader-elect=false", f"--namespace-sync-period={period}")
        await cluster.client.create(NAMESPACES, builders.namespace("old"))
        held = builders.pod("p", namespace="old", finalizers=["example.org/hold"])
        await cluster.client.create(PODS, held)
        await cluster.client.delete(NAMESPACES, Key("", "old"))
        await cluster.sleep(60)
        before = looks(replica, "namespace-controller")
        await cluster.sleep(300)
        assert least <= looks(replica, "namespace-controller") - before <= most


def looks(replica: Replica, controller: str) -> int:
    (work,) = (one.work for one in replica.manager.state().controllers if one.name == controller)
    assert work is not None
    return sum(work.outcomes.values())


class Looker:
    """Counts how often it looked."""

    looks = itertools.count(0)

    def __init__(self, context: Context, options: Options) -> None:
        pass

    async def reconcile(self, key: Key) -> None:
        next(type(self).looks)


@pytest.mark.flag("min-resync-period")
@pytest.mark.parametrize(("period", "least", "most"), [("1h", 12, 24), ("6h", 2, 4), ("0s", 0, 0)])
async def test_everything_is_looked_at_again_after_a_while(period: str, least: int, most: int) -> None:
    class Fresh(Looker):
        looks = itertools.count(0)

    spec = ControllerSpec(name="looking-controller", reconciler=Fresh, options=Options, watches=(For(PODS),))
    async with Cluster() as cluster:
        await cluster.client.create(PODS, builders.pod("p"))
        await cluster.manage("--leader-elect=false", f"--min-resync-period={period}", specs=(spec,))
        await cluster.settle()
        before = next(Fresh.looks)
        await cluster.advance(24 * 3600)
        assert least <= next(Fresh.looks) - before - 1 <= most


@pytest.mark.flag("feature-gates", "emulated-version")
@pytest.mark.parametrize(
    ("argv", "streams"),
    [((), True), (("--feature-gates=WatchListClient=false",), False), (("--emulated-version=1.34",), False)],
)
async def test_informers_are_filled_by_streams_if_the_feature_is_on(argv: tuple[str, ...], streams: bool) -> None:
    async with Cluster() as cluster:
        asked: list[Request] = []
        replica = await cluster.manage("--leader-elect=false", *argv)
        replica.network.intercept(asked.append)
        await cluster.settle()
        assert any("sendInitialEvents" in str(request) for request in asked) is streams
