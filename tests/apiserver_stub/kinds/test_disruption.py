"""The price of an eviction, and the budget after it."""

from typing import Any

import pytest

from apiserver_stub.kinds.strategies.disruption import Price, charge, price
from controller_manager.common.api import errors

Tree = dict[str, Any]
READY = {"conditions": [{"type": "Ready", "status": "True"}]}
NOW = "2026-01-01T00:00:00Z"
FREE, AS_IT_IS, PAID = Price(), Price(as_it_is=True), Price("b")


def pod(phase: str = "Running", ready: bool = True, **metadata: Any) -> Tree:
    return {
        "metadata": {"name": "p", "labels": {"app": "a"}, **metadata},
        "status": {"phase": phase, **(READY if ready else {})},
    }


def budget(name: str = "b", selector: Tree | None = None, policy: str = "", **status: Any) -> Tree:
    spec: Tree = {"selector": {"matchLabels": {"app": "a"}} if selector is None else selector}
    if policy:
        spec["unhealthyPodEvictionPolicy"] = policy
    seen = {"observedGeneration": 2, "disruptionsAllowed": 1, "currentHealthy": 3, "desiredHealthy": 2}
    return {"metadata": {"name": name, "generation": 2}, "spec": spec, "status": {**seen, **status}}


@pytest.mark.parametrize(
    ("found", "budgets", "expected"),
    [
        (pod("Succeeded"), [budget()], FREE),
        (pod("Failed"), [budget(), budget("c")], FREE),
        (pod(deletionTimestamp=NOW), [budget()], FREE),
        (pod("Pending"), [budget(), budget("c")], AS_IT_IS),
        (pod(), [], FREE),
        (pod(), [budget(selector={"matchLabels": {"app": "z"}})], FREE),
        (pod(), [budget()], PAID),
        (pod(), [budget(selector={})], PAID),
        (pod(), [budget(), budget("c", {"matchLabels": {"app": "z"}})], PAID),
        (pod(ready=False), [budget()], AS_IT_IS),
        (pod(ready=False), [budget(currentHealthy=1)], PAID),
        (pod(ready=False), [budget(desiredHealthy=0)], PAID),
        (pod(ready=False), [budget(policy="IfHealthyBudget", currentHealthy=1)], PAID),
        (pod(ready=False), [budget(policy="AlwaysAllow", currentHealthy=1)], AS_IT_IS),
        (pod(), [budget(policy="AlwaysAllow", currentHealthy=1)], PAID),
    ],
)
def test_eviction_price(found: Tree, budgets: list[Tree], expected: Price) -> None:
    assert price(found, budgets) == expected


def test_missing_selector_selects_no_pods() -> None:
    without = budget()
    del without["spec"]["selector"]
    assert price(pod(), [without]) == FREE


def test_several_budgets_are_rejected() -> None:
    with pytest.raises(errors.InternalError, match="has more than one PodDisruptionBudget"):
        price(pod(), [budget(), budget("c")])


def test_budget_is_charged() -> None:
    before = budget(disruptionsAllowed=2, disruptedPods={"o": NOW})
    after = charge(before, "p", NOW)
    assert after["status"]["disruptionsAllowed"] == 1
    assert after["status"]["disruptedPods"] == {"o": NOW, "p": NOW}
    assert "conditions" not in after["status"]
    assert before["status"]["disruptionsAllowed"] == 2


def test_last_disruption_updates_conditions() -> None:
    known = [{"type": "Other"}, {"type": "DisruptionAllowed", "status": "True", "lastTransitionTime": "then"}]
    conditions = charge(budget(conditions=known), "p", NOW)["status"]["conditions"]
    assert conditions[0] == {"type": "Other"}
    assert (conditions[1]["status"], conditions[1]["reason"]) == ("False", "InsufficientPods")
    assert conditions[1]["lastTransitionTime"] == NOW
    again = charge(budget(conditions=conditions), "p", "later")["status"]["conditions"]
    assert again == conditions
    assert len(charge(budget(), "p", NOW)["status"]["conditions"]) == 1


@pytest.mark.parametrize(
    ("status", "refusal", "message", "seconds"),
    [
        ({"observedGeneration": 1}, errors.TooManyRequests, "b is still being processed by the server", 10),
        ({"disruptionsAllowed": 0}, errors.TooManyRequests, "b needs 2 healthy pods and has 3 currently", 0),
        ({"disruptionsAllowed": -1}, errors.Forbidden, "below zero", 0),
        ({"disruptedPods": {str(i): NOW for i in range(2001)}}, errors.Forbidden, "too many evictions", 0),
    ],
)
def test_exhausted_or_unready_budget_rejects_eviction(status: Tree, refusal: type, message: str, seconds: int) -> None:
    with pytest.raises(refusal) as caught:
        charge(budget(**status), "p", NOW)
    details = caught.value.details
    text = caught.value.message + "".join(cause.message for cause in details.causes)
    assert message in text
    assert details.retry_after_seconds == seconds
    if refusal is errors.TooManyRequests:
        assert [cause.reason for cause in details.causes] == ["DisruptionBudget"]
