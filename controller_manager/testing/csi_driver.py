"""A simulated CSI driver with its sidecars: volumes are provisioned, attached, resized and deleted.

observed object                                              action, `delay` seconds later
an unbound claim with the driver as provisioner               create a volume that is bound to the claim
  (and a selected node, if its class waits for a pod)
a volume of the driver with the reclaim policy Delete         delete the storage and the volume
  that is released, or is unbound and being deleted
a bound claim that requests more than its capacity            resize the volume and the claim
an attachment of the driver                                   attach the volume
an attachment of the driver that is being deleted             detach the volume and remove the finalizer
"""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self

from msgspec.structs import replace

from apiserver_stub.watch_cache.row import Change
from controller_manager.common.api.core import ObjectReference, reference_to
from controller_manager.common.api.errors import ApiError, NotFound
from controller_manager.common.api.model import Object, ObjectMeta
from controller_manager.common.api.platform import PLATFORM_DOMAIN
from controller_manager.common.api.quantity import parse
from controller_manager.common.api.resource import Key, Resource, key_of
from controller_manager.common.api.storage import (
    BOUND,
    CSI_DRIVERS,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    RELEASED,
    STORAGE,
    STORAGE_CLASSES,
    VOLUME_ATTACHMENTS,
    CSIDriver,
    CSIDriverSpec,
    CSIPersistentVolumeSource,
    PersistentVolume,
    PersistentVolumeClaim,
    PersistentVolumeSpec,
    StorageClass,
    VolumeAttachment,
    VolumeAttachmentStatus,
    VolumeError,
    class_of,
)
from controller_manager.common.base.tasks import Tasks
from controller_manager.common.transport.transport import TransportError
from controller_manager.testing.cluster import Cluster

PROVISIONER = f"volume.{PLATFORM_DOMAIN}/storage-provisioner"
SELECTED_NODE = f"volume.{PLATFORM_DOMAIN}/selected-node"
PROVISIONED_BY = f"pv.{PLATFORM_DOMAIN}/provisioned-by"
KEPT_BY_PROVISIONER = f"external-provisioner.volume.{PLATFORM_DOMAIN}/finalizer"

_MISSED = (ApiError, TransportError)
_READ: tuple[Resource[Any], ...] = (PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, VOLUME_ATTACHMENTS)
_AGAIN = 1.0  # seconds before a failed step is retried


def _well(_: str, __: Object) -> str:
    return ""


class SimulatedDriver:
    """A CSI driver: `async with SimulatedDriver(cluster, "csi.example.com"):` runs the driver with that name.

    `storage` has the handles of its volumes. `fails(step, object)` returns the error of a step (`provision`, `delete`,
    `resize`, `attach` or `detach`); the step is retried until the error is empty.
    """

    def __init__(
        self,
        cluster: Cluster,
        name: str = "csi.example.com",
        *,
        delay: float = 1.0,
        fails: Callable[[str, Object], str] = _well,
    ) -> None:
        self.name = name
        self.delay = delay
        self.fails = fails
        self.storage: set[str] = set()
        self._cluster = cluster
        self._changed: asyncio.Queue[tuple[Resource[Any], Key]] = asyncio.Queue()
        self._busy: set[tuple[str, Key]] = set()
        self._tasks = Tasks()
        cluster.api.store.subscribe(self._note)

    async def register(self, *, attach_required: bool = True) -> None:
        """Create the CSIDriver object."""
        spec = CSIDriverSpec(attach_required=attach_required)
        await self._cluster.client.create(CSI_DRIVERS, CSIDriver(metadata=ObjectMeta(name=self.name), spec=spec))

    def _note(self, changes: Sequence[Change]) -> None:
        for change in changes:
            resource = next((one for one in _READ if one.name == change.row.resource), None)
            if resource is not None and not change.deleted:
                namespace, _, name = change.row.key.rpartition("/")
                self._changed.put_nowait((resource, Key(namespace, name)))

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        self._tasks.start(self._run(), name=f"driver {self.name}")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._tasks.__aexit__(kind, error, trace)

    async def _run(self) -> None:
        """Process each changed object; one that is being processed is checked again afterwards."""
        while True:
            resource, key = await self._changed.get()
            found = self._current(resource, key)
            if found is not None and (resource.name, key) not in self._busy and self._step(found):
                self._busy.add((resource.name, key))
                self._tasks.start(self._take(resource, key), name=f"{resource.name} {key}")

    def _current(self, resource: Resource[Any], key: Key) -> Any:
        row = self._cluster.api.store.get(resource.name, str(key))
        return resource.type.decode(row.data) if row is not None else None

    async def _take(self, resource: Resource[Any], key: Key) -> None:
        try:
            while (found := self._current(resource, key)) is not None and (step := self._step(found)):
                await asyncio.sleep(self.delay)
                with contextlib.suppress(*_MISSED):
                    if await self._do(step, found):
                        continue
                await asyncio.sleep(_AGAIN)
        finally:
            self._busy.discard((resource.name, key))

    def _step(self, found: Object) -> str:
        """Return the next step for an object; empty if there is nothing to do."""
        match found:
            case PersistentVolumeClaim():
                return self._step_of_claim(found)
            case PersistentVolume():
                return "delete" if self._may_go(found) else ""
            case VolumeAttachment() if found.spec.attacher == self.name:
                if found.metadata.deletion_timestamp is not None:
                    return "detach" if self._hold in found.metadata.finalizers else ""
                return "" if found.status.attached else "attach"
        return ""

    def _step_of_claim(self, claim: PersistentVolumeClaim) -> str:
        annotations = claim.metadata.annotations or {}
        if claim.metadata.deletion_timestamp is not None:
            return ""
        if not claim.spec.volume_name:
            made = self._current(PERSISTENT_VOLUMES, Key("", _volume_of(claim)))
            if annotations.get(PROVISIONER) != self.name or made is not None:
                return ""
            return "provision" if SELECTED_NODE in annotations or not self._waits(claim) else ""
        volume = self._current(PERSISTENT_VOLUMES, Key("", claim.spec.volume_name))
        if claim.status.phase != BOUND or volume is None or not self._is_mine(volume):
            return ""
        return "resize" if _size(claim.status.capacity) < _size(claim.spec.resources.requests) else ""

    def _waits(self, claim: PersistentVolumeClaim) -> bool:
        found = self._class(claim)
        return found is not None and found.volume_binding_mode == "WaitForFirstConsumer"

    def _class(self, claim: PersistentVolumeClaim) -> StorageClass | None:
        found: StorageClass | None = self._current(STORAGE_CLASSES, Key("", class_of(claim)))
        return found

    def _is_mine(self, volume: PersistentVolume) -> bool:
        return volume.spec.csi is not None and volume.spec.csi.driver == self.name

    def _may_go(self, volume: PersistentVolume) -> bool:
        """Return whether a volume was created by this driver and can be deleted."""
        made_here = (volume.metadata.annotations or {}).get(PROVISIONED_BY) == self.name
        going = volume.metadata.deletion_timestamp is not None and volume.status.phase != BOUND
        kept = KEPT_BY_PROVISIONER in volume.metadata.finalizers
        wanted = volume.spec.persistent_volume_reclaim_policy != "Delete"
        return made_here and not wanted and (kept if going else volume.status.phase == RELEASED)

    @property
    def _hold(self) -> str:
        return f"external-attacher/{self.name.replace('.', '-')}"

    async def _do(self, step: str, found: Any) -> bool:
        """Perform a step; return whether it succeeded."""
        problem = self.fails(step, found)
        match step:
            case "attach":
                await self._attach(found, problem)
            case "detach":
                await self._detach(found, problem)
            case _ if problem:
                pass
            case "provision":
                await self._provision(found)
            case "delete":
                await self._delete(found)
            case "resize":
                await self._resize(found)
        return not problem

    async def _provision(self, claim: PersistentVolumeClaim) -> None:
        class_ = self._class(claim)
        policy = class_.reclaim_policy if class_ is not None else "Delete"
        kept = (KEPT_BY_PROVISIONER,) if policy == "Delete" else ()
        name = _volume_of(claim)
        reference: ObjectReference = reference_to(claim)
        volume = PersistentVolume(
            metadata=ObjectMeta(name=name, annotations={PROVISIONED_BY: self.name}, finalizers=kept),
            spec=PersistentVolumeSpec(
                capacity={STORAGE: (claim.spec.resources.requests or {}).get(STORAGE, "1Gi")},
                access_modes=claim.spec.access_modes,
                claim_ref=replace(reference, api_version="v1", kind=PERSISTENT_VOLUME_CLAIMS.kind),
                persistent_volume_reclaim_policy=policy,
                storage_class_name=class_of(claim),
                volume_mode=claim.spec.volume_mode,
                volume_attributes_class_name=claim.spec.volume_attributes_class_name,
                csi=CSIPersistentVolumeSource(driver=self.name, volume_handle=name),
            ),
        )
        self.storage.add(name)
        await self._cluster.client.create(PERSISTENT_VOLUMES, volume)

    async def _delete(self, volume: PersistentVolume) -> None:
        client, meta = self._cluster.client, volume.metadata
        self.storage.discard(meta.name)
        if meta.deletion_timestamp is None:
            await client.delete(PERSISTENT_VOLUMES, key_of(volume), uid=meta.uid)
        with contextlib.suppress(NotFound):
            now = await client.get(PERSISTENT_VOLUMES, key_of(volume))
            left = tuple(one for one in now.metadata.finalizers if one != KEPT_BY_PROVISIONER)
            await client.update(PERSISTENT_VOLUMES, replace(now, metadata=replace(now.metadata, finalizers=left)))

    async def _resize(self, claim: PersistentVolumeClaim) -> None:
        client, size = self._cluster.client, (claim.spec.resources.requests or {})[STORAGE]
        change = {"spec": {"capacity": {STORAGE: size}}}
        await client.patch(PERSISTENT_VOLUMES, Key("", claim.spec.volume_name), change)
        done = {"status": {"capacity": {STORAGE: size}, "conditions": None}}
        await client.patch(PERSISTENT_VOLUME_CLAIMS, key_of(claim), done, subresource="status")

    async def _attach(self, found: VolumeAttachment, problem: str) -> None:
        client, meta = self._cluster.client, found.metadata
        if self._hold not in meta.finalizers:
            meta = replace(meta, finalizers=(*meta.finalizers, self._hold))
            found = await client.update(VOLUME_ATTACHMENTS, replace(found, metadata=meta))
        error = VolumeError(message=problem) if problem else None
        status = VolumeAttachmentStatus(attached=not problem, attach_error=error)
        await client.update(VOLUME_ATTACHMENTS, replace(found, status=status), subresource="status")

    async def _detach(self, found: VolumeAttachment, problem: str) -> None:
        client, meta = self._cluster.client, found.metadata
        error = VolumeError(message=problem) if problem else None
        status = replace(found.status, attached=bool(problem), detach_error=error)
        found = await client.update(VOLUME_ATTACHMENTS, replace(found, status=status), subresource="status")
        if not problem:
            left = tuple(one for one in meta.finalizers if one != self._hold)
            await client.update(VOLUME_ATTACHMENTS, replace(found, metadata=replace(found.metadata, finalizers=left)))


def _volume_of(claim: PersistentVolumeClaim) -> str:
    return f"pvc-{claim.metadata.uid}"


def _size(amounts: Any) -> Any:
    return parse((amounts or {}).get(STORAGE, "0")).number
