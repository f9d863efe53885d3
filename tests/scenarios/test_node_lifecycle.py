"""The node lifecycle controller at work in a whole cluster, in virtual time.

What must hold, whatever fails (the fault run at the end, and the split of a zone):
- within a zone, NoExecute taints are given at least 1 / rate seconds apart, also by successive leaders together
- a node that gives signs of life all the time and says that it is ready is never given a NoExecute taint
- while all zones are disrupted for longer than a look, nobody has a NoExecute taint
- once it is quiet, taints say what conditions say, and conditions say what nodes said or that they are silent
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
from tests.scenarios.node_agents import Taintings, cluster_of, manage, node

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


async def test_a_silent_node_is_told_of_evicted_and_forgiven() -> None:
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


async def test_a_new_node_takes_pods_when_it_has_said_that_it_is_ready() -> None:
    async with cluster_of("abcd") as (cluster, agents):
        await agents.join("early")
        assert await taints(cluster, "early") == ["not-ready:NoSchedule"], "whatever it says when it comes"
        await cluster.client.create(NODES, Node(metadata=ObjectMeta(name="mute")))
        await manage(cluster)
        await cluster.sleep(10)
        assert await taints(cluster, "early") == []
        assert await taints(cluster, "mute") == ["not-ready:NoSchedule"]


async def test_another_manager_leaves_taints_as_they_are() -> None:
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


async def test_what_a_node_says_becomes_its_taints() -> None:
    async with cluster_of("abcd") as (cluster, agents):
        await manage(cluster)
        await pod_on(cluster, "web", "a")
        await cluster.sleep(60)
        agents.say("a", ready=False)
        await cluster.sleep(30)
        assert await taints(cluster, "a") == ["not-ready:NoExecute", "not-ready:NoSchedule"]
        assert await is_ready(cluster, "web"), "its agent is there and says how its pods are"
        agents.silent.add("a")
        await cluster.sleep(70)
        assert await taints(cluster, "a") == ["unreachable:NoExecute", "unreachable:NoSchedule"]
        assert not await is_ready(cluster, "web")
        await cluster.client.patch(NODES, Key("", "b"), {"spec": {"unschedulable": True}})
        await cluster.settle()
        assert await taints(cluster, "b") == ["unschedulable:NoSchedule"]


async def test_nodes_are_registered_and_removed_and_their_old_labels_follow() -> None:
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


@pytest.mark.parametrize("trouble", ["silent", "not ready"])
async def test_a_pod_that_comes_to_a_node_in_trouble_is_not_ready(trouble: str) -> None:
    async with cluster_of("abc") as (cluster, agents):
        await manage(cluster)
        await pod_on(cluster, "early", "a")
        if trouble == "silent":
            agents.silent.add("a")
        else:
            agents.say("a", ready=False)
        await cluster.sleep(100)
        assert await is_ready(cluster, "early") is (trouble == "not ready"), "who says so looks after it"
        made = builders.pod("late", ip="10.0.0.1")
        late = await cluster.client.create(PODS, made)
        await cluster.client.update(PODS, replace(late, status=made.status), subresource="status")
        assert await is_ready(cluster, "late")
        await cluster.client.raw(Call("POST", "/api/v1/namespaces/default/pods/late/binding", body=BINDING))
        await cluster.settle()
        assert not await is_ready(cluster, "late")
        assert await events(cluster, "late") == ["NodeNotReady"]


async def test_pods_of_a_node_that_says_that_it_is_not_ready_keep_what_they_say_when_another_manager_comes() -> None:
    async with cluster_of("abc") as (cluster, agents):
        await pod_on(cluster, "web", "a")
        agents.say("a", ready=False)
        await cluster.sleep(20)
        await manage(cluster)
        await cluster.sleep(20)
        assert await is_ready(cluster, "web")


async def zone_metrics(replica: Replica, zone: str) -> dict[str, float]:
    """What the page of metrics says of a zone."""
    page = await replica.manager.pages.handle(Request("GET", "/metrics"))
    assert isinstance(page.body, bytes)
    label = f'{{zone=":\0:{zone}"}} '
    found = (line.split(label) for line in page.body.decode().splitlines() if label in line)
    return {name.removeprefix("node_collector_"): float(value) for name, value in found}


async def test_metrics_tell_of_zones() -> None:
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


async def test_a_disrupted_zone_is_evicted_slowly_and_never_when_all_are() -> None:
    async with cluster_of("abcdef", "xyz") as (cluster, agents):
        taintings = Taintings(cluster)
        await manage(cluster)
        await cluster.sleep(60)
        agents.silent |= set("abcdef")
        await cluster.sleep(120)
        assert len(taintings.evicted) == 6
        assert taintings.closest(":\0:abcdef") >= 10
        agents.silent |= set("xyz")
        await cluster.sleep(75)
        assert taintings.evicted == set()
        agents.silent -= {"x", "y", "z"}
        await cluster.sleep(10)
        assert taintings.evicted == set(), "nobody goes at once"
        await cluster.sleep(30)
        assert 1 <= len(taintings.evicted) <= 3
        agents.silent.clear()
        await cluster.sleep(30)
        assert taintings.evicted == set()


@pytest.mark.parametrize("seconds", [40, 100, 400])
@pytest.mark.parametrize("what", ["manager", "server"])
async def test_nodes_that_could_not_be_heard_are_not_silent(what: str, seconds: float) -> None:
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
async def test_nodes_are_not_silent_because_everybody_slept(seconds: float) -> None:
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
    ("flags", "told_after"),
    [
        pytest.param((), 50, id="default"),
        pytest.param(("--node-monitor-grace-period=20s",), 20, id="shorter grace"),
        pytest.param(("--node-monitor-period=40s",), 80, id="rarer looks"),
    ],
)
async def test_the_grace_period_of_a_running_node(flags: tuple[str, ...], told_after: float) -> None:
    async with cluster_of("abcd") as (cluster, agents):
        await manage(cluster, *flags)
        await cluster.sleep(160)
        agents.silent.add("a")
        await cluster.sleep(told_after - 12)
        assert status_of(await node(cluster, "a")) == "True"
        await cluster.sleep(12 + 6)
        assert status_of(await node(cluster, "a")) == "Unknown"


@pytest.mark.flag("node-startup-grace-period")
@pytest.mark.parametrize(("flags", "told_after"), [((), 60), (("--node-startup-grace-period=20s",), 20)])
async def test_the_grace_period_of_a_node_that_never_spoke(flags: tuple[str, ...], told_after: float) -> None:
    async with cluster_of("abcd") as (cluster, _):
        await manage(cluster, *flags)
        await cluster.client.create(NODES, Node(metadata=builders.namespace("mute").metadata, status=NodeStatus()))
        await cluster.sleep(told_after - 2)
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
async def test_the_rate_in_a_zone_that_is_gone(flags: tuple[str, ...], evicted: int) -> None:
    async with cluster_of("abcdefghi", "xyz") as (cluster, agents):
        taintings = Taintings(cluster)
        await manage(cluster, *flags)
        await cluster.sleep(60)
        agents.silent |= set("abcdefghi")
        await cluster.sleep(50 + 67)
        assert evicted - 1 <= len(taintings.evicted) <= evicted


@pytest.mark.flag("secondary-node-eviction-rate", "large-cluster-size-threshold", "unhealthy-zone-threshold")
@pytest.mark.parametrize(
    ("flags", "evicted"),
    [
        pytest.param((), 0, id="a small zone"),
        pytest.param(("--large-cluster-size-threshold=9",), 0, id="not more than the threshold"),
        pytest.param(("--large-cluster-size-threshold=8",), 1, id="a large zone, slowly"),
        pytest.param(("--large-cluster-size-threshold=8", "--secondary-node-eviction-rate=0.04"), 3, id="less slowly"),
        pytest.param(("--unhealthy-zone-threshold=0.7",), 6, id="no disruption yet"),
    ],
)
async def test_the_rate_in_a_zone_that_is_partly_gone(flags: tuple[str, ...], evicted: int) -> None:
    async with cluster_of("abcdefghi") as (cluster, agents):
        taintings = Taintings(cluster)
        await manage(cluster, *flags)
        await cluster.sleep(100)
        agents.silent |= set("abcdef")
        await cluster.sleep(50 + 70)
        assert evicted <= len(taintings.evicted) <= (evicted + 1 if evicted > 1 else evicted)
