"""Provisions volumes for claims: requests them from CSI drivers, or creates host directories."""

import asyncio

from controller_manager.common.api.core import NODES
from controller_manager.common.api.errors import AlreadyExists, ApiError
from controller_manager.common.api.model import ObjectMeta
from controller_manager.common.api.platform import PLATFORM_DOMAIN
from controller_manager.common.api.resource import Key, key_of
from controller_manager.common.api.storage import (
    BLOCK,
    STORAGE,
    PersistentVolume,
    PersistentVolumeClaim,
    PersistentVolumeSpec,
    class_of,
)
from controller_manager.common.base import clock
from controller_manager.framework import Context

from ..shared.volume_plugins import MIGRATED
from . import host_path
from .changes import KEPT_BY_CONTROLLER, annotated, claim_reference, with_annotations, with_provisioner
from .decide import BOUND_BY_CONTROLLER, PROVISIONED_BY, SELECTED_NODE, Provision
from .metrics import BinderMetrics
from .options import BinderOptions
from .writes import Objects

_FAILED = "ProvisioningFailed"
_MADE_BY = f"{PLATFORM_DOMAIN}/createdby"


class Impossible(Exception):
    """A volume cannot be provisioned as requested; the message says why."""


class Provisioner:
    """Provisions volumes. Errors become events and are retried at the next periodic sync."""

    def __init__(self, context: Context, options: BinderOptions, objects: Objects, metrics: BinderMetrics) -> None:
        self._events = context.events
        self._nodes = context.informers.get(NODES)
        self._objects = objects
        self._metrics = metrics
        self._enabled = options.enable_hostpath_provisioner

    async def provision(self, claim: PersistentVolumeClaim, step: Provision) -> None:
        """Provision a volume for a claim."""
        maker = step.plugin or MIGRATED.get(step.storage_class.provisioner, step.storage_class.provisioner)
        self._metrics.begin(key_of(claim), maker, "provision")
        if not step.plugin:
            await self._ask(claim, maker)
            return
        try:
            await self._make(claim, step)
        except (Impossible, host_path.HostPathError) as error:
            self._metrics.fail(key_of(claim))
            self._events.warning(claim, _FAILED, str(error))

    async def _ask(self, claim: PersistentVolumeClaim, driver: str) -> None:
        try:
            claim = await self._objects.write_claim(claim, with_provisioner(claim, driver))
        except ApiError:
            self._metrics.fail(key_of(claim))
            raise
        note = f"The external provisioner {driver}, or an administrator, has to make a volume; if that takes long, see"
        self._events.normal(claim, "ExternalProvisioning", f"{note} whether the provisioner runs and is registered")

    async def _make(self, claim: PersistentVolumeClaim, step: Provision) -> None:
        """Create a host directory and its volume, unless the volume exists. Raises Impossible, HostPathError."""
        if bytes(claim.spec.data_source):
            raise Impossible(f"{step.plugin} makes no volumes from a data source: only drivers do")
        claim = await self._objects.write_claim(claim, with_provisioner(claim, step.storage_class.provisioner))
        name = f"pvc-{claim.metadata.uid}"
        if self._objects.volumes.get(name) is not None or await self._objects.fresh_volume(name) is not None:
            return
        self._examine(claim, step)
        if claim.spec.volume_mode == BLOCK:
            await self._reschedule(claim)
            raise Impossible(f"{step.plugin} makes no volumes of the mode {BLOCK}")
        path = host_path.new_path()
        await self._make_folder(path)
        await self._make_volume(path, host_path_volume(claim, step, path))
        self._events.normal(claim, "ProvisioningSucceeded", f"{step.plugin} made the volume {name}")

    def _examine(self, claim: PersistentVolumeClaim, step: Provision) -> None:
        """Raise Impossible if no volume can be provisioned for that class or on that node."""
        if step.storage_class.mount_options:
            raise Impossible(f"{step.plugin} knows no mount options, and the class {class_of(claim)} has some")
        if not self._enabled:
            raise Impossible(f"{step.plugin} makes no volumes unless --enable-hostpath-provisioner is given")
        node = annotated(claim).get(SELECTED_NODE)
        if node is not None and self._nodes.get(Key("", node)) is None:
            raise Impossible(f"the node {node} is not there, which was chosen for the volume")

    async def _reschedule(self, claim: PersistentVolumeClaim) -> None:
        """Request another node from the scheduler."""
        annotations = annotated(claim)
        annotations.pop(SELECTED_NODE, None)
        await self._objects.write_claim(claim, with_annotations(claim, annotations))

    async def _make_folder(self, path: str) -> None:
        began = clock.monotonic()
        try:
            await asyncio.to_thread(host_path.make, path)
        except host_path.HostPathError:
            self._metrics.operated("volume_provision", began, failed=True)
            raise
        self._metrics.operated("volume_provision", began, failed=False)

    async def _make_volume(self, path: str, volume: PersistentVolume) -> None:
        """Create a volume. If it exists already, delete the unused directory."""
        try:
            await self._objects.create_volume(volume)
        except AlreadyExists:
            await asyncio.to_thread(host_path.delete, path)
        except ApiError as error:
            await asyncio.to_thread(host_path.delete, path)
            raise Impossible(f"the volume could not be written: {error}") from None


def host_path_volume(claim: PersistentVolumeClaim, step: Provision, path: str) -> PersistentVolume:
    """Return the volume of a directory that was created for a claim."""
    deletes = step.storage_class.reclaim_policy == "Delete"
    annotations = {
        _MADE_BY: "hostpath-dynamic-provisioner",
        BOUND_BY_CONTROLLER: "yes",
        PROVISIONED_BY: step.plugin,
    }
    return PersistentVolume(
        metadata=ObjectMeta(
            name=f"pvc-{claim.metadata.uid}",
            annotations=annotations,
            finalizers=(KEPT_BY_CONTROLLER,) if deletes else (),
        ),
        spec=PersistentVolumeSpec(
            persistent_volume_reclaim_policy=step.storage_class.reclaim_policy,
            access_modes=claim.spec.access_modes or ("ReadWriteOnce",),
            capacity={STORAGE: (claim.spec.resources.requests or {}).get(STORAGE, "0")},
            claim_ref=claim_reference(claim),
            storage_class_name=class_of(claim),
            host_path=host_path.source_of(path),
        ),
    )
