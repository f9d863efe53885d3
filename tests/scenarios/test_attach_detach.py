"""Attaching and detaching of volumes in a whole cluster with a simulated driver, in virtual time."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from hashlib import sha256
from typing import Any

import msgspec
import pytest

from controller_manager.common.api.core import EVENTS, NODES, PODS
from controller_manager.common.api.resource import Key
from controller_manager.common.api.storage import CSI_DRIVERS, VOLUME_ATTACHMENTS
from controller_manager.common.api.wire import Request, Response
from controller_manager.testing import Cluster
from controller_manager.testing.csi_driver import SimulatedDriver
from controller_manager.testing.replica import Replica
from controllers.attach_detach import SPECS
from tests.scenarios.volumes import (
    DRIVER,
    METRICS,
    UNPROTECTED,
    add_node,
    attachments,
    bind,
    csi_driver,
    listed,
    of_claim,
    pod,
    samples,
    set_ready,
    unique,
    use,
)

pytestmark = pytest.mark.virtual
ON = ("--leader-elect=false", "--controllers=attachdetach", METRICS)
FAMILY = "storage_operation_duration_seconds_count"
FORCED = "attach_detach_controller_attachdetach_controller_forced_detaches"
DONE = ("Normal", "SuccessfulAttachVolume")
FAILED = ("Warning", "FailedAttachVolume")


@asynccontextmanager
async def world(
    *flags: str, nodes: tuple[str, ...] = ("a", "b"), **driver: Any
) -> AsyncIterator[tuple[Cluster, SimulatedDriver, Replica]]:
    """Start a cluster with nodes, a driver and a manager."""
    async with Cluster((UNPROTECTED,)) as cluster, SimulatedDriver(cluster, DRIVER, **driver) as simulated:
        for node in ("a", "b"):
            await add_node(cluster, node)
        yield cluster, simulated, await cluster.manage(*ON, *flags, specs=SPECS)


async def events_of(cluster: Cluster, name: str) -> list[tuple[str, str]]:
    """Return type and reason of each event about a pod."""
    found = (await cluster.client.list(EVENTS, "default")).items
    mine = [event for event in found if event.involved_object.name == name]
    return [(event.type, event.reason) for event in sorted(mine, key=lambda one: int(one.metadata.resource_version))]


async def delete_pod(cluster: Cluster, name: str) -> None:
    await cluster.client.delete(PODS, Key("default", name), grace=0)
    await cluster.settle()


async def test_volume_is_attached_for_pod_and_detached_after_unmount() -> None:
    async with world() as (cluster, _, replica):
        await bind(cluster, "v")
        await cluster.client.create(PODS, pod("p", of_claim("v"), node="a"))
        await cluster.settle()
        (found,) = (await cluster.client.list(VOLUME_ATTACHMENTS)).items
        assert found.metadata.name == f"csi-{sha256(f'v{DRIVER}a'.encode()).hexdigest()}"
        assert (found.spec.attacher, found.spec.node_name, found.spec.source.persistent_volume_name) == (
            DRIVER,
            "a",
            "v",
        )
        assert await listed(cluster, "a") == {unique("v")}
        assert await events_of(cluster, "p") == [DONE]
        await use(cluster, "a", "v")
        await delete_pod(cluster, "p")
        await cluster.sleep(3600)  # the node is ready and still uses the volume
        assert await attachments(cluster) != {}
        assert await listed(cluster, "a") == {unique("v")}
        await use(cluster, "a")
        await cluster.settle()
        assert await attachments(cluster) == {}
        assert await listed(cluster, "a") == set()
        counted = await samples(replica, FAMILY)
        plugin = f'volume_plugin="kubernetes.io/csi:{DRIVER}"'
        for name in ("volume_attach", "volume_detach"):
            assert counted[f'{FAMILY}{{migrated="false",operation_name="{name}",status="success",{plugin}}}'] == 1


async def test_node_status_drops_volume_before_driver_detaches() -> None:
    async with world() as (cluster, _, __):
        await bind(cluster, "v")
        await cluster.client.create(PODS, pod("p", of_claim("v"), node="a"))
        await cluster.settle()
        seen = []
        cluster.api.store.subscribe(lambda changes: seen.extend(changes))
        await delete_pod(cluster, "p")
        order = [change.row.resource for change in seen if change.row.resource in (NODES.name, VOLUME_ATTACHMENTS.name)]
        assert order[:2] == [NODES.name, VOLUME_ATTACHMENTS.name]


async def test_single_node_volume_is_not_attached_to_second_node() -> None:
    async with world() as (cluster, _, __):
        await bind(cluster, "v")
        await cluster.client.create(PODS, pod("p", of_claim("v"), node="a"))
        await cluster.settle()
        await use(cluster, "a", "v")
        await cluster.client.create(PODS, pod("q", of_claim("v"), node="b"))
        await cluster.advance(300)
        assert await events_of(cluster, "q") == [FAILED]
        (event,) = [one for one in (await cluster.client.list(EVENTS, "default")).items if one.type == "Warning"]
        assert event.message.startswith('Multi-Attach error for volume "v"')
        assert event.message.endswith("p")
        assert event.source.component == "attachdetach-controller"
        await delete_pod(cluster, "p")
        assert (await attachments(cluster)).keys() == {("v", "a")}
        await use(cluster, "a")
        await cluster.settle()
        assert (await attachments(cluster)).keys() == {("v", "b")}
        assert await listed(cluster, "b") == {unique("v")}
        assert await events_of(cluster, "q") == [FAILED, DONE]


async def test_many_node_volume_is_attached_to_all_nodes() -> None:
    async with world() as (cluster, _, __):
        await bind(cluster, "v", modes=("ReadWriteMany",))
        for node in ("a", "b"):
            await cluster.client.create(PODS, pod(f"p-{node}", of_claim("v"), node=node))
        await cluster.settle()
        assert (await attachments(cluster)).keys() == {("v", "a"), ("v", "b")}
        await delete_pod(cluster, "p-a")
        assert (await attachments(cluster)).keys() == {("v", "b")}


async def test_failed_attach_is_reported_and_retried_with_backoff() -> None:
    problem = "no such disk"
    async with world(fails=lambda step, _: problem if step == "attach" else "") as (cluster, _, replica):
        await bind(cluster, "v")
        await cluster.client.create(PODS, pod("p", of_claim("v"), node="a"))
        await cluster.sleep(120)
        assert set(await events_of(cluster, "p")) == {FAILED}
        (event,) = (await cluster.client.list(EVENTS, "default")).items
        assert event.message == 'AttachVolume.Attach failed for volume "v" : no such disk'
        assert 6 <= event.count <= 9
        assert await listed(cluster, "a") == set()
        problem = ""
        await cluster.advance(10)
        assert await listed(cluster, "a") == {unique("v")}
        assert await events_of(cluster, "p") == [FAILED, DONE]
        counted = await samples(replica, FAMILY)
        assert sum(value for name, value in counted.items() if "fail-unknown" in name) == event.count


async def test_slow_driver_times_out_after_two_minutes_then_succeeds() -> None:
    async with world(delay=200.0) as (cluster, _, __):
        await bind(cluster, "v")
        await cluster.client.create(PODS, pod("p", of_claim("v"), node="a"))
        await cluster.sleep(119)
        assert await events_of(cluster, "p") == []
        await cluster.sleep(5)
        assert await events_of(cluster, "p") == [FAILED]
        await cluster.advance(120)
        assert await events_of(cluster, "p") == [FAILED, DONE]


async def test_pending_attachment_is_deleted_with_its_pod() -> None:
    async with world(fails=lambda step, _: "no such disk" if step == "attach" else "") as (cluster, _, __):
        await bind(cluster, "v")
        await cluster.client.create(PODS, pod("p", of_claim("v"), node="a"))
        await cluster.sleep(60)
        assert await attachments(cluster) != {}
        await cluster.client.delete(PODS, Key("default", "p"), grace=0)
        await cluster.sleep(60)
        assert await attachments(cluster) == {}


async def test_failed_detach_blocks_attach_to_other_node() -> None:
    stuck = "busy"
    async with world(fails=lambda step, _: stuck if step == "detach" else "") as (cluster, _, __):
        await bind(cluster, "v")
        await cluster.client.create(PODS, pod("p", of_claim("v"), node="a"))
        await cluster.settle()
        await delete_pod(cluster, "p")
        await cluster.client.create(PODS, pod("q", of_claim("v"), node="b"))
        await cluster.sleep(600)
        assert (await attachments(cluster)).keys() == {("v", "a")}
        assert await listed(cluster, "a") == set()
        stuck = ""
        await cluster.advance(300)
        assert (await attachments(cluster)).keys() == {("v", "b")}


@pytest.mark.flag("disable-force-detach-on-timeout")
@pytest.mark.parametrize("disabled", [False, True])
async def test_unready_node_volumes_are_detached_after_six_minutes(disabled: bool) -> None:
    async with world(*(["--disable-force-detach-on-timeout"] if disabled else [])) as (cluster, _, replica):
        await bind(cluster, "v")
        await cluster.client.create(PODS, pod("p", of_claim("v"), node="a"))
        await cluster.settle()
        await use(cluster, "a", "v")
        await set_ready(cluster, "a", ready=False)
        await delete_pod(cluster, "p")
        await cluster.sleep(355)
        assert (await attachments(cluster)).keys() == {("v", "a")}
        await cluster.advance(10)
        forced = await samples(replica, FORCED)
        assert (await attachments(cluster) != {}) is disabled
        assert forced == ({} if disabled else {f'{FORCED}{{reason="timeout"}}': 1})


async def test_ready_node_keeps_volumes_when_node_cache_is_stale() -> None:
    async with world() as (cluster, _, replica):
        await bind(cluster, "v")
        await cluster.client.create(PODS, pod("p", of_claim("v"), node="a"))
        await cluster.settle()
        await use(cluster, "a", "v")
        await set_ready(cluster, "a", ready=False)
        await delete_pod(cluster, "p")
        await cluster.sleep(330)
        replica.network.intercept(lambda request: Response(500, {}, b"") if request.path == NODES.path() else None)
        replica.network.cut()
        replica.network.heal()
        await set_ready(cluster, "a", ready=True)
        await cluster.sleep(60)
        assert (await attachments(cluster)).keys() == {("v", "a")}


async def test_unready_node_keeps_volumes_when_pod_cache_is_stale() -> None:
    async with world() as (cluster, _, replica):
        await bind(cluster, "v")
        await cluster.client.create(PODS, pod("p", of_claim("v"), node="a"))
        await cluster.settle()
        await use(cluster, "a", "v")
        await set_ready(cluster, "a", ready=False)
        await delete_pod(cluster, "p")

        def break_watch(request: Request) -> Response | None:
            follows = request.path == PODS.path() and all(name != "fieldSelector" for name, _ in request.query)
            return Response(500, {}, b"") if follows else None

        replica.network.intercept(break_watch)
        replica.network.cut()
        replica.network.heal()
        await cluster.client.create(PODS, pod("q", of_claim("v"), node="a"))
        await cluster.sleep(600)
        assert (await attachments(cluster)).keys() == {("v", "a")}


async def test_out_of_service_node_volumes_are_detached_at_once() -> None:
    async with world("--disable-force-detach-on-timeout") as (cluster, _, replica):
        await bind(cluster, "v")
        await cluster.client.create(PODS, pod("p", of_claim("v"), node="a"))
        await cluster.settle()
        await use(cluster, "a", "v")
        await delete_pod(cluster, "p")
        assert await attachments(cluster) != {}
        taint = {"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute"}
        await cluster.client.patch(NODES, Key("", "a"), {"spec": {"taints": [taint]}})
        await cluster.settle()
        assert await attachments(cluster) == {}
        assert await samples(replica, FORCED) == {f'{FORCED}{{reason="out-of-service"}}': 1}


async def test_deleted_node_volumes_are_detached_after_six_minutes() -> None:
    async with world() as (cluster, _, __):
        for name in ("v", "w"):
            await bind(cluster, name)
        await cluster.client.create(PODS, pod("p", of_claim("v"), of_claim("w"), node="a"))
        await cluster.settle()
        await use(cluster, "a", "v")
        await cluster.client.delete(NODES, Key("", "a"))
        await cluster.settle()
        assert (await attachments(cluster)).keys() == {("v", "a"), ("w", "a")}  # the pod still exists
        await delete_pod(cluster, "p")
        assert (await attachments(cluster)).keys() == {("v", "a")}
        await cluster.advance(365)
        assert await attachments(cluster) == {}


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
async def test_finished_pod_volume_is_detached(phase: str) -> None:
    async with world() as (cluster, _, __):
        await bind(cluster, "v")
        await cluster.client.create(PODS, pod("p", of_claim("v"), node="a"))
        await cluster.settle()
        await cluster.client.patch(PODS, Key("default", "p"), {"status": {"phase": phase}}, subresource="status")
        await cluster.settle()
        assert await attachments(cluster) == {}


async def test_unattachable_volumes_and_unmanaged_nodes_are_skipped() -> None:
    async with world() as (cluster, _, __):
        await add_node(cluster, "unmanaged", managed=False)
        await bind(cluster, "v")
        await bind(cluster, "nfs", source={"nfs": {"server": "s", "path": "/"}})
        inline = {"name": "inline", "csi": {"driver": DRIVER}}
        await cluster.client.create(PODS, pod("p", of_claim("v"), node="unmanaged"))
        await cluster.client.create(PODS, pod("q", of_claim("nfs"), inline, {"name": "e", "emptyDir": {}}, node="a"))
        await cluster.client.create(PODS, pod("pending", of_claim("v")))
        await cluster.client.create(PODS, pod("unbound", of_claim("nobody"), node="a"))
        await cluster.advance(120)
        assert await attachments(cluster) == {}
        annotations = {"metadata": {"annotations": {"volumes.kubernetes.io/controller-managed-attach-detach": "true"}}}
        await cluster.client.patch(NODES, Key("", "unmanaged"), annotations)
        await cluster.settle()
        assert (await attachments(cluster)).keys() == {("v", "unmanaged")}


async def test_driver_without_attach_required_has_no_attachments() -> None:
    async with world() as (cluster, _, __):
        await cluster.client.create(CSI_DRIVERS, csi_driver(attachRequired=False))
        await bind(cluster, "v")
        await cluster.client.create(PODS, pod("p", of_claim("v"), node="a"))
        await cluster.settle()
        assert await attachments(cluster) == {}
        await cluster.client.delete(CSI_DRIVERS, Key("", DRIVER))
        await cluster.settle()
        assert (await attachments(cluster)).keys() == {("v", "a")}
        await cluster.client.create(CSI_DRIVERS, csi_driver(attachRequired=False))
        await cluster.settle()
        assert await attachments(cluster) == {}


async def test_volumes_without_csi_driver_are_listed_as_attached() -> None:
    async with world() as (cluster, _, replica):
        await bind(
            cluster,
            "v",
            source={"iscsi": {"targetPortal": "1.2.3.4:3260", "iqn": "iqn.2026-01.org.example:x", "lun": 1}},
        )
        await cluster.client.create(PODS, pod("p", of_claim("v"), node="a"))
        await cluster.settle()
        assert await listed(cluster, "a") == {"kubernetes.io/iscsi/1.2.3.4:3260:iqn.2026-01.org.example:x:1"}
        assert await events_of(cluster, "p") == [DONE]
        total = await samples(replica, "attachdetach_controller_total_volumes")
        family, plugin = "attachdetach_controller_total_volumes", 'plugin_name="kubernetes.io/iscsi"'
        states = ("actual_state_of_world", "desired_state_of_world")
        assert total == {f'{family}{{{plugin},state="{state}"}}': 1 for state in states}
        in_use = await samples(replica, "storage_count_attachable_volumes_in_use")
        assert list(in_use) == ['storage_count_attachable_volumes_in_use{node="a",volume_plugin="kubernetes.io/iscsi"}']
        await delete_pod(cluster, "p")
        assert await listed(cluster, "a") == set()


async def test_inline_volume_migrated_to_csi_is_attached() -> None:
    async with world() as (cluster, _, __):
        source = {"name": "disk", "cinder": {"volumeID": "abc", "fsType": "ext4"}}
        await cluster.client.create(PODS, pod("p", source, node="a"))
        await cluster.settle()
        (found,) = (await cluster.client.list(VOLUME_ATTACHMENTS)).items
        assert found.spec.attacher == "cinder.csi.openstack.org"
        assert msgspec.json.decode(found.spec.source.inline_volume_spec) == {
            "csi": {"driver": "cinder.csi.openstack.org", "volumeHandle": "abc", "fsType": "ext4"},
            "accessModes": ["ReadWriteOnce"],
            "volumeMode": "Filesystem",
        }


async def test_new_leader_takes_over_existing_attachments() -> None:
    async with world() as (cluster, driver, first):
        for name in ("kept", "left", "hanging"):
            await bind(cluster, name)
        await cluster.client.create(PODS, pod("p", of_claim("kept"), node="a"))
        await cluster.client.create(PODS, pod("q", of_claim("left"), node="a"))
        await cluster.settle()
        await use(cluster, "a", "kept", "left")
        driver.delay = 30.0
        await cluster.client.create(PODS, pod("r", of_claim("hanging"), node="b"))
        await cluster.sleep(5)
        await first.kill()
        for name in ("q", "r"):
            await cluster.client.delete(PODS, Key("default", name), grace=0)
        kept = (await attachments(cluster))["kept", "a"]
        await cluster.manage(*ON, specs=SPECS)
        await cluster.advance(120)
        found = await attachments(cluster)
        assert found.keys() == {("kept", "a"), ("left", "a")}
        assert found["kept", "a"].metadata.uid == kept.metadata.uid
        assert await listed(cluster, "a") == {unique("kept"), unique("left")}
        await use(cluster, "a", "kept")
        await cluster.advance(60)
        assert (await attachments(cluster)).keys() == {("kept", "a")}
        assert await events_of(cluster, "p") == [DONE]


async def test_attachments_of_other_creators_are_left_alone() -> None:
    async with world() as (cluster, _, __):
        await bind(cluster, "v")
        tree = {"attacher": DRIVER, "nodeName": "a", "source": {"persistentVolumeName": "v"}}
        data = {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "VolumeAttachment",
            "metadata": {"name": "mine"},
            "spec": tree,
        }
        made = VOLUME_ATTACHMENTS.type.decode(msgspec.json.encode(data))
        await cluster.client.create(VOLUME_ATTACHMENTS, made)
        await cluster.advance(600)
        assert (await attachments(cluster)).keys() == {("v", "a")}


async def test_volume_wanted_during_detach_is_attached_again() -> None:
    async with world(delay=20.0) as (cluster, _, __):
        await bind(cluster, "v")
        await cluster.client.create(PODS, pod("p", of_claim("v"), node="a"))
        await cluster.advance(30)
        first = (await attachments(cluster))["v", "a"]
        await delete_pod(cluster, "p")
        await cluster.client.create(PODS, pod("q", of_claim("v"), node="a"))
        await cluster.advance(60)
        found = (await attachments(cluster))["v", "a"]
        assert found.metadata.uid != first.metadata.uid
        assert found.status.attached
        assert await listed(cluster, "a") == {unique("v")}


async def lose(cluster: Cluster, *, whole: bool) -> None:
    """Mark a volume as detached by its driver, or delete its VolumeAttachment if `whole`."""
    (found,) = (await attachments(cluster)).values()
    name = Key("", found.metadata.name)
    if whole:
        await cluster.client.delete(VOLUME_ATTACHMENTS, name)
        await cluster.client.patch(VOLUME_ATTACHMENTS, name, {"metadata": {"finalizers": None}})
    else:
        await cluster.client.patch(VOLUME_ATTACHMENTS, name, {"status": {"attached": False}}, subresource="status")


@pytest.mark.flag("attach-detach-reconcile-sync-period", "disable-attach-detach-reconcile-sync")
@pytest.mark.parametrize(("flags", "after"), [((), 60), (("--attach-detach-reconcile-sync-period=10m",), 600)])
@pytest.mark.parametrize("whole", [True, False])
async def test_lost_attachment_is_found_by_sync_and_restored(flags: tuple[str, ...], after: int, whole: bool) -> None:
    async with world(*flags, fails=lambda step, obj: "") as (cluster, driver, _):
        await bind(cluster, "v")
        await cluster.client.create(PODS, pod("p", of_claim("v"), node="a"))
        await cluster.settle()
        driver.fails = lambda step, obj: "gone"
        await cluster.sleep(1)
        await lose(cluster, whole=whole)
        await cluster.sleep(after - 20)
        assert await listed(cluster, "a") == {unique("v")}
        await cluster.sleep(20)
        assert await listed(cluster, "a") == set()
        driver.fails = lambda step, obj: ""
        await cluster.advance(after)
        assert await listed(cluster, "a") == {unique("v")}
        assert ("v", "a") in await attachments(cluster)


@pytest.mark.flag("disable-attach-detach-reconcile-sync")
async def test_lost_attachment_is_not_restored_when_sync_is_disabled() -> None:
    async with world("--disable-attach-detach-reconcile-sync") as (cluster, driver, _):
        await bind(cluster, "v")
        await cluster.client.create(PODS, pod("p", of_claim("v"), node="a"))
        await cluster.settle()
        driver.fails = lambda step, obj: "gone"
        await lose(cluster, whole=True)
        await cluster.sleep(3600)
        assert await listed(cluster, "a") == {unique("v")}
