"""Validation of ConfigMaps, Secrets, namespaces, revisions, nodes, leases, and of classes that pods refer to."""

import json
import re
from binascii import a2b_base64
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from apiserver_stub.common.error_list import ErrorList, FieldPath, key, place
from apiserver_stub.kinds.rules.combine import (
    ChangeRule,
    KindRules,
    at_least,
    both,
    changes,
    distinct,
    entries,
    fixed,
    form,
    if_any,
    need,
    outcome,
    record,
    within,
)
from apiserver_stub.kinds.rules.formats import NETWORK, QUALIFIED, family
from apiserver_stub.kinds.rules.metadata import labels, namespace_finalizers
from apiserver_stub.kinds.rules.quantities import RESOURCES, counted
from apiserver_stub.kinds.rules.selectors import taints
from apiserver_stub.kinds.rules.tolerations import TOLERATIONS
from apiserver_stub.kinds.values import names
from apiserver_stub.kinds.values.trees import get_in
from controller_manager.common.api.tree import Tree

# ConfigMaps, Secrets, namespaces and ControllerRevisions.

_DATA_LIMIT = 1024 * 1024
_FROZEN = "field is immutable when `immutable` is set"
_REDACTED = "<secret contents redacted>"
_SECRET_KEYS: Mapping[str, tuple[str, ...]] = MappingProxyType({
    "kubernetes.io/dockercfg": (".dockercfg",),
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
})  # fmt: skip
_OF_JSON = frozenset({".dockercfg", ".dockerconfigjson"})
_LOGIN = ("username", "password")
_ACCOUNT = "kubernetes.io/service-account.name"
_KEYS = entries(names.data_key)


def _size(text: str) -> int:
    """Return the number of bytes encoded in base64 text."""
    return len(a2b_base64(text))


def _config_map(tree: Any, at: FieldPath, errors: ErrorList) -> None:
    plain, binary = tree.get("data") or {}, tree.get("binaryData") or {}
    for name in sorted(plain.keys() & binary.keys()):
        errors.invalid(((at, "data"), key(name)), name, "duplicate of key present in binaryData")
    if sum(len(v.encode()) for v in plain.values()) + sum(map(_size, binary.values())) > _DATA_LIMIT:
        errors.too_long(at, _DATA_LIMIT)


def _secret(tree: Any, at: FieldPath, errors: ErrorList) -> None:
    data, kind, here = tree.get("data") or {}, tree.get("type", ""), (at, "data")
    if sum(map(_size, data.values())) > _DATA_LIMIT:
        errors.too_long(here, _DATA_LIMIT)
    for name in _SECRET_KEYS.get(kind, ()):
        if name not in data:
            errors.required((here, key(name)))
        elif name in _OF_JSON and not _is_json(data[name]):
            errors.invalid((here, key(name)), _REDACTED, "must be valid JSON")
    if kind == "kubernetes.io/basic-auth" and not data.keys() & set(_LOGIN):
        for name in _LOGIN:
            errors.required((here, key(name)))
    if kind == "kubernetes.io/service-account-token":
        annotations = get_in(tree, ("metadata", "annotations")) or {}
        if not annotations.get(_ACCOUNT):
            errors.required((place("metadata.annotations"), key(_ACCOUNT)))


def _is_json(text: str) -> bool:
    try:
        json.loads(a2b_base64(text))
    except (ValueError, RecursionError):
        return False
    return True


def _frozen(*fields: str) -> ChangeRule:
    def change(new: Tree, old: Tree, errors: ErrorList) -> None:
        if not old.get("immutable"):
            return
        if not new.get("immutable"):
            errors.forbidden((None, "immutable"), _FROZEN)
        for name in fields:
            if (new.get(name) or {}) != (old.get(name) or {}):
                errors.forbidden((None, name), _FROZEN)

    return change


def _namespace_status(new: Tree, _old: Tree, errors: ErrorList) -> None:
    going, phase = get_in(new, ("metadata", "deletionTimestamp")), get_in(new, ("status", "phase"))
    at = place("status.Phase")  # kube-apiserver's spelling
    if not going and phase not in (None, "", "Active"):
        errors.invalid(at, phase, "may only be 'Active' if `deletionTimestamp` is empty")
    elif going and phase not in (None, "", "Terminating"):
        errors.invalid(at, phase, "may only be 'Terminating' if `deletionTimestamp` is not empty")


def _revision_data(tree: Any, at: FieldPath, errors: ErrorList) -> None:
    if type(tree.get("data")) is not dict:
        errors.required((at, "data"), "must be an object")


# Nodes, leases, PriorityClasses and RuntimeClasses.

_FAMILIES = 2
_TAINTS_AT = place("metadata.taints")  # kube-apiserver reports taints of the spec there


def _node(node: Any, at: FieldPath, errors: ErrorList) -> None:
    spec = node.get("spec") or {}
    taints(spec.get("taints") or (), _TAINTS_AT, errors)
    if "podCIDRs" in spec:
        _pod_ranges(spec["podCIDRs"], ((at, "spec"), "podCIDRs"), errors)


def _pod_ranges(ranges: Any, at: FieldPath, errors: ErrorList) -> None:
    """Check that there is one range, or one for each IP family."""
    for index, text in enumerate(ranges):
        NETWORK(text, (at, index), errors)
    if len(ranges) > 1:
        families = {family(text) for text in ranges}
        if "" in families:
            errors.internal(at, "the IP families of the ranges are unknown")
        if len(families) < _FAMILIES or "" in families or len(ranges) > _FAMILIES:
            errors.invalid(at, ranges, "may have no more than one of each IP family")


def _set_once(name: str) -> ChangeRule:
    path, at = ("spec", name), place(f"spec.{name}")

    def change(new: Tree, old: Tree, errors: ErrorList) -> None:
        before = get_in(old, path)
        if before and get_in(new, path) != before:
            errors.forbidden(at, "may not change once set")

    return change


def _external_id_stays(new: Tree, old: Tree, errors: ErrorList) -> None:
    if get_in(new, ("spec", "externalID")) != get_in(old, ("spec", "externalID")):
        errors.forbidden(place("spec.externalID"), "may not change")


def _resources(values: Any, at: FieldPath, errors: ErrorList) -> None:
    for name, value in values.items():
        counted(name, value, (at, name), errors)


_RESOURCES = {"capacity": _resources, "allocatable": _resources}


def _features(names_of: Any, at: FieldPath, errors: ErrorList) -> None:
    """Check the features that a node declares (KEP-5328): sorted and unique."""
    for index, name in enumerate(names_of):
        if len(name) > _LONGEST_FEATURE or not _FEATURE.fullmatch(name):
            errors.invalid(
                (at, index), name, "must be words of letters and digits joined by '/', the first capitalized"
            )
        if index and name == names_of[index - 1]:
            errors.duplicate((at, index), name)
        elif index and name < names_of[index - 1]:
            errors.invalid((at, index), name, "must come in alphabetical order")


_FEATURE = re.compile("[A-Z][a-zA-Z0-9]*(/[a-zA-Z][a-zA-Z0-9]*)*", re.ASCII)
_LONGEST_FEATURE = 253
_STATUS = record({
    **_RESOURCES, "declaredFeatures": _features,
    "addresses": distinct(lambda address: (address.get("type"), address.get("address"))),
})  # fmt: skip
_CHANGE = changes(_set_once("podCIDRs"), _set_once("providerID"), _external_id_stays)


def _preferred(spec: Any, at: FieldPath, errors: ErrorList) -> None:
    if spec.get("preferredHolder") and not spec.get("strategy"):
        errors.forbidden((at, "preferredHolder"), "may only be specified when `strategy` is defined")


_LEASE_SPEC = record({
    "leaseDurationSeconds": at_least(1, "must be greater than 0"), "leaseTransitions": at_least(0),
    "strategy": QUALIFIED,
}, _preferred)  # fmt: skip


_HIGHEST = 1_000_000_000
_SYSTEM = {"system-node-critical": 2_000_001_000, "system-cluster-critical": 2_000_000_000}
_RESERVED = "priority class names with 'system-' prefix are reserved for system use only. error: "


def _priority(tree: Any, _at: FieldPath, errors: ErrorList) -> None:
    name = get_in(tree, ("metadata", "name")) or ""
    if name.startswith("system-"):
        if why := _system_problem(name, tree):
            errors.forbidden(place("metadata.name"), f"{_RESERVED}{why}")
    elif tree.get("value", 0) > _HIGHEST:
        errors.forbidden((None, "value"), f"maximum allowed value of a user defined priority is {_HIGHEST}")


def _system_problem(name: str, tree: Any) -> str:
    value = _SYSTEM.get(name)
    if value is None:
        return f"{name} is not a known system priority class"
    if tree.get("value", 0) != value:
        return f"value of {name} PriorityClass must be {value}"
    return f"globalDefault of {name} PriorityClass must be false" if tree.get("globalDefault") else ""


_POLICIES = ("PreemptLowerPriority", "Never")


def _policy(tree: Any, at: FieldPath, errors: ErrorList) -> None:
    policy = tree.get("preemptionPolicy", _POLICIES[0])
    if not policy:
        errors.required((at, "preemptionPolicy"))
    elif policy not in _POLICIES:
        errors.unsupported((at, "preemptionPolicy"), tree["preemptionPolicy"], _POLICIES)


def _value_stays(new: Tree, old: Tree, errors: ErrorList) -> None:
    if new.get("value", 0) != old.get("value", 0):
        errors.forbidden((None, "value"), "may not be changed in an update.")


def _match(toleration: Tree) -> tuple[Any, ...]:
    return tuple(toleration.get(name, "") for name in ("key", "operator", "value", "effect"))


def _overhead(overhead: Any, at: FieldPath, errors: ErrorList) -> None:
    """Check the overhead of a runtime class as the limits of a container are checked."""
    RESOURCES({"limits": overhead.get("podFixed") or {}}, at, errors)


_RUNTIME = record({
    "handler": if_any(form(names.label)),
    "overhead": _overhead,
    "scheduling": record({"nodeSelector": labels, "tolerations": both(TOLERATIONS, distinct(_match))}),
}, need("handler"))  # fmt: skip


RULES = {
    "v1/ConfigMap": KindRules(record({"data": _KEYS, "binaryData": _KEYS}, _config_map), _frozen("data", "binaryData")),
    "v1/Secret": KindRules(record({"data": _KEYS}, _secret), changes(fixed("type"), _frozen("data"))),
    "v1/Namespace": KindRules(
        within("spec.finalizers", namespace_finalizers), subresources={"status": _namespace_status}, name=names.label,
    ),
    "apps/v1/ControllerRevision": KindRules(
        record({"revision": at_least(0)}), fixed("data"), on_create=_revision_data,
    ),
    "v1/Node": KindRules(
        record({"status": record({**_RESOURCES, "declaredFeatures": _features})}, _node), _CHANGE,
        {"status": outcome(within("status", _STATUS))}, by_schema=False,
    ),
    "coordination.k8s.io/v1/Lease": KindRules(spec=_LEASE_SPEC),
    "scheduling.k8s.io/v1/PriorityClass": KindRules(
        change=changes(_value_stays, fixed("preemptionPolicy")), on_create=both(_priority, _policy), by_schema=False,
    ),
    "node.k8s.io/v1/RuntimeClass": KindRules(_RUNTIME, fixed("handler"), by_schema=False),
}  # fmt: skip
