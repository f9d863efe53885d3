"""Decisions of the DaemonSet controller: eligible nodes, pods to create and delete, status."""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller_manager.common.api.apps import DaemonSet
from controller_manager.common.api.core import Node, NodeSpec, Pod, Taint, Toleration
from controller_manager.common.api.model import ObjectMeta
from controller_manager.common.api.resource import Key
from controllers.daemon_set.backoff import FIRST, LONGEST, FailedPodsBackoff
from controllers.daemon_set.decide import DaemonSetState, UpdateLimits, by_node, decide, limits_of, next_look, status_of
from controllers.daemon_set.placement import (
    AUTOMATIC,
    AUTOMATIC_ON_HOST_NETWORK,
    Fit,
    is_concerned,
    placement_of,
    with_automatic,
)
from controllers.daemon_set.templates import GENERATION, HASH, DaemonTemplate, generation_of, is_updated
from controllers.shared.pods import is_active

NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
RUN, STAY, NONE = Fit.RUN, Fit.STAY, Fit.NONE
Part = int | str | None
TREE = {"containers": [{"name": "main", "image": "i", "env": [{"name": "A"}]}], "hostPID": True}


def daemon_set(
    surge: Part = 0, unavailable: Part = 1, *, kind: str = "RollingUpdate", least: int = 0, **spec: Any
) -> DaemonSet:
    strategy = {"type": kind, "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}}
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {**TREE, **spec}}
    annotations = {"deprecated.daemonset.template.generation": "4"}
    meta = {"name": "web", "namespace": "d", "uid": "u", "generation": 7, "annotations": annotations}
    given = {"updateStrategy": strategy, "template": template, "minReadySeconds": least}
    return DaemonSet.decode(json.dumps({"metadata": meta, "spec": given}).encode())


def pod(text: str) -> Pod:
    """Return a pod from words: name, node after `@`, and state; without `new` it has the former template."""
    name, node, *words = text.split()
    ready = next((word for word in words if word.startswith("ready")), "")
    since = f"2026-01-01T11:59:{60 - int(ready.removeprefix('ready') or 60):02}Z"
    phase = next((word for word in ("Failed", "Succeeded") if word in words), "Running")
    match = {"key": "metadata.name", "operator": "In", "values": [node]}
    terms = {"nodeSelectorTerms": [{"matchFields": [match]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    tree = {
        "metadata": {
            "name": name,
            "creationTimestamp": f"2026-01-01T0{9 - words.count('older')}:00:00Z",
            "labels": {HASH: "new" if "new" in words else "old"},
            **({"deletionTimestamp": "2026-01-01T11:00:00Z"} if "going" in words else {}),
        },
        "spec": {"affinity": affinity, **({} if "unbound" in words else {"nodeName": node})},
        "status": {
            "phase": phase,
            "conditions": [{"type": "Ready", "status": str(bool(ready)), "lastTransitionTime": since}],
        },
    }
    return Pod.decode(json.dumps(tree).encode())


def observed(owner: DaemonSet, fits: Mapping[str, Fit], pods: Sequence[str]) -> DaemonSetState:
    return DaemonSetState(owner, fits, by_node(map(pod, pods)), "new", "", NOW)


def no_backoff(_: str) -> float:
    return 0.0


ONE = {"a": RUN}
THREE = {"a": RUN, "b": RUN, "c": RUN}
NO_PODS: list[str] = []


@pytest.mark.parametrize(
    ("fits", "pods", "create", "delete"),
    [
        pytest.param({}, [], [], [], id="no nodes"),
        pytest.param({"a": RUN, "b": STAY, "c": NONE}, [], ["a"], [], id="a pod on an eligible node"),
        pytest.param(ONE, ["p a new"], [], [], id="one that is not ready"),
        pytest.param(ONE, ["p a new unbound"], [], [], id="one being created"),
        pytest.param(ONE, ["p a new going"], [], [], id="one being deleted is awaited"),
        pytest.param(ONE, ["p a new going Failed"], ["a"], [], id="not if it has ended"),
        pytest.param({"a": STAY}, ["p a new ready"], [], [], id="a pod may stay"),
        pytest.param({"a": NONE}, ["p a new ready", "q a new going"], [], ["p"], id="a pod may not stay"),
        pytest.param(ONE, ["p a new Failed"], [], ["p"], id="failed"),
        pytest.param(ONE, ["p a new Succeeded"], [], ["p"], id="succeeded"),
        pytest.param({"a": STAY}, ["p a new Failed"], [], ["p"], id="failed, where it may merely stay"),
        pytest.param(ONE, ["p a new", "q a new older", "r a new"], [], ["p", "r"], id="the oldest stays"),
        pytest.param(ONE, ["p a new", "q a new older", "r a new ready"], [], ["q", "p"], id="a ready one stays"),
        pytest.param(ONE, ["p a new older unbound", "q a new"], [], ["p"], id="one on the node stays"),
        pytest.param(ONE, ["q a new", "p a new"], [], ["q"], id="of the same age by name"),
        pytest.param({}, ["p z new ready"], [], [], id="on a removed node"),
        pytest.param({}, ["p z new unbound", "q z unbound going"], [], ["p"], id="scheduled to a removed node"),
    ],
)
def test_each_eligible_node_gets_one_pod(
    fits: Mapping[str, Fit], pods: list[str], create: list[str], delete: list[str]
) -> None:
    for owner in (daemon_set(), daemon_set(kind="OnDelete")):
        found = decide(observed(owner, fits, pods), no_backoff)
        assert (list(found.create), [one.metadata.name for one in found.delete]) == (create, delete)


@pytest.mark.parametrize(
    ("pods", "unavailable", "delete"),
    [
        pytest.param(["p a ready", "q b ready", "r c ready"], 1, ["p"], id="one"),
        pytest.param(["p a ready", "q b ready", "r c ready"], 2, ["p", "q"], id="two"),
        pytest.param(["p a ready", "q b ready", "r c ready"], "50%", ["p", "q"], id="a part, rounded up"),
        pytest.param(["p a ready", "q b ready", "r c ready"], 0, ["p"], id="zero counts as one"),
        pytest.param(["p a new", "q b ready", "r c ready"], 1, [], id="a new one is not ready"),
        pytest.param(["p a new ready", "q b ready", "r c ready"], 1, ["q"], id="the new one is ready"),
        pytest.param(["p a new ready", "q b", "r c"], 1, ["q", "r"], id="unready former pods are deleted at once"),
        pytest.param(["p a ready", "q b", "r c ready"], 1, ["q"], id="unready pods count"),
        pytest.param(["p a ready", "q b", "r c ready"], 2, ["q", "p"], id="unready pods leave room"),
        pytest.param(["p a ready", "q b ready going", "r c ready"], 1, [], id="one being deleted counts"),
        pytest.param(["p a new ready", "q b new ready", "r c new ready"], 3, [], id="done"),
        pytest.param(["p a ready", "q z", "r b ready", "s c ready"], 1, ["p"], id="removed nodes do not count"),
    ],
)
def test_update_without_surge_keeps_max_unavailable(pods: list[str], unavailable: Part, delete: list[str]) -> None:
    found = decide(observed(daemon_set(0, unavailable), THREE, pods), no_backoff)
    assert (list(found.create), [one.metadata.name for one in found.delete]) == ([], delete)
    lazy = decide(observed(daemon_set(0, unavailable, kind="OnDelete"), THREE, pods), no_backoff)
    assert (list(lazy.create), list(lazy.delete)) == ([], [])


READY = ["p a ready", "q b ready", "r c ready"]


@pytest.mark.parametrize(
    ("fits", "pods", "surge", "create", "delete"),
    [
        pytest.param(THREE, READY, 1, ["a"], [], id="one"),
        pytest.param(THREE, READY, "50%", ["a", "b"], [], id="a part, rounded up"),
        pytest.param(THREE, ["p a ready", "n a new", *READY[1:]], 1, [], [], id="the new pod is awaited"),
        pytest.param(THREE, ["p a ready", "n a new", *READY[1:]], 2, ["b"], [], id="another one"),
        pytest.param(THREE, ["p a ready", "n a new ready", *READY[1:]], 1, [], ["p"], id="the old one goes"),
        pytest.param(THREE, ["p a", "n a new", *READY[1:]], 1, [], ["p"], id="an unready old one is deleted"),
        pytest.param(THREE, ["p a", "q b", "r c ready"], 1, ["a", "b", "c"], [], id="unready pods do not count"),
        pytest.param(THREE, ["p a going ready", *READY[1:]], 1, ["a"], [], id="beside one being deleted"),
        pytest.param(ONE, ["p a", "n a new", "m a new", "o a"], 1, [], ["n", "p", "o"], id="never three"),
        pytest.param(ONE, ["p a Failed"], 1, ["a"], ["p"], id="failed"),
        pytest.param({"a": RUN, "b": STAY}, ["n a new ready", "q b ready"], 1, [], ["q"], id="one to spare"),
        pytest.param({"a": RUN, "b": STAY}, ["n a new", "q b ready"], 1, [], [], id="none to spare"),
        pytest.param({"a": RUN, "b": STAY}, ["n a new", "q b"], 1, [], ["q"], id="useless"),
        pytest.param({"a": RUN}, ["n a new", "q z"], 1, [], [], id="on a removed node"),
    ],
)
def test_update_with_surge_creates_up_to_max_surge(
    fits: Mapping[str, Fit], pods: list[str], surge: Part, create: list[str], delete: list[str]
) -> None:
    found = decide(observed(daemon_set(surge, 0), fits, pods), no_backoff)
    assert (list(found.create), sorted(one.metadata.name for one in found.delete)) == (create, sorted(delete))


def test_failed_pod_in_backoff_is_not_replaced() -> None:
    for owner in (daemon_set(), daemon_set(1, 0)):
        seen = observed(owner, {"a": RUN, "b": RUN}, ["p a new Failed", "q b new Failed"])
        found = decide(seen, lambda node: 5.0 if node == "a" else 0.0)
        assert [one.metadata.name for one in found.delete] == ["q"]
        assert "a" not in found.create
        assert found.seconds == 5.0


def test_update_waits_for_min_ready_seconds() -> None:
    owner = daemon_set(0, 1, least=30)
    seen = observed(owner, THREE, ["p a new ready10", "q b ready40", "r c ready40"])
    assert (decide(seen, no_backoff).delete, next_look(seen)) == ((), 20.0)
    seen = observed(owner, THREE, ["p a new ready30", "q b ready40", "r c ready40"])
    assert ([one.metadata.name for one in decide(seen, no_backoff).delete], next_look(seen)) == (
        ["q"],
        None,
    )


def test_ready_time_in_the_future_is_requeued() -> None:
    seen = observed(daemon_set(0, 1, least=5), ONE, ["p a new ready5"])
    early = msgspec.structs.replace(seen, now=seen.now - timedelta(minutes=1))
    assert next_look(early) == 5.0


@pytest.mark.parametrize(
    ("surge", "unavailable", "wanted", "limits"),
    [
        (0, 1, 10, UpdateLimits(0, 1)),
        ("25%", 0, 10, UpdateLimits(3, 0)),
        (0, "25%", 10, UpdateLimits(0, 3)),
        (0, 0, 10, UpdateLimits(0, 1)),
        (0, 0, 0, UpdateLimits(0, 0)),
        (None, None, 3, UpdateLimits(0, 1)),
        ("1%", 0, 3, UpdateLimits(1, 0)),
    ],
)
def test_update_limits_from_numbers_and_percentages(
    surge: Part, unavailable: Part, wanted: int, limits: UpdateLimits
) -> None:
    assert limits_of(daemon_set(surge, unavailable), wanted) == limits


@pytest.mark.parametrize(
    ("fits", "pods", "expected"),
    [
        ({}, [], (0, 0, 0, 0, 0, 0)),
        (THREE, [], (3, 0, 0, 0, 0, 0)),
        (THREE, ["p a new ready40", "q b new ready10", "r c"], (3, 3, 2, 2, 1, 0)),
        (THREE, ["p a ready40 older", "q a new ready40"], (3, 1, 0, 1, 1, 0)),
        (THREE, ["p a new unbound"], (3, 1, 1, 0, 0, 0)),
        (THREE, ["p a new going ready40", "q b Failed going"], (3, 1, 1, 1, 1, 0)),
        ({"a": STAY, "b": NONE, "c": RUN}, ["p a ready40", "q b ready40"], (1, 0, 0, 0, 0, 2)),
        (ONE, ["p z new ready40"], (1, 0, 0, 0, 0, 0)),
    ],
)
def test_status_counts_pods_by_state(fits: Mapping[str, Fit], pods: list[str], expected: tuple[int, ...]) -> None:
    status = status_of(observed(daemon_set(least=30), fits, pods))
    assert (
        status.desired_number_scheduled,
        status.current_number_scheduled,
        status.updated_number_scheduled,
        status.number_ready,
        status.number_available,
        status.number_misscheduled,
    ) == expected
    assert status.number_unavailable == expected[0] - expected[4]
    assert status.observed_generation == 7


WORDS = st.lists(st.sampled_from(("new", "ready", "going", "Failed", "unbound", "older")), max_size=3, unique=True)
PODS = st.lists(st.tuples(st.sampled_from("abcz"), WORDS), max_size=8)


@given(PODS, st.integers(0, 3), st.integers(0, 3))
def test_decision_never_exceeds_update_limits(some: list[tuple[str, list[str]]], surge: int, unavailable: int) -> None:
    owner = daemon_set(surge, unavailable)
    seen = observed(owner, THREE, [f"p{number} {node} {' '.join(words)}" for number, (node, words) in enumerate(some)])
    found = decide(seen, no_backoff)
    gone = {one.metadata.name for one in found.delete}
    served = available_nodes(seen, set())
    left = available_nodes(seen, gone)
    if surge == 0:
        assert len(served - left) <= max(0, max(1, unavailable) - (3 - len(served)))
    else:
        assert served == left  # only pods with an available replacement are deleted
    for node in found.create:
        alive = [
            p for p in seen.pods.get(node, ()) if p.metadata.deletion_timestamp is None and p.status.phase == "Running"
        ]
        assert len(alive) <= (surge > 0)
    assert len(set(found.create)) == len(found.create)
    assert len(gone) == len(found.delete)


def available_nodes(seen: DaemonSetState, gone: set[str]) -> set[str]:
    """Return the nodes with an available pod, without the given ones."""
    return {
        node
        for node, pods in seen.pods.items()
        for one in pods
        if node in seen.fits and one.metadata.name not in gone and is_active(one) and seen.available(one)
    }


def taint(key: str, effect: str) -> Taint:
    return Taint(key=key, effect=effect)


def node(name: str = "a", *taints: Taint, **labels: str) -> Node:
    return Node(metadata=ObjectMeta(name=name, labels=labels), spec=NodeSpec(taints=taints))


def requires(*values: str) -> dict[str, Any]:
    one = {"key": "metadata.name", "operator": "In", "values": list(values)}
    terms = {"nodeSelectorTerms": [{"matchFields": [one]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


OWN = "example.org/own"


@pytest.mark.parametrize(
    ("spec", "one", "fit"),
    [
        ({}, node(), RUN),
        ({"nodeName": "a"}, node(), RUN),
        ({"nodeName": "b"}, node(), NONE),
        ({"nodeSelector": {"x": "y"}}, node(x="y"), RUN),
        ({"nodeSelector": {"x": "y"}}, node(), NONE),
        ({"affinity": requires("a")}, node(), RUN),
        ({"affinity": requires("b")}, node(), NONE),
        ({"affinity": None, "tolerations": None}, node(), RUN),
        ({}, node("a", taint(OWN, "NoSchedule")), STAY),
        ({}, node("a", taint(OWN, "NoExecute")), NONE),
        ({}, node("a", taint(OWN, "PreferNoSchedule")), RUN),
        ({}, node("a", taint(OWN, "NoSchedule"), taint(OWN, "NoExecute")), NONE),
        ({"nodeSelector": {"x": "y"}}, node("a", taint(OWN, "NoSchedule")), NONE),
        ({"tolerations": [{"operator": "Exists"}]}, node("a", taint(OWN, "NoSchedule"), taint(OWN, "NoExecute")), RUN),
        (
            {"tolerations": [{"key": OWN, "operator": "Exists", "effect": "NoExecute"}]},
            node("a", taint(OWN, "NoExecute")),
            RUN,
        ),
        *(({}, node("a", taint(one.key, one.effect)), RUN) for one in AUTOMATIC),
        *(({}, node("a", taint(one.key, one.effect)), STAY) for one in AUTOMATIC_ON_HOST_NETWORK),
        *(({"hostNetwork": True}, node("a", taint(one.key, one.effect)), RUN) for one in AUTOMATIC_ON_HOST_NETWORK),
        ({}, node("a", taint("node.kubernetes.io/not-ready", "NoSchedule")), STAY),
    ],
)
def test_node_placement_by_spec_and_taints(spec: dict[str, Any], one: Node, fit: Fit) -> None:
    assert placement_of(daemon_set(**spec)).of(one) is fit


def test_automatic_tolerations_replace_those_of_template() -> None:
    first = AUTOMATIC[0]
    limited = msgspec.structs.replace(first, toleration_seconds=300)
    own = Toleration(key="own", operator="Exists")
    assert with_automatic((), host_network=False) == AUTOMATIC
    assert with_automatic((limited, own), host_network=True) == (first, own, *AUTOMATIC[1:], *AUTOMATIC_ON_HOST_NETWORK)
    assert with_automatic(AUTOMATIC, host_network=False) == AUTOMATIC


@pytest.mark.parametrize(
    ("before", "after", "controllers", "concerned"),
    [
        (None, node(x="y"), (), True),
        (None, node(), (), False),
        (None, node(), ("u",), True),
        (node(x="y"), None, (), True),
        (node(), None, (), False),
        (node(), None, ("u",), True),
        (node(), node(x="y"), (), True),
        (node(x="y"), node(x="y", z="z"), ("u",), False),
        (node(x="y"), node("a", taint(OWN, "NoSchedule"), x="y"), (), True),
        (node(x="y"), node("a", taint("node.kubernetes.io/not-ready", "NoExecute"), x="y"), (), False),
    ],
)
def test_which_node_changes_wake_a_daemon_set(
    before: Node | None, after: Node | None, controllers: tuple[str, ...], concerned: bool
) -> None:
    assert is_concerned(daemon_set(nodeSelector={"x": "y"}), before, after, controllers) is concerned


def test_pod_is_pinned_to_node_by_affinity() -> None:
    preferred = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": {}}]}
    affinity = {"nodeAffinity": {**preferred, **requires("x", "y")["nodeAffinity"]}, "podAffinity": {"z": 1}}
    made = json.loads(DaemonTemplate(daemon_set(affinity=affinity, hostNetwork=True), "code").pod("a").raw)
    assert made["metadata"]["labels"] == {"app": "web", HASH: "code", GENERATION: "4"}
    assert made["metadata"]["generateName"] == "web-"
    spec = made["spec"]
    assert spec["affinity"] == {"nodeAffinity": {**preferred, **requires("a")["nodeAffinity"]}, "podAffinity": {"z": 1}}
    assert len(spec["tolerations"]) == 7
    assert {name: spec[name] for name in TREE} == TREE


@pytest.mark.parametrize(
    ("labels", "code", "generation", "expected"),
    [
        ({HASH: "x"}, "x", "", True),
        ({HASH: "y"}, "x", "", False),
        ({HASH: "y", GENERATION: "3"}, "x", "3", True),
        ({GENERATION: "3"}, "x", "4", False),
        ({GENERATION: ""}, "x", "", False),
        ({}, "x", "", False),
    ],
)
def test_pod_is_updated_by_hash_or_generation(
    labels: dict[str, str], code: str, generation: str, expected: bool
) -> None:
    assert is_updated(Pod(metadata=ObjectMeta(labels=labels)), code, generation) is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("3", "3"),
        ("+3", "3"),
        ("-3", "-3"),
        ("03", "3"),
        ("", ""),
        ("x", ""),
        ("1_0", ""),
        ("9" * 20, ""),
        ("9" * 999, ""),
    ],
)
def test_template_generation_from_annotation(text: str, expected: str) -> None:
    meta = ObjectMeta(annotations={"deprecated.daemonset.template.generation": text})
    assert generation_of(DaemonSet(metadata=meta)) == expected
    assert generation_of(DaemonSet()) == ""


def test_backoff_of_failed_pods_doubles_per_node() -> None:
    backoff, key = FailedPodsBackoff(), Key("d", "web")
    now, waited = 0.0, []
    for _ in range(13):
        backoff.begin(key, "u", 1, now)
        waited.append(backoff.wait(key, "a", now))
        now += waited[-1]
        assert backoff.wait(key, "a", now) == 0
        backoff.note(key, "a", now)
    assert waited == [0, FIRST, 2, 4, 8, 16, 32, 64, 128, 256, 512, LONGEST, LONGEST]
    assert backoff.wait(key, "b", now) == 0
    backoff.begin(key, "u", 2, now)
    assert backoff.wait(key, "a", now) == 0
    backoff.note(key, "a", now)
    assert backoff.wait(key, "a", now + 0.25) == 0.75
    backoff.begin(key, "u", 2, now + 2 * LONGEST + 1)
    backoff.note(key, "a", now)
    assert backoff.wait(key, "a", now) == FIRST
    backoff.forget(key)
    assert backoff.wait(key, "a", now) == 0
