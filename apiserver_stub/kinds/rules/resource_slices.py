"""Validation of ResourceSlices, in which drivers advertise devices."""

import re
from collections.abc import Mapping
from typing import Any

from apiserver_stub.common.error_list import ErrorList, FieldPath, key
from apiserver_stub.kinds.rules.combine import (
    KindRules,
    ValueRule,
    at_least,
    both,
    each,
    filled,
    fixed,
    if_any,
    record,
    shorter,
)
from apiserver_stub.kinds.rules.device_capacity import check_capacity
from apiserver_stub.kinds.rules.device_parts import (
    NEEDED_DRIVER,
    POOL,
    TAINT,
    binding,
    few,
    few_distinct,
    in_order,
    name_of,
    qualified_name,
)
from apiserver_stub.kinds.rules.formats import LABEL, SUBDOMAIN
from apiserver_stub.kinds.rules.selectors import NODE_SELECTOR

_MOST_DEVICES, _MOST_SPECIAL, _MOST_DESCRIBED, _MOST_VALUES = 128, 64, 32, 48
_TAINTS, _CONSUMED, _SETS, _COUNTERS, _LONGEST_VALUE = 16, 2, 8, 32, 64
_NUMBER = "(0|[1-9][0-9]*)"
_RELEASE = "(0|[1-9][0-9]*|[0-9]*[a-zA-Z-][0-9a-zA-Z-]*)"
_BUILD = "[0-9a-zA-Z-]+"
_VERSION = re.compile(
    rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}(-{_RELEASE}(\.{_RELEASE})*)?(\+{_BUILD}(\.{_BUILD})*)?", re.ASCII
)
_LISTS = ("bools", "ints", "strings", "versions")
_VALUES = ("bool", "int", "string", "version", *_LISTS)


def _node_selector(selector: Any, at: FieldPath, errors: ErrorList) -> None:
    NODE_SELECTOR({"nodeSelectorTerms": [], **selector}, at, errors)


def _yes(value: Any, at: FieldPath, errors: ErrorList) -> None:
    if not value:
        errors.invalid(at, value, "must be true if it is there")


_PLACES: Mapping[str, ValueRule] = {"nodeName": SUBDOMAIN, "nodeSelector": _node_selector, "allNodes": _yes}
_SPEC_PLACES: Mapping[str, ValueRule] = {**_PLACES, "perDeviceNodeSelection": _yes}


def _one_place(part: Any, places: Mapping[str, ValueRule], at: FieldPath, errors: ErrorList) -> None:
    """Check that exactly one field says which nodes can use the devices. Empty names and false do not count."""
    for name, rule in places.items():
        if name in part:
            rule(part[name], (at, name), errors)
    saying = [name for name in places if part.get(name) not in (None, "", False)]
    if len(saying) != 1:
        why = f"exactly one of {', '.join(places)} is required"
        (errors.invalid(at, saying, why) if saying else errors.required(at, why))


# Devices.


def _version(version: str, at: FieldPath, errors: ErrorList) -> None:
    if not _VERSION.fullmatch(version):
        errors.invalid(at, version, "must be a version of the form of semver.org 2.0.0")
    _TEXT(version, at, errors)


def _one_value(attribute: Any, at: FieldPath, errors: ErrorList) -> None:
    if len(given := [name for name in _VALUES if name in attribute]) != 1:
        errors.invalid(at, attribute if given else "", "exactly one value must be specified")


_TEXT = shorter(_LONGEST_VALUE)
_ATTRIBUTE = record(
    {"string": _TEXT, "strings": each(_TEXT), "version": _version, "versions": each(_version)}, _one_value
)


def _attributes(attributes: Any, at: FieldPath, errors: ErrorList) -> None:
    for name, attribute in attributes.items():
        qualified_name(name, at, errors)
        _ATTRIBUTE(attribute, (at, key(name)), errors)


def _counters(part: Any, at: FieldPath, errors: ErrorList) -> None:
    """Check a counter set, or the counters that a device consumes."""
    counters, at = part.get("counters") or {}, (at, "counters")
    if not counters:
        errors.required(at)
    elif len(counters) > _COUNTERS:
        errors.too_many(at, len(counters), _COUNTERS)
    else:
        for name in counters:
            LABEL(name, at, errors)


_SET_NAME = both(filled(), if_any(LABEL))
_SET = both(in_order(name=_SET_NAME), _counters)
_CONSUMPTION = both(in_order(counterSet=_SET_NAME), _counters)


def _size(device: Any, at: FieldPath, errors: ErrorList) -> None:
    attributes, capacity = device.get("attributes") or {}, device.get("capacity") or {}
    if (count := len(attributes) + len(capacity)) > _MOST_DESCRIBED:
        errors.invalid(at, count, f"attributes and capacities must be no more than {_MOST_DESCRIBED}")
    values = sum(sum(len(each.get(name) or ()) for name in _LISTS) or 1 for each in attributes.values())
    if values > _MOST_VALUES:
        errors.invalid(at, values, f"values of attributes must be no more than {_MOST_VALUES}")


def _device(*, selects_nodes: bool) -> ValueRule:
    """Return the rule for a device. It names its nodes itself if the slice uses per-device node selection."""

    def where(device: Any, at: FieldPath, errors: ErrorList) -> None:
        if selects_nodes:
            _one_place(device, _PLACES, at, errors)
        elif not _PLACES.keys().isdisjoint(device):
            errors.invalid(at, None, f"{', '.join(_PLACES)} may only be set with perDeviceNodeSelection")

    return both(in_order(name=LABEL), _DESCRIPTION, where)


_DESCRIPTION = record({
    "attributes": _attributes, "taints": few(_TAINTS, TAINT),
    "consumesCounters": few_distinct(_CONSUMED, _CONSUMPTION, lambda part: part.get("counterSet") or ""),
}, _size, check_capacity, binding)  # fmt: skip


def _lowers_limit(device: Any) -> bool:
    """Return whether a device lowers the maximum number of devices in its slice."""
    attributes = (device.get("attributes") or {}).values()
    return bool(
        device.get("taints")
        or device.get("consumesCounters")
        or any(name in attribute for attribute in attributes for name in _LISTS)
    )


def _slice(spec: Any, at: FieldPath, errors: ErrorList) -> None:
    devices, sets = spec.get("devices"), spec.get("sharedCounters")
    _one_place(spec, _SPEC_PLACES, at, errors)
    if devices is not None and sets is not None:
        errors.invalid(at, "", "only one of sharedCounters and devices is allowed")
    limit = _MOST_SPECIAL if any(map(_lowers_limit, devices or ())) else _MOST_DEVICES
    device = _device(selects_nodes=spec.get("perDeviceNodeSelection", False))
    few_distinct(limit, device, name_of)(devices or [], (at, "devices"), errors)
    few_distinct(_SETS, _SET, name_of)(sets or [], (at, "sharedCounters"), errors)


def _one_term(selector: Any, at: FieldPath, errors: ErrorList) -> None:
    """Check that a node selector has exactly one term, so that selectors of several slices can be merged."""
    terms = selector.get("nodeSelectorTerms") or []
    if len(terms) != 1:
        errors.invalid((at, "nodeSelectorTerms"), terms, "must have exactly one node selector term")


_POOL = record({
    "generation": at_least(0), "resourceSliceCount": at_least(1, "must be greater than zero"),
}, in_order(name=POOL))  # fmt: skip

RULES = {
    "resource.k8s.io/v1/ResourceSlice": KindRules(
        change=fixed("spec.driver", "spec.pool.name", "spec.nodeName"),
        spec=record({"pool": _POOL, "nodeSelector": _one_term}, in_order(driver=NEEDED_DRIVER), _slice),
        by_schema=False,
    ),
}
