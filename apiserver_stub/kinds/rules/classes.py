"""The rules of classes of priority and of runtimes."""

from typing import Any

from apiserver_stub.kinds import names
from apiserver_stub.kinds.error_list import ErrorList, FieldPath, place
from apiserver_stub.kinds.rules.amounts import amounts, container_resource
from apiserver_stub.kinds.rules.combine import Rules, changes, fixed, form, record
from apiserver_stub.kinds.rules.metadata import labels
from apiserver_stub.kinds.rules.scheduling import TOLERATIONS
from apiserver_stub.kinds.schema import Tree
from apiserver_stub.kinds.trees import get_in

_HIGHEST = 1_000_000_000
_SYSTEM = ("system-node-critical", "system-cluster-critical")
_RESERVED = "names that begin with 'system-' belong to the platform"


def _priority(tree: Any, _at: FieldPath, found: ErrorList) -> None:
    name = get_in(tree, ("metadata", "name")) or ""
    if name.startswith("system-"):
        if name not in _SYSTEM:
            found.forbidden(place("metadata.name"), _RESERVED)
    elif tree.get("value", 0) > _HIGHEST:
        found.forbidden((None, "value"), f"must be no more than {_HIGHEST}")


def _value_stays(new: Tree, old: Tree, found: ErrorList) -> None:
    if new.get("value", 0) != old.get("value", 0):
        found.forbidden((None, "value"), "may not change")


_RUNTIME = record({
    "handler": form(names.label),
    "overhead": record({"podFixed": amounts(container_resource)}),
    "scheduling": record({"nodeSelector": labels, "tolerations": TOLERATIONS}),
})  # fmt: skip

RULES = {
    "scheduling.k8s.io/v1/PriorityClass": Rules(_priority, changes(_value_stays, fixed("preemptionPolicy"))),
    "node.k8s.io/v1/RuntimeClass": Rules(_RUNTIME, fixed("handler")),
}
