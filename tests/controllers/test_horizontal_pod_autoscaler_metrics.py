"""Replicas that metrics and pod usage ask for."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller_manager.common.api.core import Pod
from controllers.horizontal_pod_autoscaler.decision import (
    ScalingDefaults,
    tolerance_of,
)
from controllers.horizontal_pod_autoscaler.metrics_client import resource_samples
from controllers.horizontal_pod_autoscaler.proposals import Agreement, Failure, Proposal, TargetState, agree, propose
from controllers.horizontal_pod_autoscaler.replicas import (
    LARGEST,
    MOST_REPLICAS,
    CannotCompute,
    PodMetric,
    Startup,
    Tolerance,
    amount,
    approximate,
    average_usage,
    by_average,
    by_value,
    group,
    milli,
    per_pod,
    quotient,
    ready_pods,
    replicas_of,
    requests,
    utilization,
)
from tests.controllers.autoscaler_builders import FAILED, METRIC, RESOURCE, RULES, pod, proposal, scaler, spec

NOW = 1_767_225_600.0  # 2026-01-01T00:00:00Z


STARTUP = Startup(300.0, 30.0)


TENTH = Tolerance(0.1, 0.1)


@pytest.mark.parametrize(
    ("text", "thousandths"),
    [
        ("1", 1000), ("100m", 100), ("1n", 1), ("1500001n", 2), ("250u", 1), ("0", 0), ("2k", 2_000_000), (3, 3000),
        ("64Mi", 64 * 2**20 * 1000), ("1.5", 1500), ("1e3", 1_000_000), ("-5m", -5), ("0.0001", 1), (0.25, 250),
        ("9223372036854775807", LARGEST), ("7E", 7 * 10**21 and LARGEST), ("1Gi", 2**30 * 1000), ("12e6", 12 * 10**9),
    ],
)  # fmt: skip
def test_milli_of_quantity(text: str, thousandths: int) -> None:
    assert milli(text) == thousandths


@pytest.mark.parametrize("text", ["", "x", "1mm", "m", "1 m"])
def test_malformed_quantity_raises_value_error(text: str) -> None:
    with pytest.raises(ValueError):
        milli(text)


@pytest.mark.parametrize(
    ("thousandths", "resource", "text"),
    [
        (64 * 2**20 * 1000, "memory", "64Mi"),
        (64 * 2**20 * 1000, "cpu", "67108864"),
        (64 * 2**20 * 1000, "", "67108864"),
        (67108865 * 1000, "memory", "67108865"),
        (3 * 2**29 * 1000, "memory", "1536Mi"),
        (1023 * 1000, "memory", "1023"),
        (1024 * 1000, "memory", "1Ki"),
        (2048_500, "memory", "2048500m"),
        (64 * 2**20 * 1000, "hugepages-2Mi", "67108864"),
        (250, "cpu", "250m"),
        (0, "memory", "0"),
    ],
)
def test_memory_amount_keeps_binary_suffix(thousandths: int, resource: str, text: str) -> None:
    assert amount(thousandths, resource) == text


@given(st.integers(0, 10**15))
def test_amount_round_trips(thousandths: int) -> None:
    assert milli(amount(thousandths)) == thousandths


@pytest.mark.parametrize(("one", "other", "whole"), [(7, 2, 3), (-7, 2, -3), (0, 5, 0), (6, 2, 3)])
def test_quotient_rounds_towards_zero(one: int, other: int, whole: int) -> None:
    assert quotient(one, other) == whole


@pytest.mark.parametrize(
    ("number", "replicas"), [(2.0, 2), (2.01, 3), (1e300, MOST_REPLICAS), (float("inf"), MOST_REPLICAS)]
)
def test_replicas_are_rounded_up_to_maximum(number: float, replicas: int) -> None:
    assert replicas_of(number) == replicas


FRESH = {"started": "2025-12-31T23:58:00Z", "since": "2025-12-31T23:58:30Z"}


@pytest.mark.parametrize(
    ("options", "sample", "place"),
    [
        ({}, PodMetric(1, "2026-01-01T00:00:00Z", "30s"), "ready"),
        ({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}, PodMetric(1), "ignored"),
        ({"phase": "Failed"}, PodMetric(1), "ignored"),
        ({"phase": "Pending"}, PodMetric(1), "unready"),
        ({"phase": "Pending"}, None, "unready"),
        ({}, None, "missing"),
        ({"ready": ""}, PodMetric(1, "2026-01-01T00:00:00Z", "30s"), "unready"),
        ({"started": None}, PodMetric(1, "2026-01-01T00:00:00Z", "30s"), "unready"),
        (FRESH, PodMetric(1, "2025-12-31T23:59:30Z", "30s"), "ready"),
        (FRESH, PodMetric(1, "2025-12-31T23:58:50Z", "30s"), "unready"),
        ({**FRESH, "ready": "False"}, PodMetric(1, "2026-01-01T00:00:00Z", "30s"), "unready"),
        ({"ready": "False"}, PodMetric(1, "2026-01-01T00:00:00Z", "30s"), "unready"),
        ({"ready": "False", "since": "2025-12-31T00:00:31Z"}, PodMetric(1, "2026-01-01T00:00:00Z", "30s"), "ready"),
    ],
)
def test_cpu_grouping_by_readiness_and_sample(options: dict[str, Any], sample: PodMetric | None, place: str) -> None:
    found = group([pod(**options)], {"a": sample} if sample else {}, STARTUP, NOW, resource="cpu")
    assert {"ready": found.ready, "unready": len(found.unready), "missing": len(found.missing),
            "ignored": len(found.ignored)}[place] == 1  # fmt: skip


def test_grouping_of_other_metrics_ignores_readiness() -> None:
    assert group([pod(ready="False")], {"a": PodMetric(1)}, STARTUP, NOW).ready == 1


def test_ready_pods_are_running_and_ready() -> None:
    assert ready_pods([pod(), pod(ready="False"), pod(phase="Pending")]) == 1
    with pytest.raises(CannotCompute):
        ready_pods([])


ASKING = {"resources": {"requests": {"cpu": "50m", "memory": "1Ki"}}}


SIDECAR = {"initContainers": [{"name": "side", "restartPolicy": "Always", **ASKING}, {"name": "once"}]}


MAIN = {"name": "main", **ASKING}


@pytest.mark.parametrize(
    ("options", "resource", "container", "requested"),
    [
        ({"containers": [MAIN]}, "cpu", "", 50),
        ({"containers": [MAIN, {**MAIN, "name": "b"}]}, "cpu", "", 100),
        ({"containers": [MAIN], "spec": SIDECAR}, "cpu", "", 100),
        ({"containers": [MAIN], "spec": SIDECAR}, "cpu", "side", 50),
        ({"containers": [MAIN, {"name": "b"}]}, "cpu", "main", 50),
        ({"containers": [MAIN]}, "memory", "", 1024_000),
        ({"containers": [{"name": "b"}], "spec": {"resources": {"requests": {"cpu": "2"}}}}, "cpu", "", 2000),
        ({"containers": [MAIN], "spec": {"resources": {"requests": {"cpu": "2"}}}}, "cpu", "main", 50),
        ({"containers": [MAIN, {"name": "b"}], "spec": {"resources": {"requests": {"memory": "1Gi"}}}}, "cpu", "", 50),
    ],
)
def test_requests_of_pod_by_resource_and_container(
    options: dict[str, Any], resource: str, container: str, requested: int
) -> None:
    assert requests([pod(**options)], resource, container) == {"a": requested}


WHOLE = {"resources": {"requests": {"memory": "1Gi"}}}


@pytest.mark.parametrize(
    ("containers", "container", "spec"),
    [([MAIN, {"name": "b"}], "", {}), ([MAIN], "other", {}), ([{"name": "b"}], "", WHOLE)],
)
def test_missing_request_raises_cannot_compute(containers: list[Any], container: str, spec: dict[str, Any]) -> None:
    with pytest.raises(CannotCompute):
        requests([pod(containers=containers, spec=spec)], "cpu", container)


def counted(used: dict[str, int], current: int, *, target: int = 100, **others: list[str]) -> int:
    """Return replicas by average usage; pods have samples or are `unready`, `missing` or `ignored`."""
    left_out = (*others.get("unready", ()), *others.get("ignored", ()))
    pods = [pod(name) for name in (*used, *others.get("missing", ())) if name not in left_out]
    samples = {name: PodMetric(value) for name, value in used.items()}
    pods += [pod(name, phase="Pending") for name in others.get("unready", ())]
    pods += [pod(name, phase="Failed") for name in others.get("ignored", ())]
    groups = group(pods, samples, STARTUP, NOW)
    return per_pod(average_usage(target), samples, groups, current, TENTH, lambda _: target).replicas


@pytest.mark.parametrize(
    ("used", "current", "others", "replicas"),
    [
        ({"a": 100, "b": 100}, 2, {}, 2),
        ({"a": 110, "b": 110}, 2, {}, 2),
        ({"a": 111, "b": 111}, 2, {}, 3),
        ({"a": 90, "b": 90}, 2, {}, 2),
        ({"a": 300, "b": 100}, 2, {}, 4),
        ({"a": 40, "b": 40}, 2, {}, 1),
        # Missing pods use nothing when scaling up, and exactly the target when scaling down.
        ({"a": 300}, 2, {"missing": ["b"]}, 3),
        ({"a": 150}, 2, {"missing": ["b"]}, 2),
        ({"a": 20, "b": 20}, 3, {"missing": ["c"]}, 2),
        ({"a": 80}, 3, {"missing": ["b", "c"]}, 3),
        # Unready pods use nothing when scaling up, and do not count when scaling down.
        ({"a": 300}, 2, {"unready": ["b"]}, 3),
        ({"a": 300, "b": 900}, 2, {"unready": ["b"]}, 3),
        ({"a": 40}, 2, {"unready": ["b"]}, 1),
        ({"a": 300}, 3, {"unready": ["b"], "missing": ["c"]}, 3),
        # Terminating pods never count.
        ({"a": 200, "b": 900}, 2, {"ignored": ["b"]}, 2),
        # More pods than replicas never reverse the direction.
        ({"a": 70, "b": 70, "c": 70}, 1, {"missing": ["d"]}, 1),
    ],
)
def test_replicas_by_average_usage(used: dict[str, int], current: int, others: Any, replicas: int) -> None:
    assert counted(used, current, **others) == replicas


def test_without_samples_raises_cannot_compute() -> None:
    with pytest.raises(CannotCompute):
        counted({"a": 5}, 1, unready=["a"])


def test_utilization_is_relative_to_requests() -> None:
    usage = utilization(50, {"a": 100, "b": 300})({"a": 100, "b": 101, "c": 999})
    assert (usage.percent, usage.average, usage.ratio) == (50, 100, 1.0)
    assert utilization(50, {"a": 1})({"a": LARGEST}).percent == MOST_REPLICAS
    with pytest.raises(CannotCompute):
        utilization(50, {})({"c": 1})


@pytest.mark.parametrize(
    ("current", "value", "target", "ready", "replicas"),
    [(2, 30, 10, 2, 6), (2, 30, 10, 1, 3), (2, 11, 10, 2, 2), (2, 1, 10, 2, 1), (2, 0, 10, 2, 0),
     (0, 25, 10, 0, 3), (0, 1, 10, 0, 1), (0, 0, 10, 0, 0)],
)  # fmt: skip
def test_replicas_by_target_value(current: int, value: int, target: int, ready: int, replicas: int) -> None:
    assert by_value(current, value, target, lambda: ready, TENTH) == replicas


@pytest.mark.parametrize(
    ("there", "value", "target", "found"),
    [(2, 45, 10, (5, 23)), (4, 41, 10, (4, 11)), (3, 0, 10, (0, 0)), (0, 25, 10, (3, 25)), (0, 0, 10, (0, 0)),
     (2, LARGEST, 1, (MOST_REPLICAS, LARGEST))],
)  # fmt: skip
def test_replicas_by_average_value(there: int, value: int, target: int, found: tuple[int, int]) -> None:
    assert by_average(there, value, target, TENTH) == found


@pytest.mark.parametrize(
    ("text", "number"),
    [("0", 0.0), ("100m", 100 * 0.001), ("104m", 104 * 0.001), ("0.05", 5 * 0.01), ("500u", 0.0005), ("1", 1.0),
     (0.25, 0.25), (2, 2.0), ("1k", 1000.0)],
)  # fmt: skip
def test_approximate_number_of_quantity(text: str, number: float) -> None:
    assert approximate(text) == number


def test_tolerance_per_direction_requires_gate() -> None:
    behavior = {"scaleUp": {"tolerance": "0"}, "scaleDown": {"tolerance": "300m"}}
    tolerance = tolerance_of(scaler(behavior=behavior).spec, RULES)
    assert [tolerance.covers(ratio) for ratio in (0.69, 0.71, 1.0, 1.01)] == [False, True, True, False]
    assert tolerance_of(scaler(behavior=behavior).spec, ScalingDefaults(0.2, 300, False, False)) == Tolerance(0.2, 0.2)


def view(*pods: Pod, wanted: int = 2, there: int = 2) -> TargetState:
    return TargetState(pods, wanted, there, TENTH, STARTUP, NOW)


def used(name: str, cpu: str, container: str = "main") -> dict[str, Any]:
    usage = {"name": container, "usage": {"cpu": cpu, "memory": "3Mi"}}
    return {"metadata": {"name": name}, "timestamp": "2026-01-01T00:00:00Z", "window": "30s", "containers": [usage]}


VALUE = {"items": [{"value": "30"}]}


@pytest.mark.parametrize(
    ("tree", "answer", "replicas", "metric"),
    [
        ({"type": "Resource", "resource": RESOURCE}, {"items": [used("a", "75m"), used("b", "75m")]}, 3,
         "cpu resource utilization (percentage of request)"),
        ({"type": "Resource", "resource": {"name": "memory", "target": {"averageValue": "1Mi"}}},
         {"items": [used("a", "1"), used("b", "1")]}, 6, "memory resource"),
        ({"type": "ContainerResource", "containerResource": {**RESOURCE, "container": "main"}},
         {"items": [used("a", "75m"), used("b", "75m")]}, 3,
         "cpu container resource utilization (percentage of request)"),
        ({"type": "Pods", "pods": {"metric": METRIC, "target": {"averageValue": "10"}}},
         {"items": [{"describedObject": {"name": name}, "value": "30"} for name in "ab"]}, 6, "pods metric hits"),
        ({"type": "Object", "object": {"metric": METRIC, "describedObject": {"kind": "Service", "name": "s"},
                                       "target": {"type": "Value", "value": "10"}}}, VALUE, 6, "Service metric hits"),
        ({"type": "External", "external": {"metric": METRIC, "target": {"averageValue": "10"}}}, VALUE, 3,
         "external metric hits"),
    ],
)  # fmt: skip
def test_proposal_by_metric_type(tree: dict[str, Any], answer: Any, replicas: int, metric: str) -> None:
    found = propose(spec(tree), msgspec.json.encode(answer), view(pod("a"), pod("b")))
    assert isinstance(found, Proposal), found
    assert (found.replicas, found.metric, found.status.type) == (replicas, metric, tree["type"])


@pytest.mark.parametrize(
    ("tree", "answer", "reason"),
    [
        ({"type": "Resource", "resource": RESOURCE}, b'{"items": []}', "FailedGetResourceMetric"),
        ({"type": "Resource", "resource": RESOURCE}, b"<html>", "FailedGetResourceMetric"),
        ({"type": "Resource", "resource": {"name": "cpu", "target": {}}},
         msgspec.json.encode({"items": [used("a", "1")]}), "FailedGetResourceMetric"),
        ({"type": "ContainerResource", "containerResource": {**RESOURCE, "container": "other"}},
         msgspec.json.encode({"items": [used("a", "1")]}), "FailedGetContainerResourceMetric"),
        ({"type": "Pods", "pods": {"metric": METRIC, "target": {}}}, b'{"items": []}', "FailedGetPodsMetric"),
        ({"type": "Object"}, b"{}", "FailedGetObjectMetric"),
        ({"type": "External", "external": {"metric": METRIC, "target": {"value": "1"}}}, b'{"items": []}',
         "FailedGetExternalMetric"),
        ({"type": "Dream"}, b"", "InvalidMetricSourceType"),
    ],
)  # fmt: skip
def test_unusable_answer_is_a_failure(tree: dict[str, Any], answer: bytes, reason: str) -> None:
    found = propose(spec(tree), answer, view(pod("a")))
    assert isinstance(found, Failure)
    assert found.reason == reason


def test_pod_without_sample_of_each_container_is_left_out() -> None:
    pods = [used("a", "1m"), {**used("b", "1m"), "containers": [{"name": "main", "usage": {}}]}]
    assert set(resource_samples(msgspec.json.encode({"items": pods}), "cpu")) == {"a"}


@pytest.mark.parametrize(
    ("proposals", "current", "agreed"),
    [
        ([proposal(3), proposal(5, "b"), proposal(5, "c")], 4, (5, "b")),
        ([proposal(0)], 4, (0, "cpu")),
        ([proposal(5), FAILED], 4, (5, "cpu")),
        ([proposal(4), FAILED], 4, (4, "cpu")),
        ([FAILED, proposal(3)], 4, FAILED),
        ([FAILED], 4, FAILED),
    ],
)
def test_largest_proposal_wins_and_failures_block_scale_down(proposals: Any, current: int, agreed: Any) -> None:
    found = agree(proposals, current)
    assert ((found.replicas, found.metric) if isinstance(found, Agreement) else found) == agreed
