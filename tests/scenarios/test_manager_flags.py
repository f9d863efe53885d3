"""Flags of controllers and of the manager change its behaviour in a whole cluster, in virtual time."""

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
    """Return the maximum number of concurrent keys within a while."""
    most = 0
    for _ in range(50):
        await cluster.sleep(0.2)
        most = max(most, keys_in_work(replica, controller))
    return most


@pytest.mark.flag("concurrent-endpoint-syncs")
@pytest.mark.parametrize("workers", [1, 3])
async def test_concurrent_endpoint_syncs_flag_sets_workers(workers: int) -> None:
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
async def test_slice_controllers_syncs_flags_set_workers(
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
async def test_concurrent_namespace_syncs_flag_sets_workers(workers: int) -> None:
    async with Cluster() as cluster:
        slow = ("--leader-elect=false", "--controllers=namespace", "--kube-api-qps=0.1", "--kube-api-burst=1")
        replica = await cluster.manage(*slow, f"--concurrent-namespace-syncs={workers}")
        for number in range(6):
            await cluster.client.create(NAMESPACES, builders.namespace(f"n-{number}"))
            await cluster.client.delete(NAMESPACES, Key("", f"n-{number}"))
        assert await most_in_work(cluster, replica, "namespace-controller") == workers


@pytest.mark.flag("namespace-sync-period")
@pytest.mark.parametrize(("period", "least", "most"), [("2s", 140, 160), ("5m", 10, 60)])
async def test_namespace_sync_period_flag_sets_recheck_interval(period: str, least: int, most: int) -> None:
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


class CountingController:
    """Counts its reconciles."""

    looks = itertools.count(0)

    def __init__(self, context: Context, options: Options) -> None:
        pass

    async def reconcile(self, key: Key) -> None:
        next(type(self).looks)


@pytest.mark.flag("min-resync-period")
@pytest.mark.parametrize(("period", "least", "most"), [("1h", 12, 24), ("6h", 2, 4), ("0s", 0, 0)])
async def test_min_resync_period_flag_sets_resync_interval(period: str, least: int, most: int) -> None:
    class Fresh(CountingController):
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
async def test_watch_list_feature_gate_enables_streaming_lists(argv: tuple[str, ...], streams: bool) -> None:
    async with Cluster() as cluster:
        asked: list[Request] = []
        replica = await cluster.manage("--leader-elect=false", *argv)
        replica.network.intercept(asked.append)
        await cluster.settle()
        assert any("sendInitialEvents" in str(request) for request in asked) is streams
