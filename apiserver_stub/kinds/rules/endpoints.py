"""Validation of Endpoints and EndpointSlices. Unchanged parts of an update are not checked again."""

from functools import lru_cache
from ipaddress import ip_address
from typing import Any, NamedTuple

from apiserver_stub.common.error_list import ErrorList, FieldPath
from apiserver_stub.kinds.rules.combine import (
    ChangeRule,
    KindRules,
    ValueRule,
    at_most,
    both,
    changes,
    distinct_by,
    each,
    fixed,
    form,
    if_any,
    need,
    one_of,
    record,
)
from apiserver_stub.kinds.rules.formats import LABEL, PORT, QUALIFIED, SUBDOMAIN, address, family
from apiserver_stub.kinds.values import names
from controller_manager.common.api.tree import Tree

_ENDPOINTS, _PORTS, _ADDRESSES, _HINTS = 1000, 20_000, 100, 8
_LONGEST, _JUDGED = 45, 10_000
_PROTOCOL = one_of("SCTP", "TCP", "UDP")
_SPECIAL = (
    ("is_unspecified", "may not be unspecified (0.0.0.0 or ::)"),
    ("is_loopback", "may not be in the loopback range (127.0.0.0/8, ::1/128)"),
    ("is_link_local", "may not be in the link-local range (169.254.0.0/16, fe80::/10)"),
)


class _Address(NamedTuple):
    """The family of an IP address, empty if the text is invalid, and the reasons why an endpoint may not have it."""

    family: str
    problems: tuple[str, ...]


def _checked(text: str) -> _Address:
    return _checked_short(text) if len(text) <= _LONGEST else _Address("", (address(text),))


@lru_cache(_JUDGED)  # every change of a service repeats most addresses
def _checked_short(text: str) -> _Address:
    if why := address(text):
        return _Address(family(text), (why,))
    parsed = ip_address(text)
    problems = [why for attribute, why in _SPECIAL if getattr(parsed, attribute)]
    if parsed.is_multicast and (text.startswith("224.0.0.") or text.lower().startswith("ff02")):
        problems.append("may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)")
    return _Address(f"IPv{parsed.version}", tuple(problems))


def reachable(text: Any, at: FieldPath, errors: ErrorList) -> None:
    """Check an address that other hosts can reach."""
    for why in _checked(text).problems:
        errors.invalid(at, text, why)


def _subset(subset: Any, at: FieldPath, errors: ErrorList) -> None:
    if not subset.get("addresses") and not subset.get("notReadyAddresses"):
        errors.required(at, "must specify `addresses` or `notReadyAddresses`")
    ports = subset.get("ports") or ()
    for index, port in enumerate(ports):
        if len(ports) > 1 and not port.get("name"):
            errors.required((((at, "ports"), index), "name"))


_ADDRESS = each(record({"ip": reachable, "hostname": LABEL, "nodeName": SUBDOMAIN}))
_ENDPOINT_PORT = record({"name": if_any(LABEL), "port": PORT, "protocol": _PROTOCOL, "appProtocol": QUALIFIED})
# The port number in a slice is not checked. It may be absent.
_SLICE_PORT = record({"name": if_any(LABEL), "protocol": _PROTOCOL, "appProtocol": QUALIFIED})
_SUBSETS = each(record({"addresses": _ADDRESS, "notReadyAddresses": _ADDRESS, "ports": each(_ENDPOINT_PORT)}, _subset))
_ENDPOINT = record({
    "hostname": LABEL, "nodeName": SUBDOMAIN,
    "hints": record({
        "forZones": both(at_most(_HINTS), distinct_by("name"), each(record({"name": form(names.label_value)}))),
        "forNodes": both(at_most(_HINTS), distinct_by("name"), each(record({"name": SUBDOMAIN}))),
    }),
})  # fmt: skip


def _slice_endpoints(tree: Any, at: FieldPath, errors: ErrorList) -> None:
    endpoints, here = tree.get("endpoints") or (), (at, "endpoints")
    if len(endpoints) > _ENDPOINTS:
        errors.too_many(here, len(endpoints), _ENDPOINTS)
        return
    for index, endpoint in enumerate(endpoints):
        _slice_addresses(tree.get("addressType"), endpoint.get("addresses") or (), ((here, index), "addresses"), errors)
        _ENDPOINT(endpoint, (here, index), errors)
        if errors.full:
            return


def _slice_addresses(kind: Any, addresses: Any, at: FieldPath, errors: ErrorList) -> None:
    if not addresses:
        errors.required(at, "must contain at least 1 address")
    elif len(addresses) > _ADDRESSES:
        errors.too_many(at, len(addresses), _ADDRESSES)
    for number, text in enumerate(addresses):
        if kind == "FQDN":
            form(names.subdomain)(text, (at, number), errors)
        elif kind in ("IPv4", "IPv6"):
            reachable(text, (at, number), errors)
            if _checked(text).family not in ("", kind):
                errors.invalid(at, text, f"must be an {kind} address")


_SLICE = record({
    "addressType": if_any(one_of("FQDN", "IPv4", "IPv6")),
    "ports": both(at_most(_PORTS), each(_SLICE_PORT), distinct_by("name", empties=True)),
}, need("addressType"))  # fmt: skip
_ALL_SUBSETS = record({"subsets": _SUBSETS})


def _if_changed(name: str, rule: ValueRule) -> ChangeRule:
    def change(new: Tree, old: Tree, errors: ErrorList) -> None:
        if new.get(name) != old.get(name):
            rule(new, None, errors)

    return change


RULES = {
    "v1/Endpoints": KindRules(change=_if_changed("subsets", _ALL_SUBSETS), on_create=_ALL_SUBSETS, by_schema=False),
    "discovery.k8s.io/v1/EndpointSlice": KindRules(
        _SLICE, changes(fixed("addressType"), _if_changed("endpoints", _slice_endpoints)),
        on_create=_slice_endpoints, by_schema=False,
    ),
}  # fmt: skip
