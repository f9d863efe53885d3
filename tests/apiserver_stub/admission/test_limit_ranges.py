"""LimitRange defaults and limits for pods and claims."""

from typing import Any

import pytest

from apiserver_stub.admission.plugins.limit_ranges import exceeded, fill
from tests.apiserver_stub.api_client import ApiClient
from tests.apiserver_stub.running_server import Started

NAMESPACE = "/api/v1/namespaces/default"


def pod(requests: Any = None, limits: Any = None) -> Any:
    resources = {"requests": requests or {}, "limits": limits or {}}
    return {"kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "resources": resources}]}}


def test_containers_get_missing_defaults() -> None:
    tree = pod(requests={"cpu": "1"})
    tree["spec"]["initContainers"] = [{"name": "i"}]
    shared = tree["spec"]
    limit = {"type": "Container", "defaultRequest": {"cpu": "2", "memory": "1Gi"}, "default": {"cpu": "3"}}
    fill(tree, [limit, {"type": "Pod", "default": {"memory": "9"}}])
    container, before = tree["spec"]["containers"][0], tree["spec"]["initContainers"][0]
    assert container["resources"] == {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "3"}}
    assert before["resources"] == {"requests": {"cpu": "2", "memory": "1Gi"}, "limits": {"cpu": "3"}}
    assert tree["metadata"]["annotations"]["kubernetes.io/limit-ranger"] == (
        "LimitRanger plugin set: memory request for container c; cpu limit for container c; "
        "cpu, memory request for init container i; cpu limit for init container i"
    )
    assert shared["initContainers"] == [{"name": "i"}], "a spec that others share stays as it is"


@pytest.mark.parametrize(
    ("bounds", "requests", "limits", "problems"),
    [
        ({"min": {"cpu": "100m"}}, {"cpu": "0.1"}, {}, 0),
        ({"min": {"cpu": "100m"}}, {"cpu": "99m"}, {}, 1),
        ({"min": {"cpu": "100m"}}, {}, {"cpu": "1"}, 1),
        ({"min": {"cpu": "100m"}}, {"cpu": "1"}, {"cpu": "50m"}, 1),
        ({"max": {"memory": "1Gi"}}, {}, {"memory": "1024Mi"}, 0),
        ({"max": {"memory": "1Gi"}}, {"memory": "1"}, {}, 1),
        ({"max": {"memory": "1Gi"}}, {}, {"memory": "2Gi"}, 1),
        ({"max": {"memory": "1Gi"}}, {"memory": "2Gi"}, {"memory": "1Gi"}, 1),
        ({"maxLimitRequestRatio": {"cpu": "2"}}, {"cpu": "1"}, {"cpu": "2"}, 0),
        ({"maxLimitRequestRatio": {"cpu": "2"}}, {"cpu": "1"}, {"cpu": "3"}, 1),
        ({"maxLimitRequestRatio": {"cpu": "2"}}, {}, {"cpu": "3"}, 1),
        ({"max": {"cpu": "1"}, "min": {"memory": "1"}}, {"cpu": "2"}, {"cpu": "2"}, 2),
    ],
)
def test_container_and_pod_bounds_are_enforced(bounds: Any, requests: Any, limits: Any, problems: int) -> None:
    for per in ("Container", "Pod"):
        found = list(exceeded(pod(requests, limits), [{"type": per, **bounds}]))
        assert len(found) == problems, found


def test_pod_limit_applies_to_sum_of_containers() -> None:
    tree = pod({"cpu": "1"}, {"cpu": "1"})
    tree["spec"]["containers"] *= 2
    assert list(exceeded(tree, [{"type": "Container", "max": {"cpu": "1"}}])) == []
    assert len(list(exceeded(tree, [{"type": "Pod", "max": {"cpu": "1"}}]))) == 1


def test_claim_limits_apply_to_requests() -> None:
    claim = {"kind": "PersistentVolumeClaim", "spec": {"resources": {"requests": {"storage": "2Gi"}}}}
    limits = [{"type": "PersistentVolumeClaim", "min": {"storage": "1Gi"}, "max": {"storage": "2Gi"}}]
    assert list(exceeded(claim, limits)) == []
    assert len(list(exceeded(claim, [{**limits[0], "max": {"storage": "1Gi"}}]))) == 1


async def create_limit_range(api: ApiClient, **limit: Any) -> None:
    limits = {"metadata": {"name": "l"}, "spec": {"limits": [{"type": "Container", **limit}]}}
    assert (await api.post(f"{NAMESPACE}/limitranges", limits)).status == 201


async def test_server_applies_limit_range_to_new_pods(started: Started) -> None:
    async with started() as api:
        await create_limit_range(api, default={"cpu": "500m"}, defaultRequest={"cpu": "100m"}, max={"cpu": "1"})
        plain = {"metadata": {"name": "plain"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
        made = await api.post(f"{NAMESPACE}/pods", plain)
        assert made.status == 201
        resources = made.tree["spec"]["containers"][0]["resources"]
        assert resources == {"limits": {"cpu": "500m"}, "requests": {"cpu": "100m"}}
        greedy = pod(limits={"cpu": "2"})
        greedy["spec"]["containers"][0]["image"] = "i"
        greedy["apiVersion"] = "v1"
        refused = await api.post(f"{NAMESPACE}/pods", greedy)
        assert (refused.status, refused.tree["reason"]) == (403, "Forbidden")
        assert "maximum cpu usage per Container is 1" in refused.tree["message"]
        assert (await api.patch(f"{NAMESPACE}/pods/plain", {"metadata": {"labels": {"a": "b"}}})).status == 200
