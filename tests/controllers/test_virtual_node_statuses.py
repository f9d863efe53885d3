"""Status fields that a virtual node writes besides phase and states: conditions, resources, addresses."""

import msgspec
import pytest

from controllers.virtual_node.lifecycle import Place, decide
from controllers.virtual_node.pods import POD
from controllers.virtual_node.stages import Stages
from tests.controllers.pod_lifecycle import (
    EXIT_1,
    INIT,
    SHIPPED,
    SLOW,
    START,
    Tree,
    annotated,
    apply,
    at,
    conditions,
    container,
    pod,
    run_lifecycle,
    summary,
    with_stages,
)


def test_readiness_follows_annotations() -> None:
    tree, _ = run_lifecycle(pod())
    tree, history = run_lifecycle(annotated(tree, unready="yes"), begin=10)
    assert history == ["10: Running, main started"]
    assert conditions(tree)["Ready"] == ("False", "ContainersNotReady")
    tree, history = run_lifecycle(annotated(tree), begin=20)
    assert history == ["20: Running, main ready"]
    assert conditions(tree)["Ready"] == ("True", "")


def test_status_contains_conditions_ids_and_resources() -> None:
    tree, _ = run_lifecycle(pod(container(resources={"requests": {"cpu": "1"}}), container("other")))
    status = tree["status"]
    assert [one["type"] for one in status["conditions"]] == [
        "PodScheduled",
        "PodReadyToStartContainers",
        "Initialized",
        "Ready",
        "ContainersReady",
    ]
    assert all(one.get("observedGeneration") == 1 for one in status["conditions"][1:])
    assert status["observedGeneration"] == 1
    assert (status["hostIP"], status["hostIPs"]) == ("198.18.0.2", [{"ip": "198.18.0.2"}])
    assert (status["podIP"], status["podIPs"], status["startTime"]) == ("10.0.0.7", [{"ip": "10.0.0.7"}], at(0))
    first, second = status["containerStatuses"]
    assert first["state"] == {"running": {"startedAt": at(0)}}
    assert first["lastState"] == {}
    assert first["image"] == "example.org/app:1"
    assert first["imageID"].startswith("example.org/app@sha256:")
    assert first["containerID"].startswith("containerd://")
    assert first["containerID"] != second["containerID"]
    assert first["allocatedResources"] == {"cpu": "1"}
    assert first["resources"] == {"requests": {"cpu": "1"}}


CONDITIONS: dict[str, tuple[Tree, Stages, dict[str, tuple[str, str]]]] = {
    "waiting": (
        pod(initContainers=[INIT]),
        with_stages({**SLOW, "delay": "never"}),
        {
            "PodReadyToStartContainers": ("False", ""),
            "Initialized": ("False", "ContainersNotInitialized"),
            "Ready": ("False", "ContainersNotReady"),
            "ContainersReady": ("False", "ContainersNotReady"),
        },
    ),
    "completed": (
        pod(owner="Job", restartPolicy="Never"),
        SHIPPED,
        {
            "PodReadyToStartContainers": ("False", ""),
            "Initialized": ("True", "PodCompleted"),
            "Ready": ("False", "PodCompleted"),
            "ContainersReady": ("False", "PodCompleted"),
        },
    ),
    "failed": (
        pod(annotations=EXIT_1, restartPolicy="Never"),
        SHIPPED,
        {
            "PodReadyToStartContainers": ("False", ""),
            "Initialized": ("True", ""),
            "Ready": ("False", "PodFailed"),
            "ContainersReady": ("False", "PodFailed"),
        },
    ),
    "a gate is closed": (
        pod(readinessGates=[{"conditionType": "example.org/open"}]),
        SHIPPED,
        {
            "PodReadyToStartContainers": ("True", ""),
            "Initialized": ("True", ""),
            "Ready": ("False", "ReadinessGatesNotReady"),
            "ContainersReady": ("True", ""),
        },
    ),
}


@pytest.mark.parametrize(("tree", "stages", "expected"), CONDITIONS.values(), ids=CONDITIONS.keys())
def test_conditions_by_stage(tree: Tree, stages: Stages, expected: dict[str, tuple[str, str]]) -> None:
    assert conditions(run_lifecycle(tree, stages)[0]) == {"PodScheduled": ("True", ""), **expected}


def test_opened_readiness_gate_preserves_foreign_conditions() -> None:
    tree, _ = run_lifecycle(pod(readinessGates=[{"conditionType": "example.org/open"}]))
    gate = {"type": "example.org/open", "status": "True"}
    tree["status"]["conditions"].append(gate)
    after, _ = run_lifecycle(tree, begin=50)
    found = {one["type"]: one for one in after["status"]["conditions"]}
    assert found["Ready"] == {"type": "Ready", "status": "True", "observedGeneration": 1, "lastTransitionTime": at(50)}
    assert found["example.org/open"] == gate
    assert found["Initialized"]["lastTransitionTime"] == at(0)


def test_changed_resources_and_image_are_applied() -> None:
    tree, _ = run_lifecycle(pod())
    spec = {**tree["spec"], "containers": [container(resources={"limits": {"cpu": "2"}, "requests": {"cpu": "2"}})]}
    tree = {**tree, "spec": spec, "metadata": {**tree["metadata"], "generation": 2}}
    tree, history = run_lifecycle(tree, begin=9)
    status = tree["status"]["containerStatuses"][0]
    assert (status["allocatedResources"], status["restartCount"]) == ({"cpu": "2"}, 0)
    assert tree["status"]["observedGeneration"] == 2
    spec = {**tree["spec"], "containers": [{**spec["containers"][0], "image": "example.org/app:2"}]}
    tree, history = run_lifecycle({**tree, "spec": spec, "metadata": {**tree["metadata"], "generation": 3}}, begin=12)
    assert history == ["12: Running, main ready*"]
    assert tree["status"]["containerStatuses"][0]["image"] == "example.org/app:2"


def test_host_network_pod_has_node_address_while_pending() -> None:
    tree = pod(hostNetwork=True)
    decision = decide(
        POD.decode(msgspec.json.encode(tree)), with_stages(SLOW), Place(("198.18.0.2",), ("198.18.0.2",)), START
    )
    tree = apply(tree, decision.status)
    assert (tree["status"]["podIP"], summary(tree)) == ("198.18.0.2", "Pending, main ContainerCreating")
