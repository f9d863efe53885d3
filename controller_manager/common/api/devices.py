"""The group of dynamic resource allocation (KEP-4381): devices that drivers publish, claims for them and their
templates, as far as controllers read them.
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
"""The annotation of a claim that was made of a template: the name of the entry of the pod that it is for."""
DELETE_PROTECTION = f"resource.{PLATFORM_DOMAIN}/delete-protection"
"""The finalizer of a claim while it is allocated."""


class SelectorError(Exception):
    """An expression that selects devices does not compile, or has no value for a device; says why."""


class CELDeviceSelector(Model):
    expression: str = ""


class DeviceSelector(Model):
    """An expression in CEL that devices must meet."""

    cel: CELDeviceSelector | None = None


class CapacityRequirements(Model):
    """How much of the capacities of a device is wanted, by name (KEP-5075)."""

    requests: Mapping[str, str] = {}


class DeviceSubRequest(Model):
    """So many devices of a class that meet all selectors, or all of them."""

    name: str = ""
    device_class_name: str = ""
    selectors: tuple[DeviceSelector, ...] = ()
    allocation_mode: str = "ExactCount"
    count: int = 1
    tolerations: tuple[Toleration, ...] = ()
    capacity: CapacityRequirements | None = None


class ExactDeviceRequest(DeviceSubRequest):
    """The same, of devices that may be in use where it is for their administration; it has the name of its request."""

    admin_access: bool = False


class DeviceRequest(Model):
    """A request for devices: exactly these, or the first of some alternatives."""

    name: str = ""
    exactly: ExactDeviceRequest | None = None
    first_available: tuple[DeviceSubRequest, ...] = ()


class DeviceConstraint(Model):
    """An attribute in which the devices of some requests, or of all, are the same, or all different."""

    requests: tuple[str, ...] = ()
    match_attribute: str | None = None
    distinct_attribute: str | None = None


class DeviceConfiguration(Model):
    """Parameters for a driver, as it reads them; for some requests of a claim, or for all."""

    requests: tuple[str, ...] = ()
    opaque: msgspec.Raw = EMPTY_RAW


class DeviceClaim(Model):
    requests: tuple[DeviceRequest, ...] = ()
    constraints: tuple[DeviceConstraint, ...] = ()
    config: tuple[DeviceConfiguration, ...] = ()


class ResourceClaimSpec(Model):
    devices: DeviceClaim = DeviceClaim()


class AllocatedDevice(Model):
    """`status.allocation.devices.results[]`, complete: a device that a claim was given, by its driver, pool and name.

    One that several claims share has a `share_id`, and the part of its capacities that this one consumes.
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
    """`status.reservedFor[]`, complete: who may use the devices of a claim, normally a pod."""

    api_group: str = ""
    resource: str = ""
    name: str = ""
    uid: str = ""


class AllocatedDeviceStatus(Model):
    """What a driver says of a device that was given."""

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
    """The metadata of the claims, and their spec as JSON, of which no field is lost."""

    metadata: TemplateMetadata = TemplateMetadata()
    spec: msgspec.Raw = EMPTY_RAW


class ResourceClaimTemplate(Object):
    """What claims are made of for pods that name it."""

    spec: ResourceClaimTemplateSpec = ResourceClaimTemplateSpec()


class DeviceAttribute(Model):
    """One value, of one of these types."""

    int_value: int | None = msgspec.field(default=None, name="int")
    bool_value: bool | None = msgspec.field(default=None, name="bool")
    string_value: str | None = msgspec.field(default=None, name="string")
    version_value: str | None = msgspec.field(default=None, name="version")


class CapacityRange(Model):
    """From `min` to `max`, in steps."""

    min: str | None = None
    max: str | None = None
    step: str | None = None


class CapacityRequestPolicy(Model):
    """How much of a capacity may be consumed at a time."""

    default: str | None = None
    valid_values: tuple[str, ...] = ()
    valid_range: CapacityRange | None = None


class DeviceCapacity(Model):
    value: str = "0"
    request_policy: CapacityRequestPolicy | None = None


class Counter(Model):
    value: str = "0"


class CounterSet(Model):
    """Counters that the devices of a pool consume together, by name (KEP-4815)."""

    name: str = ""
    counters: Mapping[str, Counter] = {}


class CounterConsumption(Model):
    """What a device consumes of a counter set."""

    counter_set: str = ""
    counters: Mapping[str, Counter] = {}


class Device(Model):
    """A device, and the nodes that it can be reached from where its slice leaves that to it."""

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
    """Slices of one generation, so many of them, make a pool; those of earlier ones are out of date."""

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
    """Devices that a driver publishes, and the nodes that they can be reached from; or counters of a pool."""

    spec: ResourceSliceSpec = ResourceSliceSpec()


class DeviceClassSpec(Model):
    selectors: tuple[DeviceSelector, ...] = ()
    config: tuple[DeviceConfiguration, ...] = ()
    extended_resource_name: str | None = None


class DeviceClass(Object):
    """A kind of devices that claims ask for by name."""

    spec: DeviceClassSpec = DeviceClassSpec()


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
DEVICE_CLASSES = Resource(GROUP, "v1", "deviceclasses", "DeviceClass", False, DeviceClass)
DEVICE_TAINT_RULES = Resource(GROUP, "v1beta2", "devicetaintrules", "DeviceTaintRule", False, DeviceTaintRule)
RESOURCE_POOL_STATUS_REQUESTS = Resource(
    GROUP, "v1alpha3", "resourcepoolstatusrequests", "ResourcePoolStatusRequest", False, ResourcePoolStatusRequest
)
