"""Service CIDRs and IP addresses, of the group networking.k8s.io."""

from controller_manager.common.api.conditions import Condition
from controller_manager.common.api.model import Model, Object, PartialObject
from controller_manager.common.api.platform import GROUP_DOMAIN
from controller_manager.common.api.resource import Resource

GROUP = f"networking.{GROUP_DOMAIN}"


class ServiceCIDRSpec(Model):
    cidrs: tuple[str, ...] = ()


class ServiceCIDRStatus(Model):
    conditions: tuple[Condition, ...] = ()


class ServiceCIDR(Object):
    """Ranges of cluster IPs, at most one per IP family."""

    spec: ServiceCIDRSpec = ServiceCIDRSpec()
    status: ServiceCIDRStatus = ServiceCIDRStatus()


SERVICE_CIDRS = Resource(GROUP, "v1", "servicecidrs", "ServiceCIDR", False, ServiceCIDR)
# An IPAddress is named like its address; only its parent reference is read.
IP_ADDRESSES = Resource(GROUP, "v1", "ipaddresses", "IPAddress", False, PartialObject)
