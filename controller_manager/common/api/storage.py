"""Volumes, claims, storage classes and CSI objects, with the fields that controllers read."""

from collections.abc import Mapping

import msgspec

from controller_manager.common.api.conditions import Condition
from controller_manager.common.api.core import NodeSelector, ObjectReference, VolumeSources
from controller_manager.common.api.model import EMPTY_RAW, Model, Object
from controller_manager.common.api.platform import GROUP_DOMAIN, PLATFORM_DOMAIN
from controller_manager.common.api.resource import Resource
from controller_manager.common.api.selectors import LabelSelectorSpec

STORAGE = "storage"
"""The resource name in the requests and capacity of volumes."""
FILESYSTEM, BLOCK = "Filesystem", "Block"

# Phases of claims and volumes.
PENDING, LOST = "Pending", "Lost"
AVAILABLE, RELEASED, FAILED = "Available", "Released", "Failed"
BOUND = "Bound"

BETA_CLASS = f"volume.beta.{PLATFORM_DOMAIN}/storage-class"
"""The deprecated annotation for the class of claims and volumes."""
PVC_PROTECTION = f"{PLATFORM_DOMAIN}/pvc-protection"
PV_PROTECTION = f"{PLATFORM_DOMAIN}/pv-protection"


class VolumeResourceRequirements(Model):
    requests: Mapping[str, str] | None = None


class ModifyVolumeStatus(Model):
    target_volume_attributes_class_name: str = ""


class PersistentVolumeClaimSpec(Model):
    access_modes: tuple[str, ...] = ()
    selector: LabelSelectorSpec | None = None
    resources: VolumeResourceRequirements = VolumeResourceRequirements()
    volume_name: str = ""
    storage_class_name: str | None = None
    volume_mode: str = FILESYSTEM
    data_source: msgspec.Raw = EMPTY_RAW
    volume_attributes_class_name: str | None = None


class PersistentVolumeClaimStatus(Model):
    phase: str = ""
    access_modes: tuple[str, ...] = ()
    capacity: Mapping[str, str] | None = None
    conditions: tuple[Condition, ...] = ()
    allocated_resources: Mapping[str, str] | None = None
    allocated_resource_statuses: Mapping[str, str] | None = None
    current_volume_attributes_class_name: str | None = None
    modify_volume_status: ModifyVolumeStatus | None = None


class PersistentVolumeClaim(Object):
    """A claim for a volume."""

    spec: PersistentVolumeClaimSpec = PersistentVolumeClaimSpec()
    status: PersistentVolumeClaimStatus = PersistentVolumeClaimStatus()


class CSIPersistentVolumeSource(Model):
    driver: str = ""
    volume_handle: str = ""


class VolumeNodeAffinity(Model):
    """The nodes that can access a volume."""

    required: NodeSelector | None = None


class PersistentVolumeSpec(VolumeSources):
    capacity: Mapping[str, str] | None = None
    access_modes: tuple[str, ...] = ()
    claim_ref: ObjectReference | None = None
    persistent_volume_reclaim_policy: str = "Retain"
    storage_class_name: str = ""
    volume_mode: str = FILESYSTEM
    volume_attributes_class_name: str | None = None
    csi: CSIPersistentVolumeSource | None = None
    node_affinity: VolumeNodeAffinity | None = None


class PersistentVolumeStatus(Model):
    phase: str = ""
    message: str = ""
    reason: str = ""


class PersistentVolume(Object):
    """A volume that a claim may be bound to."""

    spec: PersistentVolumeSpec = PersistentVolumeSpec()
    status: PersistentVolumeStatus = PersistentVolumeStatus()


class TopologyRequirement(Model):
    """`allowedTopologies[].matchLabelExpressions[]`, complete."""

    key: str
    values: tuple[str, ...] = ()


class TopologyTerm(Model):
    """`allowedTopologies[]`, complete: nodes that match all expressions."""

    match_label_expressions: tuple[TopologyRequirement, ...] = ()


class StorageClass(Object):
    """The parameters for provisioning volumes of this class."""

    provisioner: str = ""
    parameters: Mapping[str, str] | None = None
    reclaim_policy: str = "Delete"
    mount_options: tuple[str, ...] = ()
    allow_volume_expansion: bool | None = None
    volume_binding_mode: str = "Immediate"
    allowed_topologies: tuple[TopologyTerm, ...] = ()


class VolumeAttributesClass(Object):
    """Mutable attributes of volumes; the parameters belong to the driver."""

    driver_name: str = ""


class CSIDriverSpec(Model):
    attach_required: bool | None = None
    se_linux_mount: bool | None = None
    storage_capacity: bool | None = None


class CSIDriver(Object):
    """The capabilities of a storage driver."""

    spec: CSIDriverSpec = CSIDriverSpec()


class VolumeNodeResources(Model):
    """`spec.drivers[].allocatable`, complete."""

    count: int | None = None


class CSINodeDriver(Model):
    """`spec.drivers[]`, complete."""

    name: str
    node_id: str = msgspec.field(name="nodeID")
    topology_keys: tuple[str, ...] = ()
    allocatable: VolumeNodeResources | None = None


class CSINodeSpec(Model):
    drivers: tuple[CSINodeDriver, ...] = ()


class CSINode(Object):
    """The drivers of a node."""

    spec: CSINodeSpec = CSINodeSpec()


class CSIStorageCapacity(Object):
    """The capacity that a driver can provision for a class and a topology."""

    storage_class_name: str = ""
    node_topology: LabelSelectorSpec | None = None
    capacity: str | None = None
    maximum_volume_size: str | None = None


class VolumeAttachmentSource(Model):
    persistent_volume_name: str | None = None
    inline_volume_spec: msgspec.Raw = EMPTY_RAW


class VolumeAttachmentSpec(Model):
    attacher: str = ""
    node_name: str = ""
    source: VolumeAttachmentSource = VolumeAttachmentSource()


class VolumeError(Model):
    message: str = ""


class VolumeAttachmentStatus(Model):
    attached: bool = False
    attach_error: VolumeError | None = None
    detach_error: VolumeError | None = None


class VolumeAttachment(Object):
    """A request to attach a volume to a node, and its status."""

    spec: VolumeAttachmentSpec = VolumeAttachmentSpec()
    status: VolumeAttachmentStatus = VolumeAttachmentStatus()


_GROUP = f"storage.{GROUP_DOMAIN}"
PERSISTENT_VOLUMES = Resource("", "v1", "persistentvolumes", "PersistentVolume", False, PersistentVolume)
PERSISTENT_VOLUME_CLAIMS = Resource(
    "", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", True, PersistentVolumeClaim
)
STORAGE_CLASSES = Resource(_GROUP, "v1", "storageclasses", "StorageClass", False, StorageClass)
VOLUME_ATTRIBUTES_CLASSES = Resource(
    _GROUP, "v1", "volumeattributesclasses", "VolumeAttributesClass", False, VolumeAttributesClass
)
CSI_DRIVERS = Resource(_GROUP, "v1", "csidrivers", "CSIDriver", False, CSIDriver)
CSI_STORAGE_CAPACITIES = Resource(_GROUP, "v1", "csistoragecapacities", "CSIStorageCapacity", True, CSIStorageCapacity)
CSI_NODES = Resource(_GROUP, "v1", "csinodes", "CSINode", False, CSINode)
VOLUME_ATTACHMENTS = Resource(_GROUP, "v1", "volumeattachments", "VolumeAttachment", False, VolumeAttachment)


def class_of(one: PersistentVolumeClaim | PersistentVolume) -> str:
    """Return the storage class name of a claim or volume; the deprecated annotation takes precedence over the field."""
    return (one.metadata.annotations or {}).get(BETA_CLASS, one.spec.storage_class_name or "")
