"""The scale subresource."""

from typing import Any

import pytest

from controller_manager.common.api import errors

SCALE = "/apis/apps/v1/namespaces/default/deployments/d/scale"
CONTAINERS = {"containers": [{"name": "c", "image": "i"}]}


@pytest.fixture
async def deployment(api) -> dict[str, Any]:
    labels = {"app": "a"}
    template = {"metadata": {"labels": labels}, "spec": CONTAINERS}
    spec = {"replicas": 2, "selector": {"matchLabels": labels}, "template": template}
    made: dict[str, Any] = (
        await api.post(SCALE.removesuffix("/d/scale"), {"metadata": {"name": "d"}, "spec": spec})
    ).tree
    return made


async def test_scale_is_read(api, deployment) -> None:
    scale = (await api.get(SCALE)).tree
    assert (scale["apiVersion"], scale["kind"]) == ("autoscaling/v1", "Scale")
    assert (scale["spec"], scale["status"]) == ({"replicas": 2}, {"replicas": 0, "selector": "app=a"})
    assert scale["metadata"]["resourceVersion"] == deployment["metadata"]["resourceVersion"]


async def test_scale_is_replaced_and_patched(api, deployment) -> None:
    scale = (await api.get(SCALE)).tree
    changed = (await api.put(SCALE, scale | {"spec": {"replicas": 5}})).tree
    assert (changed["kind"], changed["spec"]) == ("Scale", {"replicas": 5})
    with pytest.raises(errors.Conflict):
        await api.put(SCALE, scale | {"spec": {"replicas": 6}})
    assert (await api.patch(SCALE, {"spec": {"replicas": 7}})).tree["spec"] == {"replicas": 7}
    operations = [{"op": "replace", "path": "/spec/replicas", "value": 8}]
    assert (await api.patch(SCALE, operations, "json-patch+json")).tree["spec"] == {"replicas": 8}
    assert (await api.patch(SCALE, {"spec": {"replicas": 9}}, "strategic-merge-patch+json")).tree["spec"] == {
        "replicas": 9
    }
    unconditional = {"metadata": {"name": "d"}, "spec": {"replicas": 0}}
    assert (await api.put(SCALE, unconditional)).tree["spec"] == {"replicas": 0}
    found = (await api.get(SCALE.removesuffix("/scale"))).tree
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
async def test_invalid_scale_is_rejected(api, deployment, change: Any, refusal: type) -> None:
    scale = (await api.get(SCALE)).tree
    with pytest.raises(refusal) as caught:
        await api.put(SCALE, scale | change)
    assert refusal is not errors.Invalid or caught.value.message.startswith('Scale.autoscaling "d" is invalid')
    assert (await api.get(SCALE)).tree == scale


async def test_scale_of_missing_object_is_not_found(api) -> None:
    with pytest.raises(errors.NotFound):
        await api.get(SCALE)
    with pytest.raises(errors.NotFound):
        await api.patch(SCALE, {"spec": {"replicas": 7}})
