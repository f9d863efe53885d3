"""Decide whether a Pod may be evicted under its PodDisruptionBudget (policy/v1).

| Pod                       | PodDisruptionBudgets                         | eviction                                  |
|---------------------------|----------------------------------------------|-------------------------------------------|
| finished or being deleted | any                                          | allowed                                   |
| pending                   | any                                          | allowed if the Pod has not changed        |
| other                     | none                                         | allowed                                   |
| other                     | several                                      | not supported                             |
| not ready                 | `AlwaysAllow`, or as healthy as it desires   | allowed if the Pod has not changed        |
| other                     | one                                          | allowed if the budget allows a disruption |
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from apiserver_stub.kinds.strategies.scale import selector_text
from apiserver_stub.kinds.values.trees import dicts, get_in
from controller_manager.common.api.errors import Cause, Details, InternalError, TooManyRequests, forbidden
from controller_manager.common.api.selectors import LabelSelector
from controller_manager.common.api.tree import Tree

BUDGETS = ("policy", "v1", "poddisruptionbudgets")
_MOST_DISRUPTED = 2000
_ENDED = frozenset({"Succeeded", "Failed"})
_ALLOWED = "DisruptionAllowed"


@dataclass(frozen=True, slots=True)
class Price:
    """The cost of an eviction: the name of the budget to charge, if any, and whether the decision only holds for the
    current state of the Pod.
    """

    budget: str = ""
    as_it_is: bool = False


_FREE, _FREE_AS_IT_IS = Price(), Price(as_it_is=True)


def price(pod: Tree, budgets: Iterable[Tree]) -> Price:
    """Return the cost of evicting a Pod under the budgets of its namespace. Raises `InternalError` if several select
    it.
    """
    phase = get_in(pod, ("status", "phase"))
    if phase in _ENDED or "deletionTimestamp" in pod["metadata"]:
        return _FREE
    if phase == "Pending":
        return _FREE_AS_IT_IS
    labels = pod["metadata"].get("labels")
    meant = [budget for budget in budgets if _selects(get_in(budget, ("spec", "selector")), labels)]
    if len(meant) > 1:
        raise InternalError("the pod has more than one PodDisruptionBudget, and an eviction takes from one only")
    if not meant:
        return _FREE
    if not _is_ready(pod) and _allows_unready(meant[0]):
        return _FREE_AS_IT_IS
    return Price(meant[0]["metadata"]["name"])


def charge(budget: Tree, pod: str, now: str) -> Tree:
    """Return the budget after the eviction of the named Pod. Raises `TooManyRequests` or `Forbidden` if none is
    allowed.
    """
    status = budget.get("status") or {}
    _check(budget, status)
    left = status["disruptionsAllowed"] - 1
    status = {
        **status,
        "disruptionsAllowed": left,
        "disruptedPods": {**(status.get("disruptedPods") or {}), pod: now},
    }
    if not left:
        status["conditions"] = _exhausted(status, now)
    return {**budget, "status": status}


def _selects(selector: Any, labels: dict[str, str] | None) -> bool:
    return selector is not None and LabelSelector.parse(selector_text(selector)).matches(labels)


def _is_ready(pod: Tree) -> bool:
    conditions = dicts(get_in(pod, ("status", "conditions")))
    return any((c.get("type"), c.get("status")) == ("Ready", "True") for _, c in conditions)


def _allows_unready(budget: Tree) -> bool:
    status = budget.get("status") or {}
    healthy, desired = status.get("currentHealthy", 0), status.get("desiredHealthy", 0)
    if get_in(budget, ("spec", "unhealthyPodEvictionPolicy")) == "AlwaysAllow":
        return True
    return bool(healthy >= desired > 0)


def _check(budget: Tree, status: Tree) -> None:
    name, allowed = budget["metadata"]["name"], status.get("disruptionsAllowed", 0)
    if status.get("observedGeneration", 0) < budget["metadata"].get("generation", 0):
        raise _too_many_requests(f"The disruption budget {name} is still being processed by the server.", 10)
    if allowed < 0:
        raise forbidden("policy", "poddisruptionbudget", name, "its disruptionsAllowed is below zero")
    if len(status.get("disruptedPods") or ()) > _MOST_DISRUPTED:
        raise forbidden("policy", "poddisruptionbudget", name, "too many evictions wait to be confirmed")
    if not allowed:
        needs, has = status.get("desiredHealthy", 0), status.get("currentHealthy", 0)
        raise _too_many_requests(f"The disruption budget {name} needs {needs} healthy pods and has {has} currently", 0)


def _too_many_requests(why: str, seconds: int) -> TooManyRequests:
    details = Details(causes=(Cause(reason="DisruptionBudget", message=why),), retry_after_seconds=seconds)
    return TooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", details)


def _exhausted(status: Tree, now: str) -> list[Tree]:
    """Return the conditions of a budget that allows no more disruptions."""
    known = [condition for _, condition in dicts(status.get("conditions"))]
    before = next((c for c in known if c.get("type") == _ALLOWED), {})
    since = (before.get("lastTransitionTime") if before.get("status") == "False" else None) or now
    changed = {
        "type": _ALLOWED,
        "status": "False",
        "reason": "InsufficientPods",
        "message": "",
        "observedGeneration": status.get("observedGeneration", 0),
        "lastTransitionTime": since,
    }
    return [changed if c is before else c for c in known] if before else [*known, changed]
