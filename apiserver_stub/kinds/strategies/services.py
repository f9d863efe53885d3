"""The fields of a Service that its type asks for, and those that an update keeps as they were given before."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from apiserver_stub.kinds.values.trees import dicts
from controller_manager.common.api.tree import Tree

EXTERNAL, HEADLESS = "ExternalName", "None"
_BALANCED = "LoadBalancer"


def needs_addresses(spec: Tree) -> bool:
    """Return whether it has cluster IPs, be it the one that says it has none."""
    return spec.get("type") != EXTERNAL


def is_headless(spec: Tree) -> bool:
    """Return whether it wants no cluster IP."""
    return HEADLESS in (spec.get("clusterIP"), *(spec.get("clusterIPs") or ())[:1])


def may_have_node_ports(spec: Tree) -> bool:
    """Return whether its ports may be open on every node."""
    return spec.get("type") in ("NodePort", _BALANCED)


def needs_node_ports(spec: Tree) -> bool:
    """Return whether each of its ports has to be open on every node."""
    return may_have_node_ports(spec) and (
        spec.get("type") != _BALANCED or spec.get("allocateLoadBalancerNodePorts") is not False
    )


def needs_health_port(spec: Tree) -> bool:
    """Return whether load balancers ask each node on a port if it has endpoints of its own."""
    return spec.get("type") == _BALANCED and spec.get("externalTrafficPolicy") == "Local"


def _is_balanced(spec: Tree) -> bool:
    return spec.get("type") == _BALANCED


def is_exposed(spec: Tree) -> bool:
    """Return whether it can be reached from outside the cluster."""
    return may_have_node_ports(spec) or (spec.get("type", "ClusterIP") == "ClusterIP" and bool(spec.get("externalIPs")))


# What a spec has only while it needs it. It goes with the need, unless the update says something new of it.
_OWED: Mapping[str, Callable[[Tree], bool]] = MappingProxyType({
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
    """Return the spec of an update, with what it was given before where it is silent, and without what it needs no
    longer.
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
    for name, needed in _OWED.items():
        if name in spec and needed(old) and not needed(new) and spec[name] == old.get(name):
            del spec[name]
    return spec


def _keep(spec: Tree, old: Tree, name: str) -> None:
    if name in old:
        spec[name] = old[name]


def _keep_addresses(spec: Tree, old: Tree) -> None:
    """Both fields name the first address; who gives one of them alone means the other as well."""
    if not spec.get("clusterIP"):
        _keep(spec, old, "clusterIP")
    if spec.get("clusterIP") != old.get("clusterIP") and spec.get("clusterIPs") in (None, [], old.get("clusterIPs")):
        spec["clusterIPs"] = [spec["clusterIP"]]
    elif not spec.get("clusterIPs"):
        _keep(spec, old, "clusterIPs")


def _with_node_ports(ports: Any, before: Any) -> Any:
    """Return ports with the node ports that those of the same name had, where no other port has them now."""
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
    """Return ports without their node ports, if all of those were there before."""
    known = {port.get("nodePort") for _, port in dicts(before)}
    if any(port.get("nodePort") and port["nodePort"] not in known for _, port in dicts(ports)):
        return ports
    return [{name: value for name, value in port.items() if name != "nodePort"} for _, port in dicts(ports)]


def service_on_create(service: Tree) -> None:
    """The step of a new Service: both of its fields for addresses name the first."""
    spec = service.get("spec") or {}
    if spec.get("clusterIP") and not spec.get("clusterIPs"):
        service["spec"] = {**spec, "clusterIPs": [spec["clusterIP"]]}


def service_on_update(new: Tree, old: Tree, _part: str) -> None:
    """The step of an update."""
    new["spec"] = _carried_over(new.get("spec") or {}, old.get("spec") or {})
