"""The namespace controller in a whole cluster, in virtual time."""

import msgspec
import pytest

from controller_manager.common.api.coordination import LEASES, Lease
from controller_manager.common.api.core import NAMESPACES, PODS, SERVICES, Namespace
from controller_manager.common.api.errors import Forbidden, NotFound
from controller_manager.common.api.model import ObjectMeta
from controller_manager.common.api.resource import Key
from controller_manager.common.api.wire import Request, Response
from controller_manager.testing import Cluster, builders

pytestmark = pytest.mark.virtual

OLD = Key("", "old")


async def fill(cluster: Cluster) -> None:
    await cluster.client.create(NAMESPACES, builders.namespace("old"))
    await cluster.client.create(SERVICES, builders.service("web", {"app": "web"}, namespace="old"))
    for number in range(3):
        await cluster.client.create(PODS, builders.pod(f"p-{number}", namespace="old"))


async def conditions(cluster: Cluster) -> dict[str, str]:
    found: Namespace = await cluster.client.get(NAMESPACES, OLD)
    return {c.type: c.status for c in found.status.conditions}


async def test_deleted_namespace_is_emptied_and_removed() -> None:
    async with Cluster() as cluster:
        await cluster.manage("--leader-elect=false")
        await fill(cluster)
        await cluster.client.create(NAMESPACES, builders.namespace("kept"))
        await cluster.client.create(PODS, builders.pod("p", namespace="kept"))
        await cluster.client.delete(NAMESPACES, OLD)
        await cluster.advance(30)
        with pytest.raises(NotFound):
            await cluster.client.get(NAMESPACES, OLD)
        assert [p.metadata.namespace for p in (await cluster.client.list(PODS)).items] == ["kept"]


async def test_terminating_namespace_rejects_new_objects() -> None:
    async with Cluster() as cluster:
        await fill(cluster)
        await cluster.client.delete(NAMESPACES, OLD)
        with pytest.raises(Forbidden, match="being terminated"):
            await cluster.client.create(PODS, builders.pod("late", namespace="old"))


async def test_remaining_finalizers_block_deletion_and_are_reported() -> None:
    async with Cluster() as cluster:
        await cluster.manage("--leader-elect=false")
        await cluster.client.create(NAMESPACES, builders.namespace("old"))
        await cluster.client.create(PODS, builders.pod("p", namespace="old", finalizers=["example.org/hold"]))
        await cluster.client.delete(NAMESPACES, OLD)
        await cluster.advance(60)
        assert (await conditions(cluster))["NamespaceFinalizersRemaining"] == "True"
        found: Namespace = await cluster.client.get(NAMESPACES, OLD)
        assert any("example.org/hold in 1 resource instance" in c.message for c in found.status.conditions)
        await cluster.client.patch(PODS, Key("old", "p"), {"metadata": {"finalizers": None}})
        await cluster.advance(60)
        with pytest.raises(NotFound):
            await cluster.client.get(NAMESPACES, OLD)


async def test_pods_are_deleted_before_other_objects() -> None:
    async with Cluster() as cluster:
        await cluster.manage("--leader-elect=false", "--controllers=namespace")
        await cluster.client.create(NAMESPACES, builders.namespace("old"))
        await cluster.client.create(PODS, builders.pod("p", namespace="old", finalizers=["example.org/hold"]))
        await cluster.client.create(SERVICES, builders.service("web", namespace="old"))
        await cluster.client.delete(NAMESPACES, OLD)
        await cluster.advance(60)
        assert (await cluster.client.get(SERVICES, Key("old", "web"))).metadata.deletion_timestamp is None


async def test_unfinished_pods_are_reported_after_grace_period() -> None:
    async with Cluster() as cluster:
        await cluster.manage("--leader-elect=false", "--controllers=namespace")
        await cluster.client.create(NAMESPACES, builders.namespace("old"))
        pod = builders.pod("p", namespace="old")
        spec = msgspec.structs.replace(pod.spec, node_name="gone")
        await cluster.client.create(PODS, msgspec.structs.replace(pod, spec=spec))
        await cluster.client.delete(NAMESPACES, OLD)
        await cluster.advance(20)
        assert (await conditions(cluster))["NamespaceDeletionContentFailure"] == "False"
        await cluster.advance(30)
        assert (await conditions(cluster))["NamespaceDeletionContentFailure"] == "True"
        assert (await conditions(cluster))["NamespaceContentRemaining"] == "True"
        await cluster.client.delete(PODS, Key("old", "p"), grace=0)
        await cluster.advance(30)
        with pytest.raises(NotFound):
            await cluster.client.get(NAMESPACES, OLD)


async def test_failing_resource_does_not_block_others() -> None:
    async with Cluster() as cluster:
        replica = await cluster.manage("--leader-elect=false", "--controllers=namespace")

        def failing(request: Request) -> Response | None:
            broken = request.path.endswith("/old/configmaps") and request.method == "GET"
            return Response(500, {}, b"broken") if broken else None

        replica.network.intercept(failing)
        await fill(cluster)
        await cluster.client.delete(NAMESPACES, OLD)
        await cluster.advance(60)
        assert (await conditions(cluster))["NamespaceDeletionContentFailure"] == "True"
        with pytest.raises(NotFound):
            await cluster.client.get(SERVICES, Key("old", "web"))
        replica.network.intercept(None)
        await cluster.advance(60)
        with pytest.raises(NotFound):
            await cluster.client.get(NAMESPACES, OLD)


async def test_failed_discovery_blocks_only_namespace_removal() -> None:
    async with Cluster() as cluster:
        replica = await cluster.manage("--leader-elect=false", "--controllers=namespace")

        def failing(request: Request) -> Response | None:
            return Response(500, {}, b"broken") if request.path == "/api" else None

        replica.network.intercept(failing)
        await fill(cluster)
        await cluster.client.create(LEASES, Lease(metadata=ObjectMeta(namespace="old", name="held")))
        await cluster.client.delete(NAMESPACES, OLD)
        await cluster.advance(60)
        found: Namespace = await cluster.client.get(NAMESPACES, OLD)
        (discovery,) = (c for c in found.status.conditions if c.type == "NamespaceDeletionDiscoveryFailure")
        assert (discovery.status, discovery.reason) == ("True", "DiscoveryFailed")
        assert "1 failing: /api: " in discovery.message
        assert not (await cluster.client.list(LEASES, "old")).items
        assert not (await cluster.client.list(PODS, "old")).items
        assert len((await cluster.client.list(SERVICES, "old")).items) == 1
        replica.network.intercept(None)
        await cluster.advance(60)
        with pytest.raises(NotFound):
            await cluster.client.get(NAMESPACES, OLD)


async def test_namespace_removal_waits_for_late_objects() -> None:
    async with Cluster() as cluster:
        await cluster.manage("--leader-elect=false", "--controllers=namespace")
        await cluster.client.create(NAMESPACES, builders.namespace("old"))
        await cluster.client.delete(NAMESPACES, OLD)
        await cluster.sleep(0.5)
        assert (await cluster.client.get(NAMESPACES, OLD)).spec.finalizers == ("kubernetes",)
        await cluster.sleep(4)
        with pytest.raises(NotFound):
            await cluster.client.get(NAMESPACES, OLD)


async def test_other_namespace_finalizers_are_not_removed() -> None:
    async with Cluster() as cluster:
        await cluster.manage("--leader-elect=false")
        await cluster.client.create(NAMESPACES, builders.namespace("old"))
        found: Namespace = await cluster.client.get(NAMESPACES, OLD)
        spec = msgspec.structs.replace(found.spec, finalizers=("kubernetes", "example.org/mine"))
        await cluster.client.update(NAMESPACES, msgspec.structs.replace(found, spec=spec), subresource="finalize")
        await cluster.client.delete(NAMESPACES, OLD)
        await cluster.advance(30)
        assert (await cluster.client.get(NAMESPACES, OLD)).spec.finalizers == ("example.org/mine",)


@pytest.mark.parametrize("seed", range(3))
async def test_namespace_is_removed_despite_network_faults(seed: int) -> None:
    async with Cluster() as cluster:
        await cluster.manage("--leader-elect=false", faults=0.2)
        for _ in range(seed):
            await cluster.advance(1)
        await fill(cluster)
        await cluster.client.delete(NAMESPACES, OLD)
        await cluster.sleep(1200)  # few passes have no fault, and each failure lengthens the backoff
        await cluster.settle(quiet=200)
        with pytest.raises(NotFound):
            await cluster.client.get(NAMESPACES, OLD)
