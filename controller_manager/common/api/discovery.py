"""Endpoint slices (discovery.k8s.io), as controllers write them."""

from collections.abc import Mapping

from controller_manager.common.api.core import ObjectReference
from controller_manager.common.api.model import Model, Object
from controller_manager.common.api.platform import GROUP_DOMAIN, PLATFORM_DOMAIN
from controller_manager.common.api.resource import Resource

GROUP = f"discovery.{GROUP_DOMAIN}"

# Labels: the service of a slice, its manager; and on Endpoints: skip mirroring.
SERVICE_NAME = f"{PLATFORM_DOMAIN}/service-name"
MANAGED_BY = f"endpointslice.{PLATFORM_DOMAIN}/managed-by"
SKIP_MIRROR = f"endpointslice.{PLATFORM_DOMAIN}/skip-mirror"


class EndpointConditions(Model):
    """`endpoints[].conditions`, complete; None means unknown."""

    ready: bool | None = None
    serving: bool | None = None
    terminating: bool | None = None


class ForZone(Model):
    """`endpoints[].hints.forZones[]`, complete."""

    name: str


class ForNode(Model):
    """`endpoints[].hints.forNodes[]`, complete."""

    name: str


class EndpointHints(Model):
    """`endpoints[].hints`, complete: zones and nodes that should use an endpoint."""

    for_zones: tuple[ForZone, ...] = ()
    for_nodes: tuple[ForNode, ...] = ()


class Endpoint(Model):
    """`endpoints[]`, complete."""

    addresses: tuple[str, ...] = ()
    conditions: EndpointConditions = EndpointConditions()
    deprecated_topology: Mapping[str, str] | None = None
    hints: EndpointHints | None = None
    hostname: str | None = None
    node_name: str | None = None
    target_ref: ObjectReference | None = None
    zone: str | None = None


class SlicePort(Model):
    """`ports[]`, complete."""

    port: int | None = None
    name: str | None = None
    protocol: str | None = None
    app_protocol: str | None = None


class EndpointSlice(Object):
    """Some endpoints of a service, with one address type and the same ports."""

    address_type: str = ""
    endpoints: tuple[Endpoint, ...] | None = ()
    ports: tuple[SlicePort, ...] | None = ()


ENDPOINT_SLICES = Resource(GROUP, "v1", "endpointslices", "EndpointSlice", True, EndpointSlice)
