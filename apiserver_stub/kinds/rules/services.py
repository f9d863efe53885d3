"""Validation of Services."""

from typing import Any

from apiserver_stub.common.error_list import IMMUTABLE, ErrorList, FieldPath, place
from apiserver_stub.kinds.rules.combine import (
    KindRules,
    both,
    distinct,
    distinct_by,
    each,
    need,
    one_of,
    record,
    within,
)
from apiserver_stub.kinds.rules.endpoints import reachable
from apiserver_stub.kinds.rules.formats import (
    LABEL,
    PORT,
    QUALIFIED,
    address,
    family,
    network,
    port_or_name,
)
from apiserver_stub.kinds.rules.metadata import labels
from apiserver_stub.kinds.strategies.services import is_exposed, is_headless, may_have_node_ports, needs_health_port
from apiserver_stub.kinds.values import names
from controller_manager.common.api.errors import Cause
from controller_manager.common.api.tree import Tree

_ONCE = "may not change once set"


def change(new: Tree, old: Tree, errors: ErrorList) -> None:
    """Validate an update through the main resource. A change from or to type ExternalName is not restricted."""
    spec, before = new.get("spec") or {}, old.get("spec") or {}
    if _address_problems(spec) or "ExternalName" in (spec.get("type"), before.get("type")):
        return
    _one_stack(spec, before, errors)
    _stack_change(spec, before, errors)
    if spec.get("type") == before.get("type") == "LoadBalancer":
        _balancer(spec, before, errors)


def _one_stack(spec: Tree, before: Tree, errors: ErrorList) -> None:
    """Check that a single-stack Service has one address and one family. If two are unchanged, the first is used."""
    for name in ("clusterIPs", "ipFamilies"):
        given = spec.get(name) or ()
        if spec.get("ipFamilyPolicy") == "SingleStack" and len(given) > 1 and given != before.get(name):
            why = f"must be 'RequireDualStack' or 'PreferDualStack' when multiple {name} are specified"
            errors.invalid(place("spec.ipFamilyPolicy"), "SingleStack", why)


def _stack_change(spec: Tree, before: Tree, errors: ErrorList) -> None:
    """Check that the first address and family stay. The second may only go together with a policy change."""
    headless = is_headless(spec), is_headless(before)
    if headless == (True, True):
        return
    for name in ("clusterIPs", "ipFamilies") if headless == (False, False) else ("clusterIPs",):
        now, known, at = _values(spec, name), _values(before, name), place(f"spec.{name}")
        indexes = range(len(now)) if len(now) == len(known) else range(min(len(now), len(known), 1))
        for index in indexes:
            if now[index] != known[index]:
                errors.invalid((at, index if name == "clusterIPs" else 0), now, _ONCE)
        if known and not now and name == "clusterIPs":
            errors.invalid((at, 0), now, "may not be removed")
        if len(now) == 1 < len(known) and spec.get("ipFamilyPolicy") != "SingleStack":
            why = "must be 'SingleStack' where the second family is given up"
            errors.invalid(place("spec.ipFamilyPolicy"), spec.get("ipFamilyPolicy"), why)


def _values(spec: Tree, name: str) -> list[Any]:
    first = spec.get("clusterIP")
    return spec.get(name) or ([first] if name == "clusterIPs" and first else [])


def _balancer(new: Tree, old: Tree, errors: ErrorList) -> None:
    before = old.get("loadBalancerClass")
    if new.get("loadBalancerClass") != before:
        errors.invalid(place("spec.loadBalancerClass"), new.get("loadBalancerClass"), _ONCE)
    local = new.get("externalTrafficPolicy") == old.get("externalTrafficPolicy") == "Local"
    port = old.get("healthCheckNodePort")
    if local and port and new.get("healthCheckNodePort") != port:
        errors.forbidden(place("spec.healthCheckNodePort"), IMMUTABLE)


_LONGEST_AFFINITY = 86_400
_LOAD_BALANCER_ONLY = ("allocateLoadBalancerNodePorts", "loadBalancerClass")
_RANGES = "LoadBalancerSourceRanges"  # as kube-apiserver spells it


def _source_ranges(spec: Any, at: FieldPath, errors: ErrorList) -> None:
    ranges, here = spec.get("loadBalancerSourceRanges") or (), (at, _RANGES)
    if ranges and spec.get("type") != "LoadBalancer":
        errors.forbidden(here, "may only be used when `type` is 'LoadBalancer'")
    for index, text in enumerate(ranges):
        if why := network(text.strip()):
            errors.invalid((here, index), text, why)


_PORT = record({
    "name": LABEL, "port": PORT, "targetPort": port_or_name, "appProtocol": QUALIFIED,
    "protocol": one_of("SCTP", "TCP", "UDP"),
})  # fmt: skip


def _ports(spec: Any, at: FieldPath, errors: ErrorList) -> None:
    ports, here = spec.get("ports") or [], (at, "ports")
    if not ports and not is_headless(spec) and spec.get("type") != "ExternalName":
        errors.required(here)
    seen: set[tuple[Any, ...]] = set()
    for index, port in enumerate(ports):
        protocol, own = port.get("protocol", "TCP"), (here, index)
        if len(ports) > 1 and not port.get("name"):
            errors.required((own, "name"))
        if ("port", protocol, port.get("port")) in seen:
            errors.duplicate(own, {"protocol": protocol, "port": port.get("port")})
        if port.get("nodePort") and ("node", protocol, port["nodePort"]) in seen:
            errors.duplicate((own, "nodePort"), port["nodePort"])
        seen |= {("port", protocol, port.get("port")), ("node", protocol, port.get("nodePort"))}
        if port.get("nodePort") and spec.get("type") == "ClusterIP":
            errors.forbidden((own, "nodePort"), "may not be used when `type` is 'ClusterIP'")


_EXTERNAL_POLICY = record({"externalTrafficPolicy": one_of("Cluster", "Local")}, need("externalTrafficPolicy"))


def _type(spec: Any, at: FieldPath, errors: ErrorList) -> None:
    kind = spec.get("type", "ClusterIP")
    if kind == "ExternalName":
        _external_name(spec, at, errors)
    elif may_have_node_ports(spec) and is_headless(spec):
        errors.invalid(((at, "clusterIPs"), 0), "None", f"may not be set to 'None' for {kind} services")
    if kind != "LoadBalancer":
        for name in _LOAD_BALANCER_ONLY:
            if spec.get(name) is not None:
                errors.forbidden((at, name), "may only be used when `type` is 'LoadBalancer'")
    elif why := names.qualified(spec.get("loadBalancerClass", "a")):
        errors.malformed((at, "loadBalancerClass"), spec["loadBalancerClass"], why)
    if spec.get("healthCheckNodePort") and not needs_health_port(spec):
        why = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'"
        errors.invalid((at, "healthCheckNodePort"), spec["healthCheckNodePort"], why)
    if is_exposed(spec):
        _EXTERNAL_POLICY(spec, at, errors)
    elif spec.get("externalTrafficPolicy"):
        why = "may only be set for externally-accessible services"
        errors.invalid((at, "externalTrafficPolicy"), spec["externalTrafficPolicy"], why)


def _external_name(spec: Tree, at: FieldPath, errors: ErrorList) -> None:
    name = (spec.get("externalName") or "").removesuffix(".")
    if not name:
        errors.required((at, "externalName"))
    elif why := names.subdomain(name):
        errors.malformed((at, "externalName"), name, why)
    for field in ("clusterIPs", "ipFamilies", "ipFamilyPolicy"):
        if spec.get(field):
            errors.forbidden((at, field), "may not be set for ExternalName services")


def _affinity(spec: Any, at: FieldPath, errors: ErrorList) -> None:
    kind, config, here = spec.get("sessionAffinity"), spec.get("sessionAffinityConfig"), (at, "sessionAffinityConfig")
    if kind == "None" and config is not None:
        errors.forbidden(here, "must not be set when session affinity is None")
    if kind != "ClientIP" or config is None:
        return
    seconds = (config.get("clientIP") or {}).get("timeoutSeconds")
    if seconds is not None and not 0 < seconds <= _LONGEST_AFFINITY:
        why = f"must be greater than 0 and less than {_LONGEST_AFFINITY}"
        errors.invalid(((here, "clientIP"), "timeoutSeconds"), seconds, why)


def _address_problems(spec: Any) -> list[Cause]:
    """Return the errors in the addresses and families of a Service."""
    errors, at = ErrorList(), place("spec")
    if spec.get("type") != "ExternalName":
        _FAMILIES(spec, at, errors)
        _addresses(spec, (at, "clusterIPs"), errors)
    return errors.causes


_FAMILIES = record({
    "ipFamilies": both(each(one_of("IPv4", "IPv6")), distinct()),
    "ipFamilyPolicy": one_of("PreferDualStack", "RequireDualStack", "SingleStack"),
})  # fmt: skip


def _addresses(spec: Any, at: FieldPath, errors: ErrorList) -> None:
    first, given, families = spec.get("clusterIP"), spec.get("clusterIPs") or [], spec.get("ipFamilies") or []
    if given and not first:
        errors.invalid(at, given, "must be empty when `clusterIP` is not specified")
    elif given and given[0] != first:
        errors.invalid(at, given, "first value must match `clusterIP`")
    wrong = len(given) > 1 and given[0] == "None"
    if wrong:
        errors.invalid(at, given, "'None' must be the first and only value")
    for index, text in enumerate(given):
        if (index or text != "None") and (why := address(text)):
            errors.invalid((at, index), text, why)
            wrong = True
    if len(given) > 2:
        errors.invalid(at, given, "may only hold up to 2 values")
    if wrong or given[:1] == ["None"]:
        return
    if len(given) > 1 and len({family(ip) for ip in given}) == 1:
        errors.invalid(at, given, "may hold one of each IP family")
    for index, (ip, wanted) in enumerate(zip(given, families, strict=False)):
        if wanted in ("IPv4", "IPv6") and family(ip) != wanted:
            errors.invalid((at, index), ip, f"expected an {wanted} value as indicated by `ipFamilies[{index}]`")


_SPEC = record({
    "ports": both(each(_PORT), distinct_by("name")), "selector": labels, "externalIPs": each(reachable),
    "type": one_of("ClusterIP", "ExternalName", "LoadBalancer", "NodePort"),
    "sessionAffinity": one_of("ClientIP", "None"), "internalTrafficPolicy": one_of("Cluster", "Local"),
    "trafficDistribution": one_of("PreferClose", "PreferSameNode", "PreferSameZone"),
}, _ports, _type, _source_ranges, _affinity)  # fmt: skip


def _service(service: Any, at: FieldPath, errors: ErrorList) -> None:
    """Check a Service. If its addresses are invalid, other errors are not reported."""
    spec = service.get("spec") or {}
    if problems := _address_problems(spec):
        errors.causes += problems
    else:
        _SPEC(spec, (at, "spec"), errors)


def _new_service(service: Any, _at: FieldPath, errors: ErrorList) -> None:
    spec = service.get("spec") or {}
    if not _address_problems(spec):
        _one_stack(spec, {}, errors)


def _ingress_points(points: Any, at: FieldPath, errors: ErrorList) -> None:
    for index, point in enumerate(points):
        text, name = point.get("ip", ""), point.get("hostname", "")
        if text and (why := address(text)):
            errors.invalid(((at, index), "ip"), text, why)
        if name and not address(name):
            errors.invalid(((at, index), "hostname"), name, "must be a DNS name, not an IP address")
        elif name and (why := names.subdomain(name)):
            errors.malformed(((at, index), "hostname"), name, why)


INGRESS_POINTS = within("status.loadBalancer.ingress", _ingress_points)


def _status(new: Tree, _old: Tree, errors: ErrorList) -> None:
    INGRESS_POINTS(new, None, errors)
    points = (new.get("status") or {}).get("loadBalancer") or {}
    if points.get("ingress") and (new.get("spec") or {}).get("type") != "LoadBalancer":
        errors.forbidden(place("status.loadBalancer.ingress"), 'may only be used when `spec.type` is "LoadBalancer"')


RULES = {
    "v1/Service": KindRules(
        _service, change, {"status": _status}, names.label, on_create=_new_service, by_schema=False,
    ),
}  # fmt: skip
