"""Rows of Services, Endpoints, EndpointSlices, Ingresses, NetworkPolicies and addresses."""

from collections.abc import Iterable
from typing import Any

from apiserver_stub.kinds.printers.cells import (
    AGE,
    NAME,
    NONE,
    UNKNOWN,
    age,
    columns,
    joined,
    labels,
    name,
    part,
    selector,
    shortened,
)
from apiserver_stub.kinds.resource_info import Printer
from controller_manager.common.api.tree import Tree

_HOSTS_SHOWN = 3


def _service(tree: Tree) -> list[Any]:
    spec = part(tree, "spec")
    return [
        name(tree),
        spec.get("type", ""),
        next(iter(spec.get("clusterIPs", ())), "") or spec.get("clusterIP") or NONE,
        _external(spec, part(tree, "status")),
        joined(_service_port(port) for port in spec.get("ports", ())),
        age(tree),
        labels(spec.get("selector")),
    ]


def _endpoints(tree: Tree) -> list[Any]:
    """Return the cells of Endpoints. Addresses that are not ready are not shown."""
    subsets = tree.get("subsets", ())
    found = [address for subset in subsets for address in _subset(subset)]
    return [name(tree), shortened(found, empty="") if subsets else NONE, age(tree)]


def _endpoint_slice(tree: Tree) -> list[Any]:
    ports = [str(port.get("port", port.get("name", "*"))) for port in tree.get("ports") or ()]
    addresses = [address for endpoint in tree.get("endpoints") or () for address in endpoint.get("addresses", ())]
    return [name(tree), tree.get("addressType", ""), shortened(ports), shortened(addresses), age(tree)]


def _ingress(tree: Tree) -> list[Any]:
    spec = part(tree, "spec")
    return [
        name(tree),
        spec.get("ingressClassName", NONE),
        _hosts([rule.get("host", "") for rule in spec.get("rules", ())]),
        ",".join(_balancer_addresses(part(tree, "status"))),
        "80, 443" if spec.get("tls") else "80",
        age(tree),
    ]


def _ingress_class(tree: Tree) -> list[Any]:
    spec = part(tree, "spec")
    parameters = part(spec, "parameters")
    kind = ".".join(filter(None, (parameters.get("kind"), parameters.get("apiGroup"))))
    reference = f"{kind}/{parameters.get('name', '')}" if parameters else NONE
    return [name(tree), spec.get("controller", ""), reference, age(tree)]


def _network_policy(tree: Tree) -> list[Any]:
    return [name(tree), selector(part(tree, "spec").get("podSelector")), age(tree)]


def _service_cidr(tree: Tree) -> list[Any]:
    return [name(tree), ",".join(part(tree, "spec").get("cidrs", ())), age(tree)]


def _ip_address(tree: Tree) -> list[Any]:
    parent = part(tree, "spec", "parentRef")
    resource = ".".join(filter(None, (parent.get("resource"), parent.get("group")))).lower()
    path = filter(None, (resource, parent.get("namespace"), parent.get("name")))
    return [name(tree), "/".join(path) or NONE]


def _external(spec: Tree, status: Tree) -> str:
    addresses = spec.get("externalIPs", [])
    match spec.get("type"):
        case "ClusterIP" | "NodePort":
            return joined(addresses)
        case "LoadBalancer":
            return joined([*_balancer_addresses(status), *addresses], empty="<pending>")
        case "ExternalName":
            return str(spec.get("externalName", ""))
    return UNKNOWN


def _service_port(port: Tree) -> str:
    node_port = f":{port['nodePort']}" if port.get("nodePort") else ""
    return f"{port.get('port')}{node_port}/{port.get('protocol', 'TCP')}"


def _balancer_addresses(status: Tree) -> list[str]:
    """Return the IPs or host names of the load balancer, sorted."""
    found = part(status, "loadBalancer").get("ingress", ())
    return sorted({i.get("ip") or i.get("hostname") or "" for i in found} - {""})


def _subset(subset: Tree) -> Iterable[str]:
    addresses = [address.get("ip", "") for address in subset.get("addresses", ())]
    ports = subset.get("ports", ())
    return [_host_port(ip, port.get("port", 0)) for port in ports for ip in addresses] if ports else addresses


def _host_port(ip: str, port: int) -> str:
    return f"[{ip}]:{port}" if ":" in ip else f"{ip}:{port}"


def _hosts(hosts: list[str]) -> str:
    """Return the first three host names and the number of others. Rules without a host count as one each."""
    named = [place for place, host in enumerate(hosts) if host][:_HOSTS_SHOWN]
    text = joined((hosts[place] for place in named), empty="*")
    cut = len(named) == _HOSTS_SHOWN and named[-1] < len(hosts) - 1
    return f"{text} + {len(hosts) - _HOSTS_SHOWN} more..." if cut else text


PRINTERS = {
    ("", "Endpoints"): Printer(columns("endpoint"), _endpoints),
    ("", "Service"): Printer(columns("service"), _service),
    ("discovery.k8s.io", "EndpointSlice"): Printer(columns("endpointSlice"), _endpoint_slice),
    ("networking.k8s.io", "IPAddress"): Printer(columns("ipAddress"), _ip_address),
    ("networking.k8s.io", "Ingress"): Printer(columns("ingress"), _ingress),
    ("networking.k8s.io", "IngressClass"): Printer(columns("ingressClass"), _ingress_class),
    ("networking.k8s.io", "NetworkPolicy"): Printer((NAME, ("Pod-Selector", "string", "", 0), AGE), _network_policy),
    ("networking.k8s.io", "ServiceCIDR"): Printer(columns("serviceCIDR"), _service_cidr),
}
