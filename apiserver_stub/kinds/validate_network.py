"""The rules of services, their endpoints, and what routes to them."""

from collections.abc import Iterator
from typing import Any

from apiserver_stub.kinds import names
from apiserver_stub.kinds.problems import IMMUTABLE, forbidden, invalid, required, too_many
from apiserver_stub.kinds.schema import Tree
from apiserver_stub.kinds.trees import dicts, get_in
from apiserver_stub.kinds.validate_common import check_selector, port, port_or_name, unchanged, unique, unique_in
from apiserver_stub.kinds.validate_metadata import check_labels
from controller_manager.api.errors import Cause

_SLICE_ENDPOINTS, _SLICE_PORTS, _SLICE_ADDRESSES = 1000, 20000, 100


def check_service(new: Tree, old: Tree | None) -> Iterator[Cause]:
    """All problems of a Service."""
    spec = new.get("spec") or {}
    external, headless = spec.get("type") == "ExternalName", spec.get("clusterIP") == "None"
    ports = spec.get("ports") or []
    if not ports and not headless and not external:
        yield required("spec.ports")
    if external:
        yield from _external_name(spec)
    for i, entry in dicts(ports):
        yield from _service_port(entry, f"spec.ports[{i}]", named=len(ports) > 1)
    yield from unique_in(ports, "name", "spec.ports")
    yield from unique((f"spec.ports[{i}]", (entry.get("port"), entry.get("protocol"))) for i, entry in dicts(ports))
    yield from check_labels(spec.get("selector"), "spec.selector")
    yield from _cluster_ips(spec, None if old is None else old.get("spec", {}))


def check_endpoints(new: Tree, _old: Tree | None) -> Iterator[Cause]:
    """All problems of an Endpoints object."""
    for i, subset in dicts(new.get("subsets")):
        field = f"subsets[{i}]"
        if not subset.get("addresses") and not subset.get("notReadyAddresses"):
            yield required(field, "must specify `addresses` or `notReadyAddresses`")
        for key in ("addresses", "notReadyAddresses"):
            for j, entry in dicts(subset.get(key)):
                yield from _address(entry.get("ip", ""), f"{field}.{key}[{j}].ip")
        yield from _endpoint_ports(subset.get("ports"), f"{field}.ports", named=len(subset.get("ports") or ()) > 1)


def check_endpoint_slice(new: Tree, old: Tree | None) -> Iterator[Cause]:
    """All problems of an EndpointSlice."""
    yield from unchanged(new, old, "addressType")
    endpoints, ports = new.get("endpoints") or [], new.get("ports") or []
    if len(endpoints) > _SLICE_ENDPOINTS:
        yield too_many("endpoints", len(endpoints), _SLICE_ENDPOINTS)
    if len(ports) > _SLICE_PORTS:
        yield too_many("ports", len(ports), _SLICE_PORTS)
    for i, endpoint in dicts(endpoints):
        addresses = endpoint.get("addresses") or []
        if not addresses:
            yield required(f"endpoints[{i}].addresses", "must contain at least 1 address")
        elif len(addresses) > _SLICE_ADDRESSES:
            yield too_many(f"endpoints[{i}].addresses", len(addresses), _SLICE_ADDRESSES)
        if new.get("addressType") in ("IPv4", "IPv6"):
            for j, address in enumerate(addresses):
                yield from _address(address, f"endpoints[{i}].addresses[{j}]")
    yield from unique((f"ports[{i}].name", entry.get("name", "")) for i, entry in dicts(ports))


def check_ingress(new: Tree, _old: Tree | None) -> Iterator[Cause]:
    """All problems of an Ingress."""
    spec = new.get("spec") or {}
    if not spec.get("rules") and "defaultBackend" not in spec:
        yield invalid("spec", spec, "either `defaultBackend` or `rules` must be specified")
    for i, rule in dicts(spec.get("rules")):
        for j, path in dicts(get_in(rule, ("http", "paths"))):
            field = f"spec.rules[{i}].http.paths[{j}]"
            text = path.get("path", "")
            if path.get("pathType") in ("Exact", "Prefix") and not text.startswith("/"):
                yield invalid(f"{field}.path", text, "must be an absolute path")
            yield from _backend(path.get("backend"), f"{field}.backend")
    yield from _backend(spec.get("defaultBackend"), "spec.defaultBackend")


def check_network_policy(new: Tree, _old: Tree | None) -> Iterator[Cause]:
    """All problems of a NetworkPolicy."""
    spec = new.get("spec") or {}
    yield from check_selector(spec.get("podSelector"), "spec.podSelector")
    for key, peers in (("ingress", "from"), ("egress", "to")):
        for i, rule in dicts(spec.get(key)):
            for j, entry in dicts(rule.get("ports")):
                yield from port_or_name(entry.get("port"), f"spec.{key}[{i}].ports[{j}].port")
            for j, peer in dicts(rule.get(peers)):
                yield from _peer(peer, f"spec.{key}[{i}].{peers}[{j}]")


def _peer(peer: Tree, field: str) -> Iterator[Cause]:
    if not peer:
        yield required(field, "must specify a peer")
    elif "ipBlock" in peer and len(peer) > 1:
        yield forbidden(field, "may not specify both ipBlock and another peer")
    for name in ("podSelector", "namespaceSelector"):
        yield from check_selector(peer.get(name), f"{field}.{name}")


def _external_name(spec: Tree) -> Iterator[Cause]:
    name = (spec.get("externalName") or "").removesuffix(".")
    if not name:
        yield required("spec.externalName")
    elif why := names.subdomain(name):
        yield invalid("spec.externalName", name, why)
    if spec.get("clusterIP"):
        yield forbidden("spec.clusterIP", "may not be set for ExternalName services")


def _service_port(entry: Tree, field: str, named: bool) -> Iterator[Cause]:
    if not entry.get("name"):
        if named:
            yield required(f"{field}.name")
    elif why := names.label(entry["name"]):
        yield invalid(f"{field}.name", entry["name"], why)
    yield from port(entry.get("port"), f"{field}.port")
    yield from port_or_name(entry.get("targetPort"), f"{field}.targetPort")
    if entry.get("nodePort"):
        yield from port(entry["nodePort"], f"{field}.nodePort")


def _cluster_ips(spec: Tree, old: Tree | None) -> Iterator[Cause]:
    address = spec.get("clusterIP")
    if address and address != "None":
        yield from _address(address, "spec.clusterIP")
    given = spec.get("clusterIPs") or []
    if address and given and given[0] != address:
        yield invalid("spec.clusterIPs", given, "first value must match `clusterIP`")
    before = (old or {}).get("clusterIP")
    if before and address and address != before and spec.get("type") != "ExternalName":
        yield invalid("spec.clusterIP", address, IMMUTABLE)


def _endpoint_ports(ports: Any, field: str, named: bool) -> Iterator[Cause]:
    for i, entry in dicts(ports):
        if named and not entry.get("name"):
            yield required(f"{field}[{i}].name")
        yield from port(entry.get("port"), f"{field}[{i}].port")


def _backend(backend: Any, field: str) -> Iterator[Cause]:
    if not isinstance(backend, dict):
        return
    if ("service" in backend) == ("resource" in backend):
        yield required(field, "one of `service` and `resource` must be specified")
    elif get_in(backend, ("service", "name")) and not get_in(backend, ("service", "port")):
        yield required(f"{field}.service.port", "port name or number is required")


def _address(text: str, field: str) -> Iterator[Cause]:
    if text and (why := names.address(text)):
        yield invalid(field, text, why)
