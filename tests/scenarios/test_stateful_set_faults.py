"""Stateful sets under faults, by seed, in virtual time.

At any time, while pods fail only when they are deleted:
- a pod of an ordered set is created only while all pods of lower ordinals are ready;
- no ordinal has two pods;
- a pod has the claims of its ordinal, and retained claims are never deleted;
- once all pods were available, and while only the template changes, no more are unavailable than allowed.
After recovery and any changes:
- the wanted pods exist, all of the current template, with claims of the right owners;
- the status is correct;
- nothing is written any more.
"""

import contextlib
from collections.abc import Sequence
from typing import Any

import pytest

from apiserver_stub.watch_cache.row import Change
from controller_manager.common.api.apps import STATEFUL_SETS
from controller_manager.common.api.core import PODS, Pod, is_pod_ready
from controller_manager.common.api.errors import ApiError
from controller_manager.common.api.resource import Key
from controller_manager.common.api.storage import PERSISTENT_VOLUME_CLAIMS
from controller_manager.framework import TransportError
from controller_manager.testing import Cluster
from controller_manager.testing.fault_injector import RATE, FaultInjector
from controller_manager.testing.pod_agent import PodAgent
from tests.scenarios.faults import assert_no_writes, heal_and_settle, random_choice, run_random_actions
from tests.scenarios.test_workloads_faults import ACTIONS, IMAGES
from tests.scenarios.workloads import claim_template, label, owned, pods, stateful_set, template

WEB = Key("default", "web")
GATE = "--feature-gates=MaxUnavailableStatefulSet=true"
FLAGS = ("--leader-elect=false", "--controllers=statefulset", GATE)
PATHS = (
    *("/api/v1/pods", "/api/v1/persistentvolumeclaims"),
    *("/apis/apps/v1/statefulsets", "/apis/apps/v1/controllerrevisions"),
)
REPLICAS = 4


class Watched:
    """Checks each change of pods and claims."""

    def __init__(self, cluster: Cluster) -> None:
        self._pods: dict[str, Pod] = {}
        self.early: list[str] = []
        """Pods created while one of a lower ordinal was missing or unready."""
        self.lost: list[str] = []
        """Deleted claims."""
        self.ready: list[int] = []
        cluster.api.store.subscribe(self._note)

    def _note(self, changes: Sequence[Change]) -> None:
        for one in changes:
            if one.row.resource == PODS.name:
                self._take(one)
            elif one.row.resource == PERSISTENT_VOLUME_CLAIMS.name and one.deleted:
                self.lost.append(one.row.key)
        self.ready.append(sum(map(_serves, self._pods.values())))

    def _take(self, one: Change) -> None:
        name = one.row.key.rpartition("/")[2]
        if one.deleted:
            self._pods.pop(name, None)
            return
        is_new = name not in self._pods
        self._pods[name] = Pod.decode(one.row.data)
        below = (f"web-{number}" for number in range(int(name.rpartition("-")[2])))
        if is_new and not all(other in self._pods and _serves(self._pods[other]) for other in below):
            self.early.append(name)


def _serves(pod: Pod) -> bool:
    return pod.metadata.deletion_timestamp is None and pod.status.phase == "Running" and is_pod_ready(pod)


async def use(cluster: Cluster) -> None:
    await cluster.client.patch(STATEFUL_SETS, WEB, {"spec": {"template": template(random_choice(IMAGES), app="web")}})


async def check(cluster: Cluster, replicas: int) -> None:
    """Raise AssertionError unless the invariants after recovery hold."""
    found = await cluster.client.get(STATEFUL_SETS, WEB)
    status = found.status
    counts = (status.replicas, status.ready_replicas, status.available_replicas, status.updated_replicas)
    assert counts == (replicas,) * 4
    assert status.observed_generation == found.metadata.generation
    assert status.current_replicas == replicas
    assert status.current_revision == status.update_revision
    there = await owned(cluster)
    assert sorted(pod.metadata.name for pod in there) == [f"web-{number}" for number in range(replicas)]
    assert {(pod.metadata.labels or {})["controller-revision-hash"] for pod in there} <= {status.update_revision}
    names = {one.metadata.name for one in (await cluster.client.list(PERSISTENT_VOLUME_CLAIMS, "default")).items}
    for pod in there:
        volume = next(one for one in pod.spec.volumes if one.name == "data")
        assert volume.persistent_volume_claim is not None
        assert volume.persistent_volume_claim.claim_name == f"data-{pod.metadata.name}"
        assert volume.persistent_volume_claim.claim_name in names


@pytest.mark.virtual(seeds=200)
async def test_ordered_set_keeps_order_despite_faults() -> None:
    async with Cluster((GATE,)) as cluster, PodAgent(cluster, start=3, stop=5):
        watched = Watched(cluster)
        replica = await cluster.manage(*FLAGS, strict=False, faults=RATE)
        made = stateful_set(replicas=REPLICAS, volumeClaimTemplates=[claim_template()])
        await cluster.client.create(STATEFUL_SETS, made)
        faults = FaultInjector(cluster, replica, FLAGS, PATHS)

        async def scale() -> None:
            await cluster.client.patch(STATEFUL_SETS, WEB, {"spec": {"replicas": random_choice((0, 1, 3, 4, 6))}})

        people = (scale, scale, lambda: use(cluster), faults.kill, faults.cut, faults.deafen)
        await run_random_actions(cluster, people, ACTIONS)
        await cluster.client.patch(STATEFUL_SETS, WEB, {"spec": {"replicas": REPLICAS}})
        await heal_and_settle(cluster, faults)
        await check(cluster, REPLICAS)
        await assert_no_writes(cluster)
        assert (watched.early, watched.lost) == ([], [])


@pytest.mark.virtual(seeds=200)
async def test_update_keeps_limit_despite_faults() -> None:
    async with Cluster((GATE,)) as cluster, PodAgent(cluster, start=3, stop=5):
        watched = Watched(cluster)
        limit, management = random_choice((None, 1, 2, "50%")), random_choice(("OrderedReady", "Parallel"))
        replica = await cluster.manage(*FLAGS, strict=False)
        rolling = {"maxUnavailable": limit} if limit else {}
        strategy: dict[str, Any] = {"type": "RollingUpdate", "rollingUpdate": {"partition": 0, **rolling}}
        spec = {"updateStrategy": strategy, "podManagementPolicy": management}
        made = stateful_set(replicas=REPLICAS, volumeClaimTemplates=[claim_template()], **spec)
        await cluster.client.create(STATEFUL_SETS, made)
        await cluster.advance(60)
        watched.ready.clear()
        replica.network.rate = RATE
        faults = FaultInjector(cluster, replica, FLAGS, PATHS)
        await run_random_actions(
            cluster, (lambda: use(cluster), lambda: use(cluster), faults.kill, faults.cut, faults.deafen), ACTIONS
        )
        await heal_and_settle(cluster, faults)
        await check(cluster, REPLICAS)
        assert min(watched.ready, default=REPLICAS) >= REPLICAS - (1 if limit in (None, 1) else 2)
        assert watched.lost == []


@pytest.mark.virtual(seeds=200)
async def test_stateful_set_converges_after_random_changes() -> None:
    async with Cluster((GATE,)) as cluster, PodAgent(cluster, start=3, stop=5) as agent:
        management = random_choice(("OrderedReady", "Parallel"))
        replica = await cluster.manage(*FLAGS, strict=False, faults=RATE)
        made = stateful_set(replicas=REPLICAS, volumeClaimTemplates=[claim_template()], podManagementPolicy=management)
        await cluster.client.create(STATEFUL_SETS, made)
        faults = FaultInjector(cluster, replica, FLAGS, PATHS)

        async def edit() -> None:
            rolling: dict[str, Any] = random_choice(({"partition": 2}, {"partition": 0, "maxUnavailable": 2}))
            policies = {
                "whenDeleted": random_choice(("Retain", "Delete")),
                "whenScaled": random_choice(("Retain", "Delete")),
            }
            change: dict[str, Any] = random_choice(
                (
                    {"replicas": random_choice((0, 1, 3, 8))},
                    {"ordinals": {"start": random_choice((0, 2))}},
                    {"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": rolling}},
                    {"updateStrategy": {"type": "OnDelete", "rollingUpdate": None}},
                    {"persistentVolumeClaimRetentionPolicy": policies},
                    {"minReadySeconds": random_choice((0, 5)), "revisionHistoryLimit": random_choice((0, 1, 10))},
                )
            )
            await cluster.client.patch(STATEFUL_SETS, WEB, {"spec": change})

        async def stop_pods() -> None:
            agent.runs = random_choice((lambda _: True, lambda _: False))

        async def turn() -> None:
            await label(cluster, random_choice(await pods(cluster)), app=random_choice(("web", "else")))

        async def drop() -> None:
            await cluster.client.delete(PODS, Key("default", random_choice(await pods(cluster)).metadata.name))

        people = (
            edit,
            edit,
            edit,
            lambda: use(cluster),
            stop_pods,
            turn,
            drop,
            faults.unheard(drop),
            faults.kill,
            faults.cut,
            faults.deafen,
        )
        await run_random_actions(cluster, people, ACTIONS)
        agent.runs = lambda _: True
        spec = {
            "replicas": REPLICAS,
            "ordinals": {"start": 0},
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}},
            "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Delete", "whenScaled": "Retain"},
        }
        await cluster.client.patch(STATEFUL_SETS, WEB, {"spec": spec})
        await use(cluster)
        with contextlib.suppress(ApiError, TransportError):
            for pod in await pods(cluster):  # a stuck pod, or one with foreign labels, blocks others
                await cluster.client.delete(PODS, Key("default", pod.metadata.name))
        await heal_and_settle(cluster, faults)
        await check(cluster, REPLICAS)
        await assert_no_writes(cluster)
        claims = (await cluster.client.list(PERSISTENT_VOLUME_CLAIMS, "default")).items
        there = {pod.metadata.uid for pod in await pods(cluster)}
        owners = [
            each for one in claims for each in one.metadata.owner_references
            if one.metadata.name in {f"data-web-{number}" for number in range(REPLICAS)}
        ]  # fmt: skip
        # A claim of a former pod is left to the garbage collector.
        assert all(one.kind == "StatefulSet" or one.uid not in there for one in owners)
