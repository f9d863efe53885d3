"""Builders of volumes, claims and pods with volumes, and readers of their state."""

from typing import Any

import msgspec
from msgspec.structs import replace

from controller_manager.common.api.core import NODES, PODS, Node, Pod
from controller_manager.common.api.resource import Key, Resource
from controller_manager.common.api.storage import (
    CSI_DRIVERS,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    VOLUME_ATTACHMENTS,
    VOLUME_ATTRIBUTES_CLASSES,
    CSIDriver,
    PersistentVolume,
    PersistentVolumeClaim,
    VolumeAttachment,
    VolumeAttributesClass,
)
from controller_manager.common.api.wire import Request
from controller_manager.testing import Cluster
from controller_manager.testing.replica import Replica

Tree = dict[str, Any]
DRIVER = "disks.example.org"
UNPROTECTED = "--disable-admission-plugins=StorageObjectInUseProtection"
"""Server flag for claims and volumes without finalizers, because no controller runs that removes them."""
CLAIM = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}


def encoded(kind: Resource[Any], name: str, parts: Tree, **metadata: Any) -> bytes:
    meta = {"name": name, **({"namespace": "default"} if kind.namespaced else {}), **metadata}
    return msgspec.json.encode({"apiVersion": kind.api_version, "kind": kind.kind, "metadata": meta, **parts})


def claim(name: str, volume: str = "", **spec: Any) -> PersistentVolumeClaim:
    given = {**CLAIM, **({"volumeName": volume} if volume else {}), **spec}
    return PersistentVolumeClaim.decode(encoded(PERSISTENT_VOLUME_CLAIMS, name, {"spec": given}))


def volume(
    name: str, *, source: Tree | None = None, modes: tuple[str, ...] = ("ReadWriteOnce",), **spec: Any
) -> PersistentVolume:
    """Return a CSI volume whose handle is its name, unless another source is given."""
    source = source or {"csi": {"driver": DRIVER, "volumeHandle": name}}
    given = {"capacity": {"storage": "1Gi"}, "accessModes": list(modes), **source, **spec}
    return PersistentVolume.decode(encoded(PERSISTENT_VOLUMES, name, {"spec": given}))


def csi_driver(name: str = DRIVER, **spec: Any) -> CSIDriver:
    return CSIDriver.decode(encoded(CSI_DRIVERS, name, {"spec": spec}))


def attributes_class(name: str, **metadata: Any) -> VolumeAttributesClass:
    parts = {"driverName": DRIVER, "parameters": {"iops": "100"}}
    return VolumeAttributesClass.decode(encoded(VOLUME_ATTRIBUTES_CLASSES, name, parts, **metadata))


def pod(name: str, *volumes: Tree, node: str = "", namespace: str = "default", **spec: Any) -> Pod:
    """Return a pod whose container mounts all its volumes."""
    mounts = [{"name": one["name"], "mountPath": f"/{one['name']}"} for one in volumes]
    container = {"name": "main", "image": "i", "volumeMounts": mounts}
    given = {"containers": [container], "volumes": list(volumes), "terminationGracePeriodSeconds": 0, **spec}
    if node:
        given["nodeName"] = node
    return Pod.decode(encoded(PODS, name, {"spec": given}, namespace=namespace))


def of_claim(name: str) -> Tree:
    """Return the pod volume of a claim with the same name."""
    return {"name": name, "persistentVolumeClaim": {"claimName": name}}


def ephemeral(name: str, **metadata: Any) -> Tree:
    return {"name": name, "ephemeral": {"volumeClaimTemplate": {"metadata": metadata, "spec": CLAIM}}}


async def bind(cluster: Cluster, name: str, namespace: str = "default", **spec: Any) -> PersistentVolume:
    """Create a volume and a claim with that name, bound to each other."""
    client, key = cluster.client, Key(namespace, name)
    claimed = claim(name, name, accessModes=list(spec.get("modes", ("ReadWriteOnce",))))
    moved = replace(claimed, metadata=replace(claimed.metadata, namespace=namespace))
    made = await client.create(PERSISTENT_VOLUME_CLAIMS, moved)
    reference = {"namespace": namespace, "name": name, "uid": made.metadata.uid}
    found = await client.create(PERSISTENT_VOLUMES, volume(name, claimRef=reference, **spec))
    await client.patch(PERSISTENT_VOLUME_CLAIMS, key, {"status": {"phase": "Bound"}}, subresource="status")
    return found


METRICS = "--authorization-always-allow-paths=/metrics"


async def samples(replica: Replica, prefix: str) -> dict[str, float]:
    """Return the metric samples with this prefix of a manager started with `METRICS`."""
    page = await replica.manager.pages.handle(Request("GET", "/metrics"))
    lines = [line.rpartition(" ") for line in page.body.decode().splitlines() if line.startswith(prefix)]
    return {name: float(value) for name, _, value in lines}


MANAGED = "volumes.kubernetes.io/controller-managed-attach-detach"


async def add_node(cluster: Cluster, name: str, *, managed: bool = True, ready: bool = True) -> None:
    """Create a node whose volumes the controller attaches."""
    annotations = {MANAGED: "true"} if managed else {}
    await cluster.client.create(NODES, Node.decode(encoded(NODES, name, {}, annotations=annotations)))
    await set_ready(cluster, name, ready=ready)


async def set_ready(cluster: Cluster, name: str, *, ready: bool) -> None:
    condition = {"type": "Ready", "status": str(ready)}
    change = {"status": {"conditions": [condition]}}
    await cluster.client.patch(NODES, Key("", name), change, subresource="status")


async def use(cluster: Cluster, node: str, *volumes: str) -> None:
    """Set the volumes in use of a node to exactly these of the driver."""
    change = {"status": {"volumesInUse": [unique(one) for one in volumes] or None}}
    await cluster.client.patch(NODES, Key("", node), change, subresource="status")


def unique(handle: str, driver: str = DRIVER) -> str:
    return f"kubernetes.io/csi/{driver}^{handle}"


async def listed(cluster: Cluster, node: str) -> set[str]:
    """Return the volumes that a node lists as attached."""
    status = (await cluster.client.get(NODES, Key("", node))).status
    return {one.name for one in status.volumes_attached}


async def attachments(cluster: Cluster) -> dict[tuple[str, str], VolumeAttachment]:
    """Return the VolumeAttachments by volume and node."""
    found = (await cluster.client.list(VOLUME_ATTACHMENTS)).items
    return {(one.spec.source.persistent_volume_name or "", one.spec.node_name): one for one in found}
