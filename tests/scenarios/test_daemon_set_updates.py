"""Updates of daemon sets: pods are replaced node by node and revisions are retained, in virtual time."""

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
from tests.scenarios.daemon_sets import FLAGS, NEW, OLD, WEB, get, images, join, numbers, placed, revisions, use
from tests.scenarios.workloads import Counted, daemon_set, owned

pytestmark = pytest.mark.virtual


async def test_rolling_update_proceeds_node_by_node() -> None:
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


async def test_max_unavailable_percentage_limits_update() -> None:
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
async def test_surge_creates_new_pod_before_deleting_old_one(surge: int | str, most: int) -> None:
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


async def test_on_delete_replaces_only_pods_deleted_by_users() -> None:
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


async def test_broken_template_stops_rollout_until_replaced() -> None:
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


async def test_restored_template_reuses_its_revision_as_newest() -> None:
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
async def test_revision_history_limit_is_enforced(limit: int, kept: list[int]) -> None:
    async with Cluster() as cluster, PodAgent(cluster):
        await join(cluster, "a")
        await cluster.manage(*FLAGS)
        await cluster.client.create(DAEMON_SETS, daemon_set(revisionHistoryLimit=limit))
        for number in range(2, 5):
            await cluster.advance(20)
            await use(cluster, f"example.org/app:{number}")
        await cluster.advance(20)
        assert [one.revision for one in await revisions(cluster)] == kept


async def test_revisions_of_existing_pods_are_not_deleted() -> None:
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


async def test_equal_revisions_are_merged_and_pods_relabelled() -> None:
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


async def test_taken_revision_name_counts_as_collision() -> None:
    async with Cluster() as cluster, PodAgent(cluster):
        await join(cluster, "a")
        await cluster.manage(*FLAGS)
        await cluster.client.create(DAEMON_SETS, daemon_set())
        await cluster.settle()
        await cluster.client.delete(DAEMON_SETS, WEB)  # no garbage collector deletes its revision
        await cluster.client.create(DAEMON_SETS, daemon_set())
        await cluster.settle()
        assert (await get(cluster)).status.collision_count == 1
        assert len({one.metadata.name for one in await revisions(cluster)}) == 2
        assert await placed(cluster) == ["a", "a"]
        assert await numbers(cluster) == (1, 1, 1, 1, 1, 0)
