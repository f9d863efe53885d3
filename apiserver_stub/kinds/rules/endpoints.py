"""The rules of endpoints and of slices of them."""

from functools import lru_cache
from ipaddress import ip_address
from typing import Any, NamedTuple

from apiserver_stub.kinds import names
from apiserver_stub.kinds.error_list import ErrorList, FieldPath
from apiserver_stub.kinds.rules.combine import (
    KindRules,
    at_most,
    both,
    distinct_by,
    each,
    fixed,
    form,
    if_any,
    one_of,
    record,
)
from apiserver_stub.kinds.rules.formats import LABEL, PORT, QUALIFIED, SUBDOMAIN, address, family

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
_PORT = record({"name": if_any(LABEL), "port": PORT, "protocol": _PROTOCOL, "appProtocol": QUALIFIED})


def _subset(subset: Any, at: FieldPath, errors: ErrorList) -> None:
    if not subset.get("addresses") and not subset.get("notReadyAddresses"):
        errors.required(at, "must specify `addresses` or `notReadyAddresses`")
    ports = subset.get("ports") or ()
    for index, port in enumerate(ports):
        if len(ports) > 1 and not port.get("name"):
            errors.required((((at, "ports"), index), "name"))


# Of a slice nobody looks at the number: clients leave it open, or are told of it by another name.
_SLICE_PORT = record({"name": if_any(LABEL), "protocol": _PROTOCOL, "appProtocol": QUALIFIED})
_SUBSETS = each(record({"addresses": _ADDRESS, "notReadyAddresses": _ADDRESS, "ports": each(_PORT)}, _subset))


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
    "v1/Endpoints": KindRules(record({"subsets": _SUBSETS})),
    "discovery.k8s.io/v1/EndpointSlice": KindRules(_SLICE, fixed("addressType")),
}
