"""Ranges and addresses of services, of the group networking."""

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
    """Ranges that cluster IPs of services come from, one of each family at most."""

    spec: ServiceCIDRSpec = ServiceCIDRSpec()
    status: ServiceCIDRStatus = ServiceCIDRStatus()


SERVICE_CIDRS = Resource(GROUP, "v1", "servicecidrs", "ServiceCIDR", False, ServiceCIDR)
# Each is named like its address; what is read of it is whose it is.
IP_ADDRESSES = Resource(GROUP, "v1", "ipaddresses", "IPAddress", False, PartialObject)
