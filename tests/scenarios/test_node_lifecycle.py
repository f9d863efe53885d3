"""The node lifecycle controller in a whole cluster, in virtual time.

Invariants under faults and zone outages:
- within a zone NoExecute taints are at least 1
rate seconds apart, also across leaders;
- a node that renews its lease and reports ready never gets a NoExecute taint;
- while all zones are disrupted for longer than a check, no node has a NoExecute taint;
- after recovery taints match conditions, and conditions match what nodes report, or their silence.
"""

import asyncio

import pytest
from msgspec.structs import replace

from controller_manager.common.api.core import EVENTS, NODES, PODS, Node, NodeStatus, Pod
from controller_manager.common.api.model import ObjectMeta
from controller_manager.common.api.resource import Key
from controller_manager.common.api.wire import Request
from controller_manager.framework.client.rest_client import Call
from controller_manager.testing import Cluster, Replica, builders
from controller_manager.testing.virtual import VirtualLoop
from controllers.node_lifecycle.desired import is_evicted, status_of
from tests.scenarios.node_lifecycle import TaintTimes, cluster_of, manage, node

pytestmark = pytest.mark.virtual

BINDING = b'{"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "late"}, "target": {"name": "a"}}'


async def taints(cluster: Cluster, name: str) -> list[str]:
    found = (await node(cluster, name)).spec.taints
    return sorted(f"{t.key.removeprefix('node.kubernetes.io/')}:{t.effect}" for t in found)


async def pod_on(cluster: Cluster, name: str, node_name: str) -> None:
    made = builders.pod(name, ip="10.0.0.1")
    made = replace(made, spec=replace(made.spec, node_name=node_name))
    written = await cluster.client.create(PODS, made)
    await cluster.client.update(PODS, replace(written, status=made.status), subresource="status")


async def is_ready(cluster: Cluster, name: str) -> bool:
    found: Pod = await cluster.client.get(PODS, Key("default", name))
    return any(c.type == "Ready" and c.status == "True" for c in found.status.conditions)


async def events(cluster: Cluster, name: str) -> list[str]:
    found = (await cluster.client.list(EVENTS)).items
    mine = [e for e in found if e.involved_object.name == name]
    assert {e.reporting_component for e in mine} <= {"node-controller"}
    return sorted(e.reason for e in mine)


async def test_silent_node_is_reported_evicted_and_restored() -> None:
    async with cluster_of("abcd") as (cluster, agents):
        await manage(cluster)
        await pod_on(cluster, "web", "a")
        await pod_on(cluster, "db", "b")
        await cluster.sleep(120)
        agents.silent.add("a")
        await cluster.sleep(39)
        assert await taints(cluster, "a") == []
        await cluster.sleep(32)
        found = await node(cluster, "a")
        assert {c.type: (c.status, c.reason) for c in found.status.conditions} == dict.fromkeys(
            ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure"), ("Unknown", "NodeStatusUnknown")
        )
        assert await taints(cluster, "a") == ["unreachable:NoExecute", "unreachable:NoSchedule"]
        assert all(t.time_added for t in found.spec.taints)
        assert (await is_ready(cluster, "web"), await is_ready(cluster, "db")) == (False, True)
        assert await events(cluster, "a") == ["NodeNotReady", "RegisteredNode"]
        assert await events(cluster, "web") == ["NodeNotReady"]

        agents.silent.clear()
        await cluster.sleep(15)
        assert await taints(cluster, "a") == []
        assert status_of(await node(cluster, "a")) == "True"


async def test_new_node_is_tainted_until_it_reports_ready() -> None:
    async with cluster_of("abcd") as (cluster, agents):
        await agents.join("early")
        assert await taints(cluster, "early") == ["not-ready:NoSchedule"], "even if it joins as ready"
        await cluster.client.create(NODES, Node(metadata=ObjectMeta(name="mute")))
        await manage(cluster)
        await cluster.sleep(10)
        assert await taints(cluster, "early") == []
        assert await taints(cluster, "mute") == ["not-ready:NoSchedule"]


async def test_new_manager_keeps_existing_taints() -> None:
    async with cluster_of("abcd") as (cluster, agents):
        first = await manage(cluster)
        await cluster.sleep(30)
        agents.silent.add("a")
        await cluster.sleep(90)
        before = await node(cluster, "a")
        assert is_evicted(before)
        await first.kill()
        await manage(cluster)
        await cluster.sleep(90)
        assert await node(cluster, "a") == before


async def test_node_conditions_become_taints() -> None:
    async with cluster_of("abcd") as (cluster, agents):
        await manage(cluster)
        await pod_on(cluster, "web", "a")
        await cluster.sleep(60)
        agents.say("a", ready=False)
        await cluster.sleep(30)
        assert await taints(cluster, "a") == ["not-ready:NoExecute", "not-ready:NoSchedule"]
        assert await is_ready(cluster, "web"), "a live agent reports its pods"
        agents.silent.add("a")
        await cluster.sleep(70)
        assert await taints(cluster, "a") == ["unreachable:NoExecute", "unreachable:NoSchedule"]
        assert not await is_ready(cluster, "web")
        await cluster.client.patch(NODES, Key("", "b"), {"spec": {"unschedulable": True}})
        await cluster.settle()
        assert await taints(cluster, "b") == ["unschedulable:NoSchedule"]


async def test_node_registration_and_beta_labels_follow_nodes() -> None:
    async with cluster_of("ab") as (cluster, agents):
        await manage(cluster)
        await agents.join("c", **{"kubernetes.io/os": "linux", "kubernetes.io/arch": "arm64"})
        await cluster.sleep(20)
        labels = (await node(cluster, "c")).metadata.labels or {}
        assert (labels["beta.kubernetes.io/os"], labels["beta.kubernetes.io/arch"]) == ("linux", "arm64")
        await agents.leave("c")
        await cluster.sleep(20)
        assert await events(cluster, "c") == ["RegisteredNode", "RemovingNode"]


async def test_nothing_is_written_when_nothing_changed() -> None:
    async with cluster_of("abc") as (cluster, agents):
        await manage(cluster)
        agents.silent.add("a")
        await cluster.sleep(200)
        before = cluster.api.store.snapshot(NODES.name).revision
        versions = {n.metadata.name: n.metadata.resource_version for n in (await cluster.client.list(NODES)).items}
        await cluster.sleep(600)
        assert cluster.api.store.snapshot(NODES.name).revision >= before
        later = {n.metadata.name: n.metadata.resource_version for n in (await cluster.client.list(NODES)).items}
        assert later == versions


@pytest.mark.parametrize("problem", ["silent", "not ready"])
async def test_new_pod_on_unready_node_is_marked_not_ready(problem: str) -> None:
    async with cluster_of("abc") as (cluster, agents):
        await manage(cluster)
        await pod_on(cluster, "early", "a")
        if problem == "silent":
            agents.silent.add("a")
        else:
            agents.say("a", ready=False)
        await cluster.sleep(100)
        assert await is_ready(cluster, "early") is (problem == "not ready"), "a live agent updates its pods"
        made = builders.pod("late", ip="10.0.0.1")
        late = await cluster.client.create(PODS, made)
        await cluster.client.update(PODS, replace(late, status=made.status), subresource="status")
        assert await is_ready(cluster, "late")
        await cluster.client.raw(Call("POST", "/api/v1/namespaces/default/pods/late/binding", body=BINDING))
        await cluster.settle()
        assert not await is_ready(cluster, "late")
        assert await events(cluster, "late") == ["NodeNotReady"]


async def test_new_manager_keeps_pod_readiness_on_unready_node() -> None:
    async with cluster_of("abc") as (cluster, agents):
        await pod_on(cluster, "web", "a")
        agents.say("a", ready=False)
        await cluster.sleep(20)
        await manage(cluster)
        await cluster.sleep(20)
        assert await is_ready(cluster, "web")


async def zone_metrics(replica: Replica, zone: str) -> dict[str, float]:
    """Return the metrics of a zone."""
    page = await replica.manager.pages.handle(Request("GET", "/metrics"))
    assert isinstance(page.body, bytes)
    label = f'{{zone=":\0:{zone}"}} '
    found = (line.split(label) for line in page.body.decode().splitlines() if label in line)
    return {name.removeprefix("node_collector_"): float(value) for name, value in found}


async def test_zone_metrics_report_health_and_evictions() -> None:
    async with cluster_of("abcd", "xy") as (cluster, agents):
        replica = await manage(cluster, "--authorization-always-allow-paths=/metrics")
        agents.silent.add("a")
        await cluster.sleep(150)
        assert await zone_metrics(replica, "abcd") == {
            "zone_size": 4,
            "zone_health": 75,
            "unhealthy_nodes_in_zone": 1,
            "evictions_total": 1,
        }
        for name in "xy":
            await agents.leave(name)
        await cluster.sleep(10)
        assert await zone_metrics(replica, "xy") == {
            "zone_size": 0,
            "zone_health": 100,
            "unhealthy_nodes_in_zone": 0,
            "evictions_total": 0,
        }


async def test_disrupted_zone_is_evicted_slowly_unless_all_are() -> None:
    async with cluster_of("abcdef", "xyz") as (cluster, agents):
        taint_times = TaintTimes(cluster)
        await manage(cluster)
        await cluster.sleep(60)
        agents.silent |= set("abcdef")
        await cluster.sleep(120)
        assert len(taint_times.evicted) == 6
        assert taint_times.closest(":\0:abcdef") >= 10
        agents.silent |= set("xyz")
        await cluster.sleep(75)
        assert taint_times.evicted == set()
        agents.silent -= {"x", "y", "z"}
        await cluster.sleep(10)
        assert taint_times.evicted == set(), "no node is evicted at once"
        await cluster.sleep(30)
        assert 1 <= len(taint_times.evicted) <= 3
        agents.silent.clear()
        await cluster.sleep(30)
        assert taint_times.evicted == set()


@pytest.mark.parametrize("seconds", [40, 100, 400])
@pytest.mark.parametrize("what", ["manager", "server"])
async def test_network_outage_does_not_mark_nodes_silent(what: str, seconds: float) -> None:
    async with cluster_of("abc", "xyz") as (cluster, _):
        replica = await manage(cluster)
        await cluster.sleep(60)
        if what == "manager":
            replica.network.cut()
            await cluster.sleep(seconds)
            replica.network.heal()
        else:
            await cluster.stop_api()
            await cluster.sleep(seconds)
            await cluster.start_api()
        for _ in range(30):
            await cluster.sleep(3)
            assert {status_of(n) for n in (await cluster.client.list(NODES)).items} == {"True"}


@pytest.mark.parametrize("seconds", [40, 100, 400])
async def test_suspended_process_does_not_mark_nodes_silent(seconds: float) -> None:
    async with cluster_of("abc", "xyz") as (cluster, _):
        await manage(cluster)
        await cluster.sleep(60)
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        loop.jump(seconds)
        for _ in range(30):
            await cluster.sleep(3)
            assert {status_of(n) for n in (await cluster.client.list(NODES)).items} == {"True"}


@pytest.mark.flag("node-monitor-grace-period", "node-monitor-period")
@pytest.mark.parametrize(
    ("flags", "reported_after"),
    [
        pytest.param((), 50, id="default"),
        pytest.param(("--node-monitor-grace-period=20s",), 20, id="shorter grace"),
        pytest.param(("--node-monitor-period=40s",), 80, id="longer monitor period"),
    ],
)
async def test_monitor_grace_period_flag_applies_to_running_node(flags: tuple[str, ...], reported_after: float) -> None:
    async with cluster_of("abcd") as (cluster, agents):
        await manage(cluster, *flags)
        await cluster.sleep(160)
        agents.silent.add("a")
        await cluster.sleep(reported_after - 12)
        assert status_of(await node(cluster, "a")) == "True"
        await cluster.sleep(12 + 6)
        assert status_of(await node(cluster, "a")) == "Unknown"


@pytest.mark.flag("node-startup-grace-period")
@pytest.mark.parametrize(("flags", "reported_after"), [((), 60), (("--node-startup-grace-period=20s",), 20)])
async def test_startup_grace_period_flag_applies_to_new_node(flags: tuple[str, ...], reported_after: float) -> None:
    async with cluster_of("abcd") as (cluster, _):
        await manage(cluster, *flags)
        await cluster.client.create(NODES, Node(metadata=builders.namespace("mute").metadata, status=NodeStatus()))
        await cluster.sleep(reported_after - 2)
        assert status_of(await node(cluster, "mute")) == ""
        await cluster.sleep(13)
        found = await node(cluster, "mute")
        assert {c.reason for c in found.status.conditions} == {"NodeStatusNeverUpdated"}
        assert [c.last_heartbeat_time for c in found.status.conditions] == [found.metadata.creation_timestamp] * 4


@pytest.mark.flag("node-eviction-rate")
@pytest.mark.parametrize(
    ("flags", "evicted"),
    [
        pytest.param((), 7, id="default"),
        pytest.param(("--node-eviction-rate=0.02",), 2, id="slower"),
        pytest.param(("--node-eviction-rate=5",), 9, id="faster"),
        pytest.param(("--node-eviction-rate=0",), 0, id="never"),
    ],
)
async def test_eviction_rate_flag_applies_to_fully_disrupted_zone(flags: tuple[str, ...], evicted: int) -> None:
    async with cluster_of("abcdefghi", "xyz") as (cluster, agents):
        taint_times = TaintTimes(cluster)
        await manage(cluster, *flags)
        await cluster.sleep(60)
        agents.silent |= set("abcdefghi")
        await cluster.sleep(50 + 67)
        assert evicted - 1 <= len(taint_times.evicted) <= evicted


@pytest.mark.flag("secondary-node-eviction-rate", "large-cluster-size-threshold", "unhealthy-zone-threshold")
@pytest.mark.parametrize(
    ("flags", "evicted"),
    [
        pytest.param((), 0, id="small zone"),
        pytest.param(("--large-cluster-size-threshold=9",), 0, id="zone at size threshold"),
        pytest.param(("--large-cluster-size-threshold=8",), 1, id="large zone at low rate"),
        pytest.param(("--large-cluster-size-threshold=8", "--secondary-node-eviction-rate=0.04"), 3, id="higher rate"),
        pytest.param(("--unhealthy-zone-threshold=0.7",), 6, id="no disruption yet"),
    ],
)
async def test_secondary_rate_flag_applies_to_partly_disrupted_zone(flags: tuple[str, ...], evicted: int) -> None:
    async with cluster_of("abcdefghi") as (cluster, agents):
        taint_times = TaintTimes(cluster)
        await manage(cluster, *flags)
        await cluster.sleep(100)
        agents.silent |= set("abcdef")
        await cluster.sleep(50 + 70)
        assert evicted <= len(taint_times.evicted) <= (evicted + 1 if evicted > 1 else evicted)
