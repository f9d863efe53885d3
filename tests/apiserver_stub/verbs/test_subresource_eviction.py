"""Evictions on a real store: charged budgets, and rejections that change nothing (API-initiated eviction)."""

from typing import Any

import pytest

from controller_manager.common.api import errors
from controller_manager.common.base.tasks import all_of

PODS = "/api/v1/namespaces/default/pods"
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
RUNNING = {
    "phase": "Running",
    "conditions": [{"type": "Ready", "status": "True", "lastProbeTime": None, "lastTransitionTime": None}],
}


def eviction(name: str = "p", **options: Any) -> dict[str, Any]:
    return {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}, "deleteOptions": options}


async def create_running_pod(api, name: str = "p", **status: Any) -> dict[str, Any]:
    """Create a running pod."""
    spec = {"nodeName": "n", "containers": [{"name": "c", "image": "i"}]}
    made = (await api.post(PODS, {"metadata": {"name": name, "labels": {"app": "a"}}, "spec": spec})).tree
    ran: dict[str, Any] = (await api.put(f"{PODS}/{name}/status", made | {"status": RUNNING | status})).tree
    return ran


async def create_budget(api, allowed: int, name: str = "b", **status: Any) -> None:
    """Create a budget with an observed status."""
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "a"}}}
    made = (await api.post(BUDGETS, {"metadata": {"name": name}, "spec": spec})).tree
    seen = {"disruptionsAllowed": allowed, "observedGeneration": made["metadata"]["generation"], "currentHealthy": 1,
            "desiredHealthy": 1, "expectedPods": 1, **status}  # fmt: skip
    await api.put(f"{BUDGETS}/{name}/status", made | {"status": seen})


async def budget_status(api) -> tuple[int, list[str]]:
    status = (await api.get(f"{BUDGETS}/b")).tree["status"]
    return status["disruptionsAllowed"], sorted(status.get("disruptedPods", ()))


async def test_eviction_and_binding_return_201_without_object(api) -> None:
    """kube-apiserver answers evictions and bindings like this, without the pod."""
    await api.post(PODS, {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}})
    shown = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}
    bound = {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"}}
    for part, body in (("binding", bound), ("eviction", eviction())):
        answer = await api.post(f"{PODS}/p/{part}", body)
        assert (answer.status, answer.tree) == (201, shown)


async def test_v1beta1_eviction_is_accepted(api) -> None:
    """kube-apiserver accepts `policy/v1beta1`, which older clients send, and no unknown version."""
    await create_running_pod(api)
    body = eviction() | {"apiVersion": "policy/v1beta1"}
    assert (await api.post(f"{PODS}/p/eviction?dryRun=All", body)).status == 201
    with pytest.raises(errors.BadRequest, match="v1beta2"):
        await api.post(f"{PODS}/p/eviction", body | {"apiVersion": "policy/v1beta2"})


async def test_eviction_deletes_pod_and_charges_budget(api) -> None:
    await create_running_pod(api)
    await create_budget(api, 2)
    answer = await api.post(f"{PODS}/p/eviction", eviction())
    assert (answer.status, answer.tree["status"]) == (201, "Success")
    assert "deletionTimestamp" in (await api.get(f"{PODS}/p")).tree["metadata"]
    assert await budget_status(api) == (1, ["p"])


EVICTED = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI",
           "message": "Eviction API: evicting", "lastProbeTime": None}  # fmt: skip
THEN = "2020-01-01T00:00:00Z"


def disrupted(status: str) -> dict[str, Any]:
    return EVICTED | {"status": status, "reason": "Mine", "lastTransitionTime": THEN}


@pytest.mark.parametrize(
    ("before", "since_then"), [(None, False), (disrupted("False"), False), (disrupted("True"), True)]
)
async def test_evicted_pod_has_disruption_target_condition(
    api, before: dict[str, Any] | None, since_then: bool
) -> None:
    """As in kube-apiserver; job controllers distinguish evictions from failures by it."""
    ready = RUNNING["conditions"]
    await create_running_pod(api, conditions=[*([before] if before else []), *ready])
    await api.post(f"{PODS}/p/eviction", eviction())
    conditions = (await api.get(f"{PODS}/p")).tree["status"]["conditions"]
    at = 0 if before else 1
    since = conditions[at].pop("lastTransitionTime")
    assert (conditions.pop(at), conditions, since == THEN) == (EVICTED, ready, since_then)


async def test_deleted_pod_can_be_evicted_once(api) -> None:
    await create_running_pod(api)
    await api.delete(f"{PODS}/p")
    deleted = (await api.get(f"{PODS}/p")).tree
    await api.post(f"{PODS}/p/eviction", eviction())
    evicted = (await api.get(f"{PODS}/p")).tree
    assert [one["type"] for one in evicted["status"]["conditions"]] == ["Ready", "DisruptionTarget"]
    assert evicted["metadata"]["deletionTimestamp"] == deleted["metadata"]["deletionTimestamp"]
    await api.post(f"{PODS}/p/eviction", eviction())
    assert (await api.get(f"{PODS}/p")).tree == evicted


async def test_repeated_eviction_is_charged_once(api) -> None:
    await create_running_pod(api)
    await create_budget(api, 2)
    for _ in range(3):
        await api.post(f"{PODS}/p/eviction", eviction())
    assert await budget_status(api) == (1, ["p"])


@pytest.mark.parametrize("how", ["options", "query"])
async def test_dry_run_is_rejected_or_accepted_without_charge(api, how: str) -> None:
    """API concepts, Dry-run, rule 2."""
    ran = await create_running_pod(api)
    await create_budget(api, 1)
    url, body = (f"{PODS}/p/eviction", eviction(dryRun=["All"])) if how == "options" else (
        f"{PODS}/p/eviction?dryRun=All", eviction())  # fmt: skip
    for _ in range(2):
        assert (await api.post(url, body)).tree["status"] == "Success"
    assert ((await api.get(f"{PODS}/p")).tree, await budget_status(api)) == (ran, (1, []))
    await api.delete(f"{BUDGETS}/b")
    await create_budget(api, 0)
    with pytest.raises(errors.TooManyRequests):
        await api.post(url, body)


async def test_exhausted_budget_rejects_eviction(api) -> None:
    ran = await create_running_pod(api)
    await create_budget(api, 0)
    with pytest.raises(errors.TooManyRequests, match="would violate the pod's disruption budget") as caught:
        await api.post(f"{PODS}/p/eviction", eviction())
    assert caught.value.details is not None
    assert [cause.reason for cause in caught.value.details.causes] == ["DisruptionBudget"]
    assert (await api.get(f"{PODS}/p")).tree == ran
    assert (await api.delete(f"{PODS}/p")).tree["kind"] == "Pod"


async def test_unobserved_budget_rejects_eviction_with_retry(api) -> None:
    await create_running_pod(api)
    await create_budget(api, 1, observedGeneration=0)
    with pytest.raises(errors.TooManyRequests) as caught:
        await api.post(f"{PODS}/p/eviction", eviction())
    assert caught.value.details is not None
    assert caught.value.details.retry_after_seconds == 10


async def test_concurrent_evictions_do_not_exceed_budget(api) -> None:
    for number in range(8):
        await create_running_pod(api, f"p{number}")
    await create_budget(api, 3)

    async def evicted(name: str) -> bool:
        try:
            await api.post(f"{PODS}/{name}/eviction", eviction(name))
        except errors.TooManyRequests:
            return False
        return True

    answers = await all_of(*(evicted(f"p{n}") for n in range(8)))
    gone = {f"p{n}" for n, answer in enumerate(answers) if answer}
    assert await budget_status(api) == (0, sorted(gone))
    assert len(gone) == 3


async def test_two_budgets_are_rejected(api) -> None:
    ran = await create_running_pod(api)
    await create_budget(api, 1)
    await create_budget(api, 1, "c")
    with pytest.raises(errors.InternalError, match="has more than one PodDisruptionBudget"):
        await api.post(f"{PODS}/p/eviction", eviction())
    assert (await api.get(f"{PODS}/p")).tree == ran


async def test_pending_and_unready_pods_are_not_charged(api) -> None:
    await create_running_pod(api, "unready", conditions=[])
    await create_running_pod(api, "pending", phase="Pending")
    await create_budget(api, 0)
    for name in ("unready", "pending"):
        assert (await api.post(f"{PODS}/{name}/eviction", eviction(name))).tree
    assert await budget_status(api) == (0, [])


async def test_failed_preconditions_are_not_charged(api) -> None:
    ran = await create_running_pod(api)
    await create_budget(api, 1)
    for presumed in ({"uid": "x"}, {"resourceVersion": "1"}):
        with pytest.raises(errors.Conflict):
            await api.post(f"{PODS}/p/eviction", eviction(preconditions=presumed))
    assert ((await api.get(f"{PODS}/p")).tree, await budget_status(api)) == (ran, (1, []))
    known = {"uid": ran["metadata"]["uid"], "resourceVersion": ran["metadata"]["resourceVersion"]}
    assert (await api.post(f"{PODS}/p/eviction", eviction(preconditions=known))).tree


async def test_uid_precondition_of_pending_pod_is_checked(api) -> None:
    await create_running_pod(api, phase="Pending")
    with pytest.raises(errors.Conflict, match="UID in the precondition"):
        await api.post(f"{PODS}/p/eviction", eviction(preconditions={"uid": "x"}))


async def test_delete_options_of_eviction_are_applied(api) -> None:
    await create_running_pod(api)
    await api.post(f"{PODS}/p/eviction", eviction(gracePeriodSeconds=7))
    assert (await api.get(f"{PODS}/p")).tree["metadata"]["deletionGracePeriodSeconds"] == 7


@pytest.mark.parametrize(
    ("url", "body", "refusal"),
    [
        ("p", eviction("q"), errors.BadRequest),
        ("q", eviction("q"), errors.NotFound),
        ("p", eviction() | {"metadata": {"name": "p", "namespace": "other"}}, errors.BadRequest),
        ("p", eviction() | {"kind": "Pod"}, errors.BadRequest),
        ("p", eviction(gracePeriodSeconds="soon"), errors.BadRequest),
        ("p", eviction(propagationPolicy="Sideways"), errors.Invalid),
    ],
)
async def test_invalid_eviction_is_rejected(api, url: str, body: dict[str, Any], refusal: type) -> None:
    ran = await create_running_pod(api)
    with pytest.raises(refusal):
        await api.post(f"{PODS}/{url}/eviction", body)
    assert (await api.get(f"{PODS}/p")).tree == ran
