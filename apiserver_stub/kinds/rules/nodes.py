"""The rules of nodes and leases, and of the classes of priority and runtime that pods name."""

from typing import Any

from apiserver_stub.kinds import names
from apiserver_stub.kinds.error_list import ErrorList, FieldPath, key, place
from apiserver_stub.kinds.rules.amounts import amounts, container_resource, counted
from apiserver_stub.kinds.rules.combine import (
    Change,
    KindRules,
    at_least,
    both,
    changes,
    distinct,
    each,
    fixed,
    form,
    outcome,
    record,
    within,
)
from apiserver_stub.kinds.rules.formats import NETWORK, QUALIFIED, one_per_family
from apiserver_stub.kinds.rules.metadata import labels
from apiserver_stub.kinds.rules.scheduling import TOLERATIONS, taints
from apiserver_stub.kinds.schema import Tree
from apiserver_stub.kinds.trees import get_in

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
_SYSTEM = ("system-node-critical", "system-cluster-critical")
_RESERVED = "names that begin with 'system-' belong to the platform"


def _priority(tree: Any, _at: FieldPath, errors: ErrorList) -> None:
    name = get_in(tree, ("metadata", "name")) or ""
    if name.startswith("system-"):
        if name not in _SYSTEM:
            errors.forbidden(place("metadata.name"), _RESERVED)
    elif tree.get("value", 0) > _HIGHEST:
        errors.forbidden((None, "value"), f"must be no more than {_HIGHEST}")


def _value_stays(new: Tree, old: Tree, errors: ErrorList) -> None:
    if new.get("value", 0) != old.get("value", 0):
        errors.forbidden((None, "value"), "may not change")


_RUNTIME = record({
    "handler": form(names.label),
    "overhead": record({"podFixed": amounts(container_resource)}),
    "scheduling": record({"nodeSelector": labels, "tolerations": TOLERATIONS}),
})  # fmt: skip

RULES = {
    "v1/Node": KindRules(within("spec", _SPEC), _CHANGE, {"status": outcome(within("status", _STATUS))}),
    "coordination.k8s.io/v1/Lease": KindRules(within("spec", _LEASE_SPEC)),
    "scheduling.k8s.io/v1/PriorityClass": KindRules(_priority, changes(_value_stays, fixed("preemptionPolicy"))),
    "node.k8s.io/v1/RuntimeClass": KindRules(_RUNTIME, fixed("handler")),
}
