"""Scale, binding, eviction, and what only a node could answer."""

from typing import Any

import pytest

from controller_manager.api import errors

PODS = "/api/v1/namespaces/default/pods"
SCALE = "/apis/apps/v1/namespaces/default/deployments/d/scale"
CONTAINERS = {"containers": [{"name": "c", "image": "i"}]}


@pytest.fixture
async def deployment(api) -> dict[str, Any]:
    labels = {"app": "a"}
    template = {"metadata": {"labels": labels}, "spec": CONTAINERS}
    spec = {"replicas": 2, "selector": {"matchLabels": labels}, "template": template}
    made: dict[str, Any] = await api.post(SCALE.removesuffix("/d/scale"), {"metadata": {"name": "d"}, "spec": spec})
    return made


@pytest.fixture
async def pod(api) -> dict[str, Any]:
    made: dict[str, Any] = await api.post(PODS, {"metadata": {"name": "p", "labels": {"app": "a"}}, "spec": CONTAINERS})
    return made


async def test_a_scale_is_read(api, deployment) -> None:
    scale = await api.get(SCALE)
    assert (scale["apiVersion"], scale["kind"]) == ("autoscaling/v1", "Scale")
    assert (scale["spec"], scale["status"]) == ({"replicas": 2}, {"replicas": 0, "selector": "app=a"})
    assert scale["metadata"]["resourceVersion"] == deployment["metadata"]["resourceVersion"]


async def test_a_scale_is_replaced_and_patched(api, deployment) -> None:
    scale = await api.get(SCALE)
    changed = await api.put(SCALE, scale | {"spec": {"replicas": 5}})
    assert (changed["kind"], changed["spec"]) == ("Scale", {"replicas": 5})
    with pytest.raises(errors.Conflict):
        await api.put(SCALE, scale | {"spec": {"replicas": 6}})
    assert (await api.patch(SCALE, {"spec": {"replicas": 7}}))["spec"] == {"replicas": 7}
    operations = [{"op": "replace", "path": "/spec/replicas", "value": 8}]
    assert (await api.patch(SCALE, operations, "json-patch"))["spec"] == {"replicas": 8}
    assert (await api.patch(SCALE, {"spec": {"replicas": 9}}, "strategic-merge-patch"))["spec"] == {"replicas": 9}
    unconditional = {"metadata": {"name": "d"}, "spec": {"replicas": 0}}
    assert (await api.put(SCALE, unconditional))["spec"] == {"replicas": 0}
    found = await api.get(SCALE.removesuffix("/scale"))
    assert (found["spec"]["replicas"], found["metadata"]["generation"]) == (0, 6)
    assert found["spec"]["template"] == deployment["spec"]["template"]


@pytest.mark.parametrize(
    ("change", "refusal"),
    [
        ({"spec": {"replicas": -1}}, errors.Invalid),
        ({"spec": {"replicas": "two"}}, errors.BadRequest),
        ({"metadata": {"name": "e"}}, errors.BadRequest),
        ({"kind": "Deployment"}, errors.BadRequest),
        ({"metadata": {"name": "d", "uid": "x"}}, errors.Conflict),
        ({"metadata": {"name": "d", "namespace": "other"}}, errors.BadRequest),
    ],
)
async def test_a_scale_that_is_wrong_changes_nothing(api, deployment, change: Any, refusal: type) -> None:
    scale = await api.get(SCALE)
    with pytest.raises(refusal) as caught:
        await api.put(SCALE, scale | change)
    assert refusal is not errors.Invalid or caught.value.message.startswith('Scale.autoscaling "d" is invalid')
    assert await api.get(SCALE) == scale


async def test_a_scale_of_nothing_is_not_found(api) -> None:
    with pytest.raises(errors.NotFound):
        await api.get(SCALE)
    with pytest.raises(errors.NotFound):
        await api.patch(SCALE, {"spec": {"replicas": 7}})


async def test_a_pod_is_bound_once(api, pod) -> None:
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "p", "annotations": {"a": "b"}},
        "target": {"kind": "Node", "name": "n"},
    }
    answer = await api("POST", f"{PODS}/p/binding", binding)
    assert (answer.status, answer.tree["status"]) == (201, "Success")
    bound = await api.get(f"{PODS}/p")
    assert (bound["spec"]["nodeName"], bound["metadata"]["annotations"]) == ("n", {"a": "b"})
    assert [(c["type"], c["status"]) for c in bound["status"]["conditions"]] == [("PodScheduled", "True")]
    with pytest.raises(errors.Conflict, match="already assigned to node"):
        await api.post(f"{PODS}/p/binding", binding)
    with pytest.raises(errors.Invalid, match="target"):
        await api.post(f"{PODS}/p/binding", binding | {"target": {}})
    with pytest.raises(errors.Conflict):
        await api.post(f"{PODS}/p/binding", binding | {"metadata": {"name": "p", "uid": "x"}})


def eviction(**options: Any) -> dict[str, Any]:
    return {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}, "deleteOptions": options}


async def budget(api, allowed: int, selector: dict[str, Any] | None = None) -> None:
    budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
    selects = {"matchLabels": {"app": "a"}} if selector is None else selector
    made = await api.post(budgets, {"metadata": {"name": "b"}, "spec": {"minAvailable": 1, "selector": selects}})
    status = {"disruptionsAllowed": allowed, "observedGeneration": made["metadata"]["generation"], "currentHealthy": 1,
              "desiredHealthy": 1, "expectedPods": 1}  # fmt: skip
    await api.put(f"{budgets}/b/status", made | {"status": status})


async def test_an_eviction_deletes(api, pod) -> None:
    assert (await api.post(f"{PODS}/p/eviction", eviction(dryRun=["All"])))["status"] == "Success"
    assert await api.get(f"{PODS}/p") == pod
    answer = await api("POST", f"{PODS}/p/eviction", eviction())
    assert (answer.status, answer.tree["status"]) == (201, "Success")
    with pytest.raises(errors.NotFound):
        await api.get(f"{PODS}/p")


async def test_a_budget_without_room_forbids_it(api, pod) -> None:
    await budget(api, 0)
    with pytest.raises(errors.TooManyRequests, match="would violate") as caught:
        await api.post(f"{PODS}/p/eviction", eviction())
    assert caught.value.details is not None
    assert [cause.reason for cause in caught.value.details.causes] == ["DisruptionBudget"]
    assert await api.get(f"{PODS}/p") == pod
    assert (await api.delete(f"{PODS}/p"))["kind"] == "Pod"


@pytest.mark.parametrize(("allowed", "selector"), [(1, None), (0, {"matchLabels": {"app": "b"}})])
async def test_a_budget_with_room_or_of_others_allows_it(api, pod, allowed: int, selector: Any) -> None:
    await budget(api, allowed, selector)
    assert (await api.post(f"{PODS}/p/eviction", eviction()))["status"] == "Success"


@pytest.mark.parametrize(
    ("method", "part"), [("GET", "log"), ("POST", "exec"), ("GET", "attach"), ("POST", "portforward"), ("GET", "proxy")]
)
async def test_what_only_a_node_answers_is_refused_clearly(api, pod, method: str, part: str) -> None:
    with pytest.raises(errors.BadRequest, match=f'"{part}" of pods "p" is not served'):
        await api(method, f"{PODS}/p/{part}")
    with pytest.raises(errors.NotFound):
        await api(method, f"{PODS}/q/{part}")


async def test_approval_writes_conditions_only(api) -> None:
    url = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
    spec = {"request": "LS0t", "signerName": "example.com/a", "usages": ["client auth"]}
    made = await api.post(url, {"metadata": {"name": "a"}, "spec": spec})
    condition = {"type": "Approved", "status": "True", "reason": "R"}
    changed = await api.put(f"{url}/a/approval", made | {"status": {"conditions": [condition], "certificate": "LS0t"}})
    assert changed["status"]["conditions"][0]["type"] == "Approved"
    assert "certificate" not in changed["status"]
