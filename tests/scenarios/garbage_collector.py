"""Builders of owners and dependents for scenarios of the garbage collector."""

from typing import Any

from controller_manager.common.api.core import CONFIG_MAPS, ConfigMap
from controller_manager.common.api.model import Object, ObjectMeta, OwnerReference
from controller_manager.common.api.resource import Key, Resource
from controller_manager.testing import Cluster, Replica
from controllers.garbage_collector import SPECS

HOLD = "example.org/hold"


async def manage(cluster: Cluster, *flags: str, faults: float = 0.0, strict: bool = True) -> Replica:
    return await cluster.manage("--leader-elect=false", *flags, specs=SPECS, faults=faults, strict=strict)


def owned_by(owner: Object, *, blocks: bool | None = None, kind: str = "ConfigMap", **other: Any) -> OwnerReference:
    fields = {"api_version": "v1", "kind": kind, "name": owner.metadata.name, "uid": owner.metadata.uid, **other}
    return OwnerReference(**fields, block_owner_deletion=blocks)


async def make(
    cluster: Cluster, name: str, *owners: OwnerReference, namespace: str = "default", hold: bool = False
) -> ConfigMap:
    finalizers = (HOLD,) if hold else ()
    meta = ObjectMeta(namespace=namespace, name=name, owner_references=owners, finalizers=finalizers)
    return await cluster.client.create(CONFIG_MAPS, ConfigMap(metadata=meta))


async def delete(cluster: Cluster, name: str, propagation: str = "Background") -> None:
    await cluster.client.delete(CONFIG_MAPS, Key("default", name), propagation=propagation)


async def own(cluster: Cluster, name: str, *owners: OwnerReference) -> None:
    await cluster.client.patch(CONFIG_MAPS, Key("default", name), {"metadata": {"ownerReferences": owners or None}})


async def there(cluster: Cluster, resource: Resource[Any] = CONFIG_MAPS) -> list[str]:
    items = (await cluster.client.list(resource)).items
    return sorted(obj.metadata.name for obj in items if not obj.metadata.name.startswith("kube-"))


async def get(cluster: Cluster, name: str) -> ConfigMap:
    return await cluster.client.get(CONFIG_MAPS, Key("default", name))


async def owners(cluster: Cluster, name: str) -> list[str]:
    return [reference.name for reference in (await get(cluster, name)).metadata.owner_references]


def _json(reference: OwnerReference) -> dict[str, Any]:
    return {
        "apiVersion": reference.api_version, "kind": reference.kind, "name": reference.name, "uid": reference.uid,
    }  # fmt: skip
