"""The endpoints controller in a whole cluster, in virtual time."""

import json

import msgspec
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
    Pod,
)
from controller_manager.common.api.discovery import ENDPOINT_SLICES
from controller_manager.common.api.errors import NotFound
from controller_manager.common.api.model import ObjectMeta
from controller_manager.common.api.resource import Key
from controller_manager.testing import Cluster, builders
from controllers.endpoints import MANAGED_BY, MANAGER
from controllers.shared.pods import HEADLESS, LEADER

pytestmark = pytest.mark.virtual

WEB = Key("default", "web")


async def run_pod(cluster: Cluster, pod: Pod) -> None:
    """Create a running pod."""
    await cluster.client.create(PODS, pod)
    await cluster.client.update(PODS, await with_status(cluster, pod), subresource="status")


async def with_status(cluster: Cluster, pod: Pod) -> Pod:
    found = await cluster.client.get(PODS, Key(pod.metadata.namespace, pod.metadata.name))
    return msgspec.structs.replace(found, status=pod.status)


async def addresses(cluster: Cluster) -> tuple[list[str], list[str]]:
    found: Endpoints = await cluster.client.get(ENDPOINTS, WEB)
    ready = [a.ip for s in found.subsets for a in s.addresses]
    return ready, [a.ip for s in found.subsets for a in s.not_ready_addresses]


async def test_endpoints_follow_pods_and_their_readiness() -> None:
    async with Cluster() as cluster:
        await cluster.manage("--leader-elect=false", "--controllers=endpoint")
        await cluster.client.create(SERVICES, builders.service("web", {"app": "web"}))
        for number in (1, 2):
            await run_pod(cluster, builders.pod(f"web-{number}", labels={"app": "web"}, ip=f"10.1.0.{number}"))
        await run_pod(cluster, builders.pod("other", labels={"app": "db"}, ip="10.1.0.9"))
        await cluster.settle()
        assert await addresses(cluster) == (["10.1.0.1", "10.1.0.2"], [])

        flipped = builders.pod("web-2", labels={"app": "web"}, ip="10.1.0.2", ready=False)
        await cluster.client.update(PODS, await with_status(cluster, flipped), subresource="status")
        await cluster.settle()
        assert await addresses(cluster) == (["10.1.0.1"], ["10.1.0.2"])

        await cluster.client.delete(PODS, Key("default", "web-1"))
        await cluster.settle()
        assert await addresses(cluster) == ([], ["10.1.0.2"])


async def test_pod_with_200_labels_is_matched_by_selector() -> None:
    """A pod with many labels is in no label index."""
    many = {f"k{number}": "v" for number in range(200)}
    async with Cluster() as cluster:
        await cluster.manage("--leader-elect=false", "--controllers=endpoint,endpointslice")
        await cluster.client.create(SERVICES, builders.service("web", {"app": "web"}))
        await run_pod(cluster, builders.pod("web-1", labels={**many, "app": "web"}, ip="10.1.0.1"))
        await run_pod(cluster, builders.pod("other", labels=many, ip="10.1.0.2"))
        await cluster.settle()
        assert await addresses(cluster) == (["10.1.0.1"], [])
        await cluster.client.patch(PODS, Key("default", "web-1"), {"metadata": {"labels": {"app": "gone"}}})
        await cluster.settle()
        assert await addresses(cluster) == ([], [])


async def test_nothing_is_written_when_nothing_changed() -> None:
    async with Cluster() as cluster:
        await cluster.manage("--leader-elect=false", "--controllers=endpoint")
        await cluster.client.create(SERVICES, builders.service("web", {"app": "web"}))
        await run_pod(cluster, builders.pod("web-1", labels={"app": "web"}, ip="10.1.0.1"))
        await cluster.settle()
        before = cluster.api.store.revision
        await cluster.client.patch(PODS, Key("default", "web-1"), {"metadata": {"annotations": {"a": "b"}}})
        await cluster.advance(60)
        assert cluster.api.store.revision == before + 1


async def test_restarted_manager_only_finishes_missed_work() -> None:
    async with Cluster() as cluster:
        first = await cluster.manage("--leader-elect=false", "--controllers=endpoint")
        await cluster.client.create(SERVICES, builders.service("web", {"app": "web"}))
        await cluster.client.create(SERVICES, builders.service("gone", {"app": "web"}))
        await run_pod(cluster, builders.pod("web-1", labels={"app": "web"}, ip="10.1.0.1"))
        await cluster.settle()
        await first.kill()
        await cluster.client.delete(SERVICES, Key("default", "gone"))
        written = (await cluster.client.get(ENDPOINTS, WEB)).metadata.resource_version
        await cluster.manage("--leader-elect=false", "--controllers=endpoint")
        await cluster.settle()
        assert (await cluster.client.get(ENDPOINTS, WEB)).metadata.resource_version == written
        with pytest.raises(NotFound):
            await cluster.client.get(ENDPOINTS, Key("default", "gone"))


async def test_deleted_endpoints_return_only_while_service_exists() -> None:
    async with Cluster() as cluster:
        await cluster.manage("--leader-elect=false", "--controllers=endpoint")
        await cluster.client.create(SERVICES, builders.service("web", {"app": "web"}))
        await cluster.settle()
        await cluster.client.delete(ENDPOINTS, WEB)
        await cluster.settle()
        assert await addresses(cluster) == ([], [])
        await cluster.client.delete(SERVICES, WEB)
        await cluster.settle()
        with pytest.raises(NotFound):
            await cluster.client.get(ENDPOINTS, WEB)


async def test_edited_endpoints_are_restored() -> None:
    async with Cluster() as cluster:
        await cluster.manage("--leader-elect=false", "--controllers=endpoint")
        await cluster.client.create(SERVICES, builders.service("web", {"app": "web"}))
        await run_pod(cluster, builders.pod("web-1", labels={"app": "web"}, ip="10.1.0.1"))
        await cluster.settle()
        await cluster.client.patch(ENDPOINTS, WEB, {"subsets": None})
        await cluster.settle()
        assert await addresses(cluster) == (["10.1.0.1"], [])


async def test_managed_endpoints_without_service_are_deleted() -> None:
    async with Cluster() as cluster:
        await cluster.manage("--leader-elect=false", "--controllers=endpoint")
        await cluster.settle()
        late = ObjectMeta(namespace="default", name="web", labels={MANAGED_BY: MANAGER})
        await cluster.client.create(ENDPOINTS, Endpoints(metadata=late))
        stranger = ObjectMeta(namespace="default", name="stranger")
        await cluster.client.create(ENDPOINTS, Endpoints(metadata=stranger))
        await cluster.settle()
        names = [e.metadata.name for e in (await cluster.client.list(ENDPOINTS, "default")).items]
        assert "web" not in names
        assert "stranger" in names


async def test_endpoints_of_a_service_without_selector_are_left_alone() -> None:
    async with Cluster() as cluster:
        await cluster.manage("--leader-elect=false", "--controllers=endpoint")
        own = {
            "apiVersion": "v1",
            "kind": "Endpoints",
            "metadata": {"name": "web", "namespace": "default"},
            "subsets": [{"addresses": [{"ip": "192.0.2.1"}], "ports": [{"port": 80}]}],
        }
        await cluster.client.create(SERVICES, builders.service("web"))
        await cluster.client.create(ENDPOINTS, Endpoints.decode(json.dumps(own).encode()))
        await cluster.settle()
        assert await addresses(cluster) == (["192.0.2.1"], [])


@pytest.mark.parametrize(
    ("annotations", "when", "stays"),
    [
        pytest.param({}, "before the start", False, id="leftover"),
        pytest.param({LEADER: "{}"}, "before the start", True, id="leader election annotation"),
        pytest.param({}, "later", True, id="created while the manager runs"),
    ],
)
async def test_endpoints_without_service_are_deleted_only_at_start(
    annotations: dict[str, str], when: str, stays: bool
) -> None:
    async with Cluster() as cluster:
        alone = Endpoints(metadata=ObjectMeta(namespace="default", name="web", annotations=annotations))
        if when == "before the start":
            await cluster.client.create(ENDPOINTS, alone)
        await cluster.manage("--leader-elect=false", "--controllers=endpoint")
        await cluster.settle()
        if when == "later":
            await cluster.client.create(ENDPOINTS, alone)
        await cluster.advance(36 * 3600)
        assert [e.metadata.name for e in (await cluster.client.list(ENDPOINTS)).items if e.metadata.name == "web"] == [
            "web"
        ] * stays


async def test_busy_controller_does_not_block_others() -> None:
    async with Cluster() as cluster:
        await cluster.manage("--leader-elect=false", "--kube-api-qps=2", "--kube-api-burst=5")
        for number in range(20):
            await cluster.client.create(NAMESPACES, builders.namespace(f"n-{number}"))
        await cluster.settle()
        for number in range(20):
            await cluster.client.delete(NAMESPACES, Key("", f"n-{number}"))
        await cluster.sleep(6)
        await cluster.client.create(SERVICES, builders.service("web", {"app": "web"}))
        await cluster.sleep(0.1)
        assert await addresses(cluster) == ([], [])


@pytest.mark.flag("endpoint-updates-batch-period")
async def test_batch_period_flag_batches_changes() -> None:
    async with Cluster() as cluster:
        await cluster.manage("--leader-elect=false", "--controllers=endpoint", "--endpoint-updates-batch-period=10s")
        await cluster.client.create(SERVICES, builders.service("web", {"app": "web"}))
        await cluster.settle()
        for number in range(1, 6):
            await run_pod(cluster, builders.pod(f"web-{number}", labels={"app": "web"}, ip=f"10.1.0.{number}"))
        await cluster.settle()
        assert await addresses(cluster) == ([], [])
        before = cluster.api.store.revision
        await cluster.advance(10)
        assert len((await addresses(cluster))[0]) == 5
        assert cluster.api.store.revision == before + 1


async def test_endpoints_are_correct_after_network_faults() -> None:
    async with Cluster() as cluster:
        await cluster.manage("--leader-elect=false", "--controllers=endpoint", faults=0.3)
        await cluster.client.create(SERVICES, builders.service("web", {"app": "web"}))
        for number in range(1, 21):
            pod = builders.pod(f"web-{number}", labels={"app": "web"}, ip=f"10.1.0.{number}", ready=number % 3 > 0)
            await run_pod(cluster, pod)
        await cluster.settle(quiet=300)  # longer than a silent watch lasts
        ready, waiting = await addresses(cluster)
        assert (len(ready), len(waiting)) == (14, 6)


async def test_terminating_namespace_causes_no_errors() -> None:
    async with Cluster() as cluster:
        await cluster.manage("--leader-elect=false")
        await cluster.client.create(NAMESPACES, builders.namespace("old"))
        await cluster.client.create(SERVICES, builders.service("web", {"app": "web"}, namespace="old"))
        await cluster.settle()
        await cluster.client.delete(NAMESPACES, Key("", "old"))
        await cluster.advance(30)
        with pytest.raises(NotFound):
            await cluster.client.get(NAMESPACES, Key("", "old"))


@pytest.mark.parametrize(("spec", "headless"), [({}, False), ({"clusterIP": "None"}, True)])
async def test_only_services_without_cluster_ip_are_headless(spec: dict[str, str], headless: bool) -> None:
    async with Cluster() as cluster:
        await cluster.manage("--leader-elect=false", "--controllers=endpoint")
        await cluster.client.create(SERVICES, builders.service("web", {"app": "web"}, **spec))
        await cluster.settle()
        labels = (await cluster.client.get(ENDPOINTS, WEB)).metadata.labels or {}
        assert (HEADLESS in labels) is headless


@pytest.mark.parametrize("controller", ["endpoints", "endpointslice", "endpointslice-mirroring"])
async def test_services_of_terminating_namespace_cause_no_warnings(
    controller: str, capsys: pytest.CaptureFixture[str]
) -> None:
    async with Cluster() as cluster:
        replica = await cluster.manage("--leader-elect=false", f"--controllers={controller}-controller")
        await cluster.client.create(NAMESPACES, builders.namespace("ending"))
        await cluster.client.create(SERVICES, builders.service("web", {"app": "web"}, namespace="ending"))
        await cluster.client.create(SERVICES, builders.service("plain", namespace="ending"))
        subsets = (EndpointSubset(addresses=(EndpointAddress(ip="10.9.0.1"),), ports=(EndpointPort(port=80),)),)
        plain = Endpoints(metadata=ObjectMeta(name="plain", namespace="ending"), subsets=subsets)
        await cluster.client.create(ENDPOINTS, plain)
        await cluster.settle()
        await cluster.client.delete(NAMESPACES, Key("", "ending"))
        for resource in (ENDPOINTS, ENDPOINT_SLICES):
            await cluster.client.delete_collection(resource, "ending")
        await cluster.settle()
        [state] = replica.manager.state().controllers
        assert state.work is not None
        assert not state.work.outcomes.get("give_up")
        assert not state.work.outcomes.get("error")
    assert "W0101" not in capsys.readouterr().err
