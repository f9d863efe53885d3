"""The rules of network policies, and of addresses and ranges as objects."""

from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Any

from apiserver_stub.kinds.addresses import range_of
from apiserver_stub.kinds.error_list import ErrorList, FieldPath, place
from apiserver_stub.kinds.rules.combine import Rules, both, each, fixed, need, one_of, record, within
from apiserver_stub.kinds.rules.formats import NETWORK, address, network, one_per_family, port_or_name
from apiserver_stub.kinds.rules.selectors import SELECTOR
from apiserver_stub.kinds.schema import Tree

_BOTH = 2  # ingress and egress, IPv4 and IPv6


def _end_port(port: Any, at: FieldPath, found: ErrorList) -> None:
    first, last = port.get("port"), port.get("endPort")
    if last is None:
        return
    if first is None:
        found.required((at, "port"), "must be specified when `endPort` is specified")
    elif isinstance(first, str):
        found.invalid((at, "endPort"), last, "may not specify endPort when port is non-numeric")
    elif last < first:
        found.invalid((at, "endPort"), last, "must be greater than or equal to `port`")


_PORTS = each(record({"port": port_or_name, "protocol": one_of("SCTP", "TCP", "UDP")}, _end_port))


def _block(block: Any, at: FieldPath, found: ErrorList) -> None:
    whole = block.get("cidr", "")
    if network(whole):
        return
    for index, text in enumerate(block.get("except") or ()):
        if found.full:
            return
        if not network(text) and not _lies_in(text, whole):
            found.invalid(((at, "except"), index), text, "must be a strict subset of `cidr`")


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


def _peer(peer: Any, at: FieldPath, found: ErrorList) -> None:
    if not peer:
        found.required(at, "must specify a peer")
    elif "ipBlock" in peer and len(peer) > 1:
        found.forbidden(at, "may not specify both ipBlock and another peer")


_PEERS = each(record({
    "podSelector": SELECTOR, "namespaceSelector": SELECTOR,
    "ipBlock": record({"cidr": NETWORK, "except": each(NETWORK)}, _block),
}, _peer))  # fmt: skip


def _few_types(types: Any, at: FieldPath, found: ErrorList) -> None:
    if len(types) > _BOTH:
        found.invalid(at, types, "may not specify more than two policyTypes")


_POLICY = record({
    "podSelector": SELECTOR, "policyTypes": both(each(one_of("Egress", "Ingress")), _few_types),
    "ingress": each(record({"ports": _PORTS, "from": _PEERS})),
    "egress": each(record({"ports": _PORTS, "to": _PEERS})),
})  # fmt: skip


def _some_ranges(spec: Any, at: FieldPath, found: ErrorList) -> None:
    ranges = spec.get("cidrs") or ()
    if not ranges:
        found.required((at, "cidrs"), "at least one CIDR required")
    elif len(ranges) > _BOTH:
        found.invalid((at, "cidrs"), ranges, "may only hold up to 2 values")
    else:
        one_per_family(ranges, (at, "cidrs"), found)


_PARENT = record({"parentRef": need("name", "resource")})


def _has_parent(tree: Any, _at: FieldPath, found: ErrorList) -> None:
    if not (tree.get("spec") or {}).get("parentRef"):
        found.required(place("spec.parentRef"))


def _ranges_change(new: Tree, old: Tree, found: ErrorList) -> None:
    now, before = ((tree.get("spec") or {}).get("cidrs") or [] for tree in (new, old))
    if now[: len(before)] != before:
        found.invalid(place("spec.cidrs"), now, "may only add a second value, not change or remove one")


RULES = {
    "networking.k8s.io/v1/NetworkPolicy": Rules(within("spec", _POLICY)),
    "networking.k8s.io/v1/IPAddress": Rules(
        both(within("spec", _PARENT), _has_parent), fixed("spec.parentRef"), name=address,
    ),
    "networking.k8s.io/v1/ServiceCIDR": Rules(
        within("spec", record({"cidrs": each(NETWORK)}, _some_ranges)), _ranges_change,
    ),
}  # fmt: skip
