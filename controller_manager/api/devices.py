"""The group of dynamic resource allocation (KEP-4381): devices that drivers publish, claims for them and their
templates, as far as controllers read them.
"""

from collections.abc import Mapping

import msgspec

from controller_manager.api.conditions import Condition
from controller_manager.api.core import NodeSelector, Taint, Toleration
from controller_manager.api.model import EMPTY_RAW, Model, Object
from controller_manager.api.platform import GROUP_DOMAIN, PLATFORM_DOMAIN
from controller_manager.api.resource import Resource

GROUP = f"resource.{GROUP_DOMAIN}"
POD_CLAIM = f"resource.{PLATFORM_DOMAIN}/pod-claim-name"
"""The annotation of a claim that was made of a template: the name of the entry of the pod that it is for."""
DELETE_PROTECTION = f"resource.{PLATFORM_DOMAIN}/delete-protection"
"""The finalizer of a claim while it is allocated."""


class ExactDeviceRequest(Model):
    admin_access: bool = False


class DeviceSubRequest(Model):
    name: str = ""


class DeviceRequest(Model):
    """A request for devices: exactly these, or the first of some alternatives."""

    name: str = ""
    exactly: ExactDeviceRequest | None = None
    first_available: tuple[DeviceSubRequest, ...] = ()


class DeviceClaim(Model):
    requests: tuple[DeviceRequest, ...] = ()


class ResourceClaimSpec(Model):
    devices: DeviceClaim = DeviceClaim()


class AllocatedDevice(Model):
    """A device that a claim was given, by its driver, pool and name."""

    request: str = ""
    driver: str = ""
    pool: str = ""
    device: str = ""
    tolerations: tuple[Toleration, ...] = ()


class DeviceAllocationResult(Model):
    results: tuple[AllocatedDevice, ...] = ()


class AllocationResult(Model):
    devices: DeviceAllocationResult = DeviceAllocationResult()
    node_selector: NodeSelector | None = None


class ConsumerReference(Model):
    """`status.reservedFor[]`, complete: who may use the devices of a claim, normally a pod."""

    api_group: str = ""
    resource: str = ""
    name: str = ""
    uid: str = ""


class ResourceClaimStatus(Model):
    allocation: AllocationResult | None = None
    reserved_for: tuple[ConsumerReference, ...] = ()


class ResourceClaim(Object):
    """A claim for devices."""

    spec: ResourceClaimSpec = ResourceClaimSpec()
    status: ResourceClaimStatus = ResourceClaimStatus()


class TemplateMetadata(Model):
    labels: Mapping[str, str] | None = None
    annotations: Mapping[str, str] | None = None


class ResourceClaimTemplateSpec(Model):
    """The metadata of the claims, and their spec as JSON, of which no field is lost."""

    metadata: TemplateMetadata = TemplateMetadata()
    spec: msgspec.Raw = EMPTY_RAW


class ResourceClaimTemplate(Object):
    """What claims are made of for pods that name it."""

    spec: ResourceClaimTemplateSpec = ResourceClaimTemplateSpec()


class Device(Model):
    name: str = ""
    taints: tuple[Taint, ...] = ()


class ResourcePool(Model):
    """Slices of one generation, so many of them, make a pool; those of earlier ones are out of date."""

    name: str = ""
    generation: int = 0
    resource_slice_count: int = 0


class ResourceSliceSpec(Model):
    driver: str = ""
    pool: ResourcePool = ResourcePool()
    node_name: str = ""
    devices: tuple[Device, ...] = ()


class ResourceSlice(Object):
    """Devices that a driver publishes."""

    spec: ResourceSliceSpec = ResourceSliceSpec()


class DeviceTaintSelector(Model):
    """The devices of a driver, of a pool, of a name, or of several of these."""

    driver: str | None = None
    pool: str | None = None
    device: str | None = None


class DeviceTaintRuleSpec(Model):
    device_selector: DeviceTaintSelector | None = None
    taint: Taint = Taint(key="", effect="")


class DeviceTaintRuleStatus(Model):
    conditions: tuple[Condition, ...] = ()


class DeviceTaintRule(Object):
    """A taint for devices that somebody else publishes (KEP-5055)."""

    spec: DeviceTaintRuleSpec = DeviceTaintRuleSpec()
    status: DeviceTaintRuleStatus = DeviceTaintRuleStatus()


class ResourcePoolStatusRequestSpec(Model):
    """The pools of a driver, or one of them; `limit` bounds how many are told of."""

    driver: str = ""
    pool_name: str | None = None
    limit: int | None = None


class PoolStatus(Model):
    """`status.pools[]`, complete; numbers are told of pools without a `validation_error`."""

    driver: str = ""
    pool_name: str = ""
    node_name: str | None = None
    generation: int = 0
    resource_slice_count: int | None = None
    total_devices: int | None = None
    allocated_devices: int | None = None
    available_devices: int | None = None
    unavailable_devices: int | None = None
    validation_error: str | None = None


class ResourcePoolStatusRequestStatus(Model):
    """`status`, complete; `pool_count` is how many pools there are, whether they are told of or not."""

    pool_count: int | None = None
    pools: tuple[PoolStatus, ...] = ()
    conditions: tuple[Condition, ...] = ()


class ResourcePoolStatusRequest(Object):
    """A question for the state of pools of devices, which is answered once (KEP-5677)."""

    spec: ResourcePoolStatusRequestSpec = ResourcePoolStatusRequestSpec()
    status: ResourcePoolStatusRequestStatus | None = None


RESOURCE_CLAIMS = Resource(GROUP, "v1", "resourceclaims", "ResourceClaim", True, ResourceClaim)
RESOURCE_CLAIM_TEMPLATES = Resource(
    GROUP, "v1", "resourceclaimtemplates", "ResourceClaimTemplate", True, ResourceClaimTemplate
)
RESOURCE_SLICES = Resource(GROUP, "v1", "resourceslices", "ResourceSlice", False, ResourceSlice)
DEVICE_TAINT_RULES = Resource(GROUP, "v1beta2", "devicetaintrules", "DeviceTaintRule", False, DeviceTaintRule)
RESOURCE_POOL_STATUS_REQUESTS = Resource(
    GROUP, "v1alpha3", "resourcepoolstatusrequests", "ResourcePoolStatusRequest", False, ResourcePoolStatusRequest
)
