"""Protection of volume attributes classes in a whole cluster, in virtual time."""

from typing import Any

import pytest

from controller_manager.common.api.errors import NotFound
from controller_manager.common.api.resource import Key
from controller_manager.common.api.storage import (
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    VOLUME_ATTRIBUTES_CLASSES,
)
from controller_manager.testing import Cluster
from controllers.volume_attributes_class_protection import FINALIZER, SPECS
from tests.scenarios.volumes import UNPROTECTED, attributes_class, claim, volume

pytestmark = pytest.mark.virtual
ON = ("--leader-elect=false",)
GOLD, BOUND = Key("", "gold"), Key("default", "c")


async def make_class(cluster: Cluster, **metadata: Any) -> None:
    await cluster.client.create(VOLUME_ATTRIBUTES_CLASSES, attributes_class("gold", **metadata))
    await cluster.settle()


async def finalizers(cluster: Cluster) -> tuple[str, ...] | None:
    """Return the finalizers of the class, or None if it is deleted."""
    try:
        return (await cluster.client.get(VOLUME_ATTRIBUTES_CLASSES, GOLD)).metadata.finalizers
    except NotFound:
        return None


async def test_unused_class_is_deleted() -> None:
    async with Cluster((UNPROTECTED,)) as cluster:
        await cluster.manage(*ON, specs=SPECS)
        await make_class(cluster, finalizers=["example.org/mine"])
        assert await finalizers(cluster) == ("example.org/mine", FINALIZER)
        await cluster.client.delete(VOLUME_ATTRIBUTES_CLASSES, GOLD)
        await cluster.settle()
        assert await finalizers(cluster) == ("example.org/mine",)


async def test_class_stays_while_claim_requests_it() -> None:
    async with Cluster((UNPROTECTED,)) as cluster:
        await cluster.manage(*ON, specs=SPECS)
        await make_class(cluster)
        await cluster.client.create(PERSISTENT_VOLUME_CLAIMS, claim("c", volumeAttributesClassName="gold"))
        await cluster.client.delete(VOLUME_ATTRIBUTES_CLASSES, GOLD)
        await cluster.settle()
        assert await finalizers(cluster) == (FINALIZER,)
        await cluster.client.delete(PERSISTENT_VOLUME_CLAIMS, BOUND)
        await cluster.settle()
        assert await finalizers(cluster) is None


@pytest.mark.parametrize(
    "status",
    [
        {"currentVolumeAttributesClassName": "gold"},
        {"modifyVolumeStatus": {"targetVolumeAttributesClassName": "gold", "status": "InProgress"}},
    ],
)
async def test_class_stays_while_claim_has_or_awaits_it(status: dict[str, Any]) -> None:
    async with Cluster((UNPROTECTED,)) as cluster:
        await cluster.manage(*ON, specs=SPECS)
        await make_class(cluster)
        await cluster.client.create(PERSISTENT_VOLUME_CLAIMS, claim("c", volumeAttributesClassName="silver"))
        await cluster.client.patch(PERSISTENT_VOLUME_CLAIMS, BOUND, {"status": status}, subresource="status")
        await cluster.client.delete(VOLUME_ATTRIBUTES_CLASSES, GOLD)
        await cluster.settle()
        assert await finalizers(cluster) == (FINALIZER,)
        over: dict[str, Any] = dict.fromkeys(status)
        await cluster.client.patch(PERSISTENT_VOLUME_CLAIMS, BOUND, {"status": over}, subresource="status")
        await cluster.settle()
        assert await finalizers(cluster) is None


async def test_class_stays_while_volume_uses_it() -> None:
    async with Cluster((UNPROTECTED,)) as cluster:
        await cluster.manage(*ON, specs=SPECS)
        await make_class(cluster)
        await cluster.client.create(PERSISTENT_VOLUMES, volume("v", volumeAttributesClassName="gold"))
        await cluster.client.delete(VOLUME_ATTRIBUTES_CLASSES, GOLD)
        await cluster.settle()
        assert await finalizers(cluster) == (FINALIZER,)
        change = {"spec": {"volumeAttributesClassName": "silver"}}
        await cluster.client.patch(PERSISTENT_VOLUMES, Key("", "v"), change)
        await cluster.settle()
        assert await finalizers(cluster) is None


async def test_controller_does_not_run_without_feature() -> None:
    async with Cluster((UNPROTECTED,)) as cluster:
        replica = await cluster.manage(*ON, "--emulated-version=1.33", specs=SPECS)
        await make_class(cluster)
        assert await finalizers(cluster) == ()
        assert replica.manager.state().controllers == ()
