"""Validation of the status of ResourceClaims: allocation, reservations, device status.

An allocation is immutable, so it is only validated when it is added. The status of a device needs an allocated device
(KEP-4817).
"""

import re
from ipaddress import IPv4Interface, IPv6Interface, ip_interface
from typing import Any

import msgspec

from apiserver_stub.common.error_list import IMMUTABLE, ErrorList, FieldPath, place
from apiserver_stub.kinds.rules.combine import (
    ValueRule,
    at_most,
    both,
    duplicates,
    each,
    filled,
    if_any,
    one_of,
    record,
    shorter,
)
from apiserver_stub.kinds.rules.conditions import CONDITIONS
from apiserver_stub.kinds.rules.device_parts import (
    NEEDED_DRIVER,
    POOL,
    REQUESTS,
    binding,
    few,
    few_distinct,
    in_order,
    json_object,
    known_request,
    opaque,
    request_names,
)
from apiserver_stub.kinds.rules.formats import LABEL
from apiserver_stub.kinds.rules.selectors import NODE_SELECTOR
from apiserver_stub.kinds.strategies.device_claims import DeviceID, allocated, id_of
from apiserver_stub.kinds.values.trees import get_in
from controller_manager.common.api.tree import Tree

_USERS, _RESULTS, _CONFIGS, _CONDITIONS, _ADDRESSES = 256, 32, 64, 8, 16
_LONGEST_INTERFACE, _LONGEST_HARDWARE, _LARGEST_DATA = 256, 128, 10 << 10
_UUID = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_ALLOCATION = ("status", "allocation")


def claim_status(new: Tree, old: Tree, errors: ErrorList) -> None:
    """Validate an update of the status of a claim."""
    status, at = new.get("status") or {}, place("status")
    _reserved(new, get_in(old, ("status", "reservedFor")) or [], errors)
    _device_statuses(status.get("devices") or [], allocated(new), (at, "devices"), errors)
    allocation, before = status.get("allocation"), get_in(old, _ALLOCATION)
    if allocation and before and allocation != before:
        errors.invalid((at, "allocation"), allocation, IMMUTABLE)
    elif allocation and not before:
        names = request_names(get_in(new, ("spec", "devices", "requests")) or ())
        _allocation(allocation, names, (at, "allocation"), errors)


def _shown(device: DeviceID) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(dict(zip(("Driver", "Pool", "Device", "ShareID"), device, strict=True))))


# The reservations of a claim.

_USER = in_order(resource=filled(), name=filled(), uid=filled())


def _reserved(claim: Tree, before: list[Tree], errors: ErrorList) -> None:
    users, at = get_in(claim, ("status", "reservedFor")) or [], place("status.reservedFor")
    if len(users) > _USERS:
        errors.too_many(at, len(users), _USERS)
        return
    each(_USER)(users, at, errors)
    for index, uid in duplicates([user.get("uid") or "" for user in users]):
        errors.duplicate((at, index), uid)
    if users and not get_in(claim, _ALLOCATION):
        errors.forbidden(at, "may not be specified when `allocated` is not set")
    elif claim["metadata"].get("deletionTimestamp") and any(user not in before for user in users):
        why = "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set"
        errors.forbidden(at, why)


# The allocation.


def _uuid(text: str, at: FieldPath, errors: ErrorList) -> None:
    if not _UUID.fullmatch(text):
        form = "`xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx` with lowercase hexadecimal characters"
        errors.invalid(at, text, f"uid must be in RFC 4122 normalized form, {form}")


def _allocation(allocation: Tree, requests: set[str], at: FieldPath, errors: ErrorList) -> None:
    devices, known = allocation.get("devices") or {}, known_request(requests)
    names = in_order(request=known, driver=NEEDED_DRIVER, pool=POOL, device=LABEL)
    few(_RESULTS, both(names, _result))(devices.get("results") or [], ((at, "devices"), "results"), errors)
    few(_CONFIGS, _configuration(known))(devices.get("config") or [], ((at, "devices"), "config"), errors)
    if "nodeSelector" in allocation:
        NODE_SELECTOR({"nodeSelectorTerms": [], **allocation["nodeSelector"]}, (at, "nodeSelector"), errors)


def _result(result: Any, at: FieldPath, errors: ErrorList) -> None:
    binding(result, at, errors)
    if "shareID" in result:
        _uuid(result["shareID"], (at, "shareID"), errors)


def _configuration(known: ValueRule) -> ValueRule:
    source = both(filled(), if_any(one_of("FromClaim", "FromClass")))

    def rule(config: Any, at: FieldPath, errors: ErrorList) -> None:
        source(config.get("source") or "", (at, "source"), errors)
        few_distinct(REQUESTS, known)(config.get("requests") or [], (at, "requests"), errors)
        opaque(config, at, errors)

    return rule


# The device status.


def _device_statuses(devices: list[Tree], known: set[DeviceID], at: FieldPath, errors: ErrorList) -> None:
    for index, device in enumerate(devices):
        _NAMES(device, (at, index), errors)
        if "shareID" in device:
            _uuid(device["shareID"], ((at, index), "shareID"), errors)
        if (device_id := id_of(device)) not in known:
            errors.invalid((at, index), _shown(device_id), "must be an allocated device in the claim")
        _DETAILS(device, (at, index), errors)
    for index, device_id in duplicates(list(map(id_of, devices))):
        errors.duplicate((at, index), _shown(device_id))


def _interface(text: str, at: FieldPath, errors: ErrorList) -> None:
    """Check an address with prefix length in canonical form."""
    try:
        found = ip_interface(text) if "/" in text and "%" not in text else None
    except ValueError:
        found = None
    if found is None:
        errors.invalid(at, text, "must be a valid address in CIDR form, (e.g. 10.9.8.7/24 or 2001:db8::1/64)")
    elif (usual := _canonical(found)) != text:
        errors.invalid(at, text, f'must be in canonical form ("{usual}")')


def _canonical(found: IPv4Interface | IPv6Interface) -> str:
    """Return an address in canonical form. An IPv4-mapped IPv6 address is returned as IPv4."""
    mapped, length = found.ip.ipv4_mapped if isinstance(found, IPv6Interface) else None, found.network.prefixlen
    return f"{mapped}/{length - 96 if length > 32 else length}" if mapped else found.compressed


_NAMES = in_order(driver=NEEDED_DRIVER, pool=POOL, device=LABEL)
_DETAILS = record({
    "conditions": both(at_most(_CONDITIONS), CONDITIONS),
    "data": json_object(_LARGEST_DATA),
    "networkData": record({
        "interfaceName": shorter(_LONGEST_INTERFACE), "hardwareAddress": shorter(_LONGEST_HARDWARE),
        "ips": few_distinct(_ADDRESSES, _interface),
    }),
})  # fmt: skip
