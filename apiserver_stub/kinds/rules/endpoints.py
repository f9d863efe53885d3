"""The rules of endpoints and of slices of them."""

from ipaddress import ip_address
from typing import Any

from apiserver_stub.kinds import names
from apiserver_stub.kinds.problems import At, Problems
from apiserver_stub.kinds.rules.combine import (
    Rules,
    at_most,
    both,
    distinct_by,
    each,
    fixed,
    one_of,
    record,
)
from apiserver_stub.kinds.rules.formats import LABEL, PORT, QUALIFIED, SUBDOMAIN, address, family

_ENDPOINTS, _PORTS, _ADDRESSES, _HINTS = 1000, 20_000, 100, 8
_PROTOCOL = one_of("SCTP", "TCP", "UDP")
_SPECIAL = (
    ("is_unspecified", "may not be unspecified (0.0.0.0 or ::)"),
    ("is_loopback", "may not be in the loopback range (127.0.0.0/8, ::1/128)"),
    ("is_link_local", "may not be in the link-local range (169.254.0.0/16, fe80::/10)"),
)


def _reachable(text: Any, at: At, found: Problems) -> None:
    """An address of somebody else."""
    if why := address(text):
        found.invalid(at, text, why)
        return
    parsed = ip_address(text)
    for attribute, why in _SPECIAL:
        if getattr(parsed, attribute):
            found.invalid(at, text, why)
    if parsed.is_multicast and (text.startswith("224.0.0.") or text.lower().startswith("ff02")):
        found.invalid(at, text, "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)")


_ADDRESS = each(record({"ip": _reachable, "hostname": LABEL, "nodeName": SUBDOMAIN}))
_PORT = record({"name": LABEL, "port": PORT, "protocol": _PROTOCOL, "appProtocol": QUALIFIED})


def _subset(subset: Any, at: At, found: Problems) -> None:
    if not subset.get("addresses") and not subset.get("notReadyAddresses"):
        found.required(at, "must specify `addresses` or `notReadyAddresses`")
    ports = subset.get("ports") or ()
    for index, port in enumerate(ports):
        if len(ports) > 1 and not port.get("name"):
            found.required((((at, "ports"), index), "name"))


_SUBSETS = each(record({"addresses": _ADDRESS, "notReadyAddresses": _ADDRESS, "ports": each(_PORT)}, _subset))


_ENDPOINT = record({
    "hostname": LABEL, "nodeName": SUBDOMAIN,
    "hints": record({"forZones": both(at_most(_HINTS), distinct_by("name"))}),
})  # fmt: skip


def _same_names(tree: Any, _at: At, found: Problems) -> None:
    seen: set[str] = set()
    for index, port in enumerate(tree.get("ports") or ()):
        if port.get("name", "") in seen:
            found.duplicate((((None, "ports"), index), "name"), port.get("name", ""))
        seen.add(port.get("name", ""))


def _slice_addresses(tree: Any, _at: At, found: Problems) -> None:
    kind = tree.get("addressType")
    for index, endpoint in enumerate(tree.get("endpoints") or ()):
        addresses, at = endpoint.get("addresses") or [], (((None, "endpoints"), index), "addresses")
        if not addresses:
            found.required(at, "must contain at least 1 address")
        elif len(addresses) > _ADDRESSES:
            found.too_many(at, len(addresses), _ADDRESSES)
        for number, text in enumerate(addresses):
            _slice_address(kind, text, (at, number), found)


def _slice_address(kind: Any, text: str, at: At, found: Problems) -> None:
    if kind == "FQDN":
        if why := names.subdomain(text):
            found.invalid(at, text, why)
    elif kind in ("IPv4", "IPv6"):
        _reachable(text, at, found)
        if family(text) not in ("", kind):
            found.invalid(at, text, f"must be an {kind} address")


_SLICE = record({"endpoints": both(at_most(_ENDPOINTS), each(_ENDPOINT)), "ports": both(at_most(_PORTS), each(_PORT))},
                _same_names, _slice_addresses)  # fmt: skip

RULES = {
    "v1/Endpoints": Rules(record({"subsets": _SUBSETS})),
    "discovery.k8s.io/v1/EndpointSlice": Rules(_SLICE, fixed("addressType")),
}
