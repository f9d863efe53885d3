"""Lifecycle of a pod on a virtual node, second by second."""

import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controllers.virtual_node.lifecycle import decide
from controllers.virtual_node.pods import POD
from controllers.virtual_node.stages import Stages, load_stages
from tests.controllers.pod_lifecycle import (
    EXIT_1,
    INIT,
    NOTE,
    PLACE,
    SHIPPED,
    SLOW,
    START,
    Tree,
    annotated,
    apply,
    at,
    container,
    pod,
    run_lifecycle,
    with_stages,
)

SLOWLY = load_stages("", instant=False)
FAILS = {"exec": {"command": ["/bin/false"]}}
SIDECAR = container("side", restartPolicy="Always")
EXIT_0 = {f"{NOTE}/exit-code": "0", f"{NOTE}/run-for": "5s"}
LIFECYCLES: dict[str, tuple[Tree, Stages, list[str]]] = {
    "a pod runs": (pod(), SHIPPED, ["0: Running, main ready"]),
    "a slow start": (pod(), with_stages(SLOW), ["0: Pending, main ContainerCreating", "3: Running, main ready"]),
    "init containers run in sequence": (
        pod(initContainers=[INIT, container("second")]),
        with_stages({**SLOW, "of": ["init"]}),
        [
            "0: Pending, init PodInitializing, second PodInitializing, main PodInitializing",
            "3: Pending, init exit 0, second PodInitializing, main PodInitializing",
            "6: Running, init exit 0, second exit 0, main ready",
        ],
    ),
    "a failing init container is restarted": (
        pod(initContainers=[INIT]),
        with_stages(
            {"name": "f", "of": ["init"], "from": ["running"], "to": "terminated", "exitCode": 2, "maxRestarts": 1}
        ),
        [
            "0: Pending, init CrashLoopBackOff*, main PodInitializing",
            "10: Running, init exit 0**, main ready",
        ],
    ),
    "an init container fails without restart": (
        pod(initContainers=[INIT], restartPolicy="Never"),
        with_stages({"name": "f", "of": ["init"], "from": ["running"], "to": "terminated", "exitCode": 2}),
        ["0: Failed, init exit 2, main PodInitializing"],
    ),
    "a sidecar starts before the others and ends after them": (
        pod(initContainers=[SIDECAR], annotations=EXIT_0, restartPolicy="Never"),
        with_stages({"name": "s", "of": ["sidecar"], "from": ["stopping"], "to": "terminated", "delay": "2s"}),
        [
            "0: Running, side ready, main ready",
            "5: Running, side ready, main exit 0",
            "7: Succeeded, side exit 0, main exit 0",
        ],
    ),
    "probes": (
        pod(container(startupProbe={"initialDelaySeconds": 2}, readinessProbe={"initialDelaySeconds": 6})),
        SHIPPED,
        ["0: Running, main running", "2: Running, main started", "6: Running, main ready"],
    ),
    "a probe whose command fails": (
        pod(container(readinessProbe={"initialDelaySeconds": 2, "exec": {"command": ["/bin/false"]}})),
        SHIPPED,
        ["0: Running, main started"],
    ),
    "a probe whose command succeeds": (
        pod(container(readinessProbe={"initialDelaySeconds": 2, "exec": {"command": ["sh", "-c", "exit 0"]}})),
        SHIPPED,
        ["0: Running, main started", "2: Running, main ready"],
    ),
    "a startup probe that never succeeds": (
        pod(container(startupProbe={**FAILS, "initialDelaySeconds": 2, "periodSeconds": 5}), restartPolicy="Never"),
        SHIPPED,
        ["0: Running, main running", "12: Failed, main exit 137"],
    ),
    "a startup probe that succeeds at its last attempt": (
        pod(
            container(startupProbe={"failureThreshold": 4, "periodSeconds": 5}),
            annotations={f"{NOTE}/started-after": "14s"},
        ),
        SHIPPED,
        ["0: Running, main running", "15: Running, main ready"],
    ),
    "a startup probe that would succeed too late": (
        pod(
            container(startupProbe={"failureThreshold": 3, "periodSeconds": 5}),
            annotations={f"{NOTE}/started-after": "14s"},
            restartPolicy="Never",
        ),
        SHIPPED,
        ["0: Running, main running", "10: Failed, main exit 137"],
    ),
    "a container without startup probe has started at once": (
        pod(annotations={f"{NOTE}/started-after": "14s", f"{NOTE}/unhealthy-after": "1s"}),
        SHIPPED,
        ["0: Running, main ready"],
    ),
    "a liveness probe that fails": (
        pod(container(livenessProbe={**FAILS, "initialDelaySeconds": 4, "failureThreshold": 2}), restartPolicy="Never"),
        SHIPPED,
        ["0: Running, main ready", "14: Failed, main exit 137"],
    ),
    "a liveness probe that succeeds": (pod(container(livenessProbe={})), SHIPPED, ["0: Running, main ready"]),
    "a liveness probe that fails after a time": (
        pod(
            container(livenessProbe={"periodSeconds": 4, "failureThreshold": 2}),
            annotations={f"{NOTE}/unhealthy-after": "9s"},
            restartPolicy="Never",
        ),
        SHIPPED,
        ["0: Running, main ready", "16: Failed, main exit 137"],
    ),
    "a liveness probe that waits for the startup probe": (
        pod(
            container(
                startupProbe={"failureThreshold": 9, "periodSeconds": 5},
                livenessProbe={**FAILS, "periodSeconds": 4, "failureThreshold": 1},
            ),
            annotations={f"{NOTE}/started-after": "22s"},
            restartPolicy="Never",
        ),
        SHIPPED,
        ["0: Running, main running", "25: Running, main ready", "28: Failed, main exit 137"],
    ),
    "a job's pod completes": (
        pod(owner="Job", restartPolicy="Never"),
        SHIPPED,
        ["0: Succeeded, main exit 0"],
    ),
    "the command of a job sets its duration and exit code": (
        pod(container(command=["sh", "-c"], args=["sleep 20; exit 3"]), owner="Job", restartPolicy="Never"),
        SHIPPED,
        ["0: Running, main ready", "20: Failed, main exit 3"],
    ),
    "a command that never ends": (
        pod(container(command=["sleep", "infinity"]), owner="Job", restartPolicy="Never"),
        SHIPPED,
        ["0: Running, main ready"],
    ),
    "a command that fails at once": (
        pod(container(command=["/bin/false"]), owner="Job", restartPolicy="Never"),
        SHIPPED,
        ["0: Failed, main exit 1"],
    ),
    "a pod that fails once": (
        pod(annotations=EXIT_1, restartPolicy="Never"),
        SHIPPED,
        ["0: Running, main ready", "5: Failed, main exit 1"],
    ),
    "exit code 0 is not restarted with OnFailure": (
        pod(annotations=EXIT_0, restartPolicy="OnFailure"),
        SHIPPED,
        ["0: Running, main ready", "5: Succeeded, main exit 0"],
    ),
    "a restart policy rule": (
        pod(
            container(
                restartPolicy="Never",
                restartPolicyRules=[{"action": "Restart", "exitCodes": {"operator": "In", "values": [42]}}],
            ),
            restartPolicy="Never",
        ),
        with_stages(
            {"name": "a", "from": ["ready"], "to": "terminated", "exitCode": 42, "delay": "1s", "maxRestarts": 0},
            {"name": "b", "from": ["ready"], "to": "terminated", "exitCode": 41, "delay": "1s"},
        ),
        ["0: Running, main ready", "1: Running, main ready*", "2: Failed, main exit 41*"],
    ),
    "an image that cannot be pulled": (
        pod(annotations={f"{NOTE}/image-error": "true"}),
        SHIPPED,
        ["0: Pending, main ErrImagePull"],
    ),
    "an image with the tag of a missing image": (
        pod(container(image="example.org/app:nonexistent")),
        SHIPPED,
        ["0: Pending, main ErrImagePull"],
    ),
    "a deadline": (
        pod(activeDeadlineSeconds=30),
        SHIPPED,
        ["0: Running, main ready", "30: Failed, main exit 137"],
    ),
    "a container for debugging": (
        pod(ephemeralContainers=[container("debug")]),
        SHIPPED,
        ["0: Running, main ready, debug started"],
    ),
    "unready until its annotation is removed": (
        pod(annotations={f"{NOTE}/unready": "yes"}),
        SHIPPED,
        ["0: Running, main started"],
    ),
    "never ready": (
        pod(),
        with_stages({"name": "n", "from": ["started"], "to": "ready", "delay": "never"}),
        ["0: Running, main started"],
    ),
}


@pytest.mark.parametrize(("tree", "stages", "expected"), LIFECYCLES.values(), ids=LIFECYCLES.keys())
def test_pod_lifecycle_by_stages(tree: Tree, stages: Stages, expected: list[str]) -> None:
    assert run_lifecycle(tree, stages)[1] == expected


def test_restart_backoff_doubles() -> None:
    _, history = run_lifecycle(pod(annotations={**EXIT_1, f"{NOTE}/run-for": "0s"}))
    assert [line.split(":")[0] for line in history] == ["0", "10", "30", "70", "150", "310", "610", "910"]
    assert history[-1] == "910: Running, main CrashLoopBackOff********"


def test_failed_liveness_probe_restarts_with_backoff() -> None:
    tree = pod(container("ill", livenessProbe={**FAILS, "failureThreshold": 1, "initialDelaySeconds": 5}), container())
    tree, history = run_lifecycle(tree, until=60)
    assert history == [
        "0: Running, ill ready, main ready",
        "5: Running, ill ready*, main ready",
        "10: Running, ill CrashLoopBackOff*, main ready",
        "20: Running, ill ready**, main ready",
        "25: Running, ill CrashLoopBackOff**, main ready",
        "45: Running, ill ready***, main ready",
        "50: Running, ill CrashLoopBackOff***, main ready",
    ]
    ended = tree["status"]["containerStatuses"][0]["lastState"]["terminated"]
    assert (ended["exitCode"], ended["reason"], ended.get("message", "")) == (137, "Error", "")


def test_long_run_resets_backoff() -> None:
    _, history = run_lifecycle(pod(annotations={**EXIT_1, f"{NOTE}/run-for": "700s"}), until=1500)
    assert history == ["0: Running, main ready", "700: Running, main ready*", "1400: Running, main ready**"]


def test_corrected_image_starts_container() -> None:
    tree, _ = run_lifecycle(annotated(pod(), image_error="yes"))
    assert run_lifecycle(annotated(tree), begin=10)[1] == ["10: Running, main ready"]
    tree, _ = run_lifecycle(pod(container(image="app:404")))
    fixed = {**tree, "spec": {**tree["spec"], "containers": [container(image="app:2")]}}
    tree, history = run_lifecycle(fixed, begin=10)
    assert history == ["10: Running, main ready"]
    assert tree["status"]["containerStatuses"][0]["image"] == "app:2"


def deleted(tree: Tree, seconds: float, grace: int) -> Tree:
    meta = {"deletionTimestamp": at(seconds + grace), "deletionGracePeriodSeconds": grace}
    return {**tree, "metadata": {**tree["metadata"], **meta}}


def test_deleted_pod_ends_within_grace_period() -> None:
    stop = {"name": "stop", "from": ["stopping"], "to": "terminated", "delay": "4s"}
    tree, _ = run_lifecycle(pod(), with_stages(stop))
    _, history = run_lifecycle(deleted(tree, 20, 30), with_stages(stop), begin=20)
    assert history == ["24: gone"]
    tree["metadata"]["finalizers"] = ["example.org/sees"]
    _, history = run_lifecycle(deleted(tree, 20, 30), with_stages(stop), begin=20)
    assert history == ["24: Succeeded, main exit 0", "24: gone"]
    _, history = run_lifecycle(deleted(tree, 20, 2), with_stages(stop), begin=20)
    assert history == ["22: Failed, main exit 137", "22: gone"]


def test_deleted_pod_that_never_ran_ends_at_once() -> None:
    tree, _ = run_lifecycle(pod(), with_stages({**SLOW, "delay": "never"}))
    tree["metadata"]["finalizers"] = ["example.org/sees"]
    tree, history = run_lifecycle(deleted(tree, 5, 30), begin=5)
    assert history == ["5: Failed, main exit 137", "5: gone"]
    assert tree["status"]["containerStatuses"][0]["state"]["terminated"]["reason"] == "ContainerStatusUnknown"


def test_pod_held_by_finalizers_only_is_skipped() -> None:
    tree, _ = run_lifecycle(pod(owner="Job", restartPolicy="Never"))
    assert run_lifecycle(deleted(tree, 5, 0), begin=5)[1] == []
    assert run_lifecycle(deleted(tree, 5, 30), begin=5)[1] == ["5: gone"]


def test_events_report_failures() -> None:
    tree = POD.decode(msgspec.json.encode(pod(annotations={f"{NOTE}/image-error": "true"})))
    assert [one.reason for one in decide(tree, SHIPPED, PLACE, START).events] == ["Failed"]
    crashing = pod(annotations={**EXIT_1, f"{NOTE}/run-for": "0s"})
    decision = decide(POD.decode(msgspec.json.encode(crashing)), SHIPPED, PLACE, START)
    assert [one.reason for one in decision.events] == ["BackOff"]
    unhealthy, _ = run_lifecycle(
        pod(container(livenessProbe={**FAILS, "failureThreshold": 1, "initialDelaySeconds": 5})), until=1
    )
    decision = decide(POD.decode(msgspec.json.encode(unhealthy)), SHIPPED, PLACE, START + 5)
    assert [(one.type, one.reason) for one in decision.events] == [("Warning", "Unhealthy"), ("Normal", "Killing")]
    tree, _ = run_lifecycle(pod(container(readinessProbe={})))
    unready = POD.decode(msgspec.json.encode(annotated(tree, unready="yes")))
    assert [one.reason for one in decide(unready, SHIPPED, PLACE, START + 5).events] == ["Unhealthy"]


CONTAINERS = st.builds(
    lambda policy, probe: {
        **({"restartPolicy": "Always"} if policy else {}),
        **({"readinessProbe": {"initialDelaySeconds": probe}} if probe else {}),
    },
    st.booleans(),
    st.integers(0, 3),
)
PODS = st.builds(
    lambda inits, mains, policy, exit_code, deadline, grace: deleted(
        pod(
            *(container(f"m{n}", readinessProbe=one.get("readinessProbe")) for n, one in enumerate(mains)),
            initContainers=[container(f"i{n}", **one) for n, one in enumerate(inits)],
            restartPolicy=policy,
            annotations={f"{NOTE}/exit-code": str(exit_code)} if exit_code is not None else {},
            **({"activeDeadlineSeconds": deadline} if deadline else {}),
        ),
        400,
        grace,
    ),
    st.lists(CONTAINERS, max_size=3),
    st.lists(CONTAINERS, min_size=1, max_size=2),
    st.sampled_from(["Always", "OnFailure", "Never"]),
    st.sampled_from([None, 0, 1]),
    st.sampled_from([None, 5, 50]),
    st.integers(1, 30),
)


@given(PODS, st.booleans())
def test_every_lifecycle_ends_without_repeated_writes(tree: Tree, instant: bool) -> None:
    stages = SHIPPED if instant else SLOWLY
    alive = {**tree, "metadata": {k: v for k, v in tree["metadata"].items() if not k.startswith("deletion")}}
    alive, history = run_lifecycle(alive, stages, until=400)
    assert len(set(history)) == len(history)
    again = decide(POD.decode(msgspec.json.encode(alive)), stages, PLACE, START + 400)
    once_more = apply(alive, again.status)
    assert not decide(POD.decode(msgspec.json.encode(once_more)), stages, PLACE, START + 400).status
    _, history = run_lifecycle({**once_more, "metadata": tree["metadata"]}, stages, begin=400)
    assert history[-1].endswith("gone")
    assert float(history[-1].partition(":")[0]) <= 400 + tree["metadata"]["deletionGracePeriodSeconds"]
    assert math.isfinite(again.due) or alive["status"]["phase"] != "Pending"
