"""The node lifecycle controller at work in a whole cluster, in virtual time.

What must hold, whatever fails (the fault run at the end, and the split of a zone):
- within a zone, NoExecute taints are given at least 1 / rate seconds apart, also by successive leaders together
- a node that gives signs of life all the time and says that it is ready is never given a NoExecute taint
- while all zones are disrupted for longer than a look, nobody has a NoExecute taint
- once it is quiet, taints say what conditions say, and conditions say what nodes said or that they are silent
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

import pytest
from msgspec.structs import replace

from apiserver_stub.storage.interface import Write
from apiserver_stub.storage.stamp import as_of
from apiserver_stub.watch_cache.row import Change
from controller_manager.api.coordination import LEASES
from controller_manager.api.core import EVENTS, PODS, Pod
from controller_manager.api.model import ObjectMeta, PartialObject
from controller_manager.api.nodes import NODES, Node, NodeStatus
from controller_manager.api.resource import Key
from controller_manager.api.wire import Request
from controller_manager.base import clock
from controller_manager.base.random import random_source
from controller_manager.base.tasks import Tasks
from controller_manager.client.client import Call
from controller_manager.testing import Cluster, Replica, builders
from controller_manager.testing.agents import Agents
from controller_manager.testing.virtual import VirtualLoop
from controllers.node_lifecycle import SPECS
from controllers.node_lifecycle.desired import is_evicted, status_of, zone_of

pytestmark = pytest.mark.virtual

BINDING = b'{"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "late"}, "target": {"name": "a"}}'

# Seconds until a watch that says nothing more is taken for broken, and until a node is taken for silent.
WATCH_BREAKS, GRACE = 150, 55


class Taintings:
    """When each node was given a NoExecute taint, by zone, as the store saw it."""

    def __init__(self, cluster: Cluster) -> None:
        self.by_zone: dict[str, list[float]] = defaultdict(list)
        self.names: list[str] = []
        self.evicted: set[str] = set()
        cluster.api.store.subscribe(self.note)

    def note(self, changes: Sequence[Change]) -> None:
        for change in changes:
            if change.row.resource == NODES.name:
                node = Node.decode(change.row.data)
                name = node.metadata.name
                if not is_evicted(node):
                    self.evicted.discard(name)
                elif name not in self.evicted:
                    self.evicted.add(name)
                    self.names.append(name)
                    self.by_zone[zone_of(node)].append(clock.monotonic())

    def closest(self, zone: str) -> float:
        """The shortest time between two of them."""
        times = self.by_zone[zone]
        return min((b - a for a, b in pairwise(times)), default=float("inf"))


@asynccontextmanager
async def cluster_of(*zones: str, period: int = 10) -> AsyncIterator[tuple[Cluster, Agents]]:
    """A cluster with a node for each letter of each zone: `"abc"` has three nodes in the zone `abc`."""
    async with Cluster() as cluster:
        agents = Agents(cluster, period)
        for zone in zones:
            for letter in zone:
                await agents.join(letter, zone)
        async with Tasks() as tasks:
            tasks.start(agents.run(), name="agents")
            yield cluster, agents


async def manage(cluster: Cluster, *flags: str) -> Replica:
    return await cluster.manage("--leader-elect=false", *flags, specs=SPECS)


async def node(cluster: Cluster, name: str) -> Node:
    return await cluster.client.get(NODES, Key("", name))


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
            replica.network.mend()
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


async def contradictions(cluster: Cluster, agents: Agents) -> list[str]:
    """Where nodes are not as they should be once it is quiet."""
    nodes = (await cluster.client.list(NODES)).items
    effects = ("NoExecute", "NoSchedule") if "True" in map(status_of, nodes) else ("NoSchedule",)
    found = []
    for one in nodes:
        name, status = one.metadata.name, status_of(one)
        wanted = "Unknown" if name in agents.silent else str(agents.says[name])
        keys = {"True": [], "False": ["not-ready"], "Unknown": ["unreachable"]}[status]
        shown = sorted((t.key.removeprefix("node.kubernetes.io/"), t.effect) for t in one.spec.taints)
        due = [(key, effect) for key in keys for effect in effects]
        if (status, shown) != (wanted, due):
            found.append(f"{name}: {status} {shown}, where {wanted} {due} should be")
    return found


class Trouble:
    """Two managers on a bad network, and what befalls them and the nodes."""

    FLAGS = (
        "--node-eviction-rate=0.05",
        "--leader-elect-lease-duration=60s",
        "--leader-elect-renew-deadline=45s",
        "--leader-elect-retry-period=15s",
    )
    # The nodes that something happens to on their own; the others are well but for blackouts.
    MORTAL = ("a", "b", "x", "y")
    MISHAPS = ("silence", "not ready", "heal", "split", "blackout", "cut", "mend", "kill", "stop")

    def __init__(self, cluster: Cluster, agents: Agents) -> None:
        self.cluster = cluster
        self.agents = agents
        self.replicas: list[Replica] = []
        self.hurt: set[str] = set()
        """The nodes that were silent or not ready at any time."""

    async def start(self) -> None:
        """Have two managers, whatever became of those before; one that lost the lease has ended."""
        self.replicas = [replica for replica in self.replicas if not replica.has_ended]
        while len(self.replicas) < 2:
            self.replicas.append(await self.cluster.manage(*self.FLAGS, specs=SPECS, faults=0.2, may_lose_lead=True))

    async def befall(self) -> None:
        """One thing happens."""
        name, replica = pick(self.MORTAL), pick(self.replicas)
        match pick(self.MISHAPS):
            case "silence":
                self.agents.silent.add(name)
            case "not ready":
                self.agents.say(name, ready=False)
            case "heal":
                self.agents.silent.clear()
                self.agents.say(name, ready=True)
            case "split":
                self.agents.silent |= {"a", "b"}
            case "blackout":
                self.agents.silent |= set(self.agents.says)
            case "cut":
                replica.network.cut()
            case "mend":
                replica.network.mend()
            case "kill":
                await replica.kill()
            case "stop":
                await replica.stop()
        self.hurt |= self.agents.silent | {name for name, ready in self.agents.says.items() if not ready}

    async def calm(self) -> None:
        """Nothing fails any more."""
        for replica in self.replicas:
            replica.network.mend()
            replica.network.rate = 0
        await self.cluster.sleep(45)
        await self.start()
        for replica in self.replicas:
            replica.network.rate = 0


@pytest.mark.virtual(seeds=20)
async def test_whatever_fails_the_rates_are_kept_and_nobody_suffers_without_need() -> None:
    async with cluster_of("abc", "xyz", period=20) as (cluster, agents):
        taintings, trouble = Taintings(cluster), Trouble(cluster, agents)
        for _ in range(4):
            await trouble.start()
            await cluster.sleep(random_source().uniform(0, 80))
            await trouble.befall()
        await trouble.calm()
        await cluster.sleep(WATCH_BREAKS + GRACE + 3 * 20)
        assert set(taintings.names) <= trouble.hurt
        assert min(taintings.closest(":\0:abc"), taintings.closest(":\0:xyz")) > 19.99
        assert await contradictions(cluster, agents) == []


def pick(choices: Sequence[Any]) -> Any:
    return choices[int(random_source().uniform(0, len(choices))) % len(choices)]


class ManyAgents(Agents):
    """Agents that join in the store itself: thousands of them cost little."""

    async def join_all(self, names: Sequence[str], zone: str) -> None:
        """Register these nodes, as copies of the first one."""
        await self.join(names[0], zone)
        for name in names[1:]:
            await self._copy(NODES.name, names[0], name)
            await self._copy(LEASES.name, f"kube-node-lease/{names[0]}", f"kube-node-lease/{name}")
            self.says[name] = True

    async def _copy(self, resource: str, template: str, key: str) -> None:
        row = self.cluster.api.store.get(resource, template)
        assert row is not None
        name, copied = template.rpartition("/")[2], key.rpartition("/")[2]
        uid = PartialObject.decode(row.data).metadata.uid
        data = row.data.decode().replace(f'"{name}"', f'"{copied}"').replace(uid, f"uid-{copied}")
        await self.cluster.api.store.commit(Write(resource, key, 0, as_of(data.encode(), "")))


@pytest.mark.parametrize("hundreds", [1, pytest.param(10, marks=pytest.mark.long)])
async def test_a_zone_among_thousands_of_nodes_is_cut_off_and_comes_back(hundreds: int) -> None:
    sizes = {"east": 200 * hundreds, "west": 100 * hundreds, "north": 200 * hundreds}
    zones = {zone: [f"{zone}-{number}" for number in range(size)] for zone, size in sizes.items()}
    async with Cluster() as cluster, Tasks() as tasks:
        agents = ManyAgents(cluster, period=40)
        for zone, names in zones.items():
            await agents.join_all(names, zone)
        taintings = Taintings(cluster)
        tasks.start(agents.run(), name="agents")
        await manage(cluster, "--kube-api-qps=-1")
        await cluster.sleep(10)

        agents.silent |= set(zones["west"])
        await cluster.sleep(120)
        assert set(taintings.by_zone) == {":\0:west"}, "nobody else"
        assert 4 <= len(taintings.evicted) <= 11
        unknown = [n for n in (await cluster.client.list(NODES)).items if status_of(n) == "Unknown"]
        assert {n.metadata.name for n in unknown} == set(zones["west"])

        agents.silent.clear()
        await cluster.sleep(50)
        assert taintings.closest(":\0:west") > 9.99
        assert [n.metadata.name for n in (await cluster.client.list(NODES)).items if n.spec.taints] == []
