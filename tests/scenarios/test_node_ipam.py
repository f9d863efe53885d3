"""Ranges for nodes in a whole cluster, in virtual time: what kube-controller-manager does, step by step, and beyond.

`node_ipam.jsonl` has a row for each recorded sequence: flags, steps, which ranges each node had after each step, events
and metrics in the end. A row with `differs` says what is otherwise here, on purpose, and has our ranges in `here`.
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
    told = {(one.involved_object.name, one.type, one.reason, one.source.component) for one in found}
    return [list(one) for one in sorted(told)]


async def shown(replica: Replica) -> dict[str, float]:
    page = await replica.manager.pages.handle(Request("GET", "/metrics"))
    assert isinstance(page.body, bytes)
    lines = (line.rsplit(" ", 1) for line in page.body.decode().splitlines() if line.startswith("node_ipam_controller"))
    return {name: float(value) for name, value in lines}


class Play:
    """One sequence."""

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
async def test_nodes_get_the_ranges_that_kube_controller_manager_gives_them(row: dict[str, Any]) -> None:
    async with Cluster() as cluster:
        play = Play(cluster, row["flags"])
        found = [await play.step(*step) for step in row["steps"]]
        assert found == row.get("here", row["ranges"])
        if "differs" not in row:
            assert await events(cluster) == row["events"]
            assert play.replica is not None
            assert await shown(play.replica) == row["metrics"]


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
def test_flags_of_which_nothing_can_be_made_are_refused(argv: list[str], problem: str) -> None:
    with pytest.raises(FlagError) as caught:
        flag_set(SPECS).parse(argv)
    assert problem in caught.value.problems[0]


async def manage(cluster: Cluster, *flags: str, faults: float = 0.0) -> Replica:
    return await cluster.manage(*FLAGS, *ALLOCATE, *flags, faults=faults)


async def test_a_write_that_fails_is_told_and_tried_again_with_the_same_range() -> None:
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
    """A replica that leads and gives no ranges, and one behind it that would; both know all nodes."""
    flags = ("--kube-api-qps=-1", "--leader-elect=true")
    leader = await cluster.manage(*flags, "--controllers=ttl-controller")
    await cluster.settle()
    other = await cluster.manage(*flags, "--controllers=node-ipam-controller", *ALLOCATE)
    await cluster.settle()
    return leader, other


def deafen(replica: Replica) -> None:
    """Have it hear nothing of nodes any more, but when it asks for all of them as they are."""
    refused = Response(500, {}, b"{}")
    replica.network.intercept(lambda request: refused if request.path == "/api/v1/nodes" and request.query else None)
    replica.network.cut()
    replica.network.heal()


async def test_a_new_leader_learns_from_the_server_what_is_given_and_not_from_its_old_copy() -> None:
    async with Cluster() as cluster:
        for name in ("a", "b", "c"):
            await add(cluster, name)
        leader, other = await stand_by(cluster)
        deafen(other)
        given = {"spec": {"podCIDR": "10.0.0.0/24", "podCIDRs": ["10.0.0.0/24"]}}
        await cluster.client.patch(NODES, Key("", "c"), given)
        await leader.stop()
        await cluster.advance(60)
        found = await ranges(cluster)
        assert found["c"] == ["10.0.0.0/24"]
        assert sorted(found["a"] + found["b"]) == ["10.0.1.0/24", "10.0.2.0/24"]


async def test_what_is_held_is_released_once_the_server_says_that_the_node_is_gone() -> None:
    async with Cluster() as cluster:
        await add(cluster, "a", "10.0.7.0/24")
        await add(cluster, "b")
        leader, other = await stand_by(cluster)
        deafen(other)
        await cluster.client.delete(NODES, Key("", "a"))
        await add(cluster, "a", "10.0.0.0/24")
        await leader.stop()
        await cluster.advance(60)
        assert await ranges(cluster) == {"a": ["10.0.0.0/24"], "b": ["10.0.1.0/24"]}


async def test_a_range_is_for_the_node_that_was_seen_and_for_no_other_of_its_name() -> None:
    async with Cluster() as cluster:
        await add(cluster, "a")
        leader, other = await stand_by(cluster)
        deafen(other)
        await cluster.client.delete(NODES, Key("", "a"))
        await add(cluster, "a")
        await leader.stop()
        await cluster.advance(60)
        assert await ranges(cluster) == {"a": []}
        other.network.intercept(None)
        await cluster.advance(120)
        assert await ranges(cluster) == {"a": ["10.0.1.0/24"]}


async def test_somebody_else_may_give_a_node_its_ranges() -> None:
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


async def test_a_node_made_anew_gets_a_range_of_its_own() -> None:
    async with Cluster() as cluster:
        await manage(cluster)
        await add(cluster, "a")
        await cluster.settle()
        await cluster.client.delete(NODES, Key("", "a"))
        await add(cluster, "a")
        await cluster.settle()
        assert await ranges(cluster) == {"a": ["10.0.1.0/24"]}


async def test_nothing_is_written_to_nodes_that_have_their_ranges() -> None:
    async with Cluster() as cluster:
        await add(cluster, "a", "10.0.0.0/24")
        await manage(cluster)
        await cluster.settle()
        revision = cluster.api.store.revision
        await cluster.client.patch(NODES, Key("", "a"), {"metadata": {"labels": {"a": "b"}}})
        await cluster.settle()
        assert cluster.api.store.revision == revision + 1


@pytest.mark.parametrize("finalizers", [(), ("example.com/held",)])
async def test_a_free_range_is_for_the_next_node_where_the_first_that_waits_is_gone(
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
