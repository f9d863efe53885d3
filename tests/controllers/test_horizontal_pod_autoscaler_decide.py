"""What autoscalers decide, as tables: replicas from metrics, limits, conditions."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller_manager.api.autoscaling import (
    Behavior,
    HorizontalPodAutoscaler,
    MetricSelector,
    MetricSpec,
    MetricStatus,
    ScalingPolicy,
    ScalingRules,
    SelectorRequirement,
)
from controller_manager.api.core import Pod
from controller_manager.api.resource import Key
from controller_manager.api.selectors import LabelSelector
from controllers.horizontal_pod_autoscaler.amounts import (
    LARGEST,
    MOST_REPLICAS,
    amount,
    approximate,
    milli,
    quotient,
    replicas_of,
)
from controllers.horizontal_pod_autoscaler.decision import (
    ScalingDefaults,
    bounds_of,
    by_metrics,
    told_of_zero,
    tolerance_of,
    without_metrics,
)
from controllers.horizontal_pod_autoscaler.limits import (
    Bounds,
    ConditionUpdate,
    History,
    normalize,
    normalize_with_behavior,
    with_updates,
)
from controllers.horizontal_pod_autoscaler.metrics_client import query_of, resource_samples, text_of
from controllers.horizontal_pod_autoscaler.pods import CannotCompute, PodMetric, Startup, group, ready_pods, requests
from controllers.horizontal_pod_autoscaler.proposals import Agreement, Failure, Proposal, TargetState, agree, propose
from controllers.horizontal_pod_autoscaler.replica_calculator import SelectorIndex
from controllers.horizontal_pod_autoscaler.replicas import (
    Tolerance,
    average_usage,
    by_average,
    by_value,
    per_pod,
    utilization,
)

NOW = 1_767_225_600.0  # 2026-01-01T00:00:00Z
STARTUP = Startup(300.0, 30.0)
TENTH = Tolerance(0.1, 0.1)
RULES = ScalingDefaults(0.1, 300.0, to_zero=False, own_tolerance=True)


def pod(name: str = "a", *, ready: str = "True", phase: str = "Running", **options: Any) -> Pod:
    """A pod that started a day ago and has been ready since, unless told otherwise."""
    status: dict[str, Any] = {"phase": phase, "startTime": options.get("started", "2025-12-31T00:00:00Z")}
    if ready:
        since = options.get("since", "2025-12-31T00:00:10Z")
        status["conditions"] = [{"type": "Ready", "status": ready, "lastTransitionTime": since}]
    containers = options.get("containers", [{"name": "main", "resources": {"requests": {"cpu": "100m"}}}])
    spec = {"containers": containers, **options.get("spec", {})}
    metadata = {"name": name, "namespace": "default", "labels": {"app": "web"}, **options.get("metadata", {})}
    return Pod.decode(msgspec.json.encode({"metadata": metadata, "spec": spec, "status": status}))


def spec(tree: dict[str, Any]) -> MetricSpec:
    return msgspec.convert(tree, MetricSpec)


def scaler(status: dict[str, Any] | None = None, **parts: Any) -> HorizontalPodAutoscaler:
    tree = {"metadata": {"name": "web"}, "spec": {"minReplicas": 1, "maxReplicas": 10, **parts}, "status": status or {}}
    return HorizontalPodAutoscaler.decode(msgspec.json.encode(tree))


@pytest.mark.parametrize(
    ("text", "thousandths"),
    [
        ("1", 1000), ("100m", 100), ("1n", 1), ("1500001n", 2), ("250u", 1), ("0", 0), ("2k", 2_000_000), (3, 3000),
        ("64Mi", 64 * 2**20 * 1000), ("1.5", 1500), ("1e3", 1_000_000), ("-5m", -5), ("0.0001", 1), (0.25, 250),
        ("9223372036854775807", LARGEST), ("7E", 7 * 10**21 and LARGEST), ("1Gi", 2**30 * 1000), ("12e6", 12 * 10**9),
    ],
)  # fmt: skip
def test_a_quantity_in_thousandths(text: str, thousandths: int) -> None:
    assert milli(text) == thousandths


@pytest.mark.parametrize("text", ["", "x", "1mm", "m", "1 m"])
def test_what_is_no_quantity_is_refused(text: str) -> None:
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
def test_an_amount_of_memory_keeps_binary_suffixes(thousandths: int, resource: str, text: str) -> None:
    assert amount(thousandths, resource) == text


@given(st.integers(0, 10**15))
def test_an_amount_reads_as_what_it_is(thousandths: int) -> None:
    assert milli(amount(thousandths)) == thousandths


@pytest.mark.parametrize(("one", "other", "whole"), [(7, 2, 3), (-7, 2, -3), (0, 5, 0), (6, 2, 3)])
def test_quotients_are_rounded_towards_zero(one: int, other: int, whole: int) -> None:
    assert quotient(one, other) == whole


@pytest.mark.parametrize(
    ("number", "replicas"), [(2.0, 2), (2.01, 3), (1e300, MOST_REPLICAS), (float("inf"), MOST_REPLICAS)]
)
def test_replicas_are_rounded_up(number: float, replicas: int) -> None:
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
def test_which_pods_count_for_cpu(options: dict[str, Any], sample: PodMetric | None, place: str) -> None:
    found = group([pod(**options)], {"a": sample} if sample else {}, STARTUP, NOW, resource="cpu")
    assert {"ready": found.ready, "unready": len(found.unready), "missing": len(found.missing),
            "ignored": len(found.ignored)}[place] == 1  # fmt: skip


def test_for_other_metrics_readiness_does_not_matter() -> None:
    assert group([pod(ready="False")], {"a": PodMetric(1)}, STARTUP, NOW).ready == 1


def test_only_running_pods_that_are_ready_share_a_value() -> None:
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
def test_what_a_pod_requests(options: dict[str, Any], resource: str, container: str, requested: int) -> None:
    assert requests([pod(**options)], resource, container) == {"a": requested}


WHOLE = {"resources": {"requests": {"memory": "1Gi"}}}


@pytest.mark.parametrize(
    ("containers", "container", "spec"),
    [([MAIN, {"name": "b"}], "", {}), ([MAIN], "other", {}), ([{"name": "b"}], "", WHOLE)],
)
def test_use_of_what_nobody_requested_is_no_part_of_anything(
    containers: list[Any], container: str, spec: dict[str, Any]
) -> None:
    with pytest.raises(CannotCompute):
        requests([pod(containers=containers, spec=spec)], "cpu", container)


def counted(used: dict[str, int], current: int, *, target: int = 100, **others: list[str]) -> int:
    """Replicas by average usage; pods are those with samples, and the `unready`, `missing` and `ignored` ones."""
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
        # Unknown pods count as nothing on the way up, as exactly enough on the way down.
        ({"a": 300}, 2, {"missing": ["b"]}, 3),
        ({"a": 150}, 2, {"missing": ["b"]}, 2),
        ({"a": 20, "b": 20}, 3, {"missing": ["c"]}, 2),
        ({"a": 80}, 3, {"missing": ["b", "c"]}, 3),
        # Pods that are not ready count as nothing on the way up, and not at all on the way down.
        ({"a": 300}, 2, {"unready": ["b"]}, 3),
        ({"a": 300, "b": 900}, 2, {"unready": ["b"]}, 3),
        ({"a": 40}, 2, {"unready": ["b"]}, 1),
        ({"a": 300}, 3, {"unready": ["b"], "missing": ["c"]}, 3),
        # Pods that go count never.
        ({"a": 200, "b": 900}, 2, {"ignored": ["b"]}, 2),
        # More pods than replicas: never in the other direction.
        ({"a": 70, "b": 70, "c": 70}, 1, {"missing": ["d"]}, 1),
    ],
)
def test_replicas_by_what_pods_use(used: dict[str, int], current: int, others: Any, replicas: int) -> None:
    assert counted(used, current, **others) == replicas


def test_without_any_sample_nothing_is_computed() -> None:
    with pytest.raises(CannotCompute):
        counted({"a": 5}, 1, unready=["a"])


def test_utilization_is_a_part_of_what_pods_request() -> None:
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
def test_replicas_by_a_value(current: int, value: int, target: int, ready: int, replicas: int) -> None:
    assert by_value(current, value, target, lambda: ready, TENTH) == replicas


@pytest.mark.parametrize(
    ("there", "value", "target", "found"),
    [(2, 45, 10, (5, 23)), (4, 41, 10, (4, 11)), (3, 0, 10, (0, 0)), (0, 25, 10, (3, 25)), (0, 0, 10, (0, 0)),
     (2, LARGEST, 1, (MOST_REPLICAS, LARGEST))],
)  # fmt: skip
def test_replicas_by_the_share_of_each(there: int, value: int, target: int, found: tuple[int, int]) -> None:
    assert by_average(there, value, target, TENTH) == found


@pytest.mark.parametrize(
    ("text", "number"),
    [("0", 0.0), ("100m", 100 * 0.001), ("104m", 104 * 0.001), ("0.05", 5 * 0.01), ("500u", 0.0005), ("1", 1.0),
     (0.25, 0.25), (2, 2.0), ("1k", 1000.0)],
)  # fmt: skip
def test_a_quantity_as_a_fraction(text: str, number: float) -> None:
    assert approximate(text) == number


def test_a_tolerance_may_differ_by_direction() -> None:
    behavior = {"scaleUp": {"tolerance": "0"}, "scaleDown": {"tolerance": "300m"}}
    tolerance = tolerance_of(scaler(behavior=behavior).spec, RULES)
    assert [tolerance.covers(ratio) for ratio in (0.69, 0.71, 1.0, 1.01)] == [False, True, True, False]
    assert tolerance_of(scaler(behavior=behavior).spec, ScalingDefaults(0.2, 300, False, False)) == Tolerance(0.2, 0.2)


def view(*pods: Pod, wanted: int = 2, there: int = 2) -> TargetState:
    return TargetState(pods, wanted, there, TENTH, STARTUP, NOW)


def used(name: str, cpu: str, container: str = "main") -> dict[str, Any]:
    usage = {"name": container, "usage": {"cpu": cpu, "memory": "3Mi"}}
    return {"metadata": {"name": name}, "timestamp": "2026-01-01T00:00:00Z", "window": "30s", "containers": [usage]}


RESOURCE = {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}
METRIC = {"name": "hits"}
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
def test_what_each_type_of_metric_proposes(tree: dict[str, Any], answer: Any, replicas: int, metric: str) -> None:
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
def test_what_gives_no_number_is_a_failure(tree: dict[str, Any], answer: bytes, reason: str) -> None:
    found = propose(spec(tree), answer, view(pod("a")))
    assert isinstance(found, Failure)
    assert found.reason == reason


def test_a_pod_without_a_sample_of_each_container_has_none() -> None:
    pods = [used("a", "1m"), {**used("b", "1m"), "containers": [{"name": "main", "usage": {}}]}]
    assert set(resource_samples(msgspec.json.encode({"items": pods}), "cpu")) == {"a"}


def proposal(replicas: int, metric: str = "cpu") -> Proposal:
    return Proposal(replicas, metric, MetricStatus(type="Resource"))


FAILED = Failure("FailedGetPodsMetric", "no")


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
def test_the_largest_proposal_counts_and_failures_hold_off_a_smaller_one(
    proposals: Any, current: int, agreed: Any
) -> None:
    found = agree(proposals, current)
    assert ((found.replicas, found.metric) if isinstance(found, Agreement) else found) == agreed


BOUNDS = Bounds(2, 20)


@pytest.mark.parametrize(
    ("recommended", "current", "replicas", "reasons"),
    [
        (5, 4, 5, ("ReadyForNewScale", "DesiredWithinRange")),
        (9, 4, 8, ("ReadyForNewScale", "ScaleUpLimit")),
        (9, 2, 4, ("ReadyForNewScale", "ScaleUpLimit")),
        (30, 15, 20, ("ReadyForNewScale", "TooManyReplicas")),
        (3, 4, 4, ("ScaleDownStabilized", "DesiredWithinRange")),
    ],
)
def test_without_a_behavior(recommended: int, current: int, replicas: int, reasons: tuple[str, str]) -> None:
    found = normalize(recommended, current, BOUNDS, History("u", 0.0, current), 300.0, 10.0)
    assert (found.replicas, tuple(one.reason for one in found.told)) == (replicas, reasons)


def test_the_highest_recommendation_of_the_window_counts_until_it_is_old() -> None:
    history = History("u", 0.0, 4)
    seen = [normalize(wanted, 4, BOUNDS, history, 60.0, at).replicas
            for at, wanted in ((10, 6), (30, 3), (60, 3), (71, 3), (80, 1), (131, 1), (200, 1))]  # fmt: skip
    assert seen == [6, 6, 6, 3, 3, 2, 2]


def rules(window: int | None, *policies: tuple[str, int, int], select: str = "Max") -> ScalingRules:
    told = tuple(ScalingPolicy(type=kind, value=value, period_seconds=period) for kind, value, period in policies)
    return ScalingRules(stabilization_window_seconds=window, select_policy=select, policies=told)


@pytest.mark.parametrize(
    ("up", "down", "recommended", "current", "replicas", "limited"),
    [
        (rules(0, ("Pods", 2, 60)), None, 9, 4, 6, "ScaleUpLimit"),
        (rules(0, ("Pods", 2, 60), ("Percent", 100, 60)), None, 9, 4, 8, "ScaleUpLimit"),
        (rules(0, ("Pods", 2, 60), ("Percent", 100, 60), select="Min"), None, 9, 4, 6, "ScaleUpLimit"),
        (rules(0, ("Pods", 2, 60), select="Disabled"), None, 9, 4, 4, "ScaleUpLimit"),
        (rules(0, ("Percent", 10, 60)), None, 99, 11, 13, "ScaleUpLimit"),
        (rules(0, ("Pods", 50, 60)), None, 30, 4, 20, "TooManyReplicas"),
        (None, None, 9, 1, 5, "ScaleUpLimit"),
        (None, rules(0, ("Pods", 2, 60)), 3, 9, 7, "ScaleDownLimit"),
        (None, rules(0, ("Percent", 50, 60)), 3, 9, 4, "ScaleDownLimit"),
        (None, rules(0, ("Percent", 50, 60), ("Pods", 2, 60), select="Min"), 3, 9, 7, "ScaleDownLimit"),
        (None, rules(0, ("Percent", 50, 60), select="Disabled"), 3, 9, 9, "ScaleDownLimit"),
        (None, rules(0, ("Percent", 100, 60)), 1, 9, 2, "TooFewReplicas"),
        (None, rules(0, ("Percent", 100, 60)), 5, 9, 5, "DesiredWithinRange"),
        (None, rules(None, ("Percent", 100, 60)), 5, 9, 9, "DesiredWithinRange"),
        (rules(60, ("Pods", 9, 60)), None, 9, 4, 4, "DesiredWithinRange"),
    ],
)
def test_with_a_behavior(
    up: ScalingRules | None, down: ScalingRules | None, recommended: int, current: int, replicas: int, limited: str
) -> None:
    behavior = Behavior(scale_up=up, scale_down=down)
    found = normalize_with_behavior(behavior, recommended, current, BOUNDS, History("u", 0.0, current), 300.0, 10.0)
    assert (found.replicas, found.told[1].reason) == (replicas, limited)


def test_policies_count_what_was_done_in_their_period() -> None:
    history = History("u", 0.0, 4)
    history.scaled(10.0, 4, 7)
    slow = Behavior(scale_up=rules(0, ("Pods", 4, 60)))
    assert normalize_with_behavior(slow, 20, 7, BOUNDS, history, 300.0, 20.0).replicas == 8
    history.scaled(20.0, 7, 8)
    assert normalize_with_behavior(slow, 20, 8, BOUNDS, history, 300.0, 69.0).replicas == 8
    assert normalize_with_behavior(slow, 20, 8, BOUNDS, history, 300.0, 71.0).replicas == 11


@given(st.lists(st.tuples(st.integers(1, 50), st.integers(0, 20)), max_size=40), st.integers(0, 100))
def test_the_history_finds_the_extremes_of_a_window(steps: list[tuple[int, int]], window: int) -> None:
    history, now, known = History("u", 0.0, 7), 0.0, [(0.0, 7)]
    for pause, value in steps:
        now += pause
        recent = [past for at, past in known if at > now - window]
        assert history.highest(now, window, value) == max([*recent, value])
        assert history.lowest(now, window, value) == min([*recent, value])
        history.recommended(now, value)
        known.append((now, value))


@given(st.lists(st.tuples(st.integers(1, 20), st.integers(0, 30)), min_size=1, max_size=60))
def test_no_policy_is_ever_exceeded(steps: list[tuple[int, int]]) -> None:
    behavior = Behavior(scale_up=rules(0, ("Pods", 3, 60)), scale_down=rules(0, ("Pods", 2, 60)))
    history, now, current, past = History("u", 0.0, 10), 0.0, 10, [(0.0, 10)]
    for pause, wanted in steps:
        now += pause
        after = normalize_with_behavior(behavior, wanted, current, BOUNDS, history, 0.0, now).replicas
        began = next((replicas for at, replicas in reversed(past) if at <= now - 60), 10)
        assert BOUNDS.low <= after <= BOUNDS.high
        assert min(current, began - 2) <= after <= max(current, began + 3)
        if after != current:
            history.scaled(now, current, after)
            current = after
        past.append((now, current))


@pytest.mark.parametrize(
    ("current", "parts", "found"),
    [
        (0, {}, (0, "")),
        (11, {}, (10, "more replicas than there may be, above Spec.MaxReplicas")),
        (1, {"minReplicas": 3}, (3, "fewer replicas than there must be, below Spec.MinReplicas")),
        (3, {"minReplicas": 3}, None),
    ],
)
def test_what_needs_no_metrics(current: int, parts: dict[str, int], found: Any) -> None:
    decision = without_metrics(scaler(**parts), current, RULES)
    assert (decision and (decision.replicas, decision.reason)) == found


QUEUE = {"type": "External", "external": {"metric": METRIC, "target": {"type": "Value", "value": "1"}}}
ASLEEP = {"conditions": [{"type": "ScaledToZero", "status": "True"}]}
TO_ZERO = ScalingDefaults(0.1, 300.0, to_zero=True, own_tolerance=True)


@pytest.mark.parametrize(
    ("status", "metrics", "rules", "looks"),
    [
        (ASLEEP, [QUEUE], TO_ZERO, True),
        ({}, [QUEUE], TO_ZERO, False),
        (ASLEEP, [QUEUE], RULES, False),
        (ASLEEP, [{"type": "Resource", "resource": RESOURCE}], TO_ZERO, False),
    ],
)
def test_only_what_it_put_to_sleep_is_woken(status: Any, metrics: Any, rules: ScalingDefaults, looks: bool) -> None:
    found = without_metrics(scaler(status, minReplicas=0, metrics=metrics), 0, rules)
    assert (found is None) is looks


@pytest.mark.parametrize("metric", [QUEUE, {"type": "Resource", "resource": RESOURCE}])
@pytest.mark.parametrize(("status", "rules", "replicas"), [(ASLEEP, TO_ZERO, 2), ({}, TO_ZERO, 0), (ASLEEP, RULES, 0)])
def test_what_it_put_to_sleep_wakes_when_the_minimum_is_raised(
    metric: Any, status: Any, rules: ScalingDefaults, replicas: int
) -> None:
    found = without_metrics(scaler(status, minReplicas=2, metrics=[metric]), 0, rules)
    assert found is not None
    assert found.replicas == replicas


@pytest.mark.parametrize(
    ("status", "current", "desired", "rules", "told"),
    [
        ({}, 3, 0, TO_ZERO, [True]),
        (ASLEEP, 0, 3, TO_ZERO, [False]),
        (ASLEEP, 0, 0, TO_ZERO, []),
        (ASLEEP, 2, 2, TO_ZERO, [False]),
        ({}, 2, 2, TO_ZERO, []),
        ({}, 3, 0, RULES, []),
    ],
)
def test_who_took_the_last_replicas_is_told(
    status: Any, current: int, desired: int, rules: ScalingDefaults, told: Any
) -> None:
    found = told_of_zero(scaler(status, minReplicas=0, metrics=[QUEUE]), current, desired, rules)
    assert [one.holds for one in found] == told


def test_a_minimum_of_none_counts_as_one_without_the_gate() -> None:
    assert bounds_of(scaler(minReplicas=0).spec, RULES) == Bounds(1, 10)


def test_a_decision_says_why() -> None:
    decision = by_metrics(scaler(), 4, [proposal(6)], History("u", 0.0, 4), RULES, 10.0)
    assert (decision.replicas, decision.reason, decision.agreed) == (6, "cpu is above its target", True)
    failed = by_metrics(scaler(), 4, [proposal(3), FAILED], History("u", 0.0, 4), RULES, 10.0)
    assert (failed.replicas, failed.agreed, failed.problem) == (4, False, "1 of 2 metrics are invalid: no")
    assert [one.type for one in failed.metrics] == ["Resource", ""]


def test_a_condition_turns_only_with_its_status() -> None:
    first = with_updates(
        (), [ConditionUpdate("AbleToScale", True, "A", "a"), ConditionUpdate("AbleToScale", True, "B", "b")], "t1"
    )
    second = with_updates(first, [ConditionUpdate("AbleToScale", True, "C", "c")], "t2")
    third = with_updates(second, [ConditionUpdate("AbleToScale", False, "D", "d")], "t3")
    assert [(one.reason, one.status, one.last_transition_time) for (one,) in (first, second, third)] == [
        ("B", "True", "t1"), ("C", "True", "t1"), ("D", "False", "t3"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("selector", "text"),
    [
        (None, ""),
        (MetricSelector(match_labels={"b": "2", "a": "1"}), "a=1,b=2"),
        (
            MetricSelector(match_expressions=(SelectorRequirement(key="k", operator="In", values=("y", "x")),)),
            "k in (x,y)",
        ),
        (
            MetricSelector(match_expressions=(SelectorRequirement(key="k", operator="NotIn", values=("x",)),)),
            "k notin (x)",
        ),
        (MetricSelector(match_expressions=(SelectorRequirement(key="k", operator="DoesNotExist"),)), "!k"),
        (MetricSelector(match_expressions=(SelectorRequirement(key="k", operator="Exists"),)), "k"),
    ],
)
def test_selectors_of_metrics_as_text(selector: MetricSelector | None, text: str) -> None:
    assert text_of(selector) == text


def test_an_unknown_type_asks_nothing() -> None:
    assert query_of(spec({"type": "Dream"}), "default", "app=web") is None


def test_claims_find_all_whose_pods_these_are() -> None:
    claims, web, more = SelectorIndex(), Key("default", "web"), Key("default", "more")
    claims.put(web, LabelSelector.parse("app=web"))
    claims.put(more, LabelSelector.parse("app in (web,api),!canary"))
    claims.put(Key("default", "other"), LabelSelector.parse("app=other"))
    claims.put(Key("default", "any"), LabelSelector.parse("canary"))
    claims.put(Key("elsewhere", "web"), LabelSelector.parse("app=web"))
    assert claims.of([pod()]) == [more, web]
    claims.put(more, LabelSelector.parse("app=api"))
    assert claims.of([pod()]) == [web]
    claims.drop(web)
    claims.drop(web)
    assert claims.of([pod()]) == []
