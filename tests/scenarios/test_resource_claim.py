"""Resource claims in a whole cluster, in virtual time: created from templates, reserved, released and deleted."""

import msgspec
import pytest

from controller_manager.common.api.core import PODS, Pod
from controller_manager.common.api.devices import (
    DELETE_PROTECTION,
    POD_CLAIM,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
)
from controller_manager.common.api.resource import Key
from controller_manager.common.api.wire import Request, Response
from controller_manager.common.transport.transport import whole_body
from controller_manager.testing import Cluster
from tests.scenarios.devices import (
    DeviceScheduler,
    allocate,
    bind,
    claim,
    claim_of,
    claims,
    end,
    events,
    pod,
    template,
)
from tests.scenarios.faults import break_watches
from tests.scenarios.test_manager_flags import most_in_work

GPU = {"example.org/gpu": "1"}
pytestmark = pytest.mark.virtual

FLAGS = ("--leader-elect=false", "--controllers=resourceclaim-controller")
MADE = "template/gpus"


async def statuses(cluster: Cluster, name: str = "p") -> dict[str, str | None]:
    found: Pod = await cluster.client.get(PODS, Key("default", name))
    return {one.name: one.resource_claim_name for one in found.status.resource_claim_statuses}


async def reserved(cluster: Cluster, name: str = "shared") -> list[str]:
    found = await claim_of(cluster, name)
    assert found is not None
    return [one.name for one in found.status.reserved_for]


async def test_claim_is_created_from_template_and_noted_in_pod_status() -> None:
    async with Cluster() as cluster:
        await cluster.manage(*FLAGS)
        await cluster.client.create(RESOURCE_CLAIM_TEMPLATES, template(labels={"a": "b"}, annotations={"c": "d"}))
        made = await cluster.client.create(PODS, pod(gpu=MADE, again=MADE, theirs="shared"))
        await cluster.settle()
        found = {(one.metadata.annotations or {})[POD_CLAIM]: one for one in await claims(cluster)}
        assert found.keys() == {"gpu", "again"}
        assert await statuses(cluster) == {entry: one.metadata.name for entry, one in found.items()}
        meta = found["gpu"].metadata
        assert meta.generate_name == "p-gpu-"
        assert meta.name.startswith("p-gpu-")
        assert len(meta.name) == len("p-gpu-") + 5
        assert (meta.labels, meta.annotations) == ({"a": "b"}, {"c": "d", POD_CLAIM: "gpu"})
        (owner,) = meta.owner_references
        assert (owner.api_version, owner.kind, owner.name, owner.uid) == ("v1", "Pod", "p", made.metadata.uid)
        assert (owner.controller, owner.block_owner_deletion) == (True, None)
        # Unmodelled fields are copied, too.
        spec = msgspec.json.decode(found["gpu"].raw)["spec"]["devices"]["requests"][0]["exactly"]
        assert spec["capacity"] == {"requests": {"m": "1Gi"}}
        owners = msgspec.json.decode((await cluster.client.get(PODS, Key("default", "p"))).raw)
        assert owners["status"]["resourceClaimStatuses"][0].keys() == {"name", "resourceClaimName"}


async def test_stale_cache_creates_no_claim_for_deleted_pod() -> None:
    async with Cluster() as cluster:
        replica = await cluster.manage(*FLAGS)
        await cluster.client.create(PODS, pod(gpu=MADE))
        await cluster.settle()
        replica.network.intercept(lambda request: Response(500, {}, b"") if request.path == "/api/v1/pods" else None)
        replica.network.cut()
        replica.network.heal()
        await cluster.client.delete(PODS, Key("default", "p"), grace=0)
        await cluster.client.create(RESOURCE_CLAIM_TEMPLATES, template())
        await cluster.sleep(60)
        assert await claims(cluster) == []


async def test_pod_waits_for_missing_template() -> None:
    async with Cluster() as cluster:
        await cluster.manage(*FLAGS)
        await cluster.client.create(PODS, pod(gpu=MADE))
        await cluster.settle()
        assert await claims(cluster) == []
        assert [one.partition(": resource claim template")[0] for one in await events(cluster)] == [
            "Warning FailedResourceClaimCreation: PodResourceClaim gpu"
        ]
        await cluster.client.create(RESOURCE_CLAIM_TEMPLATES, template())
        await cluster.settle()
        assert list(await statuses(cluster)) == ["gpu"]


async def test_deleted_claim_is_recreated_with_new_name() -> None:
    async with Cluster() as cluster:
        await cluster.manage(*FLAGS)
        await cluster.client.create(RESOURCE_CLAIM_TEMPLATES, template())
        await cluster.client.create(PODS, pod(gpu=MADE, other=MADE))
        await cluster.settle()
        before = await statuses(cluster)
        await cluster.client.delete(RESOURCE_CLAIMS, Key("default", str(before["gpu"])))
        await cluster.settle()
        after = await statuses(cluster)
        assert after["other"] == before["other"]
        assert after["gpu"] != before["gpu"]
        assert {one.metadata.name for one in await claims(cluster)} == set(after.values())


async def test_taken_claim_name_leads_to_another_name() -> None:
    async with Cluster() as cluster:
        replica = await cluster.manage(*FLAGS)
        made = await cluster.client.create(PODS, pod(gpu=MADE))
        await cluster.client.create(RESOURCE_CLAIM_TEMPLATES, template())
        await cluster.settle()
        name = str((await statuses(cluster))["gpu"])
        await replica.stop()
        await cluster.client.delete(RESOURCE_CLAIMS, Key("default", name))
        await cluster.client.create(RESOURCE_CLAIMS, claim(name))
        await cluster.manage(*FLAGS)
        await cluster.settle()
        (another,) = (await statuses(cluster)).values()
        assert another != name
        found = await claim_of(cluster, str(another))
        assert found is not None
        assert found.metadata.owner_references[0].uid == made.metadata.uid


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
async def test_generated_claim_is_deleted_when_pod_finishes(phase: str) -> None:
    async with Cluster() as cluster, DeviceScheduler(cluster):
        await cluster.manage(*FLAGS)
        await cluster.client.create(RESOURCE_CLAIM_TEMPLATES, template())
        await cluster.client.create(PODS, pod(gpu=MADE))
        await cluster.settle()
        (there,) = await claims(cluster)
        assert there.status.allocation is not None
        assert await reserved(cluster, there.metadata.name) == ["p"]
        await end(cluster, phase=phase)
        await cluster.settle()
        assert await claims(cluster) == []


async def test_shared_claim_is_deallocated_after_last_pod() -> None:
    async with Cluster() as cluster, DeviceScheduler(cluster):
        await cluster.manage(*FLAGS)
        await cluster.client.create(RESOURCE_CLAIMS, claim())
        for name in ("a", "b", "c"):
            await cluster.client.create(PODS, pod(name, gpu="shared"))
        await cluster.settle()
        assert await reserved(cluster) == ["a", "b", "c"]
        await end(cluster, "a")
        await cluster.client.delete(PODS, Key("default", "b"))
        await cluster.settle()
        assert await reserved(cluster) == ["c"]
        found = await claim_of(cluster)
        assert found is not None
        assert found.status.allocation is not None
        await end(cluster, "c", "Failed")
        await cluster.settle()
        found = await claim_of(cluster)
        assert found is not None
        assert (found.status.allocation, found.status.reserved_for, found.metadata.finalizers) == (None, (), ())


async def test_deleting_claim_stays_while_in_use() -> None:
    async with Cluster() as cluster, DeviceScheduler(cluster):
        await cluster.manage(*FLAGS)
        await cluster.client.create(RESOURCE_CLAIMS, claim())
        await cluster.client.create(PODS, pod(gpu="shared"))
        await cluster.settle()
        await cluster.client.delete(RESOURCE_CLAIMS, Key("default", "shared"))
        await cluster.settle()
        assert await reserved(cluster) == ["p"]
        await cluster.client.delete(PODS, Key("default", "p"))
        await cluster.settle()
        assert await claim_of(cluster) is None


async def test_unused_allocated_claim_can_be_deleted() -> None:
    async with Cluster() as cluster:
        await cluster.manage(*FLAGS)
        await allocate(cluster, await cluster.client.create(RESOURCE_CLAIMS, claim()))
        await cluster.settle()
        found = await claim_of(cluster)
        assert found is not None
        assert found.metadata.finalizers == (DELETE_PROTECTION,)
        assert found.status.allocation is not None
        await cluster.client.delete(RESOURCE_CLAIMS, Key("default", "shared"))
        await cluster.settle()
        assert await claim_of(cluster) is None


async def test_allocated_claim_is_reserved_for_pod_with_node() -> None:
    async with Cluster() as cluster:
        await cluster.manage(*FLAGS)
        made = await cluster.client.create(RESOURCE_CLAIMS, claim())
        await cluster.client.create(PODS, pod(gpu="shared"))
        await cluster.client.create(PODS, pod("fixed", node="node-1", gpu="shared"))
        await cluster.settle()
        assert await reserved(cluster) == []
        await allocate(cluster, made)
        await cluster.settle()
        assert await reserved(cluster) == ["fixed"]
        await bind(cluster, await cluster.client.get(PODS, Key("default", "p")))
        await cluster.settle()
        assert await reserved(cluster) == ["fixed", "p"]
        await end(cluster, "fixed")
        await cluster.settle()
        assert await reserved(cluster) == ["p"]


async def test_reservation_of_pod_missed_by_watch_is_removed() -> None:
    async with Cluster() as cluster:
        replica = await cluster.manage(*FLAGS)
        made = await cluster.client.create(RESOURCE_CLAIMS, claim())
        await cluster.settle()
        replica.network.intercept(break_watches(PODS.path()))
        replica.network.cut()
        replica.network.heal()
        await allocate(cluster, made, await cluster.client.create(PODS, pod(gpu="shared")))
        await cluster.sleep(10)
        assert await reserved(cluster) == ["p"]
        await cluster.client.delete(PODS, Key("default", "p"), grace=0)
        await cluster.sleep(10)
        replica.network.intercept(None)
        await cluster.advance(60)
        assert await reserved(cluster) == []


async def test_only_reservations_of_missing_pods_are_removed() -> None:
    async with Cluster() as cluster:
        made = await cluster.client.create(RESOURCE_CLAIMS, claim())
        there = await cluster.client.create(PODS, pod(node="node-1", gpu="shared"))
        await allocate(cluster, made, there)
        consumers = [
            {"resource": "pods", "name": "p", "uid": "of-another-p"},
            {"resource": "pods", "name": "gone", "uid": "gone"},
            {"resource": "pods", "name": "p", "uid": there.metadata.uid},
            {"apiGroup": "example.org", "resource": "things", "name": "t", "uid": "t"},
        ]
        change = {"status": {"reservedFor": consumers}}
        await cluster.client.patch(RESOURCE_CLAIMS, Key("default", "shared"), change, subresource="status")
        await cluster.manage(*FLAGS)
        await cluster.settle()
        assert await reserved(cluster) == ["p", "t"]


async def test_extended_resource_claim_is_deleted_when_pod_finishes() -> None:
    async with Cluster() as cluster:
        await cluster.manage(*FLAGS)
        user = await cluster.client.create(PODS, pod(node="node-1", resources={"requests": GPU, "limits": GPU}))
        owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": user.metadata.uid, "controller": True}
        extended = claim(
            "extended",
            annotations={"resource.kubernetes.io/extended-resource-claim": "true"},
            ownerReferences=[owner],
        )
        await allocate(cluster, await cluster.client.create(RESOURCE_CLAIMS, extended), user)
        mappings = [{"containerName": "main", "resourceName": "example.org/gpu", "requestName": "gpu"}]
        status = {"extendedResourceClaimStatus": {"resourceClaimName": "extended", "requestMappings": mappings}}
        await cluster.client.patch(PODS, Key("default", "p"), {"status": status}, subresource="status")
        await cluster.settle()
        assert await reserved(cluster, "extended") == ["p"]
        await end(cluster)
        await cluster.settle()
        assert await claims(cluster) == []


async def test_prioritized_list_is_rejected_without_feature_gate() -> None:
    request = {"name": "gpu", "firstAvailable": [{"name": "big", "deviceClassName": "gpu.example.org"}]}
    async with Cluster() as cluster:
        replica = await cluster.manage(*FLAGS, "--feature-gates=DRAPrioritizedList=false")
        await cluster.client.create(RESOURCE_CLAIM_TEMPLATES, template(request=request))
        await cluster.client.create(PODS, pod(gpu=MADE))
        await cluster.settle()
        assert await claims(cluster) == []
        assert len(await events(cluster)) == 1
        await replica.stop()
        await cluster.manage(*FLAGS)
        await cluster.settle()
        assert len(await claims(cluster)) == 1


async def test_metrics_count_claims() -> None:
    async with Cluster() as cluster, DeviceScheduler(cluster):
        replica = await cluster.manage(*FLAGS, "--authorization-always-allow-paths=/metrics")
        await cluster.client.create(RESOURCE_CLAIM_TEMPLATES, template())
        await cluster.client.create(RESOURCE_CLAIMS, claim())
        await cluster.client.create(PODS, pod(gpu=MADE))
        await cluster.settle()
        page = await replica.manager.pages.handle(Request("GET", "/metrics"))
        shown = (await whole_body(page)).decode()
        assert 'resourceclaim_controller_creates_total{admin_access="false",status="success"} 1' in shown
        number = "resourceclaim_controller_resource_claims"
        assert f'{number}{{admin_access="false",allocated="false",source=""}} 1' in shown
        made = 'admin_access="false",allocated="true",source="resource_claim_template"'
        assert f"{number}{{{made}}} 1" in shown


@pytest.mark.flag("concurrent-resourceclaim-syncs")
@pytest.mark.parametrize("workers", [1, 3])
async def test_concurrent_resourceclaim_syncs_flag_sets_workers(workers: int) -> None:
    async with Cluster() as cluster:
        slow = (*FLAGS, "--cluster-api-qps=0.1", "--cluster-api-burst=1")
        replica = await cluster.manage(*slow, f"--concurrent-resourceclaim-syncs={workers}")
        await cluster.client.create(RESOURCE_CLAIM_TEMPLATES, template())
        await cluster.sleep(60)
        for number in range(5):
            await cluster.client.create(PODS, pod(f"p-{number}", gpu=MADE))
        assert await most_in_work(cluster, replica, "resourceclaim-controller") == workers
