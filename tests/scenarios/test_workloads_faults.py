"""Deployments and replica sets under faults, by seed, in virtual time.

At any time, while replicas and limits stay, and pods fail only when they are deleted:
- there are never more active pods than replicas and surge;
- once all were available, there are never fewer available ones than required;
- a deployment with the strategy Recreate never has pods of two templates.
After recovery and any changes:
- a replica set, a replication controller and a deployment have the wanted pods, all of the current template;
- their status is correct and has no failures;
- nothing is written any more.
"""

from typing import Any

import msgspec
import pytest

from controller_manager.common.api.apps import DEPLOYMENTS, REPLICA_SETS, REPLICATION_CONTROLLERS
from controller_manager.common.api.conditions import condition_of
from controller_manager.common.api.core import PODS, is_pod_ready
from controller_manager.common.api.resource import Key, Resource
from controller_manager.testing import Cluster
from controller_manager.testing.fault_injector import RATE, FaultInjector
from controller_manager.testing.pod_agent import PodAgent
from tests.scenarios.faults import assert_no_writes, heal_and_settle, random_choice, run_random_actions
from tests.scenarios.workloads import (
    Counted,
    deployment,
    label,
    owned,
    pods,
    replica_set,
    replication_controller,
    set_status,
    template,
)

WEB = Key("default", "web")
FLAGS = ("--leader-elect=false", "--controllers=replicaset,replicationcontroller,deployment")
PATHS = ("/api/v1/pods", "/apis/apps/v1/replicasets", "/apis/apps/v1/deployments")
IMAGES = tuple(f"example.org/app:{number}" for number in (1, 2, 3))
ACTIONS = 10
REPLICAS = 5


async def check_deployment(cluster: Cluster) -> None:
    found = await cluster.client.get(DEPLOYMENTS, WEB)
    status, wanted = found.status, found.spec.replicas
    numbers = (status.replicas, status.updated_replicas, status.ready_replicas, status.available_replicas)
    assert numbers == (wanted,) * 4
    assert (status.unavailable_replicas, status.terminating_replicas) == (0, 0)
    progress = condition_of(status.conditions, "Progressing")
    assert progress is not None
    assert progress.reason == "NewReplicaSetAvailable"
    running = [pod for pod in await pods(cluster) if pod.status.phase == "Running"]
    assert len(running) == wanted
    (image,) = (one["image"] for one in msgspec.json.decode(found.spec.template.spec)["containers"])
    assert all(f'"image":"{image}"'.encode() in pod.raw for pod in running)


def strategies() -> list[dict[str, Any]]:
    limits = ((1, 0), (0, 1), (2, 2), ("25%", "25%"), ("100%", 0), (0, "100%"))
    parts = ({"maxSurge": surge, "maxUnavailable": unavailable} for surge, unavailable in limits)
    return [{"type": "RollingUpdate", "rollingUpdate": part} for part in parts]


LIMITS = ((REPLICAS + 1, REPLICAS), (REPLICAS, 4), (7, 3), (7, 4), (10, 5), (5, 0))


@pytest.mark.virtual(seeds=200)
async def test_rolling_update_keeps_limits_despite_faults() -> None:
    async with Cluster() as cluster, PodAgent(cluster, start=3, stop=10):
        strategy, (most, least) = random_choice(list(zip(strategies(), LIMITS, strict=True)))
        counted = Counted(cluster)
        replica = await cluster.manage(*FLAGS, strict=False)
        await cluster.client.create(DEPLOYMENTS, deployment(replicas=REPLICAS, strategy=strategy))
        await cluster.advance(60)
        counted.ready.clear()
        replica.network.rate = RATE
        faults = FaultInjector(cluster, replica, FLAGS, PATHS)

        async def use() -> None:
            change = {"spec": {"template": template(random_choice(IMAGES), app="web")}}
            await cluster.client.patch(DEPLOYMENTS, WEB, change)

        await run_random_actions(cluster, (use, use, use, faults.kill, faults.cut, faults.deafen), ACTIONS)
        await heal_and_settle(cluster, faults)
        await check_deployment(cluster)
        await assert_no_writes(cluster)
        assert max(counted.active) <= most
        assert min(counted.ready, default=REPLICAS) >= least


@pytest.mark.virtual(seeds=200)
async def test_recreate_never_mixes_templates_despite_faults() -> None:
    async with Cluster() as cluster, PodAgent(cluster, start=3, stop=10):
        counted = Counted(cluster)
        replica = await cluster.manage(*FLAGS, strict=False, faults=RATE)
        await cluster.client.create(DEPLOYMENTS, deployment(replicas=REPLICAS, strategy={"type": "Recreate"}))
        faults = FaultInjector(cluster, replica, FLAGS, PATHS)

        async def use() -> None:
            change = {"spec": {"template": template(random_choice(IMAGES), app="web")}}
            await cluster.client.patch(DEPLOYMENTS, WEB, change)

        await run_random_actions(cluster, (use, use, faults.kill, faults.cut), ACTIONS)
        await heal_and_settle(cluster, faults)
        await check_deployment(cluster)
        assert max(counted.active) <= REPLICAS
        assert max(counted.templates) == 1


@pytest.mark.virtual(seeds=200)
async def test_deployment_converges_after_random_changes() -> None:
    async with Cluster() as cluster, PodAgent(cluster, start=3, stop=10) as agent:
        replica = await cluster.manage(*FLAGS, strict=False, faults=RATE)
        await cluster.client.create(DEPLOYMENTS, deployment(replicas=REPLICAS))
        faults = FaultInjector(cluster, replica, FLAGS, PATHS)

        async def edit() -> None:
            change = random_choice(
                (
                    {"replicas": random_choice((0, 1, 3, 8, 13))},
                    {"template": template(random_choice(IMAGES), app="web")},
                    {"paused": random_choice((True, False))},
                    {"strategy": random_choice([*strategies(), {"type": "Recreate", "rollingUpdate": None}])},
                    {"minReadySeconds": random_choice((0, 5)), "revisionHistoryLimit": random_choice((0, 1, 10))},
                )
            )
            await cluster.client.patch(DEPLOYMENTS, WEB, {"spec": change})

        async def spoil() -> None:
            found = (await cluster.client.list(REPLICA_SETS, "default")).items
            key = Key("default", random_choice(found).metadata.name)
            change: dict[str, Any] = random_choice(({"spec": {"replicas": 4}}, {"metadata": {"annotations": None}}))
            await cluster.client.patch(REPLICA_SETS, key, change)

        async def stop_pods() -> None:
            agent.runs = random_choice((lambda _: True, lambda _: False))

        async def drop() -> None:
            await cluster.client.delete(PODS, Key("default", random_choice(await pods(cluster)).metadata.name))

        people = (edit, edit, edit, spoil, stop_pods, drop, faults.kill, faults.cut, faults.deafen)
        await run_random_actions(cluster, people, ACTIONS)
        agent.runs = lambda _: True
        await cluster.client.patch(DEPLOYMENTS, WEB, {"spec": {"paused": False, "replicas": REPLICAS}})
        for pod in await pods(cluster):  # controllers of terminating objects act on their next change
            await label(cluster, pod, seen="")
        await heal_and_settle(cluster, faults)
        await check_deployment(cluster)
        await assert_no_writes(cluster)


@pytest.mark.virtual(seeds=200)
async def test_replica_set_converges_after_random_changes() -> None:
    async with Cluster() as cluster, PodAgent(cluster, start=3, stop=10):
        kind: Resource[Any]
        kind, make = random_choice([(REPLICA_SETS, replica_set), (REPLICATION_CONTROLLERS, replication_controller)])
        replica = await cluster.manage(*FLAGS, strict=False, faults=RATE)
        await cluster.client.create(kind, make(replicas=REPLICAS))
        faults = FaultInjector(cluster, replica, FLAGS, PATHS)

        async def scale() -> None:
            await cluster.client.patch(kind, WEB, {"spec": {"replicas": random_choice((0, 1, 4, 9, 20))}})

        async def turn() -> None:
            await label(cluster, random_choice(await pods(cluster)), app=random_choice(("web", "else")))

        async def end() -> None:
            await set_status(cluster, random_choice(await pods(cluster)), phase=random_choice(("Failed", "Succeeded")))

        async def drop() -> None:
            await cluster.client.delete(PODS, Key("default", random_choice(await pods(cluster)).metadata.name))

        people = (scale, scale, turn, turn, end, drop, faults.unheard(turn), faults.unheard(drop))
        await run_random_actions(cluster, (*people, faults.kill, faults.cut, faults.deafen), ACTIONS)
        await heal_and_settle(cluster, faults)
        found = await cluster.client.get(kind, WEB)
        status, wanted = found.status, found.spec.replicas
        numbers = (status.replicas, status.fully_labeled_replicas, status.ready_replicas, status.available_replicas)
        assert numbers == (wanted,) * 4
        assert (status.conditions, status.observed_generation) == ((), found.metadata.generation)
        mine = [pod for pod in await owned(cluster) if is_pod_ready(pod) and pod.status.phase == "Running"]
        assert len(mine) == wanted
        assert {(pod.metadata.labels or {})["app"] for pod in mine} <= {"web"}
        await assert_no_writes(cluster)


@pytest.mark.virtual(seeds=200)
async def test_no_pod_is_created_twice_despite_faults() -> None:
    async with Cluster() as cluster, PodAgent(cluster):
        counted = Counted(cluster)
        replica = await cluster.manage(*FLAGS, strict=False, faults=RATE)
        await cluster.client.create(REPLICA_SETS, replica_set(replicas=8))
        faults = FaultInjector(cluster, replica, FLAGS, PATHS)

        async def drop() -> None:
            await cluster.client.delete(PODS, Key("default", random_choice(await pods(cluster)).metadata.name))

        await run_random_actions(cluster, (drop, drop, faults.kill, faults.cut, faults.deafen), ACTIONS)
        await heal_and_settle(cluster, faults)
        assert len(await owned(cluster)) == 8
        assert max(counted.active) <= 8
