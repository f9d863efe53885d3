"""Builders of volumes, claims and storage classes, and readers of their state."""

from collections.abc import Mapping
from typing import Any

import msgspec

from controller_manager.common.api.core import EVENTS, PODS, Pod
from controller_manager.common.api.errors import NotFound
from controller_manager.common.api.resource import Key, Resource
from controller_manager.common.api.storage import (
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    STORAGE_CLASSES,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
)
from controller_manager.testing import Cluster


def decoded(resource: Resource[Any], tree: Mapping[str, Any]) -> Any:
    """Return an object of a resource with these fields."""
    named = {"apiVersion": resource.api_version, "kind": resource.kind, **tree}
    return resource.type.decode(msgspec.json.encode(named))


def volume(name: str = "v", size: str = "1Gi", *, meta: Mapping[str, Any] | None = None, **spec: Any) -> Any:
    """Return a host path volume."""
    given = {"capacity": {"storage": size}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/tmp/v"}}
    return decoded(PERSISTENT_VOLUMES, {"metadata": {"name": name, **(meta or {})}, "spec": {**given, **spec}})


def claim(name: str = "c", size: str = "1Gi", *, meta: Mapping[str, Any] | None = None, **spec: Any) -> Any:
    """Return a claim, by default without a class."""
    given = {
        "resources": {"requests": {"storage": size}},
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "",
        **spec,
    }
    metadata = {"name": name, "namespace": "default", **(meta or {})}
    kept = {key: value for key, value in given.items() if value is not None}
    return decoded(PERSISTENT_VOLUME_CLAIMS, {"metadata": metadata, "spec": kept})


def storage_class(
    name: str = "fast", provisioner: str = "csi.example.com", *, meta: Mapping[str, Any] | None = None, **fields: Any
) -> Any:
    """Return a storage class."""
    return decoded(STORAGE_CLASSES, {"metadata": {"name": name, **(meta or {})}, "provisioner": provisioner, **fields})


def pod(name: str = "p", claim_name: str = "c", **spec: Any) -> Pod:
    """Return a pod with a claim."""
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": claim_name}}]
    given = {"containers": [{"name": "c", "image": "i"}], "volumes": volumes, "terminationGracePeriodSeconds": 0}
    found: Pod = decoded(PODS, {"metadata": {"name": name, "namespace": "default"}, "spec": {**given, **spec}})
    return found


async def add(cluster: Cluster, *objects: Any) -> None:
    """Create objects of the kinds above."""
    resources: Mapping[type, Resource[Any]] = {
        one.type: one for one in (PERSISTENT_VOLUMES, PERSISTENT_VOLUME_CLAIMS, STORAGE_CLASSES, PODS)
    }
    for one in objects:
        await cluster.client.create(resources[type(one)], one)


async def the_claim(cluster: Cluster, name: str = "c") -> PersistentVolumeClaim:
    return await cluster.client.get(PERSISTENT_VOLUME_CLAIMS, Key("default", name))


async def the_volume(cluster: Cluster, name: str = "v") -> PersistentVolume:
    return await cluster.client.get(PERSISTENT_VOLUMES, Key("", name))


async def the_class(cluster: Cluster, name: str = "fast") -> StorageClass:
    return await cluster.client.get(STORAGE_CLASSES, Key("", name))


async def is_gone(cluster: Cluster, resource: Resource[Any], name: str) -> bool:
    """Return whether an object is deleted."""
    try:
        await cluster.client.get(resource, Key("default" if resource.namespaced else "", name))
    except NotFound:
        return True
    return False


async def reasons(cluster: Cluster, name: str) -> list[str]:
    """Return the distinct event reasons of an object."""
    found = (await cluster.client.list(EVENTS)).items
    return list(dict.fromkeys(one.reason for one in found if one.involved_object.name == name))
