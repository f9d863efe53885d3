"""The rules of services and of the endpoints behind them."""

from functools import lru_cache
from ipaddress import ip_address
from typing import Any, NamedTuple

from apiserver_stub.kinds import names
from apiserver_stub.kinds.error_list import IMMUTABLE, ErrorList, FieldPath, place
from apiserver_stub.kinds.rules.combine import (
    KindRules,
    at_most,
    both,
    distinct,
    distinct_by,
    each,
    fixed,
    form,
    if_any,
    one_of,
    record,
    within,
)
from apiserver_stub.kinds.rules.formats import (
    ADDRESS,
    LABEL,
    PORT,
    QUALIFIED,
    SUBDOMAIN,
    address,
    family,
    network,
    port_if_any,
    port_or_name,
)
from apiserver_stub.kinds.rules.metadata import labels
from apiserver_stub.kinds.schema import Tree
from apiserver_stub.kinds.service_spec import is_exposed, is_headless, may_have_node_ports, needs_health_port

_ONCE = "may not change once set"


def change(new: Tree, old: Tree, errors: ErrorList) -> None:
    """An update through the main resource; on the way from or to an external name all is open."""
    spec, before = new.get("spec") or {}, old.get("spec") or {}
    kind = spec.get("type")
    if "ExternalName" not in (kind, before.get("type")):
        for name in ("clusterIPs", "ipFamilies"):
            _first_stays(name, _values(spec, name), _values(before, name), errors)
    if kind == before.get("type") == "LoadBalancer":
        _balancer(spec, before, errors)


def _values(spec: Tree, name: str) -> list[Any]:
    first = spec.get("clusterIP")
    return spec.get(name) or ([first] if name == "clusterIPs" and first else [])


def _first_stays(name: str, new: list[Any], old: list[Any], errors: ErrorList) -> None:
    at = place(f"spec.{name}")
    for index, (value, before) in enumerate(zip(new, old, strict=False)):
        if value != before and before:
            errors.invalid((at, index), new, _ONCE)


def _balancer(new: Tree, old: Tree, errors: ErrorList) -> None:
    before = old.get("loadBalancerClass")
    if new.get("loadBalancerClass") != before:
        errors.invalid(place("spec.loadBalancerClass"), new.get("loadBalancerClass"), _ONCE)
    local = new.get("externalTrafficPolicy") == old.get("externalTrafficPolicy") == "Local"
    port = old.get("healthCheckNodePort")
    if local and port and new.get("healthCheckNodePort") != port:
        errors.forbidden(place("spec.healthCheckNodePort"), IMMUTABLE)


_LONGEST_AFFINITY = 86_400
_LOAD_BALANCER_ONLY = ("allocateLoadBalancerNodePorts", "loadBalancerClass", "loadBalancerSourceRanges")


def _range(text: Any, at: FieldPath, errors: ErrorList) -> None:
    if why := network(text.strip()):
        errors.invalid(at, text, why)


_PORT = record({
    "name": LABEL, "port": PORT, "targetPort": port_or_name, "nodePort": port_if_any, "appProtocol": QUALIFIED,
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


def _type(spec: Any, at: FieldPath, errors: ErrorList) -> None:
    kind = spec.get("type", "ClusterIP")
    if kind == "ExternalName":
        _external_name(spec, at, errors)
    elif may_have_node_ports(spec) and is_headless(spec):
        errors.invalid(((at, "clusterIPs"), 0), "None", f"may not be set to 'None' for {kind} services")
    if kind != "LoadBalancer":
        for name in _LOAD_BALANCER_ONLY:
            if spec.get(name) not in (None, [], ""):
                errors.forbidden((at, name), "may only be used when `type` is 'LoadBalancer'")
    if spec.get("healthCheckNodePort") and not needs_health_port(spec):
        why = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'"
        errors.invalid((at, "healthCheckNodePort"), spec["healthCheckNodePort"], why)
    if spec.get("externalTrafficPolicy") and not is_exposed(spec):
        why = "may only be set for externally-accessible services"
        errors.invalid((at, "externalTrafficPolicy"), spec["externalTrafficPolicy"], why)


def _external_name(spec: Tree, at: FieldPath, errors: ErrorList) -> None:
    name = (spec.get("externalName") or "").removesuffix(".")
    if not name:
        errors.required((at, "externalName"))
    elif why := names.subdomain(name):
        errors.invalid((at, "externalName"), name, why)
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


def _addresses(spec: Any, at: FieldPath, errors: ErrorList) -> None:
    """The addresses of a service agree with each other and with the families asked for."""
    first, given, here = spec.get("clusterIP"), spec.get("clusterIPs") or [], (at, "clusterIPs")
    if spec.get("type") == "ExternalName":
        return
    if given and not first:
        errors.invalid(here, given, "must be empty when `clusterIP` is not specified")
    elif given and given[0] != first:
        errors.invalid(here, given, "first value must match `clusterIP`")
    if len(given) > 1 and "None" in given:
        errors.invalid(here, given, "'None' must be the first and only value")
    if len(given) > 2 or len({family(ip) for ip in given}) < len(given):
        errors.invalid(here, given, "may only hold up to 2 values, one of each IP family")
    for index, text in enumerate(given or ([first] if first else ())):
        if text not in ("", "None") and (why := address(text)):
            errors.invalid((here, index), text, why)
    _families(spec, given, at, errors)


def _families(spec: Tree, given: list[str], at: FieldPath, errors: ErrorList) -> None:
    families, policy = spec.get("ipFamilies") or [], spec.get("ipFamilyPolicy")
    distinct()(families, (at, "ipFamilies"), errors)
    if policy == "SingleStack" and len(families) > 1:
        errors.invalid(
            (at, "ipFamilyPolicy"),
            policy,
            "must be 'RequireDualStack' or 'PreferDualStack' when multiple ipFamilies are specified",
        )
    if policy == "SingleStack" and len(given) > 1:
        errors.invalid(
            (at, "ipFamilyPolicy"),
            policy,
            "must be 'RequireDualStack' or 'PreferDualStack' when multiple clusterIPs are specified",
        )
    for index, (ip, wanted) in enumerate(zip(given, families, strict=False)):
        if ip not in ("", "None") and family(ip) not in ("", wanted):
            errors.invalid(
                ((at, "clusterIPs"), index), ip, f"expected an {wanted} value as indicated by `ipFamilies[{index}]`"
            )


_SPEC = record({
    "ports": both(each(_PORT), distinct_by("name")), "selector": labels, "externalIPs": each(ADDRESS),
    "loadBalancerSourceRanges": each(_range), "loadBalancerClass": form(names.qualified),
    "healthCheckNodePort": port_if_any,
    "trafficDistribution": one_of("PreferClose", "PreferSameNode", "PreferSameZone"),
}, _ports, _type, _affinity, _addresses)  # fmt: skip


def _ingress_points(points: Any, at: FieldPath, errors: ErrorList) -> None:
    for index, point in enumerate(points):
        text, name = point.get("ip", ""), point.get("hostname", "")
        if text and (why := address(text)):
            errors.invalid(((at, index), "ip"), text, why)
        if name and not address(name):
            errors.invalid(((at, index), "hostname"), name, "must be a DNS name, not an IP address")
        elif name and (why := names.subdomain(name)):
            errors.invalid(((at, index), "hostname"), name, why)


INGRESS_POINTS = within("status.loadBalancer.ingress", _ingress_points)


def _status(new: Tree, _old: Tree, errors: ErrorList) -> None:
    INGRESS_POINTS(new, None, errors)
    points = (new.get("status") or {}).get("loadBalancer") or {}
    if points.get("ingress") and (new.get("spec") or {}).get("type") != "LoadBalancer":
        errors.forbidden(place("status.loadBalancer.ingress"), 'may only be used when `spec.type` is "LoadBalancer"')


_ENDPOINTS, _PORTS, _ADDRESSES, _HINTS = 1000, 20_000, 100, 8
_LONGEST, _JUDGED = 45, 10_000
_PROTOCOL = one_of("SCTP", "TCP", "UDP")
_SPECIAL = (
    ("is_unspecified", "may not be unspecified (0.0.0.0 or ::)"),
    ("is_loopback", "may not be in the loopback range (127.0.0.0/8, ::1/128)"),
    ("is_link_local", "may not be in the link-local range (169.254.0.0/16, fe80::/10)"),
)


class _Judged(NamedTuple):
    """The family of an address, if it is one, and why it may not be that of an endpoint."""

    family: str
    problems: tuple[str, ...]


def _judge(text: str) -> _Judged:
    return _judge_short(text) if len(text) <= _LONGEST else _Judged("", (address(text),))


@lru_cache(_JUDGED)  # the same addresses come again with every change of a service
def _judge_short(text: str) -> _Judged:
    if why := address(text):
        return _Judged(family(text), (why,))
    parsed = ip_address(text)
    problems = [why for attribute, why in _SPECIAL if getattr(parsed, attribute)]
    if parsed.is_multicast and (text.startswith("224.0.0.") or text.lower().startswith("ff02")):
        problems.append("may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)")
    return _Judged(f"IPv{parsed.version}", tuple(problems))


def _reachable(text: Any, at: FieldPath, errors: ErrorList) -> None:
    """An address of somebody else."""
    for why in _judge(text).problems:
        errors.invalid(at, text, why)


_ADDRESS = each(record({"ip": _reachable, "hostname": LABEL, "nodeName": SUBDOMAIN}))
_ENDPOINT_PORT = record({"name": if_any(LABEL), "port": PORT, "protocol": _PROTOCOL, "appProtocol": QUALIFIED})


def _subset(subset: Any, at: FieldPath, errors: ErrorList) -> None:
    if not subset.get("addresses") and not subset.get("notReadyAddresses"):
        errors.required(at, "must specify `addresses` or `notReadyAddresses`")
    ports = subset.get("ports") or ()
    for index, port in enumerate(ports):
        if len(ports) > 1 and not port.get("name"):
            errors.required((((at, "ports"), index), "name"))


# Of a slice nobody looks at the number: clients leave it open, or are told of it by another name.
_SLICE_PORT = record({"name": if_any(LABEL), "protocol": _PROTOCOL, "appProtocol": QUALIFIED})
_SUBSETS = each(record({"addresses": _ADDRESS, "notReadyAddresses": _ADDRESS, "ports": each(_ENDPOINT_PORT)}, _subset))


_ENDPOINT = record({
    "hostname": LABEL, "nodeName": SUBDOMAIN,
    "hints": record({
        "forZones": both(at_most(_HINTS), distinct_by("name"), each(record({"name": form(names.label_value)}))),
        "forNodes": both(at_most(_HINTS), distinct_by("name"), each(record({"name": SUBDOMAIN}))),
    }),
})  # fmt: skip


def _same_names(tree: Any, _at: FieldPath, errors: ErrorList) -> None:
    seen: set[str] = set()
    for index, port in enumerate(tree.get("ports") or ()):
        if port.get("name", "") in seen:
            errors.duplicate((((None, "ports"), index), "name"), port.get("name", ""))
        seen.add(port.get("name", ""))


def _slice_addresses(tree: Any, _at: FieldPath, errors: ErrorList) -> None:
    kind = tree.get("addressType")
    for index, endpoint in enumerate(tree.get("endpoints") or ()):
        addresses, at = endpoint.get("addresses") or [], (((None, "endpoints"), index), "addresses")
        if not addresses:
            errors.required(at, "must contain at least 1 address")
        elif len(addresses) > _ADDRESSES:
            errors.too_many(at, len(addresses), _ADDRESSES)
        for number, text in enumerate(addresses):
            _slice_address(kind, text, (at, number), errors)


def _slice_address(kind: Any, text: str, at: FieldPath, errors: ErrorList) -> None:
    if kind == "FQDN":
        if why := names.subdomain(text):
            errors.invalid(at, text, why)
    elif kind in ("IPv4", "IPv6"):
        _reachable(text, at, errors)
        if _judge(text).family not in ("", kind):
            errors.invalid(at, text, f"must be an {kind} address")


_SLICE = record({
    "endpoints": both(at_most(_ENDPOINTS), each(_ENDPOINT)), "ports": both(at_most(_PORTS), each(_SLICE_PORT)),
}, _same_names, _slice_addresses)  # fmt: skip

RULES = {
    "v1/Service": KindRules(within("spec", _SPEC), change, {"status": _status}, names.old_label),
    "v1/Endpoints": KindRules(record({"subsets": _SUBSETS})),
    "discovery.k8s.io/v1/EndpointSlice": KindRules(_SLICE, fixed("addressType")),
}
