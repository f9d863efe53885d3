"""Replicas that metrics propose for groups of pods, with the numbers of the upstream autoscaler.

A pod is written as a letter and its usage, in thousandths of a core (each requests one) or of the metric. Without a
number it has no sample:

    r ready · u never ready since its start · h ready, but sampled too soon after its start · p pending · f failed ·
    d being deleted · m missing: it runs but has no sample · s a sample of a pod that does not exist
"""

from typing import Any

import msgspec
import pytest

from controller_manager.common.api.autoscaling import MetricSpec
from controller_manager.common.api.core import Pod
from controllers.horizontal_pod_autoscaler.proposals import Failure, Proposal, TargetState, propose
from controllers.horizontal_pod_autoscaler.replicas import Startup, Tolerance

NOW = 1_767_225_600.0  # 2026-01-01T00:00:00Z
STARTUP = Startup(300.0, 30.0)
TENTH = Tolerance(0.1, 0.1)
LONG_AGO = "2025-12-31T00:00:00Z"
# By letter: phase, readiness, start time and time of the last change of readiness.
STATES = {
    "r": ("Running", "True", LONG_AGO, "2025-12-31T00:00:10Z"),
    "u": ("Running", "False", LONG_AGO, "2025-12-31T00:00:10Z"),
    "h": ("Running", "True", "2025-12-31T23:59:00Z", "2025-12-31T23:59:50Z"),
    "p": ("Pending", "False", LONG_AGO, LONG_AGO),
    "f": ("Failed", "False", LONG_AGO, LONG_AGO),
    "d": ("Running", "True", LONG_AGO, LONG_AGO),
    "m": ("Running", "True", LONG_AGO, LONG_AGO),
}


def pod(name: str) -> Pod:
    phase, ready, started, since = STATES[name[0]]
    tree: dict[str, Any] = {
        "metadata": {"name": name},
        "spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "1"}}}]},
        "status": {
            "phase": phase,
            "startTime": started,
            "conditions": [{"type": "Ready", "status": ready, "lastTransitionTime": since}],
        },
    }
    if name[0] == "d":
        tree["metadata"]["deletionTimestamp"] = LONG_AGO
    return Pod.decode(msgspec.json.encode(tree))


def parse_pods(words: str) -> tuple[list[Pod], dict[str, str]]:
    """Return the pods, and their usage by name."""
    named = [(f"{word[0]}-{number}", word[1:]) for number, word in enumerate(words.split())]
    return [pod(name) for name, _ in named if name[0] != "s"], {name: f"{used}m" for name, used in named if used}


def proposed(metric: dict[str, Any], items: list[dict[str, Any]], pods: list[Pod], current: int) -> Proposal | Failure:
    view = TargetState(pods, current, current, TENTH, STARTUP, NOW)
    return propose(msgspec.convert(metric, MetricSpec), msgspec.json.encode({"items": items}), view)


def by_cpu(words: str, current: int, target: int) -> Proposal | Failure:
    pods, use = parse_pods(words)
    items = [
        {
            "metadata": {"name": name},
            "timestamp": "2026-01-01T00:00:00Z",
            "window": "30s",
            "containers": [{"name": "main", "usage": {"cpu": used}}],
        }
        for name, used in use.items()
    ]
    source = {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": target}}
    return proposed({"type": "Resource", "resource": source}, items, pods, current)


def by_hits(words: str, current: int, target: int) -> Proposal | Failure:
    pods, use = parse_pods(words)
    items = [{"describedObject": {"name": name}, "value": used} for name, used in use.items()]
    source = {"metric": {"name": "hits"}, "target": {"type": "AverageValue", "averageValue": f"{target}m"}}
    return proposed({"type": "Pods", "pods": source}, items, pods, current)


# Name, pods, current replicas, target in percent; then replicas, percent and thousandths of a core.
CPU = [
    ("exactly the target", "r500 r500", 2, 50, (2, 50, 500)),
    ("more", "r350 r450 r700", 3, 30, (5, 50, 500)),
    ("much more than the pods allow", "r2000", 1, 50, (4, 200, 2000)),
    ("less", "r100 r350 r450 r260 r240", 5, 50, (3, 28, 280)),
    ("next to nothing", "r1 r1 r1", 3, 50, (0, 0, 1)),
    ("nothing at all", "r0 r0", 2, 50, (0, 0, 0)),
    ("at the upper edge of the tolerance", "r550 r550", 2, 50, (2, 55, 550)),
    ("just above it", "r560 r560", 2, 50, (3, 56, 560)),
    ("at the lower edge", "r450 " * 9 + "r450", 10, 50, (10, 45, 450)),
    ("just below it", "r440 " * 9 + "r440", 10, 50, (9, 44, 440)),
    ("a fraction of a percent above is ignored", "r559 r559", 2, 50, (2, 55, 559)),
    ("a fraction of a percent below is ignored", "r449 " * 9 + "r449", 10, 50, (9, 44, 449)),
    ("a target above 100 %", "r1500 r2900", 2, 150, (3, 220, 2200)),
    ("one was never ready", "u350 r450 r700", 3, 30, (4, 57, 575)),
    ("one sample is too early", "h350 r450 r700", 3, 30, (4, 57, 575)),
    ("one is pending", "p r450 r700", 3, 30, (4, 57, 575)),
    ("unready pods prevent scale up", "r390 u450 u800", 3, 30, (3, 39, 390)),
    ("new pods prevent scale up", "r390 h450 h800", 3, 30, (3, 39, 390)),
    ("unready pods would reverse the direction", "r330 u u u", 4, 30, (4, 33, 330)),
    ("scaling down ignores unready pods", "r100 r350 r450 u260 u240", 5, 50, (2, 30, 300)),
    ("scaling down ignores new pods", "r100 r350 r450 h260 h240", 5, 50, (2, 30, 300)),
    ("scaling down ignores pending pods", "r110 p p p p", 5, 50, (1, 11, 110)),
    ("failed pods never count", "r450 r750 f800 f", 2, 30, (4, 60, 600)),
    ("terminating pods never count", "r450 r750 d800 d", 2, 30, (4, 60, 600)),
    ("terminating pods do not count when scaling down", "r110 r310 r480 r250 r250 f d900", 5, 50, (3, 28, 280)),
    ("samples of unknown pods are not usage", "r600 r600 s3000", 2, 50, (3, 60, 600)),
    ("unknown pods count when others are missing", "r900 m s3000 s2000", 2, 50, (2, 90, 900)),
    ("one missing, exactly enough", "r500 m", 2, 50, (2, 50, 500)),
    ("one missing, too much, limited", "r950 m", 2, 50, (2, 95, 950)),
    ("one missing, far too much", "r2600 m", 2, 50, (6, 260, 2600)),
    ("one missing, too little, limited", "r300 m", 2, 50, (2, 30, 300)),
    ("two missing, far too little", "r190 r45 m m", 4, 50, (4, 11, 117)),
    ("missing pods count with their whole request", "r10 r10 r10 r10 m", 5, 80, (2, 1, 10)),
    ("missing pods count with a higher target", "r10 r10 r10 r10 m", 5, 160, (1, 1, 10)),
    ("one missing and one unready, little", "u100 r440 m", 3, 50, (3, 44, 440)),
    ("one missing and one unready, much", "u100 r1900 m", 3, 50, (4, 190, 1900)),
    ("one missing and one unready, nothing", "u100 r90 r110 m", 4, 50, (3, 10, 100)),
    ("one missing and one new, much", "h100 r1900 m", 3, 50, (4, 190, 1900)),
    ("more pods than replicas, during an update", "r90 r110 m", 2, 50, (2, 10, 100)),
    ("more pods than replicas, much used", "r700 r700 r700 m", 6, 50, (6, 70, 700)),
    ("fewer pods than replicas", "r520 r520", 5, 50, (5, 52, 520)),
    ("fewer pods than replicas, more used", "r800 r800", 5, 50, (4, 80, 800)),
]  # fmt: skip
# The same with the target in thousandths; then replicas and average in thousandths.
HITS = [
    ("more", "r2100 r900 r3000", 3, 1500, (4, 2000)),
    ("exactly enough", "r2000 r2000", 2, 2000, (2, 2000)),
    ("within the tolerance", "r2000 r2100 r2150", 3, 2000, (3, 2083)),
    ("less", "r1200 r1200 r1200 r1200 r1200", 5, 2000, (3, 1200)),
    ("an average is cut to thousandths", "r100 r100 r101", 3, 150, (2, 100)),
    ("readiness is ignored", "r5000 r1000 u3000", 3, 1500, (6, 3000)),
    ("age is ignored", "h5000 r1500 h3000", 3, 1500, (7, 3166)),
    ("pending pods use nothing", "r3000 p", 2, 1000, (3, 3000)),
    ("scaling down ignores pending pods, too", "r500 p", 2, 1000, (1, 500)),
    ("missing pods count with the target", "r600 r600 m", 3, 1000, (3, 600)),
    ("missing pods would reverse the direction", "r1300 m", 2, 1000, (2, 1300)),
    ("missing, far too much", "r4000 m", 2, 1000, (4, 4000)),
    ("failed pods never count", "r500 f9000", 2, 1000, (1, 500)),
    ("below zero", "r-500 r-500", 2, 1000, (-1, -500)),
]


@pytest.mark.parametrize(("words", "current", "target", "found"), [row[1:] for row in CPU], ids=[row[0] for row in CPU])
def test_replicas_by_cpu_utilization(words: str, current: int, target: int, found: tuple[int, int, int]) -> None:
    made = by_cpu(words, current, target)
    assert isinstance(made, Proposal), made
    assert made.status.resource is not None
    seen = made.status.resource.current
    average = f"{found[2]}m" if found[2] % 1000 else str(found[2] // 1000)
    assert (made.replicas, seen.average_utilization, seen.average_value) == (found[0], found[1], average)


@pytest.mark.parametrize("container", ["", "main"])
def test_memory_average_is_reported_with_binary_suffix(container: str) -> None:
    source = {"name": "memory", "target": {"type": "AverageValue", "averageValue": "32Mi"}, "container": container}
    metric = {"type": "ContainerResource", "containerResource": source} if container else {"type": "Resource"}
    usage = [{"name": "main", "usage": {"memory": "65536Ki"}}]
    items = [{"metadata": {"name": f"r-{number}"}, "containers": usage} for number in range(2)]
    made = proposed({"resource": source, **metric}, items, parse_pods("r r")[0], 2)
    assert isinstance(made, Proposal), made
    status = made.status.resource or made.status.container_resource
    assert status is not None
    assert (made.replicas, status.current.average_value) == (4, "64Mi")


@pytest.mark.parametrize(
    ("words", "current", "target", "found"), [row[1:] for row in HITS], ids=[row[0] for row in HITS]
)
def test_replicas_by_pods_metric(words: str, current: int, target: int, found: tuple[int, int]) -> None:
    made = by_hits(words, current, target)
    assert isinstance(made, Proposal), made
    assert made.status.pods is not None
    average = f"{found[1]}m" if found[1] % 1000 else str(found[1] // 1000)
    assert (made.replicas, made.status.pods.current.average_value) == (found[0], average)


# Name, pods, current replicas, target, value; then replicas and status.
SHARED = [
    ("more", "r r r", 3, {"value": "15"}, "20", (4, "20")),
    ("much more", "r r", 2, {"value": "10"}, "100", (20, "100")),
    ("only ready pods share the value", "u r u", 3, {"value": "10"}, "50", (5, "50")),
    ("a higher value may need fewer replicas", "u r u", 3, {"value": "4400m"}, "8600m", (2, "8600m")),
    ("within the tolerance", "r r r", 3, {"value": "20"}, "20666m", (3, "20666m")),
    ("at its edge", "r r", 2, {"value": "10"}, "11", (2, "11")),
    ("within tolerance pods are not counted", "", 3, {"value": "20"}, "20", (3, "20")),
    ("less", "r r r r r", 5, {"value": "20"}, "12", (3, "12")),
    ("nothing", "r r", 2, {"value": "20"}, "0", (0, "0")),
    ("no pod is ready", "u u", 2, {"value": "20"}, "90", (0, "90")),
    ("from zero, a little", "", 0, {"value": "20"}, "1", (1, "1")),
    ("from zero, much", "", 0, {"value": "20"}, "41", (3, "41")),
    ("from zero, nothing", "", 0, {"value": "20"}, "0", (0, "0")),
    ("more than the maximum number", "r r", 2, {"value": "1m"}, "9E", (2**31 - 1, f"{2**63 - 1}m")),
    ("more, average value", "r r r", 3, {"averageValue": "5"}, "20", (4, "6667m")),
    ("less, average value", "r r r r r", 5, {"averageValue": "2"}, "6", (3, "1200m")),
    ("within tolerance, average value", "r r r r", 4, {"averageValue": "5"}, "20166m", (4, "5042m")),
    ("within tolerance below, average value", "r r r", 3, {"averageValue": "2900m"}, "8600m", (3, "2867m")),
    ("readiness is ignored, average value", "u u u", 3, {"averageValue": "5"}, "20", (4, "6667m")),
    ("average value without replicas", "", 0, {"averageValue": "5"}, "20", (4, "20")),
]


@pytest.mark.parametrize("kind", ["External", "Object"])
@pytest.mark.parametrize(
    ("words", "current", "target", "value", "found"), [row[1:] for row in SHARED], ids=[row[0] for row in SHARED]
)
def test_replicas_by_external_or_object_metric(
    kind: str, words: str, current: int, target: dict[str, str], value: str, found: tuple[int, str]
) -> None:
    source: dict[str, Any] = {"metric": {"name": "queue"}, "target": target}
    if kind == "Object":
        source["describedObject"] = {"kind": "Service", "name": "web"}
    made = proposed({"type": kind, kind.lower(): source}, [{"value": value}], parse_pods(words)[0], current)
    assert isinstance(made, Proposal), made
    status = made.status.external or made.status.object
    assert status is not None
    assert (made.replicas, status.current.average_value or status.current.value) == found


def test_undecodable_pod_metric_counts_as_missing() -> None:
    source = {"metric": {"name": "hits"}, "target": {"type": "AverageValue", "averageValue": "10"}}
    good = [{"describedObject": {"name": f"r-{number}"}, "value": "20"} for number in range(2)]
    broken = {"describedObject": {"name": "r-2"}, "value": ["20"]}
    made = proposed({"type": "Pods", "pods": source}, [*good, broken], parse_pods("r r r")[0], 3)
    assert isinstance(made, Proposal), made
    assert made.replicas == 4, "the third is taken for one without metrics"
    made = proposed({"type": "Pods", "pods": source}, [broken], parse_pods("r r r")[0], 3)
    assert isinstance(made, Failure)
    assert "unreadable" in made.message


def test_undecodable_external_series_is_a_failure() -> None:
    source = {"metric": {"name": "queue"}, "target": {"type": "Value", "value": "10"}}
    made = proposed({"type": "External", "external": source}, [{"value": "8"}, {"value": []}], parse_pods("r r")[0], 2)
    assert isinstance(made, Failure)


def test_sum_of_external_series_is_capped_at_int32() -> None:
    source = {"metric": {"name": "queue"}, "target": {"type": "Value", "value": "10"}}
    metric, pods = {"type": "External", "external": source}, parse_pods("r r")[0]
    made = proposed(metric, [{"value": "8"}, {"value": "22"}], pods, 2)
    assert isinstance(made, Proposal)
    assert made.replicas == 6
    made = proposed(metric, [{"value": "9E"}, {"value": "9E"}, {"value": "-1"}], pods, 2)
    assert isinstance(made, Proposal)
    assert made.replicas == 2**31 - 1


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("", "finds no pods"),
        ("u500 h500 p", "might be unready"),
        ("m m", "no metrics returned"),
        ("m s500", "no metrics belong to pods"),
        ("p500", "might be unready"),
        ("f500 d500", "might be unready"),
    ],
)
def test_no_usable_samples_is_a_failure(words: str, why: str) -> None:
    made = by_cpu(words, 3, 50)
    assert isinstance(made, Failure)
    assert made.reason == "FailedGetResourceMetric"
    assert made.message.startswith("failed to get cpu utilization: ")
    assert words == "" or why in made.message
