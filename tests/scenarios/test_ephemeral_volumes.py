"""Claims of generic ephemeral volumes in a whole cluster, in virtual time."""

import msgspec
import pytest

from controller_manager.common.api.core import EVENTS, PODS, RESOURCE_QUOTAS, ResourceQuota
from controller_manager.common.api.resource import Key
from controller_manager.common.api.storage import PERSISTENT_VOLUME_CLAIMS, PersistentVolumeClaim
from controller_manager.testing import Cluster
from controllers.ephemeral_volumes import SPECS
from tests.scenarios.test_manager_flags import most_in_work
from tests.scenarios.volumes import METRICS, UNPROTECTED, claim, encoded, ephemeral, of_claim, pod, samples
from tests.scenarios.workloads import events

pytestmark = pytest.mark.virtual
ON = ("--leader-elect=false",)


async def claims(cluster: Cluster) -> dict[str, PersistentVolumeClaim]:
    return {one.metadata.name: one for one in (await cluster.client.list(PERSISTENT_VOLUME_CLAIMS, "default")).items}


async def test_each_ephemeral_volume_gets_a_claim_owned_by_its_pod() -> None:
    async with Cluster((UNPROTECTED,)) as cluster:
        replica = await cluster.manage(*ON, METRICS, specs=SPECS)
        labels, notes = {"type": "scratch"}, {"note": "yes"}
        made = await cluster.client.create(
            PODS, pod("p", ephemeral("a", labels=labels, annotations=notes), of_claim("other"), ephemeral("b"))
        )
        await cluster.settle()
        found = await claims(cluster)
        assert found.keys() == {"p-a", "p-b"}
        first = found["p-a"]
        assert (first.metadata.labels, first.metadata.annotations) == (labels, notes)
        (owner,) = first.metadata.owner_references
        expected = ("v1", "Pod", "p", made.metadata.uid, True, True)
        assert (owner.api_version, owner.kind, owner.name, owner.uid, owner.controller, owner.block_owner_deletion) == (
            expected
        )
        assert msgspec.json.decode(first.raw)["spec"]["resources"] == {"requests": {"storage": "1Gi"}}
        prefix = "ephemeral_volume_controller_create_"
        assert await samples(replica, prefix) == {f"{prefix}total": 2, f"{prefix}failures_total": 0}


async def test_foreign_claim_with_same_name_is_reported() -> None:
    async with Cluster((UNPROTECTED,)) as cluster:
        await cluster.manage(*ON, specs=SPECS)
        await cluster.client.create(PERSISTENT_VOLUME_CLAIMS, claim("p-a"))
        await cluster.client.create(PODS, pod("p", ephemeral("a"), ephemeral("b")))
        await cluster.settle()
        assert (await claims(cluster)).keys() == {"p-a"}
        assert await events(cluster) == [("Warning", "FailedBinding")]
        (event,) = (await cluster.client.list(EVENTS, "default")).items
        assert event.source.component == "ephemeral_volume"
        await cluster.client.delete(PERSISTENT_VOLUME_CLAIMS, Key("default", "p-a"))
        await cluster.settle()
        found = await claims(cluster)
        assert found.keys() == {"p-a", "p-b"}
        assert found["p-a"].metadata.owner_references


async def test_deleted_claim_is_recreated_unless_pod_is_deleting() -> None:
    async with Cluster((UNPROTECTED,)) as cluster:
        await cluster.manage(*ON, specs=SPECS)
        await cluster.client.create(PODS, pod("p", ephemeral("a"), terminationGracePeriodSeconds=30, node="n"))
        await cluster.settle()
        first = (await claims(cluster))["p-a"]
        await cluster.client.delete(PERSISTENT_VOLUME_CLAIMS, Key("default", "p-a"))
        await cluster.settle()
        assert (await claims(cluster))["p-a"].metadata.uid != first.metadata.uid
        await cluster.client.delete(PODS, Key("default", "p"))  # its node has not stopped it yet
        await cluster.client.delete(PERSISTENT_VOLUME_CLAIMS, Key("default", "p-a"))
        await cluster.settle()
        assert await claims(cluster) == {}


async def test_rejected_claim_is_reported_and_retried() -> None:
    async with Cluster(("--enable-admission-plugins=ResourceQuota", UNPROTECTED)) as cluster:
        replica = await cluster.manage(*ON, METRICS, specs=SPECS, strict=False)
        tree = {"spec": {"hard": {"persistentvolumeclaims": "0"}}, "status": {"hard": {"persistentvolumeclaims": "0"}}}
        quota = ResourceQuota.decode(encoded(RESOURCE_QUOTAS, "none", tree))
        await cluster.client.create(RESOURCE_QUOTAS, quota)
        none = {"status": {"hard": {"persistentvolumeclaims": "0"}, "used": {"persistentvolumeclaims": "0"}}}
        await cluster.client.patch(RESOURCE_QUOTAS, Key("default", "none"), none, subresource="status")
        await cluster.client.create(PODS, pod("p", ephemeral("a")))
        await cluster.sleep(5)
        assert await claims(cluster) == {}
        assert set(await events(cluster)) == {("Warning", "FailedBinding")}
        counted = await samples(replica, "ephemeral_volume_controller_create_")
        assert counted["ephemeral_volume_controller_create_failures_total"] > 1
        await cluster.client.delete(RESOURCE_QUOTAS, Key("default", "none"))
        await cluster.advance(60)
        assert (await claims(cluster)).keys() == {"p-a"}


@pytest.mark.flag("concurrent-ephemeralvolume-syncs")
@pytest.mark.parametrize("workers", [1, 3])
async def test_concurrent_ephemeralvolume_syncs_flag_sets_workers(workers: int) -> None:
    async with Cluster((UNPROTECTED,)) as cluster:
        slow = ("--kube-api-qps=0.1", "--kube-api-burst=1")
        replica = await cluster.manage(*ON, *slow, f"--concurrent-ephemeralvolume-syncs={workers}", specs=SPECS)
        await cluster.sleep(60)
        for number in range(6):
            await cluster.client.create(PODS, pod(f"p{number}", ephemeral("a")))
        assert await most_in_work(cluster, replica, "ephemeral-volume-controller") == workers
