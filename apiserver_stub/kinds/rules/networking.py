"""Validation of Ingresses, IngressClasses, NetworkPolicies, IPAddresses and ServiceCIDRs."""

import re
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Any

from apiserver_stub.common.error_list import IMMUTABLE, ErrorList, FieldPath, place
from apiserver_stub.kinds.rules.combine import (
    KindRules,
    both,
    each,
    fixed,
    form,
    if_any,
    need,
    one_of,
    outcome,
    record,
    shorter,
)
from apiserver_stub.kinds.rules.formats import LABEL, NETWORK, PORT, SUBDOMAIN, address, family, network, port_or_name
from apiserver_stub.kinds.rules.selectors import SELECTOR
from apiserver_stub.kinds.rules.services import INGRESS_POINTS
from apiserver_stub.kinds.values import names
from apiserver_stub.kinds.values.names import range_of
from apiserver_stub.kinds.values.trees import get_in
from controller_manager.common.api.tree import Tree

_BAD_SEQUENCES = ("//", "/./", "/../", "%2f", "%2F")
_BAD_ENDINGS = ("/..", "/.")
_PATH_TYPES = ("Exact", "ImplementationSpecific", "Prefix")
_LONGEST_CONTROLLER = 250
_HTTP_PATH = re.compile(r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+", re.ASCII)
_CLASS_ANNOTATION = "kubernetes.io/ingress.class"


def _host(name: str) -> str:
    return "must be a DNS name, not an IP address" if not address(name) else names.host(name)


def _path(entry: Any, at: FieldPath, errors: ErrorList) -> None:
    path, kind, here = entry.get("path", ""), entry.get("pathType"), (at, "path")
    if kind is None:
        errors.required((at, "pathType"), "pathType must be specified")
        return
    if kind in ("Exact", "Prefix"):
        if not path.startswith("/"):
            errors.invalid(here, path, "must be an absolute path")
        for bad in _BAD_SEQUENCES:
            if path and bad in path:
                errors.invalid(here, path, f"must not contain '{bad}'")
        for bad in _BAD_ENDINGS:
            if path.endswith(bad):
                errors.invalid(here, path, f"cannot end with '{bad}'")
    elif kind != "ImplementationSpecific":
        errors.unsupported((at, "pathType"), kind, _PATH_TYPES)
    elif path and not path.startswith("/"):
        errors.invalid(here, path, "must be an absolute path")
    _backend(entry.get("backend") or {}, (at, "backend"), errors)


_SEGMENT = if_any(form(names.path_segment))
_RESOURCE = record({"apiGroup": SUBDOMAIN, "kind": _SEGMENT, "name": _SEGMENT}, need("kind", "name"))


def _backend(backend: Any, at: FieldPath, errors: ErrorList) -> None:
    service, resource = backend.get("service"), backend.get("resource")
    if service is not None and resource is not None:
        errors.invalid(at, "", "cannot set both resource and service backends")
    elif service is not None:
        _service(service, at, errors)
    elif resource is not None:
        _RESOURCE(resource, (at, "resource"), errors)
    else:
        errors.invalid(at, "", "resource or service backend is required")


def _service(service: Any, backend: FieldPath, errors: ErrorList) -> None:
    name, port, at = service.get("name", ""), service.get("port") or {}, (backend, "service")
    here = (at, "port")
    if not name:
        errors.required((at, "name"))
    elif why := names.label(name):
        errors.malformed((at, "name"), name, why)
    if port.get("name") and port.get("number"):
        errors.invalid(backend, "", "cannot set both port name & port number")
    elif port.get("name"):
        if why := names.port_name(port["name"]):
            errors.malformed((here, "name"), port["name"], why)
    elif port.get("number"):
        PORT(port["number"], (here, "number"), errors)
    else:
        errors.required(backend, "port name or number is required")


_HTTP = record({"paths": each(_path)}, need("paths"))


def _some_way(spec: Any, at: FieldPath, errors: ErrorList) -> None:
    if not spec.get("rules") and spec.get("defaultBackend") is None:
        errors.invalid(at, spec, "either `defaultBackend` or `rules` must be specified")


_SPEC = record({
    "defaultBackend": _backend, "ingressClassName": SUBDOMAIN,
    "rules": each(record({"host": if_any(form(_host)), "http": _HTTP})),
    "tls": each(record({"hosts": each(form(names.host)), "secretName": SUBDOMAIN})),
}, _some_way)  # fmt: skip


def _same_class(ingress: Any, _at: FieldPath, errors: ErrorList) -> None:
    """Check that a new ingress has a single class if the legacy annotation is set too."""
    named = get_in(ingress, ("metadata", "annotations", _CLASS_ANNOTATION))
    wanted = get_in(ingress, ("spec", "ingressClassName"))
    if named is not None and wanted is not None and named != wanted:
        errors.invalid(((None, "annotations"), _CLASS_ANNOTATION), named, "must match `ingressClassName`")


def _parameters(parameters: Any, at: FieldPath, errors: ErrorList) -> None:
    scope, space, here = parameters.get("scope"), parameters.get("namespace"), (at, "namespace")
    if scope == "Namespace" and space is None:
        errors.required(here, "`parameters.scope` is set to 'Namespace'")
    elif scope == "Namespace":
        LABEL(space, here, errors)
    elif scope == "Cluster" and space is not None:
        errors.forbidden(here, "`parameters.scope` is set to 'Cluster'")


def _domain_path(text: str) -> str:
    domain, _, path = text.partition("/")
    if not domain or not path:
        return 'must be a domain-prefixed path (such as "acme.io/foo")'
    return names.subdomain(domain) or ("" if _HTTP_PATH.fullmatch(path) else "must have characters of a path only")


_CLASS = record({
    "controller": both(shorter(_LONGEST_CONTROLLER), if_any(form(_domain_path))),
    "parameters": both(_RESOURCE, record({"scope": one_of("Cluster", "Namespace")}, _parameters)),
}, need("controller"))  # fmt: skip


_BOTH = 2  # ingress and egress, IPv4 and IPv6


def _end_port(port: Any, at: FieldPath, errors: ErrorList) -> None:
    first, last, here = port.get("port"), port.get("endPort"), (at, "endPort")
    if last is None:
        return
    if type(first) is not int:
        errors.invalid(here, last, "may only be specified with a port number")
        return
    if last < first:
        errors.invalid(here, last, "must be greater than or equal to `port`")
    PORT(last, here, errors)


_PORTS = each(record({"port": port_or_name, "protocol": one_of("SCTP", "TCP", "UDP")}, _end_port))


def _block(block: Any, at: FieldPath, errors: ErrorList) -> None:
    """Check an address range and the parts that are excluded from it."""
    whole = block.get("cidr", "")
    if not whole:
        errors.required((at, "cidr"))
        return
    NETWORK(whole, (at, "cidr"), errors)
    if not family(whole):
        return
    for index, text in enumerate(block.get("except") or ()):
        here = ((at, "except"), index)
        if why := network(text):
            errors.invalid(here, text, why)
        elif not network(whole) and not _lies_in(text, whole):
            errors.invalid(here, text, "must be a strict subset of `cidr`")
        if errors.full:
            return


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
    "ipBlock": _block,
}, _peer))  # fmt: skip


_POLICY_TYPES = each(one_of("Egress", "Ingress"))


def _few_types(types: Any, at: FieldPath, errors: ErrorList) -> None:
    if len(types) > _BOTH:
        errors.invalid(at, types, "may not specify more than two policyTypes")
    else:
        _POLICY_TYPES(types, at, errors)


_POLICY = record({
    "podSelector": SELECTOR, "policyTypes": _few_types,
    "ingress": each(record({"ports": _PORTS, "from": _PEERS})),
    "egress": each(record({"ports": _PORTS, "to": _PEERS})),
})  # fmt: skip


def _ranges(spec: Any, at: FieldPath, errors: ErrorList) -> None:
    """Check that there is one range, or one for each IP family."""
    ranges, here = spec.get("cidrs") or (), (at, "cidrs")
    if not ranges:
        errors.required(here, "at least one CIDR required")
        return
    if len(ranges) > _BOTH:
        errors.invalid(here, ranges, "may only hold up to 2 values")
        return
    for index, text in enumerate(ranges):
        NETWORK(text, (here, index), errors)
    families = [family(text) for text in ranges]
    if len(ranges) == _BOTH and families[0] == families[1] != "":
        errors.invalid(here, ranges, "may have no more than one of each IP family")


def _ranges_change(new: Tree, old: Tree, errors: ErrorList) -> None:
    """Check that ranges stay. A second one may be added and is then checked."""
    at = place("spec.cidrs")
    spec = new.get("spec") or {}
    now, before = spec.get("cidrs") or [], get_in(old, ("spec", "cidrs")) or []
    added = (len(before), len(now)) == (1, _BOTH)
    if len(now) != len(before) and not added:
        errors.invalid(at, now, IMMUTABLE)
        return
    for index, text in enumerate(before):
        if now[index] != text:
            errors.invalid((at, index), now[index], IMMUTABLE)
    if added:
        _ranges(spec, place("spec"), errors)


_PARENT = record({
    "group": if_any(SUBDOMAIN), **dict.fromkeys(("resource", "name", "namespace"), _SEGMENT),
}, need("name", "resource"))  # fmt: skip
_ADDRESS = record({"parentRef": _PARENT}, need("parentRef"))


def _address(tree: Any, at: FieldPath, errors: ErrorList) -> None:
    _ADDRESS(tree.get("spec") or {}, (at, "spec"), errors)


def _new_ranges(tree: Any, at: FieldPath, errors: ErrorList) -> None:
    _ranges(tree.get("spec") or {}, (at, "spec"), errors)


RULES = {
    "networking.k8s.io/v1/Ingress": KindRules(
        spec=_SPEC, subresources={"status": outcome(INGRESS_POINTS)}, on_create=_same_class, by_schema=False,
    ),
    "networking.k8s.io/v1/IngressClass": KindRules(change=fixed("spec.controller"), spec=_CLASS, by_schema=False),
    "networking.k8s.io/v1/NetworkPolicy": KindRules(spec=_POLICY, by_schema=False),
    "networking.k8s.io/v1/IPAddress": KindRules(_address, fixed("spec.parentRef"), name=address, by_schema=False),
    "networking.k8s.io/v1/ServiceCIDR": KindRules(change=_ranges_change, on_create=_new_ranges, by_schema=False),
}  # fmt: skip
