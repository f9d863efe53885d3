"""The rules of ingresses and their classes, of network policies, and of addresses and ranges as objects."""

from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Any

from apiserver_stub.kinds import names
from apiserver_stub.kinds.error_list import ErrorList, FieldPath, place
from apiserver_stub.kinds.names import range_of
from apiserver_stub.kinds.rules.combine import KindRules, both, each, fixed, form, need, one_of, outcome, record, within
from apiserver_stub.kinds.rules.formats import NETWORK, PORT, SUBDOMAIN, address, network, one_per_family, port_or_name
from apiserver_stub.kinds.rules.selectors import SELECTOR
from apiserver_stub.kinds.rules.services import INGRESS_POINTS
from apiserver_stub.kinds.schema import Tree

_BAD_SEQUENCES = ("//", "/./", "/../", "%2f", "%2F")
_BAD_ENDINGS = ("/..", "/.")


def _host(name: str) -> str:
    return "must be a DNS name, not an IP address" if not address(name) else names.host(name)


def _class_controller(name: str) -> str:
    return "must be no more than 250 characters" if len(name) > 250 else names.domain_prefixed(name)


def _path(entry: Any, at: FieldPath, errors: ErrorList) -> None:
    path, kind, here = entry.get("path", ""), entry.get("pathType"), (at, "path")
    if kind is None:
        errors.required((at, "pathType"), "pathType must be specified")
    elif kind in ("Exact", "Prefix"):
        if not path.startswith("/"):
            errors.invalid(here, path, "must be an absolute path")
        for bad in _BAD_SEQUENCES:
            if path and bad in path:
                errors.invalid(here, path, f"must not contain '{bad}'")
        for bad in _BAD_ENDINGS:
            if path.endswith(bad):
                errors.invalid(here, path, f"cannot end with '{bad}'")
    elif kind == "ImplementationSpecific" and path and not path.startswith("/"):
        errors.invalid(here, path, "must be an absolute path")


def _backend(backend: Any, at: FieldPath, errors: ErrorList) -> None:
    service, resource = backend.get("service"), backend.get("resource")
    if service is not None and resource is not None:
        errors.invalid(at, "", "cannot set both resource and service backends")
    elif service is None and resource is None:
        errors.invalid(at, "", "resource or service backend is required")
    elif service is not None:
        _service(service, at, errors)


def _service(service: Any, backend: FieldPath, errors: ErrorList) -> None:
    name, port, at = service.get("name", ""), service.get("port") or {}, (backend, "service")
    here = (at, "port")
    if name and (why := names.old_label(name)):
        errors.invalid((at, "name"), name, why)
    if port.get("name") and port.get("number"):
        errors.invalid(backend, "", "cannot set both port name & port number")
    elif port.get("name"):
        if why := names.port_name(port["name"]):
            errors.invalid((here, "name"), port["name"], why)
    elif port.get("number"):
        PORT(port["number"], (here, "number"), errors)
    elif name:
        errors.required(backend, "port name or number is required")


_HTTP = record({"paths": each(record({"backend": _backend}, _path))}, need("paths"))


def _some_way(spec: Any, at: FieldPath, errors: ErrorList) -> None:
    if not spec.get("rules") and spec.get("defaultBackend") is None:
        errors.invalid(at, spec, "either `defaultBackend` or `rules` must be specified")


_SPEC = record({
    "defaultBackend": _backend, "ingressClassName": SUBDOMAIN,
    "rules": each(record({"host": form(_host), "http": _HTTP})),
    "tls": each(record({"hosts": each(form(names.host)), "secretName": SUBDOMAIN})),
}, _some_way)  # fmt: skip


def _parameters(parameters: Any, at: FieldPath, errors: ErrorList) -> None:
    scope, space = parameters.get("scope"), parameters.get("namespace")
    if scope == "Namespace" and not space:
        errors.required((at, "namespace"), "`parameters.scope` is set to 'Namespace'")
    elif scope == "Cluster" and space:
        errors.forbidden((at, "namespace"), "`parameters.scope` is set to 'Cluster'")


_CLASS = record({
    "controller": form(_class_controller),
    "parameters": record({"scope": one_of("Cluster", "Namespace"), "kind": form(names.path_segment)}, _parameters),
})  # fmt: skip


_BOTH = 2  # ingress and egress, IPv4 and IPv6


def _end_port(port: Any, at: FieldPath, errors: ErrorList) -> None:
    first, last = port.get("port"), port.get("endPort")
    if last is None:
        return
    if first is None:
        errors.required((at, "port"), "must be specified when `endPort` is specified")
    elif isinstance(first, str):
        errors.invalid((at, "endPort"), last, "may not specify endPort when port is non-numeric")
    elif last < first:
        errors.invalid((at, "endPort"), last, "must be greater than or equal to `port`")


_PORTS = each(record({"port": port_or_name, "protocol": one_of("SCTP", "TCP", "UDP")}, _end_port))


def _block(block: Any, at: FieldPath, errors: ErrorList) -> None:
    whole = block.get("cidr", "")
    if network(whole):
        return
    for index, text in enumerate(block.get("except") or ()):
        if errors.full:
            return
        if not network(text) and not _lies_in(text, whole):
            errors.invalid(((at, "except"), index), text, "must be a strict subset of `cidr`")


def _lies_in(text: str, whole: str) -> bool:
    usual, around = range_of(text), range_of(whole)
    if usual and around:
        return usual.lies_within(around)
    inner, outer = ip_network(text), ip_network(whole)
    if isinstance(inner, IPv4Network) and isinstance(outer, IPv4Network):
        return inner != outer and inner.subnet_of(outer)
    if isinstance(inner, IPv6Network) and isinstance(outer, IPv6Network):
        return inner != outer and inner.subnet_of(outer)
    return False


def _peer(peer: Any, at: FieldPath, errors: ErrorList) -> None:
    if not peer:
        errors.required(at, "must specify a peer")
    elif "ipBlock" in peer and len(peer) > 1:
        errors.forbidden(at, "may not specify both ipBlock and another peer")


_PEERS = each(record({
    "podSelector": SELECTOR, "namespaceSelector": SELECTOR,
    "ipBlock": record({"cidr": NETWORK, "except": each(NETWORK)}, _block),
}, _peer))  # fmt: skip


def _few_types(types: Any, at: FieldPath, errors: ErrorList) -> None:
    if len(types) > _BOTH:
        errors.invalid(at, types, "may not specify more than two policyTypes")


_POLICY = record({
    "podSelector": SELECTOR, "policyTypes": both(each(one_of("Egress", "Ingress")), _few_types),
    "ingress": each(record({"ports": _PORTS, "from": _PEERS})),
    "egress": each(record({"ports": _PORTS, "to": _PEERS})),
})  # fmt: skip


def _some_ranges(spec: Any, at: FieldPath, errors: ErrorList) -> None:
    ranges = spec.get("cidrs") or ()
    if not ranges:
        errors.required((at, "cidrs"), "at least one CIDR required")
    elif len(ranges) > _BOTH:
        errors.invalid((at, "cidrs"), ranges, "may only hold up to 2 values")
    else:
        one_per_family(ranges, (at, "cidrs"), errors)


_PARENT = record({"parentRef": need("name", "resource")})


def _has_parent(tree: Any, _at: FieldPath, errors: ErrorList) -> None:
    if not (tree.get("spec") or {}).get("parentRef"):
        errors.required(place("spec.parentRef"))


def _ranges_change(new: Tree, old: Tree, errors: ErrorList) -> None:
    now, before = ((tree.get("spec") or {}).get("cidrs") or [] for tree in (new, old))
    if now[: len(before)] != before:
        errors.invalid(place("spec.cidrs"), now, "may only add a second value, not change or remove one")


RULES = {
    "networking.k8s.io/v1/Ingress": KindRules(within("spec", _SPEC), subresources={"status": outcome(INGRESS_POINTS)}),
    "networking.k8s.io/v1/IngressClass": KindRules(within("spec", _CLASS), fixed("spec.controller")),
    "networking.k8s.io/v1/NetworkPolicy": KindRules(within("spec", _POLICY)),
    "networking.k8s.io/v1/IPAddress": KindRules(
        both(within("spec", _PARENT), _has_parent),
        fixed("spec.parentRef"),
        name=address,
    ),
    "networking.k8s.io/v1/ServiceCIDR": KindRules(
        within("spec", record({"cidrs": each(NETWORK)}, _some_ranges)),
        _ranges_change,
    ),
}
