"""Builders of pods with device claims, and a fake scheduler that allocates devices."""

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from typing import Any, Self

import msgspec

from apiserver_stub.watch_cache.row import Change
from controller_manager.common.api.core import EVENTS, PODS, Pod
from controller_manager.common.api.devices import (
    DELETE_PROTECTION,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    ResourceClaim,
    ResourceClaimTemplate,
)
from controller_manager.common.api.errors import ApiError, NotFound
from controller_manager.common.api.resource import Key, Resource, key_of
from controller_manager.common.base.tasks import Tasks
from controller_manager.framework import TransportError
from controller_manager.framework.client.rest_client import Call
from controller_manager.testing import Cluster
from controllers.shared.device_claims import is_over, known_claims

Tree = dict[str, Any]
LOOK = 0.3  # seconds between two rounds of the scheduler
REQUEST: Tree = {
    "name": "gpu",
    "exactly": {"deviceClassName": "gpu.example.org", "capacity": {"requests": {"m": "1Gi"}}},
}


def tree(resource: Resource[Any], name: str, **parts: Any) -> bytes:
    meta = {"name": name, **({"namespace": "default"} if resource.namespaced else {}), **parts.pop("metadata", {})}
    kind = {"apiVersion": resource.api_version, "kind": resource.kind}
    return msgspec.json.encode({**kind, "metadata": meta, **parts})


def template(name: str = "gpus", request: Tree = REQUEST, **metadata: Any) -> ResourceClaimTemplate:
    spec = {"metadata": metadata, "spec": {"devices": {"requests": [request]}}}
    return ResourceClaimTemplate.decode(tree(RESOURCE_CLAIM_TEMPLATES, name, spec=spec))


def claim(name: str = "shared", **metadata: Any) -> ResourceClaim:
    return ResourceClaim.decode(
        tree(RESOURCE_CLAIMS, name, metadata=metadata, spec={"devices": {"requests": [REQUEST]}})
    )


def pod(name: str = "p", node: str = "", resources: Mapping[str, Any] | None = None, **entries: str) -> Pod:
    """Return a pod with these claim entries; `template/<name>` refers to a template, any other value to a claim."""
    listed = [
        {"name": entry, "resourceClaimTemplateName": of.removeprefix("template/")}
        if of.startswith("template/")
        else {"name": entry, "resourceClaimName": of}
        for entry, of in entries.items()
    ]
    container = {
        "name": "main",
        "image": "example.org/app",
        "resources": {"claims": [{"name": one} for one in entries], **(resources or {})},
    }
    bound = {"nodeName": node} if node else {}
    return Pod.decode(tree(PODS, name, spec={"containers": [container], "resourceClaims": listed, **bound}))


async def end(cluster: Cluster, name: str = "p", phase: str = "Succeeded") -> None:
    await cluster.client.patch(PODS, Key("default", name), {"status": {"phase": phase}}, subresource="status")


async def claims(cluster: Cluster) -> list[ResourceClaim]:
    return (await cluster.client.list(RESOURCE_CLAIMS, "default")).items


async def claim_of(cluster: Cluster, name: str = "shared") -> ResourceClaim | None:
    with contextlib.suppress(NotFound):
        return await cluster.client.get(RESOURCE_CLAIMS, Key("default", name))
    return None


async def events(cluster: Cluster) -> list[str]:
    """Return reason and message of each event, in write order."""
    listed = (await cluster.client.list(EVENTS, "default")).items
    found = sorted(listed, key=lambda event: int(event.metadata.resource_version))
    return [f"{event.type} {event.reason}: {event.message}" for event in found]


async def allocate(
    cluster: Cluster, claim: ResourceClaim, *pods: Pod, device: str = "gpu-0", tolerations: Sequence[Tree] = ()
) -> None:
    """Protect and allocate a claim and reserve it for pods, as a scheduler does."""
    key = Key("default", claim.metadata.name)
    if claim.status.allocation is None:
        await cluster.client.patch(RESOURCE_CLAIMS, key, {"metadata": {"finalizers": [DELETE_PROTECTION]}})
    result = {"request": "gpu", "driver": "gpu.example.org", "pool": "node-1", "device": device}
    if tolerations:
        result["tolerations"] = list(tolerations)
    consumers = [{"resource": "pods", "name": one.metadata.name, "uid": one.metadata.uid} for one in pods]
    there = [msgspec.to_builtins(one) for one in claim.status.reserved_for]
    status = {"allocation": {"devices": {"results": [result]}}, "reservedFor": [*there, *consumers]}
    if claim.status.allocation is not None:
        del status["allocation"]
    await cluster.client.patch(RESOURCE_CLAIMS, key, {"status": status}, subresource="status")


async def bind(cluster: Cluster, pod: Pod, node: str = "node-1") -> None:
    name = pod.metadata.name
    target = {"metadata": {"name": name}, "target": {"apiVersion": "v1", "kind": "Node", "name": node}}
    path = PODS.path("default", name, "binding")
    await cluster.client.raw(Call("POST", path, body=msgspec.json.encode(target)))


class DeviceScheduler:
    """Runs a fake scheduler and node for pods with claims, as an async context manager.

    In each period it allocates and reserves the claims of pods whose claims all exist, binds these pods and marks them
    running; it removes terminating pods. With `collects` it deletes claims of deleted pods, as the garbage collector
    does.
    """

    def __init__(self, cluster: Cluster, *, collects: bool = False) -> None:
        self._cluster = cluster
        self._collects = collects
        self._tasks = Tasks()

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        self._tasks.start(self._run(), name="device scheduler")
        return self

    async def __aexit__(self, *error: Any) -> None:
        self._tasks.cancel()
        await self._tasks.__aexit__(None, None, None)

    async def _run(self) -> None:
        store, seen = self._cluster.api.store, -1
        while True:
            if store.revision != seen:
                seen = store.revision
                await self._look()
            await asyncio.sleep(LOOK)

    async def _look(self) -> None:
        made = await claims(self._cluster) if self._collects else []
        pods = (await self._cluster.client.list(PODS, "default")).items
        for pod in pods:
            with contextlib.suppress(ApiError, TransportError):
                await self._look_at(pod)
        there = {pod.metadata.uid for pod in pods}
        for one in made:
            if one.metadata.deletion_timestamp is None and any(
                owner.uid not in there for owner in one.metadata.owner_references
            ):
                with contextlib.suppress(ApiError, TransportError):
                    await self._cluster.client.delete(RESOURCE_CLAIMS, key_of(one), uid=one.metadata.uid)

    async def _look_at(self, pod: Pod) -> None:
        client, key = self._cluster.client, Key("default", pod.metadata.name)
        if pod.metadata.deletion_timestamp is not None:
            await client.delete(PODS, key, grace=0)
        elif not pod.spec.node_name and not is_over(pod):
            known = list(known_claims(pod))
            if len(known) < len(pod.spec.resource_claims):
                return
            for _, name in known:
                found = await client.get(RESOURCE_CLAIMS, Key("default", name))
                if found.metadata.deletion_timestamp is not None:
                    return
                if all(one.uid != pod.metadata.uid for one in found.status.reserved_for):
                    await allocate(self._cluster, found, pod)
            await bind(self._cluster, pod)
            await client.patch(PODS, key, {"status": {"phase": "Running"}}, subresource="status")


class Reservations:
    """Records each claim that lost its allocation while it was reserved for a pod that may still run."""

    def __init__(self, cluster: Cluster) -> None:
        self.violations: list[str] = []
        self._living: dict[str, str] = {}
        self._reserved: dict[str, dict[str, str]] = {}
        self._made: dict[str, tuple[str, str]] = {}
        cluster.api.store.subscribe(self._watch)

    def _watch(self, changes: Sequence[Change]) -> None:
        for change in changes:
            gone = change.deleted
            if change.row.resource == "pods":
                self._note_pod(Pod.decode(change.row.data), gone=gone)
            elif change.row.resource == RESOURCE_CLAIMS.name:
                self._note_claim(ResourceClaim.decode(change.row.data), gone=gone)

    def _note_pod(self, pod: Pod, *, gone: bool) -> None:
        if gone or is_over(pod):
            self._living.pop(pod.metadata.uid, None)
        else:
            self._living[pod.metadata.uid] = pod.metadata.name

    def _note_claim(self, claim: ResourceClaim, *, gone: bool) -> None:
        name = claim.metadata.name
        now = {} if gone else {one.uid: one.name for one in claim.status.reserved_for}
        for uid, consumer in self._reserved.get(name, {}).items():
            if uid not in now and self._living.get(uid):
                self.violations.append(f"{name} lost the reservation for {consumer}, which is running")
        self._reserved[name] = now
        entry = (claim.metadata.annotations or {}).get("resource.kubernetes.io/pod-claim-name")
        owners = claim.metadata.owner_references
        self._made.pop(name, None)
        if entry and owners and not gone and claim.metadata.deletion_timestamp is None:
            made = (owners[0].uid, entry)
            if made in self._made.values():
                self.violations.append(f"{name} is a second claim for {entry} of {owners[0].name}")
            self._made[name] = made
