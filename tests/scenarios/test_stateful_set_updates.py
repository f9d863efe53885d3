"""Updates of stateful sets: pods are replaced in order and revisions are retained, in virtual time."""

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from controller_manager.common.api.apps import CONTROLLER_REVISIONS, STATEFUL_SETS, ControllerRevision
from controller_manager.common.api.core import PODS
from controller_manager.common.api.resource import Key
from controller_manager.common.api.wire import Request
from controller_manager.testing import Cluster
from controller_manager.testing.pod_agent import PodAgent
from tests.scenarios.stateful_sets import FLAGS, PARALLEL, WEB, Log, change, found, image_of, images, numbers, revisions
from tests.scenarios.workloads import stateful_set, template

pytestmark = pytest.mark.virtual


SECOND, BROKEN = "example.org/app:2", "example.org/app:broken"


async def use(cluster: Cluster, image: str) -> None:
    await change(cluster, template=template(image, app="web"))


async def test_update_proceeds_from_last_pod_to_first() -> None:
    async with Cluster() as cluster, PodAgent(cluster):
        await cluster.manage(*FLAGS)
        await cluster.client.create(STATEFUL_SETS, stateful_set())
        await cluster.settle()
        log = Log(cluster)
        before = (await found(cluster)).status.current_revision
        await use(cluster, SECOND)
        await cluster.sleep(3)
        status = (await found(cluster)).status
        assert (status.current_revision, status.update_revision != before) == (before, True)
        assert (status.current_replicas, status.updated_replicas) == (1, 1)
        await cluster.settle()
        rounds = (("-web-2", "+web-2", "web-2"), ("-web-1", "+web-1", "web-1"), ("-web-0", "+web-0", "web-0"))
        assert log.pods == [step for one in rounds for step in one]
        assert await numbers(cluster) == (3, 3, 3, 3, 3)
        status = (await found(cluster)).status
        assert status.current_revision == status.update_revision != before
        assert set((await images(cluster)).values()) == {"2"}


async def test_partition_limits_update() -> None:
    async with Cluster() as cluster, PodAgent(cluster):
        await cluster.manage(*FLAGS)
        strategy: dict[str, Any] = {"type": "RollingUpdate", "rollingUpdate": {"partition": 2}}
        await cluster.client.create(STATEFUL_SETS, stateful_set(updateStrategy=strategy))
        await cluster.settle()
        await use(cluster, SECOND)
        await cluster.settle()
        assert await images(cluster) == {"web-0": "1", "web-1": "1", "web-2": "2"}
        assert await numbers(cluster) == (3, 3, 3, 2, 1)
        for name in ("web-1", "web-2"):  # they are recreated from their old revision
            await cluster.client.delete(PODS, Key("default", name))
        await cluster.settle()
        assert await images(cluster) == {"web-0": "1", "web-1": "1", "web-2": "2"}
        await change(cluster, updateStrategy={"rollingUpdate": {"partition": 0}})
        await cluster.settle()
        assert set((await images(cluster)).values()) == {"2"}


async def test_on_delete_replaces_only_deleted_pods() -> None:
    async with Cluster() as cluster, PodAgent(cluster):
        await cluster.manage(*FLAGS)
        await cluster.client.create(STATEFUL_SETS, stateful_set(updateStrategy={"type": "OnDelete"}))
        await cluster.settle()
        await use(cluster, SECOND)
        await cluster.settle()
        assert set((await images(cluster)).values()) == {"1"}
        await cluster.client.delete(PODS, Key("default", "web-1"))
        await cluster.settle()
        assert await images(cluster) == {"web-0": "1", "web-1": "2", "web-2": "1"}
        assert await numbers(cluster) == (3, 3, 3, 2, 1)


@pytest.mark.parametrize("limit", [2, "50%"])
async def test_max_unavailable_limits_update(limit: Any) -> None:
    async with Cluster(("--feature-gates=MaxUnavailableStatefulSet=true",)) as cluster, PodAgent(cluster):
        replica = await cluster.manage(
            *FLAGS, "--feature-gates=MaxUnavailableStatefulSet=true", "--authorization-always-allow-paths=/metrics"
        )
        strategy: dict[str, Any] = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": limit}}
        await cluster.client.create(STATEFUL_SETS, stateful_set(replicas=4, updateStrategy=strategy, **PARALLEL))
        await cluster.settle()
        log = Log(cluster)
        await use(cluster, SECOND)
        await cluster.sleep(1.5)
        assert sorted(log.pods[:2]) == ["-web-2", "-web-3"]
        assert await gauge(replica, "unavailable_replicas") == ["2"]
        await cluster.settle()
        assert set((await images(cluster)).values()) == {"2"}
        assert (await gauge(replica, "max_unavailable"), await gauge(replica, "unavailable_replicas")) == (["2"], ["0"])
        await cluster.client.delete(STATEFUL_SETS, WEB, propagation="Orphan")
        await cluster.client.patch(STATEFUL_SETS, WEB, {"metadata": {"finalizers": None}})
        await cluster.settle()
        assert await gauge(replica, "max_unavailable") == []


async def gauge(replica: Any, name: str) -> list[str]:
    """Return the values of a gauge of the controller."""
    body = (await replica.manager.pages.handle(Request("GET", "/metrics"))).body
    labels = 'pod_management_policy="Parallel",statefulset_name="web",statefulset_namespace="default"'
    start = f"statefulset_controller_statefulset_{name}{{{labels}}} "
    lines = [
        line
        for line in bytes(body).decode().splitlines()
        if line.startswith(f"statefulset_controller_statefulset_{name}{{")
    ]
    assert all(sorted(line[line.index("{") + 1 : line.index("}")].split(",")) == labels.split(",") for line in lines), (
        start
    )
    return [line.rpartition(" ")[2].removesuffix(".0") for line in lines]


async def test_stuck_update_continues_after_broken_pod_is_deleted() -> None:
    async with Cluster() as cluster, PodAgent(cluster, runs=lambda pod: image_of(pod) != BROKEN):
        await cluster.manage(*FLAGS)
        await cluster.client.create(STATEFUL_SETS, stateful_set())
        await cluster.settle()
        await use(cluster, BROKEN)
        await cluster.settle()
        assert await images(cluster) == {"web-0": "1", "web-1": "1", "web-2": "broken"}
        await use(cluster, SECOND)
        await cluster.advance(600)
        assert await images(cluster) == {"web-0": "1", "web-1": "1", "web-2": "broken"}
        await cluster.client.delete(PODS, Key("default", "web-2"))
        await cluster.advance(10)
        assert set((await images(cluster)).values()) == {"2"}


async def test_stuck_parallel_update_is_repaired_by_new_template() -> None:
    async with Cluster() as cluster, PodAgent(cluster, runs=lambda pod: image_of(pod) != BROKEN):
        await cluster.manage(*FLAGS)
        await cluster.client.create(STATEFUL_SETS, stateful_set(**PARALLEL))
        await cluster.settle()
        await use(cluster, BROKEN)
        await cluster.settle()
        await use(cluster, SECOND)
        await cluster.settle()
        assert set((await images(cluster)).values()) == {"2"}


async def test_restored_template_reuses_its_revision() -> None:
    async with Cluster() as cluster, PodAgent(cluster):
        await cluster.manage(*FLAGS)
        await cluster.client.create(STATEFUL_SETS, stateful_set(replicas=1))
        await cluster.settle()
        (first,) = await revisions(cluster)
        await use(cluster, SECOND)
        await cluster.settle()
        await cluster.client.patch(STATEFUL_SETS, WEB, msgspec.json.decode(first.data))  # as in `kubectl rollout undo`
        await cluster.settle()
        one, two = await revisions(cluster)
        assert (two.metadata.name, one.revision, two.revision) == (first.metadata.name, 2, 3)
        assert await images(cluster) == {"web-0": "1"}


async def test_revision_history_limit_is_enforced() -> None:
    async with Cluster() as cluster, PodAgent(cluster):
        await cluster.manage(*FLAGS)
        await cluster.client.create(STATEFUL_SETS, stateful_set(replicas=1, revisionHistoryLimit=1))
        await cluster.settle()
        for number in range(2, 6):
            await use(cluster, f"example.org/app:{number}")
            await cluster.settle()
        assert [one.revision for one in await revisions(cluster)] == [4, 5]


async def test_taken_revision_name_counts_as_collision() -> None:
    async with Cluster() as cluster, PodAgent(cluster):
        replica = await cluster.manage(*FLAGS)
        await cluster.client.create(STATEFUL_SETS, stateful_set(replicas=1))
        await cluster.settle()
        (first,) = await revisions(cluster)
        await replica.stop()
        key = Key("default", first.metadata.name)
        await cluster.client.delete(CONTROLLER_REVISIONS, key)
        meta = replace(first.metadata, owner_references=(), labels=None, uid="", resource_version="")
        other = ControllerRevision(metadata=meta, data=msgspec.Raw(b'{"spec":{}}'), revision=7)
        await cluster.client.create(CONTROLLER_REVISIONS, other)
        await cluster.manage(*FLAGS)
        await cluster.settle()
        status = (await found(cluster)).status
        assert status.collision_count == 1
        assert status.update_revision != first.metadata.name
