"""Service fields that depend on its type, and fields that an update keeps from the stored Service."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from apiserver_stub.kinds.values.trees import dicts
from controller_manager.common.api.tree import Tree

EXTERNAL, HEADLESS = "ExternalName", "None"
_BALANCED = "LoadBalancer"


def needs_addresses(spec: Tree) -> bool:
    """Return whether the Service has cluster IPs. This includes a headless one (`None`)."""
    return spec.get("type") != EXTERNAL


def is_headless(spec: Tree) -> bool:
    """Return whether the Service is headless."""
    return HEADLESS in (spec.get("clusterIP"), *(spec.get("clusterIPs") or ())[:1])


def may_have_node_ports(spec: Tree) -> bool:
    """Return whether the ports may have node ports."""
    return spec.get("type") in ("NodePort", _BALANCED)


def needs_node_ports(spec: Tree) -> bool:
    """Return whether each port needs a node port."""
    return may_have_node_ports(spec) and (
        spec.get("type") != _BALANCED or spec.get("allocateLoadBalancerNodePorts") is not False
    )


def needs_health_port(spec: Tree) -> bool:
    """Return whether the Service needs a health check node port, which load balancers use to find nodes with local
    endpoints.
    """
    return spec.get("type") == _BALANCED and spec.get("externalTrafficPolicy") == "Local"


def _is_balanced(spec: Tree) -> bool:
    return spec.get("type") == _BALANCED


def is_exposed(spec: Tree) -> bool:
    """Return whether the Service is reachable from outside the cluster."""
    return may_have_node_ports(spec) or (spec.get("type", "ClusterIP") == "ClusterIP" and bool(spec.get("externalIPs")))


# Fields with the condition under which a spec needs them. They are dropped when an update ends the need, unless it
# also changes the field.
_CONDITIONAL: Mapping[str, Callable[[Tree], bool]] = MappingProxyType({
    "allocateLoadBalancerNodePorts": _is_balanced,
    "clusterIP": needs_addresses,
    "clusterIPs": needs_addresses,
    "externalTrafficPolicy": is_exposed,
    "healthCheckNodePort": needs_health_port,
    "internalTrafficPolicy": needs_addresses,
    "ipFamilies": needs_addresses,
    "ipFamilyPolicy": needs_addresses,
    "loadBalancerClass": _is_balanced,
})  # fmt: skip


def _carried_over(new: Tree, old: Tree) -> Tree:
    """Return the spec of an update with absent values taken from the stored spec and fields removed that are no longer
    needed.
    """
    spec = dict(new)
    if needs_addresses(new) and needs_addresses(old):
        _keep_addresses(spec, old)
    if needs_health_port(new) and needs_health_port(old) and not new.get("healthCheckNodePort"):
        _keep(spec, old, "healthCheckNodePort")
    ports = spec.get("ports")
    if ports and may_have_node_ports(new) and may_have_node_ports(old):
        spec["ports"] = _with_node_ports(ports, old.get("ports"))
    elif ports and may_have_node_ports(old):
        spec["ports"] = _without_node_ports(ports, old.get("ports"))
    for name, needed in _CONDITIONAL.items():
        if name in spec and needed(old) and not needed(new) and spec[name] == old.get(name):
            del spec[name]
    return spec


def _keep(spec: Tree, old: Tree, name: str) -> None:
    if name in old:
        spec[name] = old[name]


def _keep_addresses(spec: Tree, old: Tree) -> None:
    """Keep the stored addresses. `clusterIP` and the first of `clusterIPs` are the same address, so an update of one
    sets both.
    """
    if not spec.get("clusterIP"):
        _keep(spec, old, "clusterIP")
    if spec.get("clusterIP") != old.get("clusterIP") and spec.get("clusterIPs") in (None, [], old.get("clusterIPs")):
        spec["clusterIPs"] = [spec["clusterIP"]]
    elif not spec.get("clusterIPs"):
        _keep(spec, old, "clusterIPs")


def _with_node_ports(ports: Any, before: Any) -> Any:
    """Return the ports with the stored node ports of ports with the same name, unless another port now uses them."""
    given = {port.get("name"): port.get("nodePort") for _, port in dicts(before)}
    used = {port.get("nodePort") for _, port in dicts(ports)}
    found = []
    for _, port in dicts(ports):
        known = given.get(port.get("name"))
        if not port.get("nodePort") and known and known not in used:
            used.add(known)
            port = {**port, "nodePort": known}
        found.append(port)
    return found


def _without_node_ports(ports: Any, before: Any) -> Any:
    """Return the ports without node ports if all of those were stored before."""
    known = {port.get("nodePort") for _, port in dicts(before)}
    if any(port.get("nodePort") and port["nodePort"] not in known for _, port in dicts(ports)):
        return ports
    return [{name: value for name, value in port.items() if name != "nodePort"} for _, port in dicts(ports)]


def service_on_create(service: Tree) -> None:
    """Prepare a new Service: set `clusterIPs` from `clusterIP`."""
    spec = service.get("spec") or {}
    if spec.get("clusterIP") and not spec.get("clusterIPs"):
        service["spec"] = {**spec, "clusterIPs": [spec["clusterIP"]]}


def service_on_update(new: Tree, old: Tree, _part: str) -> None:
    """Prepare an update of a Service."""
    new["spec"] = _carried_over(new.get("spec") or {}, old.get("spec") or {})
