"""Warnings about SELinux labels in a whole cluster, in virtual time."""

from typing import Any

import pytest

from controller_manager.common.api.core import EVENTS, PODS, Event
from controller_manager.common.api.resource import Key
from controller_manager.common.api.storage import CSI_DRIVERS
from controller_manager.testing import Cluster
from controllers.selinux_warning import SPECS
from tests.scenarios.volumes import DRIVER, METRICS, bind, csi_driver, of_claim, pod, samples

pytestmark = pytest.mark.virtual
ON = ("--leader-elect=false", "--controllers=selinux-warning-controller", METRICS)
LABEL, POLICY = "SELinuxLabelConflict", "SELinuxChangePolicyConflict"
FAMILY = "selinux_warning_controller_selinux_volume_conflict"


def labelled(name: str, level: str = "", policy: str = "", **further: Any) -> Any:
    context: dict[str, Any] = {"seLinuxOptions": {"level": level}} if level else {}
    if policy:
        context["seLinuxChangePolicy"] = policy
    return pod(name, of_claim("data"), securityContext=context, **further)


async def events(cluster: Cluster) -> list[tuple[str, str]]:
    """Return pod and reason of each event."""
    found: list[Event] = (await cluster.client.list(EVENTS)).items
    assert all(event.type == "Normal" for event in found if event.reason in (LABEL, POLICY))
    return sorted((event.involved_object.name, event.reason) for event in found)


async def start(cluster: Cluster, **driver: Any) -> Any:
    if driver:
        await cluster.client.create(CSI_DRIVERS, csi_driver(**driver))
    await bind(cluster, "data", modes=("ReadWriteMany",))
    return await cluster.manage(*ON, specs=SPECS)


async def test_different_labels_are_reported_on_both_pods() -> None:
    async with Cluster() as cluster:
        replica = await start(cluster, seLinuxMount=True)
        await cluster.client.create(PODS, labelled("a", "s0:c1,c2"))
        await cluster.client.create(PODS, labelled("b", "s0:c1,c2"))
        await cluster.settle()
        assert await events(cluster) == []
        await cluster.client.create(PODS, labelled("c", "s0:c3,c4"))
        await cluster.settle()
        assert await events(cluster) == [("a", LABEL), ("b", LABEL), ("c", LABEL), ("c", LABEL)]
        series = await samples(replica, FAMILY)
        assert len(series) == 4
        assert set(series.values()) == {1.0}
        first = 'pod1_name="a",pod1_namespace="default",pod1_value=":::s0:c1,c2"'
        second = 'pod2_name="c",pod2_namespace="default",pod2_value=":::s0:c3,c4"'
        assert f'{FAMILY}{{{first},{second},property="SELinuxLabel"}}' in series
        await cluster.client.patch(PODS, Key("default", "c"), {"status": {"phase": "Succeeded"}}, subresource="status")
        await cluster.settle()
        assert await samples(replica, FAMILY) == {}


async def test_different_change_policies_are_reported() -> None:
    async with Cluster() as cluster:
        await start(cluster, seLinuxMount=True)
        await cluster.client.create(PODS, labelled("a", "s0:c1,c2"))
        await cluster.client.create(PODS, labelled("b", "s0:c1,c2", "Recursive"))
        await cluster.settle()
        assert await events(cluster) == [("a", POLICY), ("a", LABEL), ("b", POLICY), ("b", LABEL)]


async def test_csi_driver_change_creates_and_ends_conflicts() -> None:
    async with Cluster() as cluster:
        replica = await start(cluster)
        for name, level in (("a", "s0:c1,c2"), ("b", "s0:c3,c4")):
            await cluster.client.create(PODS, labelled(name, level))
        await cluster.settle()
        assert await events(cluster) == []  # without a CSIDriver no volume is mounted with a label
        await cluster.client.create(CSI_DRIVERS, csi_driver(seLinuxMount=True))
        await cluster.settle()
        assert len(await samples(replica, FAMILY)) == 2
        await cluster.client.delete(CSI_DRIVERS, Key("", DRIVER))
        await cluster.settle()
        assert await samples(replica, FAMILY) == {}


async def test_volume_mounted_with_two_labels_is_reported() -> None:
    async with Cluster() as cluster:
        await start(cluster, seLinuxMount=True)
        mount = [{"name": "data", "mountPath": "/x"}]
        other = {"name": "other", "image": "i", "volumeMounts": mount}
        other["securityContext"] = {"seLinuxOptions": {"level": "s0:c9"}}
        main = {"name": "main", "image": "i", "volumeMounts": mount}
        await cluster.client.create(PODS, labelled("a", "s0:c1,c2", containers=[main, other]))
        await cluster.settle()
        assert await events(cluster) == [("a", "MultipleSELinuxLabels")]


async def test_claim_bound_later_causes_conflict() -> None:
    async with Cluster() as cluster:
        await cluster.client.create(CSI_DRIVERS, csi_driver(seLinuxMount=True))
        await cluster.manage(*ON, specs=SPECS)
        for name, level in (("a", "s0:c1,c2"), ("b", "s0:c3,c4")):
            await cluster.client.create(PODS, labelled(name, level))
        await cluster.settle()
        assert await events(cluster) == []
        await bind(cluster, "data", modes=("ReadWriteMany",))
        await cluster.settle()
        assert await events(cluster) == [("a", LABEL), ("b", LABEL)]
