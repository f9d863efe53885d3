"""Reclaims released volumes according to their policy: Retain, Recycle or Delete."""

import asyncio
from contextlib import suppress

from msgspec.structs import replace

from controller_manager.common.api.core import PODS, is_pod_terminal
from controller_manager.common.api.errors import AlreadyExists, NotFound
from controller_manager.common.api.resource import Key, key_of
from controller_manager.common.api.storage import (
    FAILED,
    PERSISTENT_VOLUMES,
    RELEASED,
    STORAGE_CLASSES,
    PersistentVolume,
    class_of,
)
from controller_manager.common.base import clock
from controller_manager.framework import Context

from ..shared.claims import pods_with_claim
from ..shared.volume_plugins import HOST_PATH, MIGRATED, NFS, plugin_of
from . import host_path
from .changes import KEPT_BY_CONTROLLER, in_phase
from .decide import Reclaim, decide_reclaim, is_reclaimable
from .metrics import BinderMetrics
from .options import BinderOptions, recycling_of_host, recycling_of_nfs
from .recycler import Progress, Recycling, namespace_of, pod_name, progress_of, recycler_pod
from .writes import Objects

_NOT_RECYCLED, _NOT_DELETED = "VolumeFailedRecycle", "VolumeFailedDelete"


class Reclaimer:
    """Applies the reclaim policy of a released volume. It is called until that is done."""

    def __init__(self, context: Context, options: BinderOptions, objects: Objects, metrics: BinderMetrics) -> None:
        self._client = context.client
        self._events = context.events
        self._informers = context.informers
        self._pods = context.informers.get(PODS)
        self._classes = context.informers.get(STORAGE_CLASSES)
        self._objects = objects
        self._metrics = metrics
        self._recycling = {HOST_PATH: recycling_of_host(options), NFS: recycling_of_nfs(options)}
        # The uids of our recycler pods, by volume name.
        self._made: dict[str, str] = {}

    async def reclaim(self, volume: PersistentVolume) -> None:
        """Take the next step for a volume whose claim is gone or has another volume."""
        if volume.status.phase not in (RELEASED, FAILED):
            volume = await self._objects.write_phase(volume, RELEASED)
        plugin = plugin_of(volume.spec)
        match decide_reclaim(volume, plugin):
            case Reclaim.RECYCLE:
                await self._recycle(volume, plugin)
            case Reclaim.DELETE:
                self._metrics.begin(key_of(volume), HOST_PATH, "delete")
                await self._delete(volume)
            case Reclaim.UNDELETABLE:
                self._metrics.begin(key_of(volume), "N/A", "delete")
                await self._fail(volume, _NOT_DELETED, "No plugin of this process deletes volumes of this kind")
            case Reclaim.UNKNOWN:
                await self._fail(volume, "VolumeUnknownReclaimPolicy", "The reclaim policy of the volume is not known")
            case Reclaim.KEEP if volume.spec.persistent_volume_reclaim_policy == "Delete":
                self._metrics.begin(key_of(volume), self._deleter(volume), "delete")

    def gone(self, key: Key) -> None:
        """Drop the state of a deleted volume."""
        self._made.pop(key.name, None)
        self._metrics.end(key)

    def _deleter(self, volume: PersistentVolume) -> str:
        """Return the provisioner that deletes a volume, as metric label."""
        found = self._classes.get(Key("", class_of(volume)))
        return MIGRATED.get(found.provisioner, found.provisioner) if found is not None else "N/A"

    async def _fail(self, volume: PersistentVolume, reason: str, note: str) -> None:
        """Mark a volume as failed and record one event."""
        failed = in_phase(volume, FAILED, note)
        if failed is not volume:
            self._events.warning(await self._objects.write_volume_status(volume, failed), reason, note)

    async def _is_reclaimable(self, volume: PersistentVolume) -> bool:
        """Return whether the server confirms that a volume is released, since the cache may lag."""
        try:
            fresh = await self._client.get(PERSISTENT_VOLUMES, key_of(volume))
        except NotFound:
            return False
        same = fresh.metadata.uid == volume.metadata.uid
        return same and is_reclaimable(fresh, await self._objects.fresh_claim_of(fresh))

    async def _delete(self, volume: PersistentVolume) -> None:
        if volume.metadata.deletion_timestamp is not None and KEPT_BY_CONTROLLER not in volume.metadata.finalizers:
            return
        if not await self._is_reclaimable(volume):
            return
        began, path = clock.monotonic(), host_path.path_of(volume)
        try:
            await asyncio.to_thread(host_path.delete, path)
        except host_path.HostPathError as error:
            self._metrics.operated("volume_delete", began, failed=True)
            self._metrics.fail(key_of(volume))
            await self._fail(volume, _NOT_DELETED, str(error))
            return
        self._metrics.operated("volume_delete", began, failed=False)
        left = tuple(one for one in volume.metadata.finalizers if one != KEPT_BY_CONTROLLER)
        await self._objects.write_volume(volume, replace(volume, metadata=replace(volume.metadata, finalizers=left)))
        if volume.metadata.deletion_timestamp is None:
            await self._client.delete(PERSISTENT_VOLUMES, key_of(volume), uid=volume.metadata.uid)

    async def _recycle(self, volume: PersistentVolume, plugin: str) -> None:
        recycling = self._recycling.get(plugin)
        if recycling is None:
            await self._fail(volume, _NOT_RECYCLED, "No plugin of this process empties volumes of this kind")
            return
        name = volume.metadata.name
        pod = self._pods.get(Key(namespace_of(recycling), pod_name(name)))
        match progress_of(pod, self._made.get(name, "")):
            case Progress.NONE if name in self._made:
                del self._made[name]
                await self._fail(volume, _NOT_RECYCLED, "The pod that was to empty the volume was deleted")
            case Progress.NONE:
                await self._start(volume, plugin, recycling)
            case Progress.FOREIGN:
                await self._stop(volume, recycling)
            case Progress.DONE:
                await self._stop(volume, recycling)
                self._events.normal(volume, "VolumeRecycled", "The volume was emptied")
                await self._objects.unbind(volume)
            case Progress.FAILED:
                await self._stop(volume, recycling)
                message = pod.status.message if pod is not None else ""
                await self._fail(volume, _NOT_RECYCLED, f"The recycler pod failed: {message or '-'}")

    async def _start(self, volume: PersistentVolume, plugin: str, recycling: Recycling) -> None:
        """Create the recycler pod of a volume, unless pods still use it."""
        users = self._users(volume)
        if users:
            self._events.normal(volume, _NOT_RECYCLED, f"Pods still have the volume: {', '.join(users)}")
            return
        if not await self._is_reclaimable(volume):
            return
        try:
            made = await self._client.create(PODS, recycler_pod(recycling, volume, plugin))
        except AlreadyExists:
            await self._stop(volume, recycling)
        else:
            self._made[volume.metadata.name] = made.metadata.uid

    async def _stop(self, volume: PersistentVolume, recycling: Recycling) -> None:
        """Delete the recycler pod of a volume, even of another manager. Its deletion enqueues the volume."""
        with suppress(NotFound):
            await self._client.delete(PODS, Key(namespace_of(recycling), pod_name(volume.metadata.name)))
        self._made.pop(volume.metadata.name, None)

    def _users(self, volume: PersistentVolume) -> list[str]:
        """Return the pods that still use the deleted claim of a volume."""
        reference = volume.spec.claim_ref
        if reference is None or self._objects.claim(Key(reference.namespace, reference.name)) is not None:
            return []
        pods = pods_with_claim(self._informers, Key(reference.namespace, reference.name))
        return sorted(str(key_of(pod)) for pod in pods if not is_pod_terminal(pod))
