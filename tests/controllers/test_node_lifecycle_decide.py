"""Decisions of the node lifecycle controller."""

import math
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller_manager.common.api.coordination import LEASES, Lease, LeaseSpec
from controller_manager.common.api.core import Node, NodeCondition, NodeSpec, NodeStatus, Taint
from controller_manager.common.api.model import ObjectMeta
from controller_manager.common.api.resource import Key
from controller_manager.testing import builders
from controllers.node_lifecycle.desired import Evict, desired_taints, is_evicted, silenced, unready, zone_of
from controllers.node_lifecycle.node_health import Grace, HealthChanges, HeartbeatMonitor, NodeHealth, Silence
from controllers.node_lifecycle.zones import EvictionRates, Zone, ZoneState

THEN, NOW = "2026-01-01T00:00:00Z", "2026-01-01T01:00:00Z"
GRACE = Grace(startup=60, running=50)
TERMS = EvictionRates(rate=0.1, secondary_rate=0.01, threshold=0.55, large=50)


def node(name: str = "n", *, zone: str = "", taints: tuple[str, ...] = (), beat: str = THEN, **conditions: str) -> Node:
    """A node with conditions, and taints written `key:effect`."""
    return Node(
        metadata=ObjectMeta(
            name=name,
            uid=f"uid-{name}",
            creation_timestamp=THEN,
            labels={"topology.kubernetes.io/zone": zone} if zone else None,
        ),
        spec=NodeSpec(
            taints=tuple(Taint(key=t.split(":")[0], effect=t.split(":")[1], time_added=THEN) for t in taints)
        ),
        status=NodeStatus(
            conditions=tuple(
                NodeCondition(type=kind, status=status, last_heartbeat_time=beat, last_transition_time=THEN)
                for kind, status in conditions.items()
            )
        ),
    )


def taints_of(found: Node) -> list[str]:
    return sorted(f"{t.key.removeprefix('node.kubernetes.io/')}:{t.effect}" for t in found.spec.taints)


@pytest.mark.parametrize(
    ("conditions", "unschedulable", "wanted"),
    [
        pytest.param({"Ready": "True"}, False, [], id="ready"),
        pytest.param({"Ready": "False"}, False, ["not-ready"], id="not ready"),
        pytest.param({"Ready": "Unknown"}, False, ["unreachable"], id="unknown"),
        pytest.param({"Ready": "True", "MemoryPressure": "True"}, False, ["memory-pressure"], id="memory"),
        pytest.param({"Ready": "True", "MemoryPressure": "Unknown"}, False, [], id="memory unknown"),
        pytest.param({"Ready": "True", "DiskPressure": "True"}, False, ["disk-pressure"], id="disk"),
        pytest.param({"Ready": "True", "PIDPressure": "True"}, False, ["pid-pressure"], id="processes"),
        pytest.param({"Ready": "True", "NetworkUnavailable": "True"}, False, ["network-unavailable"], id="network"),
        pytest.param({"Ready": "True"}, True, ["unschedulable"], id="cordoned"),
        pytest.param({"Ready": "False", "DiskPressure": "True"}, True, ["disk-pressure", "not-ready", "unschedulable"]),
    ],
)
def test_conditions_become_no_schedule_taints(
    conditions: dict[str, Any], unschedulable: bool, wanted: list[str]
) -> None:
    found = node(**conditions)
    found = msgspec.structs.replace(found, spec=NodeSpec(unschedulable=unschedulable))
    changed = desired_taints(found, Evict.WAIT, NOW)
    assert taints_of(changed) == [f"{key}:NoSchedule" for key in wanted]
    assert all(taint.time_added == NOW for taint in changed.spec.taints)
    assert desired_taints(changed, Evict.WAIT, "later") is changed


NOT_READY, UNREACHABLE = "node.kubernetes.io/not-ready:NoExecute", "node.kubernetes.io/unreachable:NoExecute"


@pytest.mark.parametrize(
    ("ready", "had", "evict", "wanted"),
    [
        pytest.param("False", "", Evict.WAIT, "", id="waits for eviction"),
        pytest.param("False", "", Evict.NOW, NOT_READY, id="may be evicted"),
        pytest.param("Unknown", "", Evict.NOW, UNREACHABLE, id="may be evicted, unreachable"),
        pytest.param("False", NOT_READY, Evict.WAIT, NOT_READY, id="stays"),
        pytest.param("False", UNREACHABLE, Evict.WAIT, NOT_READY, id="swapped at once"),
        pytest.param("Unknown", NOT_READY, Evict.WAIT, UNREACHABLE, id="swapped at once, the other way"),
        pytest.param("True", NOT_READY, Evict.WAIT, "", id="ready again"),
        pytest.param("True", UNREACHABLE, Evict.NOW, "", id="ready again, though it may be evicted"),
        pytest.param("Unknown", UNREACHABLE, Evict.NEVER, "", id="all zones are disrupted"),
        pytest.param("False", "", Evict.NEVER, "", id="all zones are disrupted, and it had none"),
        pytest.param("", NOT_READY, Evict.WAIT, NOT_READY, id="no Ready condition"),
    ],
)
def test_no_execute_taints(ready: str, had: str, evict: Evict, wanted: str) -> None:
    found = node(taints=(had,) if had else (), **dict[str, Any](Ready=ready) if ready else {})
    changed = desired_taints(found, evict, NOW)
    assert [f"{t.key}:{t.effect}" for t in changed.spec.taints if t.effect == "NoExecute"] == (
        [wanted] if wanted else []
    )
    stays = {t.time_added for t in changed.spec.taints if t.effect == "NoExecute"}
    assert stays == ({THEN if had == wanted else NOW} if wanted else set())
    assert is_evicted(changed) is bool(wanted)


def test_foreign_taints_are_preserved() -> None:
    theirs = ("example.org/a:NoSchedule", "node.kubernetes.io/not-ready:PreferNoSchedule", "example.org/b:NoExecute")
    found = node(taints=(*theirs, UNREACHABLE), Ready="True")
    assert [f"{t.key}:{t.effect}" for t in desired_taints(found, Evict.WAIT, NOW).spec.taints] == list(theirs)


def test_node_without_status_keeps_admission_taints() -> None:
    found = node(taints=("node.kubernetes.io/not-ready:NoSchedule",))
    assert desired_taints(found, Evict.WAIT, NOW) is found


@pytest.mark.parametrize(
    ("labels", "wanted"),
    [
        pytest.param({"kubernetes.io/os": "linux"}, {"beta.kubernetes.io/os": "linux"}, id="missing"),
        pytest.param(
            {"kubernetes.io/arch": "arm64", "beta.kubernetes.io/arch": "amd64"},
            {"beta.kubernetes.io/arch": "arm64"},
            id="another",
        ),
        pytest.param({"beta.kubernetes.io/os": "linux"}, {}, id="the old one alone"),
        pytest.param({"kubernetes.io/os": "linux", "beta.kubernetes.io/os": "linux"}, {}, id="equal"),
    ],
)
def test_beta_labels_are_copied_from_stable_ones(labels: dict[str, str], wanted: dict[str, str]) -> None:
    found = node(Ready="True")
    found = msgspec.structs.replace(found, metadata=ObjectMeta(name="n", labels=labels))
    changed = desired_taints(found, Evict.WAIT, NOW)
    assert changed.metadata.labels == labels | wanted
    assert (changed is found) is (not wanted)


def test_silent_node_gets_unknown_conditions() -> None:
    found = node(Ready="True", DiskPressure="True", MemoryPressure="Unknown", NetworkUnavailable="False")
    changed = {c.type: c for c in silenced(found, NOW).status.conditions}
    assert {kind: (c.status, c.reason, c.last_transition_time) for kind, c in changed.items()} == {
        "Ready": ("Unknown", "NodeStatusUnknown", NOW),
        "DiskPressure": ("Unknown", "NodeStatusUnknown", NOW),
        "MemoryPressure": ("Unknown", "", THEN),
        "NetworkUnavailable": ("False", "", THEN),
        "PIDPressure": ("Unknown", "NodeStatusNeverUpdated", NOW),
    }
    assert changed["PIDPressure"].last_heartbeat_time == THEN
    again = silenced(found, NOW)
    assert silenced(again, "later") is again


def test_pods_of_silent_node_become_unready() -> None:
    ready = builders.pod("p", ip="10.0.0.1")
    changed = unready(ready, NOW)
    (condition,) = changed.status.conditions
    assert (condition.status, condition.last_transition_time) == ("False", NOW)
    assert unready(changed, "later") is changed


@pytest.mark.parametrize(
    ("labels", "wanted"),
    [
        pytest.param(None, "", id="no zone"),
        pytest.param({"topology.kubernetes.io/zone": "a"}, ":\0:a", id="zone"),
        pytest.param({"topology.kubernetes.io/region": "r", "topology.kubernetes.io/zone": "a"}, "r:\0:a", id="both"),
        pytest.param({"failure-domain.beta.kubernetes.io/zone": "b"}, ":\0:b", id="old label"),
    ],
)
def test_zone_name_from_region_and_zone_labels(labels: dict[str, str] | None, wanted: str) -> None:
    assert zone_of(Node(metadata=ObjectMeta(name="n", labels=labels))) == wanted


@pytest.mark.parametrize(
    ("size", "unhealthy", "state", "rate"),
    [
        pytest.param(0, 0, ZoneState.NORMAL, 0.1, id="no node counts"),
        pytest.param(1, 0, ZoneState.NORMAL, 0.1, id="one healthy"),
        pytest.param(1, 1, ZoneState.FULL, 0.1, id="the only one"),
        pytest.param(2, 1, ZoneState.NORMAL, 0.1, id="few nodes are no disruption"),
        pytest.param(3, 2, ZoneState.NORMAL, 0.1, id="two are few"),
        pytest.param(4, 3, ZoneState.PARTIAL, 0.0, id="small"),
        pytest.param(50, 28, ZoneState.PARTIAL, 0.0, id="not yet large"),
        pytest.param(51, 29, ZoneState.PARTIAL, 0.01, id="large"),
        pytest.param(100, 55, ZoneState.PARTIAL, 0.01, id="at the threshold"),
        pytest.param(100, 54, ZoneState.NORMAL, 0.1, id="below the threshold"),
        pytest.param(100, 100, ZoneState.FULL, 0.1, id="all"),
    ],
)
def test_zone_state_and_eviction_rate_by_unhealthy_count(
    size: int, unhealthy: int, state: ZoneState, rate: float
) -> None:
    assert TERMS.state_of(size, unhealthy) is state
    assert TERMS.rate_in(state, size) == rate


def test_evictions_of_zone_are_ordered_and_rate_limited() -> None:
    zone = Zone(now=0)
    for name in ("a", "b", "a"):
        zone.wait(name)
    assert zone.next_turn() is None, "it was never assessed"
    zone.size = 10
    zone.assess(TERMS)
    assert zone.next_turn() == ("a", 10)
    assert not zone.begin("a", 9.9)
    assert not zone.begin("b", 10)
    assert zone.begin("a", 10)
    assert not zone.begin("b", 100), "one at a time"
    assert not zone.begin("b", 100)
    assert zone.next_turn() is None
    zone.end("a", 14, evicted=False)
    assert zone.next_turn() == ("b", 24), "a failure has cost the turn"
    zone.leave("b")
    assert zone.next_turn() == ("a", 24)
    zone.assess(TERMS, stopped=True)
    assert zone.next_turn() is None
    zone.assess(TERMS)
    zone.rest(30)
    assert zone.begin("a", 40)
    zone.end("a", 41, evicted=True)
    assert zone.next_turn() is None


class FakeCluster:
    """The health of nodes, with the cached nodes and leases."""

    def __init__(self, *nodes: Node) -> None:
        self.health = NodeHealth(GRACE, TERMS)
        self.nodes = {n.metadata.name: n for n in nodes}
        self.leases: dict[str, Lease] = {}

    def put(self, changed: Node) -> None:
        self.nodes[changed.metadata.name] = changed

    def renew(self, name: str, at: float) -> None:
        spec = LeaseSpec(renew_time=f"t{at}")
        self.leases[name] = Lease(metadata=ObjectMeta(name=name), spec=spec)

    def look(self, now: float, **how: Any) -> HealthChanges:
        return self.health.look(list(self.nodes.values()), lambda key: self.leases.get(key.name), now, **how)

    def is_silent(self, name: str, now: float) -> bool:
        return self.health.update(self.nodes[name], self.leases.get(name), now)


def test_node_is_silent_after_its_grace_period() -> None:
    fake = FakeCluster(node("new"), node("old", Ready="True"))
    assert [n.metadata.name for n in fake.look(0).new] == ["new", "old"]
    assert fake.look(50).pending == []
    assert fake.look(50.1).pending == ["old"]
    assert fake.look(60.1).pending == ["new", "old"]
    fake.renew("new", 61)
    assert not fake.is_silent("new", 61)
    assert fake.look(65).pending == ["old"]


@pytest.mark.parametrize(
    ("update", "counts"),
    [
        pytest.param({"beat": NOW, "Ready": "True"}, True, id="its status again"),
        pytest.param({"Ready": "False"}, True, id="another status"),
        pytest.param({"Ready": "Unknown"}, False, id="a condition set by controllers"),
        pytest.param({"Ready": "True", "DiskPressure": "True"}, False, id="another condition"),
    ],
)
def test_which_updates_count_as_heartbeats(update: dict[str, Any], counts: bool) -> None:
    fake = FakeCluster(node(Ready="True"))
    fake.look(0)
    fake.put(node(**update))
    fake.look(40)
    fake.look(60)
    assert fake.is_silent("n", 60) is not counts


def test_silent_node_is_reported_once() -> None:
    fake = FakeCluster(node(Ready="True"))
    fake.look(0)
    assert fake.look(51).pending == ["n"]
    fake.put(silenced(fake.nodes["n"], NOW))
    assert fake.look(56).pending == []
    assert fake.is_silent("n", 56)


def test_added_replaced_and_removed_nodes_are_reported() -> None:
    fake = FakeCluster(node("a", Ready="True"), node("b", Ready="True"))
    fake.look(0)
    fake.put(msgspec.structs.replace(fake.nodes["a"], metadata=ObjectMeta(name="a", uid="another")))
    del fake.nodes["b"]
    found = fake.look(5)
    assert ([n.metadata.uid for n in found.new], sorted(n.metadata.uid for n in found.gone)) == (
        ["another"],
        ["uid-a", "uid-b"],
    )
    fake.nodes.clear()
    assert fake.look(10).emptied == [""]
    assert fake.health.zones == {}


def three_zones() -> FakeCluster:
    return FakeCluster(*(node(f"{zone}{i}", zone=zone, Ready="True") for zone in "abc" for i in range(4)))


def test_full_disruption_stops_evictions_and_restarts_grace() -> None:
    fake = three_zones()
    fake.look(0)
    names = list(fake.nodes)
    for name in names[:-1]:
        fake.put(desired_taints(node(name, zone=name[0], Ready="False"), Evict.WAIT, NOW))
    found = fake.look(5)
    assert {z.state for z in fake.health.zones.values()} == {ZoneState.FULL, ZoneState.PARTIAL}
    assert set(found.zones.values()) == {ZoneState.FULL, ZoneState.PARTIAL}
    assert dict(fake.health.turns()) == {"a0": 10, "b0": 10}
    fake.put(desired_taints(node("a0", zone="a", Ready="False"), Evict.NOW, NOW))
    fake.put(node("c3", zone="c", Ready="False"))
    assert fake.health.begin("b0", 10) is not None
    fake.health.zones[":\0:b"].end("b0", 10, evicted=True)
    assert not fake.is_silent("c3", 11)
    assert fake.health.begin("a1", 20) is None, "status changes since the last check count"
    assert fake.look(15).pending == ["a0"]
    assert fake.health.disrupted
    assert list(fake.health.turns()) == []
    fake.put(node("c3", zone="c", Ready="True", beat=NOW))
    fake.look(100)
    assert not fake.health.disrupted
    assert dict(fake.health.turns()) == {"a1": 110, "b1": 110}
    assert fake.look(149).pending == []


def test_recovered_node_leaves_eviction_queue() -> None:
    fake = three_zones()
    fake.look(0)
    fake.put(node("a0", zone="a", Ready="False"))
    fake.look(5)
    assert dict(fake.health.turns()) == {"a0": 10}
    fake.put(node("a0", zone="a", Ready="True"))
    assert not fake.is_silent("a0", 12)
    assert list(fake.health.turns()) == []


def test_moved_node_queues_in_its_new_zone() -> None:
    fake = three_zones()
    fake.look(0)
    fake.put(node("a0", zone="a", Ready="False"))
    fake.look(5)
    fake.put(node("a0", zone="b", Ready="False"))
    fake.look(6)
    assert {name: zone.size for name, zone in fake.health.zones.items()} == {":\0:a": 3, ":\0:b": 5, ":\0:c": 4}
    assert fake.health.zones[":\0:a"].next_turn() is None
    assert fake.health.zones[":\0:b"].next_turn() == ("a0", 10)


def test_nodes_excluded_from_disruption_do_not_count() -> None:
    left_out = {"node.kubernetes.io/exclude-disruption": ""}
    outsider = node("x", Ready="False")
    outsider = msgspec.structs.replace(outsider, metadata=ObjectMeta(name="x", labels=left_out))
    fake = FakeCluster(outsider, node("n", Ready="True"))
    fake.look(0)
    (zone,) = fake.health.zones.values()
    assert (zone.members, zone.size, zone.unhealthy, zone.state) == (2, 1, 0, ZoneState.NORMAL)


def test_no_node_is_silent_while_judgement_is_suspended() -> None:
    fake = FakeCluster(node(Ready="True"))
    fake.look(0)
    assert fake.look(100, judge=False).pending == []
    fake.health.restart_grace_periods(100)
    assert fake.look(150).pending == []
    assert fake.look(151).pending == ["n"]


@pytest.mark.parametrize(
    ("samples", "verdicts"),
    [
        pytest.param([(1, 1), (1, 2)], "REAL REAL", id="reconnected in time"),
        pytest.param([(1, 1), (30, 1), (1, 1)], "REAL UNKNOWN REAL", id="the nodes were silent"),
        pytest.param(
            [(1, 1), (30, 1), (40, 2), (1, 2), (1, 2)], "REAL UNKNOWN UNKNOWN RESTART REAL", id="the watch was broken"
        ),
    ],
)
def test_silence_verdict_by_age_and_connection(samples: list[tuple[float, int]], verdicts: str) -> None:
    monitor = HeartbeatMonitor(25)
    assert [monitor.judge(age, connection) for age, connection in samples] == [Silence[v] for v in verdicts.split()]


def test_delayed_check_restarts_grace_periods() -> None:
    monitor = HeartbeatMonitor(25)
    samples = [(1, 1, 0), (1, 1, 25), (1, 1, 26), (1, 1, 0), (60, 1, 60), (1, 2, 0)]
    verdicts = [monitor.judge(age, connection, late).name for age, connection, late in samples]
    assert verdicts == ["REAL", "REAL", "RESTART", "REAL", "RESTART", "REAL"]


def events(*kinds: str) -> st.SearchStrategy[list[tuple[str, int, float]]]:
    """Return event kinds with a node number and the seconds since the previous event."""
    return st.lists(st.tuples(st.sampled_from(kinds), st.integers(0, 5), st.floats(0, 30)), max_size=60)


EVENTS = events("True", "False", "Unknown", "", "move", "renew", "drop", "evict", "look")


@settings(max_examples=150, deadline=None)
@given(EVENTS)
def test_zone_counts_match_nodes_and_evictions_are_spaced(
    events: list[tuple[str, int, float]],
) -> None:
    fake, now = FakeCluster(), 0.0
    last: dict[str, float] = {}
    for what, number, seconds in events:
        now += seconds
        name, zone = f"n{number}", "ab"[number % 2]
        match what:
            case "drop":
                fake.nodes.pop(name, None)
            case "renew":
                fake.renew(name, now)
            case "move":
                fake.put(node(name, zone="b", Ready="False"))
            case "evict":
                for turn, _ in list(fake.health.turns()):
                    found = fake.health.begin(turn, now)
                    if found is not None:
                        where = next(z for z, known in fake.health.zones.items() if known is found)
                        assert now - last.get(where, -10) >= 10 - 1e-6
                        last[where] = now
                        found.end(turn, now, evicted=True)
            case "look":
                pass
            case _:
                fake.put(node(name, zone=zone, beat=str(now), **dict[str, Any](Ready=what) if what else {}))
        fake.look(now)
        census = {zone_of(n) for n in fake.nodes.values()}
        assert set(fake.health.zones) == census
        for where, known in fake.health.zones.items():
            inside = [n for n in fake.nodes.values() if zone_of(n) == where]
            sick = [n for n in inside if "True" not in {c.status for c in n.status.conditions}]
            silent = [n for n in inside if n not in sick and fake.is_silent(n.metadata.name, now)]
            assert (known.size, known.unhealthy) == (len(inside), len(sick) + len(silent))


@settings(max_examples=150, deadline=None)
@given(events("True", "False", "", "move", "renew", "drop", "look", "leave out"))
def test_skipped_checks_would_have_found_nothing(events: list[tuple[str, int, float]]) -> None:
    always, seldom, now = FakeCluster(), FakeCluster(), 0.0
    changed, until, next_look = True, 0.0, 0.0
    for what, number, seconds in events:
        now += seconds
        while next_look <= now:
            found = always.look(next_look)
            something = found.pending or found.new or found.gone or found.zones or found.emptied
            if changed or until <= next_look:
                less = seldom.look(next_look)
                assert (less.pending, less.zones, less.emptied) == (found.pending, found.zones, found.emptied)
                changed, until = False, less.until
            else:
                assert not something, f"at {next_look}, and no look before {until}"
            assert list(seldom.health.turns()) == list(always.health.turns())
            next_look += 5
        changed = changed or what != "look"
        for fake in (always, seldom):
            match what:
                case "drop":
                    fake.nodes.pop(f"n{number}", None)
                case "renew":
                    fake.renew(f"n{number}", now)
                case "move":
                    fake.put(node(f"n{number}", zone="b", Ready="False"))
                case "leave out":
                    labels = {"node.kubernetes.io/exclude-disruption": ""}
                    metadata = ObjectMeta(name=f"n{number}", labels=labels)
                    fake.put(msgspec.structs.replace(node(f"n{number}", Ready="True"), metadata=metadata))
                case "look":
                    pass
                case _:
                    ready = dict[str, Any](Ready=what) if what else {}
                    fake.put(node(f"n{number}", zone="ab"[number % 2], beat=str(now), **ready))


def test_patience_of_monitor_ends_once() -> None:
    monitor = HeartbeatMonitor(25)
    monitor.judge(1, 1)
    assert monitor.patient_until(100, age=1) == 124
    monitor.judge(26, 1)
    assert monitor.patient_until(125, age=26) == math.inf


def test_leases_are_read_from_kube_node_lease() -> None:
    fake, asked = FakeCluster(node()), list[Key]()
    fake.health.look(list(fake.nodes.values()), lambda key: asked.append(key), 0)
    assert asked == [Key("kube-node-lease", "n")]
    assert LEASES.namespaced
