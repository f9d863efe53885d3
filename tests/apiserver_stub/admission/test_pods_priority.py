"""The priority of a pod, from the existing priority classes."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from apiserver_stub.admission.plugins.pods import PriorityClass, default_of, prioritized
from controller_manager.common.api.model import ObjectMeta
from tests.apiserver_stub.api_client import ApiClient
from tests.apiserver_stub.running_server import Started

CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
PODS = "/api/v1/namespaces/default/pods"
Make = Callable[..., Awaitable[Any]]


def priority_class(name: str, value: int, policy: str | None = None) -> PriorityClass:
    return PriorityClass(metadata=ObjectMeta(name=name), value=value, global_default=True, preemption_policy=policy)


def test_lower_of_two_default_classes_wins() -> None:
    assert default_of([priority_class("high", 9), priority_class("low", -3)]) == priority_class("low", -3)
    assert default_of([PriorityClass(metadata=ObjectMeta(name="no-default"), value=1)]) is None


@pytest.mark.parametrize(
    ("spec", "of", "given"),
    [
        ({}, priority_class("c", 5, "Never"), {"priorityClassName": "c", "priority": 5, "preemptionPolicy": "Never"}),
        ({"priority": 5}, priority_class("c", 5), {"priorityClassName": "c", "priority": 5}),
        ({}, priority_class("", 0, "Never"), {"priority": 0, "preemptionPolicy": "Never"}),
    ],
)
def test_pod_gets_the_fields_of_its_class(spec: dict[str, Any], of: PriorityClass, given: dict[str, Any]) -> None:
    assert prioritized(spec, of) == given


@pytest.mark.parametrize("spec", [{"priority": 6}, {"preemptionPolicy": "PreemptLowerPriority"}])
def test_conflicting_priority_is_rejected(spec: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="must not be provided in pod spec; priority admission controller computed"):
        prioritized(spec, priority_class("c", 5, "Never"))


async def create_pod(api: ApiClient, name: str, **spec: Any) -> Any:
    containers = [{"name": "c", "image": "i"}]
    pod = {"metadata": {"name": name}, "spec": {"containers": containers, **spec}}
    return await api.post(PODS, pod)


async def test_server_resolves_pod_priority(started: Started) -> None:
    async with started() as api:
        plain = (await create_pod(api, "plain")).tree["spec"]
        assert (plain["priority"], plain["preemptionPolicy"], plain.get("priorityClassName")) == (
            0,
            "PreemptLowerPriority",
            None,
        )
        critical = (await create_pod(api, "critical", priorityClassName="system-node-critical")).tree["spec"]
        assert critical["priority"] == 2_000_001_000
        default = {"metadata": {"name": "usual"}, "value": 7, "globalDefault": True}
        assert (await api.post(CLASSES, default)).status == 201
        usual = (await create_pod(api, "usual")).tree["spec"]
        assert (usual["priority"], usual["priorityClassName"]) == (7, "usual")


async def test_missing_class_or_second_default_is_rejected(started: Started) -> None:
    async with started() as api:
        refused = await create_pod(api, "p", priorityClassName="missing")
        assert (refused.status, refused.tree["reason"]) == (403, "Forbidden")
        for name, status in (("one", 201), ("two", 403)):
            default = {"metadata": {"name": name}, "value": 7, "globalDefault": True}
            assert (await api.post(CLASSES, default)).status == status
        changed = await api.patch(f"{CLASSES}/one", {"description": "still the default"})
        assert changed.status == 200


async def test_update_without_priority_keeps_it(started: Started) -> None:
    async with started() as api:
        pod = (await create_pod(api, "p")).tree
        del pod["spec"]["priority"], pod["spec"]["preemptionPolicy"]
        pod["metadata"]["labels"] = {"a": "b"}
        answer = await api.put(f"{PODS}/p", pod)
        assert (answer.status, answer.tree["spec"]["priority"]) == (200, 0)
