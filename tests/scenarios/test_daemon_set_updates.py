"""Daemon sets get other templates: pods are replaced node by node, and revisions are kept, in virtual time."""

import msgspec
import pytest
from msgspec.structs import replace

from controller_manager.common.api.apps import CONTROLLER_REVISIONS, DAEMON_SETS
from controller_manager.common.api.core import PODS
from controller_manager.common.api.resource import Key
from controller_manager.common.base import clock
from controller_manager.testing import Cluster
from controller_manager.testing.pod_agent import PodAgent
from controllers.daemon_set.templates import HASH
from tests.scenarios.daemons import FLAGS, NEW, OLD, WEB, get, images, join, numbers, placed, revisions, use
from tests.scenarios.workloads import Counted, daemon_set, owned

pytestmark = pytest.mark.virtual


async def test_a_rolling_update_goes_node_by_node() -> None:
    async with Cluster() as cluster, PodAgent(cluster):
        await join(cluster, "a", "b", "c", "d")
        await cluster.manage(*FLAGS)
        await cluster.client.create(DAEMON_SETS, daemon_set(minReadySeconds=10))
        await cluster.advance(30)
        counted = Counted(cluster)
        began = clock.monotonic()
        await use(cluster, NEW)
        await cluster.advance(100)
        assert await images(cluster) == ["2"] * 4
        assert await numbers(cluster) == (4, 4, 4, 4, 4, 0)
        assert (min(counted.ready), max(counted.active)) == (3, 4)
        assert clock.monotonic() - began > 40
        assert [one.revision for one in await revisions(cluster)] == [1, 2]


async def test_a_percentage_of_nodes_is_updated_at_a_time() -> None:
    async with Cluster() as cluster, PodAgent(cluster):
        await join(cluster, *(f"n{number}" for number in range(10)))
        await cluster.manage(*FLAGS)
        limits = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "25%"}}
        await cluster.client.create(DAEMON_SETS, daemon_set(updateStrategy=limits))
        await cluster.settle()
        counted = Counted(cluster)
        await use(cluster, NEW)
        await cluster.advance(60)
        assert await images(cluster) == ["2"] * 10
        assert (min(counted.ready), max(counted.active)) == (7, 10)


@pytest.mark.parametrize(("surge", "most"), [(1, 5), ("50%", 6), ("100%", 8)])
async def test_with_a_surge_a_new_pod_comes_before_the_old_one_goes(surge: int | str, most: int) -> None:
    async with Cluster() as cluster, PodAgent(cluster, start=3):
        await join(cluster, "a", "b", "c", "d")
        await cluster.manage(*FLAGS)
        limits = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": surge, "maxUnavailable": 0}}
        await cluster.client.create(DAEMON_SETS, daemon_set(updateStrategy=limits, minReadySeconds=2))
        await cluster.advance(30)
        counted = Counted(cluster)
        await use(cluster, NEW)
        await cluster.advance(100)
        assert await images(cluster) == ["2"] * 4
        assert await placed(cluster) == ["a", "b", "c", "d"]
        assert await numbers(cluster) == (4, 4, 4, 4, 4, 0)
        assert (min(counted.ready), max(counted.active)) == (4, most)


async def test_on_delete_waits_for_people() -> None:
    async with Cluster() as cluster, PodAgent(cluster):
        await join(cluster, "a", "b")
        await cluster.manage(*FLAGS)
        await cluster.client.create(DAEMON_SETS, daemon_set(updateStrategy={"type": "OnDelete"}))
        await cluster.settle()
        await use(cluster, NEW)
        await cluster.advance(60)
        assert (await images(cluster), (await numbers(cluster))[2]) == (["1", "1"], 0)
        (one, _) = await owned(cluster)
        await cluster.client.delete(PODS, Key("default", one.metadata.name))
        await cluster.advance(10)
        assert (await images(cluster), (await numbers(cluster))[2]) == (["1", "2"], 1)


async def test_pods_of_a_template_that_does_not_run_are_replaced_and_hold_the_others_up() -> None:
    async with Cluster() as cluster, PodAgent(cluster) as agent:
        await join(cluster, "a", "b", "c")
        await cluster.manage(*FLAGS)
        await cluster.client.create(DAEMON_SETS, daemon_set())
        await cluster.settle()
        agent.runs = lambda pod: b"bad" not in pod.raw
        await use(cluster, "example.org/app:bad")
        await cluster.advance(60)
        assert (await numbers(cluster))[2:5] == (1, 2, 2)
        await use(cluster, NEW)
        await cluster.advance(60)
        assert await images(cluster) == ["2"] * 3
        assert [one.revision for one in await revisions(cluster)] == [1, 2, 3]


async def test_a_former_template_that_comes_again_is_the_newest_revision() -> None:
    async with Cluster() as cluster, PodAgent(cluster):
        await join(cluster, "a")
        await cluster.manage(*FLAGS)
        made = daemon_set()
        noted = replace(made.metadata, annotations={"kubernetes.io/change-cause": "first"})
        await cluster.client.create(DAEMON_SETS, replace(made, metadata=noted))
        await cluster.settle()
        (first,) = await revisions(cluster)
        await use(cluster, NEW)
        await cluster.advance(30)
        await use(cluster, OLD)
        await cluster.advance(30)
        (second, last) = await revisions(cluster)
        assert (last.metadata.uid, last.revision, second.revision) == (first.metadata.uid, 3, 2)
        assert (last.metadata.annotations or {})["kubernetes.io/change-cause"] == "first"
        state = msgspec.json.decode(last.data)["spec"]["template"]
        assert (state["$patch"], state["spec"]["containers"][0]["image"]) == ("replace", OLD)
        assert await images(cluster) == ["1"]


@pytest.mark.parametrize(("limit", "kept"), [(0, [4]), (1, [3, 4]), (10, [1, 2, 3, 4])])
async def test_the_history_has_so_many_revisions(limit: int, kept: list[int]) -> None:
    async with Cluster() as cluster, PodAgent(cluster):
        await join(cluster, "a")
        await cluster.manage(*FLAGS)
        await cluster.client.create(DAEMON_SETS, daemon_set(revisionHistoryLimit=limit))
        for number in range(2, 5):
            await cluster.advance(20)
            await use(cluster, f"example.org/app:{number}")
        await cluster.advance(20)
        assert [one.revision for one in await revisions(cluster)] == kept


async def test_revisions_of_pods_that_are_there_stay() -> None:
    async with Cluster() as cluster, PodAgent(cluster):
        await join(cluster, "a")
        await cluster.manage(*FLAGS)
        lazy = daemon_set(revisionHistoryLimit=1, updateStrategy={"type": "OnDelete"})
        await cluster.client.create(DAEMON_SETS, lazy)
        for number in range(2, 5):
            await cluster.settle()
            await use(cluster, f"example.org/app:{number}")
        await cluster.settle()
        assert [one.revision for one in await revisions(cluster)] == [1, 4]


async def test_revisions_of_one_state_become_one_and_their_pods_with_them() -> None:
    async with Cluster() as cluster, PodAgent(cluster):
        await join(cluster, "a", "b")
        replica = await cluster.manage(*FLAGS)
        await cluster.client.create(DAEMON_SETS, daemon_set())
        await cluster.settle()
        await replica.stop()
        before = {pod.metadata.uid for pod in await owned(cluster)}
        (first,) = await revisions(cluster)
        labels = {**(first.metadata.labels or {}), HASH: "twin"}
        meta = replace(first.metadata, name="web-twin", labels=labels, uid="", resource_version="")
        twin = await cluster.client.create(CONTROLLER_REVISIONS, replace(first, metadata=meta, revision=7, raw=b""))
        await cluster.manage(*FLAGS)
        await cluster.advance(10)
        (left,) = await revisions(cluster)
        assert left.metadata.uid == twin.metadata.uid
        found = {pod.metadata.uid: (pod.metadata.labels or {})[HASH] for pod in await owned(cluster)}
        assert found == dict.fromkeys(before, "twin")


async def test_a_name_of_a_revision_that_is_taken_is_a_collision() -> None:
    async with Cluster() as cluster, PodAgent(cluster):
        await join(cluster, "a")
        await cluster.manage(*FLAGS)
        await cluster.client.create(DAEMON_SETS, daemon_set())
        await cluster.settle()
        await cluster.client.delete(DAEMON_SETS, WEB)  # nobody collects its revision
        await cluster.client.create(DAEMON_SETS, daemon_set())
        await cluster.settle()
        assert (await get(cluster)).status.collision_count == 1
        assert len({one.metadata.name for one in await revisions(cluster)}) == 2
        assert await placed(cluster) == ["a", "a"]
        assert await numbers(cluster) == (1, 1, 1, 1, 1, 0)
