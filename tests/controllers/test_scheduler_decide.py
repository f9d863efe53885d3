"""Filters and scores of the scheduler."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

import pytest

from controller_manager.common.api.core import Node, Pod
from controllers.scheduler import scheduler as scheduler_module
from controllers.scheduler.cluster_state import ClusterState, PodSelection
from controllers.scheduler.decide import Choice, Decider, NoFit, Unfinished
from controllers.scheduler.pod_requirements import requirements_of
from controllers.scheduler.scheduler import Assigned, Scheduler, Unplaced
from controllers.scheduler.time_slice import TimeSlice
from tests.controllers.scheduling_builders import allowed_nodes, choose_node, cluster, node, place, pod, wanted

ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
WEB = {"matchLabels": {"app": "web"}}


def in_zones(*zones: str) -> list[Node]:
    return [node(f"n{number}", {ZONE: zone}) for number, zone in enumerate(zones)]


def taint(effect: str = "NoSchedule", key: str = "k") -> Mapping[str, str]:
    return {"key": key, "effect": effect}


def tolerating(*effects: str) -> list[Mapping[str, str]]:
    return [{"key": "k", "operator": "Exists", "effect": effect} for effect in effects]


def requiring(*terms: Any) -> Mapping[str, Any]:
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}}


def preferring(weight: int, key: str, value: str) -> Mapping[str, Any]:
    preference = {"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]}
    preferred = [{"weight": weight, "preference": preference}]
    return {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}


def near(kind: str, key: str = ZONE, **term: Any) -> Mapping[str, Any]:
    terms = [{"topologyKey": key, "labelSelector": WEB, **term}]
    return {kind: {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


def ports(*numbers: int, **more: Any) -> list[Mapping[str, Any]]:
    return [{"name": "c", "ports": [{"containerPort": 80, "hostPort": number, **more} for number in numbers]}]


def spread(key: str = ZONE, skew: int = 1, **more: Any) -> list[Mapping[str, Any]]:
    constraint = {"topologyKey": key, "maxSkew": skew, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": WEB}
    return [{**constraint, **more}]


def web(name: str, **spec: Any) -> Pod:
    return pod(name, labels={"app": "web"}, **spec)


def restarting(action: str) -> list[Mapping[str, Any]]:
    return [{"name": "i", "image": "i", "restartPolicyRules": [{"action": action}]}]


RESTARTS = {"declaredFeatures": ["Other", "RestartAllContainersOnContainerExits"]}
ALONE: Sequence[tuple[str, Node, Pod, bool]] = (
    ("no requirements", node("a"), pod(), True),
    ("cordoned", node("a", unschedulable=True), pod(), False),
    ("restarts all, node lacks the feature", node("a"), pod(initContainers=restarting("RestartAllContainers")), False),
    ("restarts all", node("a", status=RESTARTS), pod(initContainers=restarting("RestartAllContainers")), True),
    ("restarts one", node("a"), pod(initContainers=restarting("Restart")), True),
    (
        "cordoned, tolerated",
        node("a", unschedulable=True),
        pod(tolerations=[{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}]),
        True,
    ),
    ("tainted", node("a", taints=[taint()]), pod(), False),
    ("tainted, no execute", node("a", taints=[taint("NoExecute")]), pod(), False),
    ("tainted softly", node("a", taints=[taint("PreferNoSchedule")]), pod(), True),
    ("tolerated", node("a", taints=[taint()]), pod(tolerations=tolerating("NoSchedule")), True),
    ("tolerated with another effect", node("a", taints=[taint()]), pod(tolerations=tolerating("NoExecute")), False),
    ("selected", node("a", {"d": "x"}), pod(nodeSelector={"d": "x"}), True),
    ("not selected", node("a", {"d": "y"}), pod(nodeSelector={"d": "x"}), False),
    (
        "above a number",
        node("a", {"n": "7"}),
        pod(affinity=requiring({"matchExpressions": [{"key": "n", "operator": "Gt", "values": ["6"]}]})),
        True,
    ),
    ("no term", node("a"), pod(affinity=requiring()), False),
    ("an empty term", node("a"), pod(affinity=requiring({})), False),
    (
        "by name",
        node("a"),
        pod(affinity=requiring({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a"]}]})),
        True,
    ),
    (
        "by another name",
        node("a"),
        pod(affinity=requiring({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["b"]}]})),
        False,
    ),
    ("all resources", node("a"), pod(requests={"cpu": "4", "memory": "8Gi"}), True),
    ("too much CPU", node("a"), pod(requests={"cpu": "4001m"}), False),
    ("too much memory", node("a"), pod(requests={"memory": "9Gi"}), False),
    ("an extended resource", node("a"), pod(requests={"example.org/gpu": "1"}), False),
    (
        "an extended resource there",
        node("a", status={"allocatable": {"example.org/gpu": "2"}}),
        pod(requests={"example.org/gpu": "2"}),
        True,
    ),
    ("storage", node("a"), pod(requests={"ephemeral-storage": "1"}), False),
    ("overhead", node("a"), pod(requests={"cpu": "4"}, overhead={"cpu": "1m"}), False),
    ("no pods", node("a", status={"allocatable": {"pods": "0"}}), pod(), False),
    ("the pod as a whole", node("a"), pod(requests={"cpu": "1"}, resources={"requests": {"cpu": "5"}}), False),
    (
        "an init container",
        node("a"),
        pod(initContainers=[{"name": "i", "resources": {"requests": {"cpu": "5"}}}]),
        False,
    ),
    (
        "an init container without sidecars",
        node("a"),
        pod(requests={"cpu": "3"}, initContainers=[{"name": "i", "resources": {"requests": {"cpu": "3"}}}]),
        True,
    ),
    (
        "a sidecar",
        node("a"),
        pod(
            requests={"cpu": "3"},
            initContainers=[{"name": "i", "restartPolicy": "Always", "resources": {"requests": {"cpu": "3"}}}],
        ),
        False,
    ),
)


@pytest.mark.parametrize(("there", "asked", "fits"), [row[1:] for row in ALONE], ids=[row[0] for row in ALONE])
def test_which_pods_fit_a_node(there: Node, asked: Pod, fits: bool) -> None:
    assert allowed_nodes(cluster([there]), asked) == ({"a"} if fits else set())


PORTS: Sequence[tuple[str, Sequence[Any], Sequence[Any], bool]] = (
    ("another", ports(80), ports(81), True),
    ("the same", ports(80), ports(80), False),
    ("another protocol", ports(80), ports(80, protocol="UDP"), True),
    ("another address", ports(80, hostIP="10.0.0.1"), ports(80, hostIP="10.0.0.2"), True),
    ("one of all addresses", ports(80), ports(80, hostIP="10.0.0.2"), False),
    ("all addresses, one taken", ports(80, hostIP="10.0.0.1"), ports(80), False),
)


@pytest.mark.parametrize(("taken", "asked", "fits"), [row[1:] for row in PORTS], ids=[row[0] for row in PORTS])
def test_host_ports_conflict_on_one_node(taken: Any, asked: Any, fits: bool) -> None:
    state = cluster([node("a")], {"a": [pod("there", containers=taken)]})
    assert allowed_nodes(state, pod(containers=asked)) == ({"a"} if fits else set())


THREE = in_zones("x", "x", "y", "z")
SPREAD: Sequence[tuple[str, Pod, Mapping[str, Sequence[Pod]], set[str]]] = (
    ("no pods", web("p", topologySpreadConstraints=spread()), {}, {"n0", "n1", "n2", "n3"}),
    (
        "one pod",
        web("p", topologySpreadConstraints=spread()),
        {"n0": [web("1")]},
        {"n2", "n3"},
    ),
    (
        "a larger skew",
        web("p", topologySpreadConstraints=spread(skew=2)),
        {"n0": [web("1")]},
        {"n0", "n1", "n2", "n3"},
    ),
    (
        "a pod that its own selector does not match",
        pod("p", topologySpreadConstraints=spread()),
        {"n0": [web("1")]},
        {"n0", "n1", "n2", "n3"},
    ),
    (
        "pods of other namespaces and terminating pods do not count",
        web("p", topologySpreadConstraints=spread()),
        {
            "n0": [pod("1", labels={"app": "web"}, meta={"namespace": "other"})],
            "n1": [pod("2", labels={"app": "web"}, meta={"deletionTimestamp": "2026-01-01T00:00:00Z"})],
        },
        {"n0", "n1", "n2", "n3"},
    ),
    (
        "fewer domains than minDomains",
        web("p", topologySpreadConstraints=spread(minDomains=4)),
        {"n0": [web("1")], "n2": [web("2")], "n3": [web("3")]},
        set(),
    ),
    (
        "as many domains as minDomains",
        web("p", topologySpreadConstraints=spread(minDomains=3)),
        {"n0": [web("1")], "n2": [web("2")], "n3": [web("3")]},
        {"n0", "n1", "n2", "n3"},
    ),
    (
        "nodes that the pod does not fit are not domains",
        web("p", topologySpreadConstraints=spread(), nodeSelector={ZONE: "x"}),
        {"n0": [web("1")]},
        {"n0", "n1"},
    ),
    (
        "node affinity policy Ignore",
        web("p", topologySpreadConstraints=spread(nodeAffinityPolicy="Ignore"), nodeSelector={ZONE: "x"}),
        {"n0": [web("1")]},
        set(),
    ),
    (
        "matchLabelKeys",
        pod(
            "p",
            labels={"app": "web", "version": "2"},
            topologySpreadConstraints=spread(matchLabelKeys=["version"]),
        ),
        {"n0": [pod("1", labels={"app": "web", "version": "1"})]},
        {"n0", "n1", "n2", "n3"},
    ),
    ("nodes without the label", web("p", topologySpreadConstraints=spread("rack")), {}, set()),
)


@pytest.mark.parametrize(("asked", "there", "nodes"), [row[1:] for row in SPREAD], ids=[row[0] for row in SPREAD])
def test_topology_spread_limits_nodes(asked: Pod, there: Mapping[str, Sequence[Pod]], nodes: set[str]) -> None:
    assert allowed_nodes(cluster(THREE, there), asked) == nodes


def test_tainted_nodes_are_no_domains_with_honor_policy() -> None:
    nodes = [node("a", {ZONE: "x"}), node("b", {ZONE: "y"}, taints=[taint()])]
    state = cluster(nodes, {"a": [web("1")]})
    assert allowed_nodes(state, web("p", topologySpreadConstraints=spread())) == set()
    assert allowed_nodes(state, web("p", topologySpreadConstraints=spread(nodeTaintsPolicy="Honor"))) == {"a"}


TERMS: Sequence[tuple[str, Pod, Mapping[str, Sequence[Pod]], set[str]]] = (
    ("no pod to be near", pod(affinity=near("podAffinity")), {}, set()),
    ("near itself, the first pod", web("p", affinity=near("podAffinity")), {}, {"n0", "n1", "n2", "n3"}),
    ("near", pod(affinity=near("podAffinity")), {"n0": [web("1")]}, {"n0", "n1"}),
    ("on the same node", pod(affinity=near("podAffinity", HOST)), {"n0": [web("1")]}, {"n0"}),
    ("far", pod(affinity=near("podAntiAffinity")), {"n0": [web("1")]}, {"n2", "n3"}),
    ("far from another node", pod(affinity=near("podAntiAffinity", HOST)), {"n0": [web("1")]}, {"n1", "n2", "n3"}),
    ("repelled by another pod", web("p"), {"n0": [pod("1", affinity=near("podAntiAffinity"))]}, {"n2", "n3"}),
    ("not repelled", pod("p"), {"n0": [pod("1", affinity=near("podAntiAffinity"))]}, {"n0", "n1", "n2", "n3"}),
    (
        "of another namespace",
        pod(affinity=near("podAffinity", namespaces=["other"])),
        {"n0": [web("1")], "n2": [pod("2", labels={"app": "web"}, meta={"namespace": "other"})]},
        {"n2"},
    ),
    (
        "of any namespace",
        pod(affinity=near("podAffinity", namespaceSelector={})),
        {"n2": [pod("2", labels={"app": "web"}, meta={"namespace": "other"})]},
        {"n2"},
    ),
    (
        "of labelled namespaces",
        pod(affinity=near("podAffinity", namespaceSelector={"matchLabels": {"team": "red"}})),
        {
            "n0": [pod("1", labels={"app": "web"}, meta={"namespace": "other"})],
            "n3": [pod("2", labels={"app": "web"}, meta={"namespace": "red"})],
        },
        {"n3"},
    ),
    (
        "label keys count as merged by the API server",
        pod("p", labels={"version": "2"}, affinity=near("podAffinity", matchLabelKeys=["version"])),
        {
            "n0": [pod("1", labels={"app": "web", "version": "1"})],
            "n3": [pod("2", labels={"app": "web", "version": "2"})],
        },
        {"n0", "n1", "n3"},
    ),
)


@pytest.mark.parametrize(("asked", "there", "nodes"), [row[1:] for row in TERMS], ids=[row[0] for row in TERMS])
def test_pod_affinity_and_anti_affinity_limit_nodes(
    asked: Pod, there: Mapping[str, Sequence[Pod]], nodes: set[str]
) -> None:
    state = cluster(THREE, there)
    state.set_namespace("red", {"team": "red"})
    assert allowed_nodes(state, asked) == nodes


BEST: Sequence[tuple[str, ClusterState, Pod, str]] = (
    (
        "more free resources",
        cluster([node("a"), node("b")], {"a": [pod("1", {"cpu": "1"})]}),
        pod(requests={"cpu": "1"}),
        "b",
    ),
    (
        "CPU and memory alike",
        cluster(
            [node("a"), node("b")],
            {"a": [pod("1", {"cpu": "2", "memory": "1Gi"})], "b": [pod("2", {"cpu": "500m", "memory": "4Gi"})]},
        ),
        pod(requests={"cpu": "1", "memory": "1Mi"}),
        "b",
    ),
    ("fewer taints", cluster([node("a", taints=[taint("PreferNoSchedule")]), node("b")]), pod(), "b"),
    (
        "preferred",
        cluster([node("a"), node("b", {"d": "x"})]),
        pod(affinity=preferring(1, "d", "x")),
        "b",
    ),
    (
        "image is present",
        cluster(
            [
                node("a"),
                node("b", status={"images": [{"names": ["example.org/app:1"], "sizeBytes": 900 << 20}]}),
            ]
        ),
        pod(),
        "b",
    ),
    (
        "fewer pods of the same kind",
        cluster(THREE, {"n0": [web("1")], "n1": [web("2")], "n2": [web("3")]}),
        web("p", topologySpreadConstraints=spread(whenUnsatisfiable="ScheduleAnyway")),
        "n3",
    ),
)


@pytest.mark.parametrize(("state", "asked", "best"), [row[1:] for row in BEST], ids=[row[0] for row in BEST])
def test_best_scoring_node_is_chosen(state: ClusterState, asked: Pod, best: str) -> None:
    assert choose_node(state, asked) == best


@pytest.mark.parametrize(("kind", "best"), [("podAffinity", "x"), ("podAntiAffinity", "y")])
def test_preferred_pod_affinity_is_scored_in_both_directions(kind: str, best: str) -> None:
    term = {"topologyKey": ZONE, "labelSelector": WEB}
    preferred = [{"weight": 100, "podAffinityTerm": term}]
    asked = pod(affinity={kind: {"preferredDuringSchedulingIgnoredDuringExecution": preferred}})
    zones = {"n0": "x", "n1": "x", "n2": "y", "n3": "z"}
    assert zones[choose_node(cluster(THREE, {"n0": [web("1")]}), asked)] == best
    assert zones[choose_node(cluster(THREE, {"n0": [pod("1", affinity=asked_of(asked))]}), web("p"))] == best


def asked_of(one: Pod) -> Any:
    """Return the affinity of a pod as plain data."""
    return json.loads(one.raw)["spec"]["affinity"]


def test_no_fit_message_counts_reasons() -> None:
    state = cluster([node("a", unschedulable=True), node("b"), node("c", taints=[taint()])])
    found = Decider(state).decide(wanted(pod(requests={"cpu": "5", "memory": "9Gi"})))
    assert isinstance(found, NoFit)
    assert found.message == (
        "0/3 nodes are available: 1 Insufficient cpu, 1 Insufficient memory, 1 node(s) had untolerated taint(s), "
        "1 node(s) were unschedulable."
    )
    assert found.by == {"NodeUnschedulable", "NodeResourcesFit", "TaintToleration"}
    assert choose_node(ClusterState(), pod()) == "no nodes available to schedule pods"


def test_cached_results_of_node_expire_with_its_change() -> None:
    state = cluster([node("a")])
    decider, asked = Decider(state), pod(requests={"cpu": "3"})
    assert isinstance(decider.decide(wanted(asked)), Choice)
    place(state, "a", pod("1", {"cpu": "3"}))
    assert isinstance(decider.decide(wanted(asked)), NoFit)
    state.remove("1")
    assert isinstance(decider.decide(wanted(asked)), Choice)
    state.set_node(node("a", unschedulable=True))
    assert isinstance(decider.decide(wanted(asked)), NoFit)


def test_topology_spread_follows_placed_pods() -> None:
    state, asked = cluster(THREE), web("p", topologySpreadConstraints=spread())
    decider = Decider(state)
    for number in range(12):
        found = decider.decide(wanted(asked))
        assert isinstance(found, Choice)
        place(state, found.node, web(str(number)))
        zones = [state.nodes[one.node].labels[ZONE] for one in state.pods.values()]
        counts = [zones.count(zone) for zone in "xyz"]
        assert max(counts) - min(counts) <= 1
    state.remove_node("n3")
    assert isinstance(decider.decide(wanted(asked)), Choice)


def test_nominated_pod_reserves_room_from_lower_priorities() -> None:
    state = cluster([node("a")])
    state.nominate("waits", requirements_of(pod("waits", {"cpu": "3"}, priority=10)), "a")
    assert choose_node(state, pod("p", {"cpu": "2"}, priority=10)) == "0/1 nodes are available: 1 Insufficient cpu."
    assert choose_node(state, pod("p", {"cpu": "2"}, priority=11)) == "a"
    assert choose_node(state, pod("p", {"cpu": "1"}, priority=1)) == "a"
    assert choose_node(state, pod("waits", {"cpu": "3"}, priority=10), nominated="a") == "a"
    state.forget_nomination("waits")
    assert choose_node(state, pod("p", {"cpu": "2"}, priority=10)) == "a"


@pytest.mark.parametrize(("nodes", "found"), [(3, 3), (99, 99), (100, 100), (1000, 420), (5000, 500), (20000, 1000)])
def test_number_of_scored_nodes_by_cluster_size(nodes: int, found: int) -> None:
    assert Decider(ClusterState()).number_to_find(nodes) == found


@pytest.mark.flag("percentage-of-nodes-to-score")
def test_percentage_flag_sets_number_of_scored_nodes() -> None:
    assert Decider(ClusterState(), percentage=20).number_to_find(1000) == 200


def test_equal_pods_share_requirements() -> None:
    one, other = pod("1", {"cpu": "1"}), pod("2", {"cpu": "1"})
    assert requirements_of(one) is requirements_of(other)
    assert requirements_of(one) is not requirements_of(pod("3", {"cpu": "2"}))


def test_long_search_yields_and_continues() -> None:
    state = cluster(node(f"n{number}", {"disk": "ssd" if number == 249 else "hdd"}) for number in range(250))
    decider, want = Decider(state), wanted(pod(nodeSelector={"disk": "ssd"}))
    assert [decider.decide(want, TimeSlice(100)) for _ in range(2)] == [Unfinished(), Unfinished()]
    state.set_node(node("n0", {"disk": "ssd"}))
    found = decider.decide(want, TimeSlice(100))
    assert isinstance(found, Choice)
    assert (found.feasible, found.evaluated) == (2, 250)


def test_higher_priority_pod_overtakes_paused_search() -> None:
    scheduler = Scheduler(Decider(cluster(node(f"n{number}") for number in range(2000))), ("default-scheduler",))
    scheduler.pod_changed(None, pod("long", nodeSelector={"no": "where"}), 0.0)
    assert scheduler.step(0.0) == Unfinished()
    scheduler.pod_changed(None, pod("soon", priority=1), 0.0)
    first, second, third = (scheduler.step(0.0) for _ in range(3))
    assert isinstance(first, Assigned)
    assert isinstance(second, Unfinished)
    assert isinstance(third, Unplaced)
    assert third.queued.attempts == 1


def test_search_among_changing_nodes_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler_module, "_MOST_PAUSES", 20)
    scheduler = Scheduler(Decider(cluster(node(f"n{number}") for number in range(1200))), ("default-scheduler",))
    scheduler.pod_changed(None, pod("long", nodeSelector={"no": "where"}), 0.0)
    for turn in range(100):
        step = scheduler.step(0.0)
        if isinstance(step, Unplaced):
            break
        for number in range(1200):
            scheduler.node_changed(node(f"n{number}", {"turn": str(turn)}), 0.0)
    assert isinstance(step, Unplaced)


@pytest.mark.parametrize("without_leaving", [True, False])
@pytest.mark.parametrize("seed", range(10))
def test_pod_counts_match_placed_pods(seed: int, without_leaving: bool) -> None:
    random, state = Random(seed), cluster([])
    (term,) = requirements_of(pod(affinity=near("podAffinity", labelSelector={"matchLabels": {"app": "a"}}))).affinity
    selection = PodSelection((term,), without_leaving)
    for number in range(100):
        leaving = {"deletionTimestamp": "2026-01-01T00:00:00Z"} if random.random() < 0.3 else {}
        name = f"p{random.randrange(30)}"
        place(state, f"n{random.randrange(4)}", pod(name, labels={"app": random.choice("ab")}, meta=leaving))
        state.remove(f"p{random.randrange(30)}")
        if number in (50, 99):
            counted = Counter(
                one.node
                for one in state.pods.values()
                if one.requirements.labels["app"] == "a" and not (without_leaving and one.is_leaving)
            )
            assert state.count(selection).by_node == counted
            assert cluster_again(state).count(selection).by_node == counted


def cluster_again(state: ClusterState) -> ClusterState:
    again = ClusterState()
    for one in state.pods.values():
        again.place(one)
    return again


def test_namespace_selector_without_match_adds_none() -> None:
    state = cluster(in_zones("x", "y"))
    state.set_namespace("default", {"env": "none"})
    state.set_namespace("team", {"team": "a"})
    place(state, "n0", pod("1", labels={"app": "web"}))
    place(state, "n1", pod("2", labels={"app": "web"}, meta={"namespace": "team"}))
    unnamed = {"matchExpressions": [{"key": "team", "operator": "DoesNotExist"}]}
    assert allowed_nodes(state, pod(affinity=near("podAffinity", namespaceSelector=unnamed))) == {"n0"}
