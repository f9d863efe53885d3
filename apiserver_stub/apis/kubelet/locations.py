"""The addresses of pods, services and nodes from their objects, and the addresses that proxies must not reach. Pure."""

import ipaddress
import re
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, TypeVar

import msgspec

from controller_manager.common.api.core import ContainerPort, DaemonEndpoints, Endpoints, NodeAddress, PodIP, Service
from controller_manager.common.api.decode import Decoder
from controller_manager.common.api.errors import BadRequest, ServiceUnavailable, UnknownError
from controller_manager.common.api.model import Model

T = TypeVar("T")

_SCHEMES = frozenset({"", "http", "https"})
_PORTS = {"": 80, "http": 80, "https": 443}
_NUMBER = re.compile(r"[+-]?[0-9]{1,18}")
_LARGEST_PORT = 65535
_DIGITS = 5


class Container(Model):
    """A container of a pod."""

    name: str = ""
    ports: tuple[ContainerPort, ...] = ()


class PodSpec(Model):
    """The containers of a pod, and its node."""

    node_name: str = ""
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    ephemeral_containers: tuple[Container, ...] = ()


class PodStatus(Model):
    """The addresses of a pod."""

    pod_ips: tuple[PodIP, ...] = msgspec.field(default=(), name="podIPs")


class PodLocation(Model):
    """The fields of a pod that are needed to reach it."""

    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


class NodeStatus(Model):
    """The addresses of a node, and its kubelet's declared features."""

    addresses: tuple[NodeAddress, ...] = ()
    daemon_endpoints: DaemonEndpoints = DaemonEndpoints()
    declared_features: tuple[str, ...] = ()


class Node(Model):
    """The fields of a node that are needed to reach its kubelet."""

    status: NodeStatus = NodeStatus()


POD, NODE, SERVICE, ENDPOINTS = Decoder(PodLocation), Decoder(Node), Decoder(Service), Decoder(Endpoints)


class Kubelet(NamedTuple):
    """The address of a kubelet, and the features that it declares."""

    host: str
    port: int
    features: tuple[str, ...] = ()


class Location(NamedTuple):
    """The target of a proxied request; over TLS if it is `secure`."""

    host: str
    port: int
    secure: bool


class ProxyTarget(NamedTuple):
    """The target in a proxy's path: `name`, `name:port` or `scheme:name:port`. A port may be a name."""

    scheme: str
    name: str
    port: str

    @classmethod
    def parse(cls, text: str, noun: str) -> "ProxyTarget":
        """Return the parts. Raises `BadRequest`."""
        parts = text.split(":")
        match parts:
            case [name]:
                found = cls("", name, "")
            case [name, port]:
                found = cls("", name, port)
            case [scheme, name, port]:
                found = cls(scheme, name, port)
            case _:
                found = cls("", "", "")
        if not found.name or found.scheme not in _SCHEMES:
            raise BadRequest(f'invalid {noun} request "{text}"')
        return found

    def location(self, host: str, port: str) -> Location:
        """Return the location of a port of a host; an empty port means the default of the scheme. Raises
        `ServiceUnavailable`.
        """
        if not port:
            return Location(host, _PORTS[self.scheme], self.scheme == "https")
        if not (port.isascii() and port.isdecimal()) or len(port) > _DIGITS or int(port) > _LARGEST_PORT:
            raise ServiceUnavailable(f"error trying to reach service: address {port}: invalid port")
        return Location(host, int(port), self.scheme == "https")


def kubelet_of(node: Node, types: Iterable[str], port: int) -> Kubelet:
    """Return the kubelet of a node: its first address of the most preferred type in `types`, and its declared port, or
    `port` if it declares none. Raises `UnknownError`.
    """
    addresses, own = node.status.addresses, node.status.daemon_endpoints.kubelet_endpoint.port
    for wanted in types:
        for one in addresses:
            if one.type == wanted:
                return Kubelet(one.address, own if own > 0 else port, node.status.declared_features)
    known = " ".join(f"{{{one.type} {one.address}}}" for one in addresses)
    raise UnknownError(f"no preferred addresses found; known addresses: [{known}]")


def container_of(pod: PodLocation, name: str, wanted: str) -> str:
    """Return the container name: `wanted`, or the only container of the pod called `name`. Raises `BadRequest`."""
    spec = pod.spec
    named = [one.name for one in (*spec.init_containers, *spec.containers, *spec.ephemeral_containers)]
    if wanted:
        if wanted not in named:
            raise BadRequest(f"container {wanted} is not valid for pod {name}")
        return wanted
    if len(spec.containers) == 1:
        return spec.containers[0].name
    choice = f", choose one of: [{' '.join(named)}]" if spec.containers else ""
    raise BadRequest(f"a container name must be specified for pod {name}{choice}")


def location_of_pod(pod: PodLocation, target: ProxyTarget) -> Location:
    """Return the location of a pod: the requested port, or the first port of its containers. Raises `BadRequest` for a
    forbidden address.
    """
    ports = [str(one.ports[0].container_port) for one in pod.spec.containers if one.ports]
    port = target.port or next(iter(ports), "")
    address = pod.status.pod_ips[0].ip if pod.status.pod_ips else ""
    check_address(address)
    return target.location(address, port)


def port_name(service: Service, target: ProxyTarget) -> str:
    """Return the name of a service's port, given its name or number. Raises `ServiceUnavailable`."""
    if not _NUMBER.fullmatch(target.port):
        return target.port
    number = int(target.port)
    for one in service.spec.ports:
        if one.port == number:
            return one.name
    raise ServiceUnavailable(f'no service port {number} found for service "{target.name}"')


Choose = Callable[[int], int]
"""Returns a random number below the given one."""


def location_of_service(
    endpoints: Endpoints,
    target: ProxyTarget,
    port: str,
    asked: str,
    is_of_pod: Callable[[str, str, str], bool],
    any_of: Choose,
) -> Location:
    """Return a random ready endpoint with that port name whose address belongs to a pod; `is_of_pod` checks the
    namespace, name and address. Raises `ServiceUnavailable`; `asked` is the requested name.
    """
    for subset in _from(endpoints.subsets, any_of):
        for one in (each for each in subset.ports if each.name == port):
            for address in _from(subset.addresses, any_of):
                pod = address.target_ref
                if pod is not None and is_of_pod(pod.namespace, pod.name, address.ip):
                    return target.location(address.ip, str(one.port))
    name = asked if endpoints.subsets else target.name
    raise ServiceUnavailable(f'no endpoints available for service "{name}"')


def check_address(text: str) -> None:
    """Raise `BadRequest` unless the text is a global unicast address (Go, net.IP.IsGlobalUnicast): no loopback,
    link-local or multicast address.
    """
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        raise BadRequest("address not allowed") from None
    if isinstance(address, ipaddress.IPv6Address):
        address = address.ipv4_mapped or address
    barred = address.is_unspecified or address.is_loopback or address.is_multicast or address.is_link_local
    if barred or str(address) == "255.255.255.255":
        raise BadRequest("address not allowed")


def _from(items: Sequence[T], any_of: Choose) -> Sequence[T]:
    """Return all items, rotated to a random start."""
    start = any_of(len(items)) if items else 0
    return (*items[start:], *items[:start])
