"""The rules of nodes."""

from typing import Any

from apiserver_stub.kinds.error_list import ErrorList, FieldPath, key, place
from apiserver_stub.kinds.rules.amounts import counted
from apiserver_stub.kinds.rules.combine import Change, Rules, both, changes, distinct, each, outcome, record, within
from apiserver_stub.kinds.rules.formats import NETWORK, one_per_family
from apiserver_stub.kinds.rules.scheduling import taints
from apiserver_stub.kinds.schema import Tree
from apiserver_stub.kinds.trees import get_in

_SPEC = record({"taints": taints, "podCIDRs": both(each(NETWORK), distinct(), one_per_family)})


def _set_once(name: str) -> Change:
    path, at = ("spec", name), place(f"spec.{name}")

    def change(new: Tree, old: Tree, found: ErrorList) -> None:
        before = get_in(old, path)
        if before and get_in(new, path) != before:
            found.forbidden(at, "may not change once set")

    return change


def _resources(values: Any, at: FieldPath, found: ErrorList) -> None:
    for name, value in values.items():
        counted(name, value, (at, key(name)), found)


_STATUS = record({
    "capacity": _resources, "allocatable": _resources,
    "addresses": distinct(lambda address: (address.get("type"), address.get("address"))),
})  # fmt: skip
_CHANGE = changes(_set_once("podCIDRs"), _set_once("providerID"))
RULES = {"v1/Node": Rules(within("spec", _SPEC), _CHANGE, {"status": outcome(within("status", _STATUS))})}
