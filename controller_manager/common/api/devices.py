"""The group resource.k8s.io, dynamic resource allocation (KEP-4381): published devices, claims and claim templates,
with the fields that controllers read.
"""

from collections.abc import Mapping

import msgspec

from controller_manager.common.api.conditions import Condition
from controller_manager.common.api.core import NodeSelector, Taint, Toleration
from controller_manager.common.api.model import EMPTY_RAW, Model, Object
from controller_manager.common.api.platform import GROUP_DOMAIN, PLATFORM_DOMAIN
from controller_manager.common.api.resource import Resource

GROUP = f"resource.{GROUP_DOMAIN}"
POD_CLAIM = f"resource.{PLATFORM_DOMAIN}/pod-claim-name"
"""The annotation of a claim created from a template: the name of the pod's claim entry."""
DELETE_PROTECTION = f"resource.{PLATFORM_DOMAIN}/delete-protection"
"""The finalizer of an allocated claim."""


class SelectorError(Exception):
    """A device selector expression does not compile, or fails for a device; the message says why."""


class CELDeviceSelector(Model):
    expression: str = ""


class DeviceSelector(Model):
    """A CEL expression that a device must satisfy."""

    cel: CELDeviceSelector | None = None


class CapacityRequirements(Model):
    """The requested amount of each capacity of a device, by name (KEP-5075)."""

    requests: Mapping[str, str] = {}


class DeviceSubRequest(Model):
    """A number of devices of a class that match all selectors, or all such devices."""

    name: str = ""
    device_class_name: str = ""
    selectors: tuple[DeviceSelector, ...] = ()
    allocation_mode: str = "ExactCount"
    count: int = 1
    tolerations: tuple[Toleration, ...] = ()
    capacity: CapacityRequirements | None = None


class ExactDeviceRequest(DeviceSubRequest):
    """The same with admin access, which may use devices that are in use; the name is that of the request."""

    admin_access: bool = False


class DeviceRequest(Model):
    """A request for devices: an exact one, or the first satisfiable of several alternatives."""

    name: str = ""
    exactly: ExactDeviceRequest | None = None
    first_available: tuple[DeviceSubRequest, ...] = ()


class DeviceConstraint(Model):
    """An attribute whose value must be the same, or different, for the devices of some or all requests."""

    requests: tuple[str, ...] = ()
    match_attribute: str | None = None
    distinct_attribute: str | None = None


class DeviceConfiguration(Model):
    """Opaque parameters for a driver, for some or all requests of a claim."""

    requests: tuple[str, ...] = ()
    opaque: msgspec.Raw = EMPTY_RAW


class DeviceClaim(Model):
    requests: tuple[DeviceRequest, ...] = ()
    constraints: tuple[DeviceConstraint, ...] = ()
    config: tuple[DeviceConfiguration, ...] = ()


class ResourceClaimSpec(Model):
    devices: DeviceClaim = DeviceClaim()


class AllocatedDevice(Model):
    """`status.allocation.devices.results[]`, complete: an allocated device by driver, pool and name.

    A device shared by several claims has a `share_id`, and the capacity that this claim consumes.
    """

    request: str = ""
    driver: str = ""
    pool: str = ""
    device: str = ""
    admin_access: bool | None = None
    tolerations: tuple[Toleration, ...] = ()
    binding_conditions: tuple[str, ...] = ()
    binding_failure_conditions: tuple[str, ...] = ()
    share_id: str | None = msgspec.field(default=None, name="shareID")
    consumed_capacity: Mapping[str, str] = {}


class AllocatedConfiguration(Model):
    """`status.allocation.devices.config[]`, complete; `source` is FromClass or FromClaim."""

    source: str = ""
    requests: tuple[str, ...] = ()
    opaque: msgspec.Raw = EMPTY_RAW


class DeviceAllocationResult(Model):
    """`status.allocation.devices`, complete."""

    results: tuple[AllocatedDevice, ...] = ()
    config: tuple[AllocatedConfiguration, ...] = ()


class AllocationResult(Model):
    """`status.allocation`, complete."""

    devices: DeviceAllocationResult = DeviceAllocationResult()
    node_selector: NodeSelector | None = None
    allocation_timestamp: str | None = None


class ConsumerReference(Model):
    """`status.reservedFor[]`, complete: a consumer of a claim, normally a pod."""

    api_group: str = ""
    resource: str = ""
    name: str = ""
    uid: str = ""


class AllocatedDeviceStatus(Model):
    """The driver's status of an allocated device."""

    driver: str = ""
    pool: str = ""
    device: str = ""
    share_id: str | None = msgspec.field(default=None, name="shareID")
    conditions: tuple[Condition, ...] = ()


class ResourceClaimStatus(Model):
    allocation: AllocationResult | None = None
    reserved_for: tuple[ConsumerReference, ...] = ()
    devices: tuple[AllocatedDeviceStatus, ...] = ()


class ResourceClaim(Object):
    """A claim for devices."""

    spec: ResourceClaimSpec = ResourceClaimSpec()
    status: ResourceClaimStatus = ResourceClaimStatus()


class TemplateMetadata(Model):
    labels: Mapping[str, str] | None = None
    annotations: Mapping[str, str] | None = None


class ResourceClaimTemplateSpec(Model):
    """The metadata of the claims, and their spec as JSON, so that no field is lost."""

    metadata: TemplateMetadata = TemplateMetadata()
    spec: msgspec.Raw = EMPTY_RAW


class ResourceClaimTemplate(Object):
    """A template for the claims of pods that refer to it."""

    spec: ResourceClaimTemplateSpec = ResourceClaimTemplateSpec()


class DeviceAttribute(Model):
    """A value of one of these types."""

    int_value: int | None = msgspec.field(default=None, name="int")
    bool_value: bool | None = msgspec.field(default=None, name="bool")
    string_value: str | None = msgspec.field(default=None, name="string")
    version_value: str | None = msgspec.field(default=None, name="version")


class CapacityRange(Model):
    """The range from `min` to `max`, in steps."""

    min: str | None = None
    max: str | None = None
    step: str | None = None


class CapacityRequestPolicy(Model):
    """The amounts of a capacity that may be requested."""

    default: str | None = None
    valid_values: tuple[str, ...] = ()
    valid_range: CapacityRange | None = None


class DeviceCapacity(Model):
    value: str = "0"
    request_policy: CapacityRequestPolicy | None = None


class Counter(Model):
    value: str = "0"


class CounterSet(Model):
    """Counters that the devices of a pool share, by name (KEP-4815)."""

    name: str = ""
    counters: Mapping[str, Counter] = {}


class CounterConsumption(Model):
    """The counters of a counter set that a device consumes."""

    counter_set: str = ""
    counters: Mapping[str, Counter] = {}


class Device(Model):
    """A device, and the nodes that can access it if its slice does not set them."""

    name: str = ""
    attributes: Mapping[str, DeviceAttribute] = {}
    capacity: Mapping[str, DeviceCapacity] = {}
    consumes_counters: tuple[CounterConsumption, ...] = ()
    node_name: str = ""
    node_selector: NodeSelector | None = None
    all_nodes: bool = False
    taints: tuple[Taint, ...] = ()
    binds_to_node: bool = False
    binding_conditions: tuple[str, ...] = ()
    binding_failure_conditions: tuple[str, ...] = ()
    allow_multiple_allocations: bool = False


class ResourcePool(Model):
    """The pool of a slice; slices of an older generation are obsolete."""

    name: str = ""
    generation: int = 0
    resource_slice_count: int = 0


class ResourceSliceSpec(Model):
    driver: str = ""
    pool: ResourcePool = ResourcePool()
    node_name: str = ""
    node_selector: NodeSelector | None = None
    all_nodes: bool = False
    per_device_node_selection: bool = False
    devices: tuple[Device, ...] = ()
    shared_counters: tuple[CounterSet, ...] = ()


class ResourceSlice(Object):
    """Devices of a driver and the nodes that can access them, or counters of a pool."""

    spec: ResourceSliceSpec = ResourceSliceSpec()


class DeviceClassSpec(Model):
    selectors: tuple[DeviceSelector, ...] = ()
    config: tuple[DeviceConfiguration, ...] = ()
    extended_resource_name: str | None = None


class DeviceClass(Object):
    """A class of devices that claims refer to by name."""

    spec: DeviceClassSpec = DeviceClassSpec()


class DeviceTaintSelector(Model):
    """Selects devices by driver, pool and name."""

    driver: str | None = None
    pool: str | None = None
    device: str | None = None


class DeviceTaintRuleSpec(Model):
    device_selector: DeviceTaintSelector | None = None
    taint: Taint = Taint(key="", effect="")


class DeviceTaintRuleStatus(Model):
    conditions: tuple[Condition, ...] = ()


class DeviceTaintRule(Object):
    """A taint for devices that others publish (KEP-5055)."""

    spec: DeviceTaintRuleSpec = DeviceTaintRuleSpec()
    status: DeviceTaintRuleStatus = DeviceTaintRuleStatus()


class ResourcePoolStatusRequestSpec(Model):
    """The pools of a driver, or one of them; `limit` is the maximum number of reported pools."""

    driver: str = ""
    pool_name: str | None = None
    limit: int | None = None


class PoolStatus(Model):
    """`status.pools[]`, complete; the numbers are set for pools without a `validation_error`."""

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
    """`status`, complete; `pool_count` is the number of all pools, also of those not reported."""

    pool_count: int | None = None
    pools: tuple[PoolStatus, ...] = ()
    conditions: tuple[Condition, ...] = ()


class ResourcePoolStatusRequest(Object):
    """A request for the status of device pools, which is answered once (KEP-5677)."""

    spec: ResourcePoolStatusRequestSpec = ResourcePoolStatusRequestSpec()
    status: ResourcePoolStatusRequestStatus | None = None


RESOURCE_CLAIMS = Resource(GROUP, "v1", "resourceclaims", "ResourceClaim", True, ResourceClaim)
RESOURCE_CLAIM_TEMPLATES = Resource(
    GROUP, "v1", "resourceclaimtemplates", "ResourceClaimTemplate", True, ResourceClaimTemplate
)
RESOURCE_SLICES = Resource(GROUP, "v1", "resourceslices", "ResourceSlice", False, ResourceSlice)
DEVICE_CLASSES = Resource(GROUP, "v1", "deviceclasses", "DeviceClass", False, DeviceClass)
DEVICE_TAINT_RULES = Resource(GROUP, "v1beta2", "devicetaintrules", "DeviceTaintRule", False, DeviceTaintRule)
RESOURCE_POOL_STATUS_REQUESTS = Resource(
    GROUP, "v1alpha3", "resourcepoolstatusrequests", "ResourcePoolStatusRequest", False, ResourcePoolStatusRequest
)
