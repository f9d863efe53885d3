"""VolumeAttachments, with which CSI drivers are asked to attach a volume to a node; pure.

Their name is derived from volume, driver and node, because other components look for it.
"""

from hashlib import sha256

import msgspec

from controller_manager.common.api.model import EMPTY_RAW, ObjectMeta
from controller_manager.common.api.storage import VolumeAttachment, VolumeAttachmentSource, VolumeAttachmentSpec

from ..shared.volume_specs import VolumeSpec
from .state import OperationResult, VolumeOperation

TIMEOUT = 120.0
"""Seconds in which a driver has to respond."""


def attachment_name(spec: VolumeSpec, node: str) -> str:
    """Return the name of the VolumeAttachment of a volume to a node."""
    return f"csi-{sha256(f'{spec.handle}{spec.driver}{node}'.encode()).hexdigest()}"


def new_attachment(spec: VolumeSpec, node: str) -> VolumeAttachment:
    """Return the VolumeAttachment of a volume to a node, to be created."""
    inline = msgspec.Raw(msgspec.json.encode(spec.inline)) if spec.inline is not None else EMPTY_RAW
    source = VolumeAttachmentSource(persistent_volume_name=spec.volume or None, inline_volume_spec=inline)
    return VolumeAttachment(
        metadata=ObjectMeta(name=attachment_name(spec, node)),
        spec=VolumeAttachmentSpec(attacher=spec.driver, node_name=node, source=source),
    )


def judge_attachment(found: VolumeAttachment | None, operation: VolumeOperation, now: float) -> OperationResult:
    """Return the result of an attach operation from the cache, which may be outdated."""
    is_ours = found is not None and found.metadata.uid == operation.uid
    operation.seen = operation.seen or is_ours
    if found is not None and is_ours:
        if found.metadata.deletion_timestamp is not None:
            return OperationResult(problem="the VolumeAttachment is being deleted")
        if found.status.attached:
            return OperationResult(done=True)
        if found.status.attach_error is not None:
            return OperationResult(problem=found.status.attach_error.message)
    elif operation.seen:
        return OperationResult(problem="the VolumeAttachment was deleted")
    return _late(operation, now, "attach")


def judge_detachment(found: VolumeAttachment | None, operation: VolumeOperation, now: float) -> OperationResult:
    """Return the result of a detach operation. It is done once the cache has no VolumeAttachment."""
    if found is None:
        return OperationResult(done=True)
    if found.status.detach_error is not None:
        return OperationResult(problem=found.status.detach_error.message)
    return _late(operation, now, "detach")


def _late(operation: VolumeOperation, now: float, what: str) -> OperationResult:
    late = now >= operation.since + TIMEOUT
    return OperationResult(
        problem=f"timed out waiting for the attacher of the CSI driver to {what} the volume" if late else ""
    )
