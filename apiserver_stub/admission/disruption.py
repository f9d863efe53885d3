"""An eviction must leave a disruption budget whole (policy/v1, PodDisruptionBudget)."""

from collections.abc import Callable, Iterator
from typing import Any

import orjson

from apiserver_stub.admission.chain import AdmissionRequest
from apiserver_stub.call import Tree
from apiserver_stub.kinds.scale import selector_text
from apiserver_stub.kinds.trees import get_in
from apiserver_stub.store.index import Snapshot
from controller_manager.api.errors import Cause, Details, TooManyRequests
from controller_manager.api.selectors import LabelSelector

_BUDGETS = "poddisruptionbudgets.policy"
_ENDED = frozenset({"Succeeded", "Failed"})


class DisruptionBudgets:
    """A step of admission; `snapshot` reads the store."""

    def __init__(self, snapshot: Callable[[str], Snapshot]) -> None:
        self._snapshot = snapshot

    def __call__(self, request: AdmissionRequest) -> None:
        """Raises `TooManyRequests` for the eviction of a Pod whose budget allows no disruption now."""
        if request.operation != "delete" or request.subresource != "eviction":
            return
        pod = request.tree
        if get_in(pod, ("status", "phase")) in _ENDED or "deletionTimestamp" in pod["metadata"]:
            return
        for budget in self._budgets(request.namespace, pod):
            _check(budget)

    def _budgets(self, namespace: str, pod: Tree) -> Iterator[Tree]:
        labels = pod["metadata"].get("labels")
        for row in self._snapshot(_BUDGETS).items(prefix=f"{namespace}/"):
            budget: Tree = orjson.loads(row.data)
            if _selects(get_in(budget, ("spec", "selector")), labels):
                yield budget


def _selects(selector: Any, labels: dict[str, str] | None) -> bool:
    return selector is not None and LabelSelector.parse(selector_text(selector)).matches(labels)


def _check(budget: Tree) -> None:
    status, metadata = budget.get("status", {}), budget["metadata"]
    observed = status.get("observedGeneration", 0) >= metadata.get("generation", 0)
    if observed and status.get("disruptionsAllowed", 0) > 0:
        return
    name = metadata["name"]
    why = (
        f"The disruption budget {name} does not allow to evict more pods currently"
        if observed
        else f"The disruption budget {name} is still being processed by the server"
    )
    details = Details(
        causes=(Cause(reason="DisruptionBudget", message=why),), retry_after_seconds=0 if observed else 10
    )
    raise TooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", details)
