"""Verifies that volumes are still attached, since a driver or a user may detach them without notice."""

from controller_manager.common.api.errors import NotFound
from controller_manager.common.api.storage import VOLUME_ATTACHMENTS, VolumeAttachment
from controller_manager.common.base.clock import monotonic
from controller_manager.framework import Context, Key, in_parallel

from ..shared.volume_specs import CSI, VolumeSpecs
from .attachments import attachment_name
from .flex_call import DriverError
from .flex_drivers import FlexDrivers
from .metrics import AttachDetachMetrics
from .operations import Operations
from .state import ActualState, AttachableVolume, Attachment


class Verifier:
    """Asks the server and FlexVolume drivers about each confirmed attachment."""

    def __init__(
        self,
        context: Context,
        actual: ActualState,
        operations: Operations,
        specs: VolumeSpecs,
        flex: FlexDrivers,
        metrics: AttachDetachMetrics,
    ) -> None:
        self._client = context.client
        self._log = context.log
        self._attachments = context.informers.get(VOLUME_ATTACHMENTS)
        self._actual = actual
        self._operations = operations
        self._specs = specs
        self._flex = flex
        self._metrics = metrics

    async def verify_node(self, node: str) -> None:
        """Verify the attachments of a node."""
        began, failed = monotonic(), True
        try:
            for volume, attachment in self._actual.at(node):
                if volume.spec.plugin != CSI or not attachment.confirmed or not self._specs.is_attachable(volume.spec):
                    continue
                found = await self._find(volume, node)
                if not attachment.confirmed or attachment.operation is not None or (found and found.status.attached):
                    continue
                self._log.warning("a volume is no longer attached", volume=volume.spec.name, node=node)
                if found is None:
                    self._operations.detached(volume, node)
                else:
                    self._operations.unconfirm(volume, attachment)
            failed = False
        finally:
            self._metrics.verified(monotonic() - began, failed=failed)

    async def verify_with_drivers(self) -> None:
        """Verify the attachments of FlexVolume drivers."""
        there = [(volume, one) for volume in self._actual.volumes.values() for one in volume.attachments.values()]
        asked = [(volume, one) for volume, one in there if volume.spec.is_flex and one.confirmed]
        await in_parallel(asked, lambda one: self._verify_with_driver(*one))

    async def _verify_with_driver(self, volume: AttachableVolume, attachment: Attachment) -> None:
        node = attachment.node
        try:
            if await self._flex.is_attached(volume.spec, node):
                return
        except DriverError as error:
            self._log.warning("not verified", volume=volume.spec.name, node=node, problem=str(error))
            return
        if volume.attachments.get(node) is attachment and attachment.confirmed and attachment.operation is None:
            self._log.warning("a volume is no longer attached", volume=volume.spec.name, node=node)
            self._operations.detached(volume, node)

    async def _find(self, volume: AttachableVolume, node: str) -> VolumeAttachment | None:
        key = Key("", attachment_name(volume.spec, node))
        found = self._attachments.get(key)
        if found is not None:
            return found
        try:
            return await self._client.get(VOLUME_ATTACHMENTS, key)
        except NotFound:
            return None
