"""The rules of ConfigMaps, Secrets, namespaces, revisions, events, nodes, leases, and of classes that pods name.

An event with a time of its own says who reports what and why; one without is of the older sort, which may leave all
that open. In `events.k8s.io`, only the series of an event goes on after it was made.
"""

import json
from binascii import a2b_base64
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from apiserver_stub.kinds import names
from apiserver_stub.kinds.error_list import ErrorList, FieldPath, key, place
from apiserver_stub.kinds.rules.combine import (
    Change,
    KindRules,
    Rule,
    at_least,
    both,
    changes,
    distinct,
    each,
    entries,
    fixed,
    form,
    need,
    outcome,
    record,
    within,
)
from apiserver_stub.kinds.rules.formats import NETWORK, QUALIFIED, one_per_family
from apiserver_stub.kinds.rules.metadata import labels, namespace_finalizers
from apiserver_stub.kinds.rules.quantities import amounts, container_resource, counted
from apiserver_stub.kinds.rules.selectors import taints
from apiserver_stub.kinds.rules.tolerations import TOLERATIONS
from apiserver_stub.kinds.schema import Tree
from apiserver_stub.kinds.trees import get_in

# The rules of ConfigMaps, Secrets and namespaces, and of revisions of what controllers make.

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
    """Return the bytes behind base64 text."""
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


def _frozen(*fields: str) -> Change:
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
    at = place("status.phase")
    if not going and phase not in (None, "", "Active"):
        errors.invalid(at, phase, "may only be 'Active' if `deletionTimestamp` is empty")
    elif going and phase not in (None, "", "Terminating"):
        errors.invalid(at, phase, "may only be 'Terminating' if `deletionTimestamp` is not empty")


def _revision_data(tree: Any, at: FieldPath, errors: ErrorList) -> None:
    if type(tree.get("data")) is not dict:
        errors.required((at, "data"), "must be an object")


# The rules of events, in both groups (API concepts, Event resource).

_SHORT, _NOTE = 128, 1024
_CLUSTER_WIDE = ("default", "kube-system")
# Whatever the group, a real server tells of it under the name in the core group.
_ABOUT = ((None, "involvedObject"), "namespace")
_OLD = {
    "deprecatedFirstTimestamp": "firstTimestamp", "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedCount": "count", "deprecatedSource": "source",
}  # fmt: skip
_NOT_THERE = "does not match event.namespace"


def _lives(event: Any, subject: str, errors: ErrorList) -> None:
    """An event lives where the object it is about does; those of cluster-wide objects in `default`."""
    about = (event.get(subject) or {}).get("namespace") or ""
    namespace = (event.get("metadata") or {}).get("namespace") or ""
    if event.get("eventTime"):
        wrong = not about and namespace not in _CLUSTER_WIDE
    else:
        wrong = about != namespace if about else namespace != _CLUSTER_WIDE[0]
    if wrong:
        errors.invalid(_ABOUT, about, _NOT_THERE)


def _text(limit: int) -> Rule:
    def rule(value: Any, at: FieldPath, errors: ErrorList) -> None:
        if len(value.encode()) > limit:
            errors.invalid(at, value, f"can have at most {limit} characters")

    return rule


def _note(value: Any, _at: FieldPath, errors: ErrorList) -> None:
    _text(_NOTE)(value, (None, "message"), errors)


_SERIES = record({"count": at_least(2, "should be at least 2")})


def _event(subject: str, controller: str, note: str, *also: str) -> Rule:
    """Return the rule of events that name these things so; `also` are more that new ones say."""
    reported = record({
        controller: form(names.qualified), note: _note, "series": _SERIES,
        **dict.fromkeys(("reportingInstance", "action", "reason"), _text(_SHORT)),
    }, need(controller, "reportingInstance", "action", "reason", *also))  # fmt: skip

    def rule(event: Any, at: FieldPath, errors: ErrorList) -> None:
        _lives(event, subject, errors)
        if event.get("eventTime"):
            reported(event, at, errors)

    return rule


_NEW = _event("regarding", "reportingController", "note")
_FIXED = fixed(
    "regarding", "reason", "note", "deprecatedSource", "deprecatedFirstTimestamp", "deprecatedLastTimestamp",
    "deprecatedCount", "related", "type", "action", "reportingController", "reportingInstance", "eventTime",
)  # fmt: skip


def _of_today(event: Any, at: FieldPath, errors: ErrorList) -> None:
    """A new event in this group is none of the older sort; those that are there may go on."""
    if event.get("type") not in ("Normal", "Warning"):
        errors.invalid((at, "type"), event.get("type", ""), "must be Normal or Warning")
    for field, told in _OLD.items():
        if event.get(field):
            errors.invalid((at, told), "", "needs to be unset")


def _change(new: Tree, old: Tree, errors: ErrorList) -> None:
    if old.get("eventTime"):
        _FIXED(new, old, errors)


# The rules of nodes and leases, and of the classes of priority and runtime that pods name.

_SPEC = record({"taints": taints, "podCIDRs": both(each(NETWORK), distinct(), one_per_family)})


def _set_once(name: str) -> Change:
    path, at = ("spec", name), place(f"spec.{name}")

    def change(new: Tree, old: Tree, errors: ErrorList) -> None:
        before = get_in(old, path)
        if before and get_in(new, path) != before:
            errors.forbidden(at, "may not change once set")

    return change


def _resources(values: Any, at: FieldPath, errors: ErrorList) -> None:
    for name, value in values.items():
        counted(name, value, (at, key(name)), errors)


_STATUS = record({
    "capacity": _resources, "allocatable": _resources,
    "addresses": distinct(lambda address: (address.get("type"), address.get("address"))),
})  # fmt: skip
_CHANGE = changes(_set_once("podCIDRs"), _set_once("providerID"))


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


def _value_stays(new: Tree, old: Tree, errors: ErrorList) -> None:
    if new.get("value", 0) != old.get("value", 0):
        errors.forbidden((None, "value"), "may not be changed in an update.")


_RUNTIME = record({
    "handler": form(names.label),
    "overhead": record({"podFixed": amounts(container_resource)}),
    "scheduling": record({"nodeSelector": labels, "tolerations": TOLERATIONS}),
})  # fmt: skip


RULES = {
    "v1/ConfigMap": KindRules(record({"data": _KEYS, "binaryData": _KEYS}, _config_map), _frozen("data", "binaryData")),
    "v1/Secret": KindRules(record({"data": _KEYS}, _secret), changes(fixed("type"), _frozen("data"))),
    "v1/Namespace": KindRules(
        within("spec.finalizers", namespace_finalizers), subresources={"status": _namespace_status}, name=names.label,
    ),
    "apps/v1/ControllerRevision": KindRules(
        record({"revision": at_least(0)}), fixed("data"), on_create=_revision_data,
    ),
    "v1/Event": KindRules(_event("involvedObject", "reportingComponent", "message")),
    "events.k8s.io/v1/Event": KindRules(_NEW, _change, on_create=_of_today),
    "v1/Node": KindRules(within("spec", _SPEC), _CHANGE, {"status": outcome(within("status", _STATUS))}),
    "coordination.k8s.io/v1/Lease": KindRules(within("spec", _LEASE_SPEC)),
    "scheduling.k8s.io/v1/PriorityClass": KindRules(_priority, changes(_value_stays, fixed("preemptionPolicy"))),
    "node.k8s.io/v1/RuntimeClass": KindRules(_RUNTIME, fixed("handler")),
}  # fmt: skip
