"""The group of dynamic resource allocation (KEP-4381): devices that drivers publish, claims for them and their
templates, as far as controllers read them.
"""

from collections.abc import Mapping

import msgspec

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


class DeviceToleration(Model):
    """What a request tolerates: without a `key` every taint, without `toleration_seconds` for good."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class AllocatedDevice(Model):
    """A device that a claim was given, by its driver, pool and name."""

    request: str = ""
    driver: str = ""
    pool: str = ""
    device: str = ""
    tolerations: tuple[DeviceToleration, ...] = ()


class DeviceAllocationResult(Model):
    results: tuple[AllocatedDevice, ...] = ()


class AllocationResult(Model):
    devices: DeviceAllocationResult = DeviceAllocationResult()


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


RESOURCE_CLAIMS = Resource(GROUP, "v1", "resourceclaims", "ResourceClaim", True, ResourceClaim)
RESOURCE_CLAIM_TEMPLATES = Resource(
    GROUP, "v1", "resourceclaimtemplates", "ResourceClaimTemplate", True, ResourceClaimTemplate
)
