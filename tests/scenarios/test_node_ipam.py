"""Node ranges in a whole cluster, in virtual time: recorded steps of kube-controller-manager, and more.

`node_ipam.jsonl` has a row per recorded sequence: flags, steps, the ranges of each node after each step, and the final
events and metrics. A row with `differs` explains an intended difference, and has our ranges in `here`.
"""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from controller_manager.app.program import flag_set
from controller_manager.common.api.core import EVENTS, NODES, Node
from controller_manager.common.api.errors import InternalError
from controller_manager.common.api.model import ObjectMeta
from controller_manager.common.api.resource import Key
from controller_manager.common.api.wire import Request, Response
from controller_manager.common.options.parse import FlagError
from controller_manager.testing import Cluster, Replica
from controllers.node_ipam import SPECS

pytestmark = pytest.mark.virtual

ROWS = [json.loads(line) for line in Path(__file__).with_name("node_ipam.jsonl").read_text().splitlines()]
FLAGS = ("--leader-elect=false", "--kube-api-qps=-1", "--controllers=node-ipam-controller,ttl-controller")
ALLOCATE = ("--allocate-node-cidrs", "--cluster-cidr=10.0.0.0/16")


async def add(cluster: Cluster, name: str, *ranges: str) -> Node:
    spec = {"podCIDR": ranges[0], "podCIDRs": ranges} if ranges else {}
    tree = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": spec}
    return await cluster.client.create(NODES, Node.decode(msgspec.json.encode(tree)))


async def ranges(cluster: Cluster) -> dict[str, list[str]]:
    nodes = (await cluster.client.list(NODES)).items
    return {node.metadata.name: list(node.spec.pod_cidrs) for node in nodes}


async def events(cluster: Cluster) -> list[list[str]]:
    found = (await cluster.client.list(EVENTS)).items
    shown_events = {(one.involved_object.name, one.type, one.reason, one.source.component) for one in found}
    return [list(one) for one in sorted(shown_events)]


async def shown(replica: Replica) -> dict[str, float]:
    page = await replica.manager.pages.handle(Request("GET", "/metrics"))
    assert isinstance(page.body, bytes)
    lines = (line.rsplit(" ", 1) for line in page.body.decode().splitlines() if line.startswith("node_ipam_controller"))
    return {name: float(value) for name, value in lines}


class RecordedSequence:
    """Runs one recorded sequence."""

    def __init__(self, cluster: Cluster, flags: list[str]) -> None:
        self.cluster = cluster
        self._flags = flags
        self.replica: Replica | None = None

    async def step(self, what: str, *names: Any) -> dict[str, list[str]]:
        match what:
            case "start" | "restart":
                if self.replica is not None:
                    await self.replica.stop()
                flags = (*FLAGS, "--authorization-always-allow-paths=/metrics", *self._flags)
                self.replica = await self.cluster.manage(*flags)
            case "create":
                for named in names:
                    name, given = (named, ()) if isinstance(named, str) else named
                    await add(self.cluster, name, *given)
                    await self.cluster.sleep(0.1)
            case "delete":
                for name in names:
                    await self.cluster.client.delete(NODES, Key("", name))
        await self.cluster.settle()
        return await ranges(self.cluster)


@pytest.mark.flag("allocate-node-cidrs", "cluster-cidr", "service-cluster-ip-range")
@pytest.mark.flag("node-cidr-mask-size", "node-cidr-mask-size-ipv4", "node-cidr-mask-size-ipv6")
@pytest.mark.parametrize("row", ROWS, ids=[row["name"] for row in ROWS])
async def test_node_ranges_match_recorded_steps(row: dict[str, Any]) -> None:
    async with Cluster() as cluster:
        sequence = RecordedSequence(cluster, row["flags"])
        found = [await sequence.step(*step) for step in row["steps"]]
        assert found == row.get("here", row["ranges"])
        if "differs" not in row:
            assert await events(cluster) == row["events"]
            assert sequence.replica is not None
            assert await shown(sequence.replica) == row["metrics"]


@pytest.mark.flag("cidr-allocator-type")
@pytest.mark.parametrize(
    ("argv", "problem"),
    [
        (["--cidr-allocator-type=CloudAllocator"], "--cidr-allocator-type: must be RangeAllocator"),
        (["--service-cluster-ip-range=10.0.0.0/16,10.1.0.0/16"], "must be one CIDR, or one of each IP family"),
        ([*ALLOCATE, "--node-cidr-mask-size-ipv6=64"], "--node-cidr-mask-size-ipv6 needs an IPv6 CIDR"),
        ([*ALLOCATE, "--node-cidr-mask-size=33"], "--node-cidr-mask-size must be from 16 to 32"),
        (["--allocate-node-cidrs", "--cluster-cidr=0.0.0.0/0", "--node-cidr-mask-size=25"], "must be from 0 to 24"),
        (["--allocate-node-cidrs", "--cluster-cidr=fd00::/47"], "--node-cidr-mask-size must be from 47 to 63"),
    ],
)
def test_invalid_flags_are_rejected(argv: list[str], problem: str) -> None:
    with pytest.raises(FlagError) as caught:
        flag_set(SPECS).parse(argv)
    assert problem in caught.value.problems[0]


async def manage(cluster: Cluster, *flags: str, faults: float = 0.0) -> Replica:
    return await cluster.manage(*FLAGS, *ALLOCATE, *flags, faults=faults)


async def test_failed_write_is_reported_and_retried_with_same_range() -> None:
    async with Cluster() as cluster:
        replica = await manage(cluster)
        await cluster.settle()
        broken = InternalError("broken")
        answer = Response(500, {}, broken.status().encode())
        replica.network.intercept(lambda request: answer if request.method == "PATCH" else None)
        await add(cluster, "a")
        await cluster.settle()
        assert await events(cluster) == [["a", "Normal", "CIDRAssignmentFailed", "cidrAllocator"]]
        replica.network.intercept(None)
        await cluster.advance(60)
        await add(cluster, "b")
        await cluster.settle()
        assert await ranges(cluster) == {"a": ["10.0.0.0/24"], "b": ["10.0.1.0/24"]}


async def stand_by(cluster: Cluster) -> tuple[Replica, Replica]:
    """Start a leader that assigns no ranges, and a standby that would; both have all nodes in their caches."""
    flags = ("--kube-api-qps=-1", "--leader-elect=true")
    leader = await cluster.manage(*flags, "--controllers=ttl-controller")
    await cluster.settle()
    other = await cluster.manage(*flags, "--controllers=node-ipam-controller", *ALLOCATE)
    await cluster.settle()
    return leader, other


def stop_watches(replica: Replica) -> None:
    """Stop its watches of nodes; lists still work."""
    refused = Response(500, {}, b"{}")
    replica.network.intercept(lambda request: refused if request.path == "/api/v1/nodes" and request.query else None)
    replica.network.cut()
    replica.network.heal()


async def test_new_leader_reads_used_ranges_from_server() -> None:
    async with Cluster() as cluster:
        for name in ("a", "b", "c"):
            await add(cluster, name)
        leader, other = await stand_by(cluster)
        stop_watches(other)
        given = {"spec": {"podCIDR": "10.0.0.0/24", "podCIDRs": ["10.0.0.0/24"]}}
        await cluster.client.patch(NODES, Key("", "c"), given)
        await leader.stop()
        await cluster.advance(60)
        found = await ranges(cluster)
        assert found["c"] == ["10.0.0.0/24"]
        assert sorted(found["a"] + found["b"]) == ["10.0.1.0/24", "10.0.2.0/24"]


async def test_range_of_deleted_node_is_released_by_new_leader() -> None:
    async with Cluster() as cluster:
        await add(cluster, "a", "10.0.7.0/24")
        await add(cluster, "b")
        leader, other = await stand_by(cluster)
        stop_watches(other)
        await cluster.client.delete(NODES, Key("", "a"))
        await add(cluster, "a", "10.0.0.0/24")
        await leader.stop()
        await cluster.advance(60)
        assert await ranges(cluster) == {"a": ["10.0.0.0/24"], "b": ["10.0.1.0/24"]}


async def test_range_is_not_given_to_recreated_node() -> None:
    async with Cluster() as cluster:
        await add(cluster, "a")
        leader, other = await stand_by(cluster)
        stop_watches(other)
        await cluster.client.delete(NODES, Key("", "a"))
        await add(cluster, "a")
        await leader.stop()
        await cluster.advance(60)
        assert await ranges(cluster) == {"a": []}
        other.network.intercept(None)
        await cluster.advance(120)
        assert await ranges(cluster) == {"a": ["10.0.1.0/24"]}


async def test_ranges_set_by_others_are_respected() -> None:
    async with Cluster() as cluster:
        replica = await manage(cluster)
        await cluster.settle()
        replica.network.intercept(lambda request: stalled if request.method == "PATCH" else None)
        stalled = Response(503, {}, b"{}")
        await add(cluster, "a")
        await cluster.sleep(1)
        change = {"spec": {"podCIDR": "10.0.9.0/24", "podCIDRs": ["10.0.9.0/24"]}}
        await cluster.client.patch(NODES, Key("", "a"), change)
        replica.network.intercept(None)
        await cluster.advance(60)
        await add(cluster, "b")
        await cluster.settle()
        assert await ranges(cluster) == {"a": ["10.0.9.0/24"], "b": ["10.0.1.0/24"]}


async def test_recreated_node_gets_a_new_range() -> None:
    async with Cluster() as cluster:
        await manage(cluster)
        await add(cluster, "a")
        await cluster.settle()
        await cluster.client.delete(NODES, Key("", "a"))
        await add(cluster, "a")
        await cluster.settle()
        assert await ranges(cluster) == {"a": ["10.0.1.0/24"]}


async def test_nodes_with_ranges_are_not_written() -> None:
    async with Cluster() as cluster:
        await add(cluster, "a", "10.0.0.0/24")
        await manage(cluster)
        await cluster.settle()
        revision = cluster.api.store.revision
        await cluster.client.patch(NODES, Key("", "a"), {"metadata": {"labels": {"a": "b"}}})
        await cluster.settle()
        assert cluster.api.store.revision == revision + 1


@pytest.mark.parametrize("finalizers", [(), ("example.com/held",)])
async def test_free_range_skips_deleted_waiting_node(
    finalizers: tuple[str, ...],
) -> None:
    async with Cluster() as cluster:
        await cluster.manage(*FLAGS, "--allocate-node-cidrs", "--cluster-cidr=10.0.0.0/24")
        await add(cluster, "a")
        await cluster.settle()
        for name in ("b", "c"):
            await cluster.client.create(NODES, Node(metadata=ObjectMeta(name=name, finalizers=finalizers)))
            await cluster.settle()
        await cluster.client.delete(NODES, Key("", "a"))
        await cluster.client.delete(NODES, Key("", "b"))
        await cluster.settle()
        assert (await ranges(cluster))["c"] == ["10.0.0.0/24"]
