"""Services and Endpoints."""

from collections.abc import Mapping

import msgspec

from controller_manager.common.api.core.events import ObjectReference
from controller_manager.common.api.model import EMPTY_RAW, Model, Object
from controller_manager.common.api.resource import Resource

TCP = "TCP"
"""The default protocol of a port."""


class ServicePort(Model):
    port: int
    name: str = ""
    protocol: str = TCP
    node_port: int = 0
    target_port: int | str | None = None
    app_protocol: str | None = None


class ServiceSpec(Model):
    type: str = "ClusterIP"
    selector: Mapping[str, str] | None = None
    ports: tuple[ServicePort, ...] = ()
    cluster_ip: str = msgspec.field(default="", name="clusterIP")
    external_name: str = ""
    ip_families: tuple[str, ...] = ()
    publish_not_ready_addresses: bool = False
    traffic_distribution: str | None = None
    session_affinity: str = ""
    session_affinity_config: msgspec.Raw = EMPTY_RAW
    external_ips: tuple[str, ...] = msgspec.field(default=(), name="externalIPs")
    external_traffic_policy: str = ""
    health_check_node_port: int = 0
    load_balancer_class: str | None = None
    load_balancer_ip: str = msgspec.field(default="", name="loadBalancerIP")
    load_balancer_source_ranges: tuple[str, ...] = ()


class PortStatus(Model):
    """`status.loadBalancer.ingress[].ports[]`, complete."""

    port: int
    protocol: str = TCP
    error: str | None = None


class LoadBalancerIngress(Model):
    """`status.loadBalancer.ingress[]`, complete: an IP address or host name of a service."""

    ip: str = ""
    hostname: str = ""
    ip_mode: str | None = None
    ports: tuple[PortStatus, ...] = ()


class LoadBalancerStatus(Model):
    """The addresses of a load balancer, as in the status of its service."""

    ingress: tuple[LoadBalancerIngress, ...] = ()


class ServiceStatus(Model):
    load_balancer: LoadBalancerStatus = LoadBalancerStatus()


class Service(Object):
    """A name, address and ports for the selected pods."""

    spec: ServiceSpec = ServiceSpec()
    status: ServiceStatus = ServiceStatus()


class EndpointAddress(Model):
    """`subsets[].addresses[]`, complete."""

    ip: str
    hostname: str = ""
    node_name: str | None = None
    target_ref: ObjectReference | None = None


class EndpointPort(Model):
    """`subsets[].ports[]`, complete."""

    port: int
    name: str = ""
    protocol: str = TCP
    app_protocol: str | None = None


class EndpointSubset(Model):
    """`subsets[]`, complete."""

    addresses: tuple[EndpointAddress, ...] = ()
    not_ready_addresses: tuple[EndpointAddress, ...] = ()
    ports: tuple[EndpointPort, ...] = ()


class Endpoints(Object):
    """The addresses of the pods of a service; `EndpointSlice` replaces it."""

    subsets: tuple[EndpointSubset, ...] = ()


SERVICES = Resource("", "v1", "services", "Service", True, Service)
ENDPOINTS = Resource("", "v1", "endpoints", "Endpoints", True, Endpoints)
