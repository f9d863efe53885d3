"""Stateful sets while everything goes wrong, by seed (virtual time).

Always, while pods fail only when they are deleted:
- a pod of an ordered set is created only while all pods with lower numbers are ready;
- there are never two pods of one number;
- a pod has the claims of its number, and no claim is gone that the policy keeps;
- once all pods were available, and while only the template changes, never more are unavailable than may be.
Once it is quiet, whatever people did:
- there are the pods that the set says, all of the present template, and of the right owners their claims;
- its status says so;
- nobody writes anything any more.
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
from tests.scenarios.test_workloads_faults import ACTIONS, IMAGES
from tests.scenarios.trials import calm, go_on, is_quiet, one_of
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
    """What was seen of pods and claims, change by change."""

    def __init__(self, cluster: Cluster) -> None:
        self._pods: dict[str, Pod] = {}
        self.early: list[str] = []
        """Pods that were created while one with a lower number was missing or not ready."""
        self.lost: list[str] = []
        """Claims that are gone."""
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
    await cluster.client.patch(STATEFUL_SETS, WEB, {"spec": {"template": template(one_of(IMAGES), app="web")}})


async def check(cluster: Cluster, replicas: int) -> None:
    """Raise AssertionError unless all is as the head of this file says."""
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
async def test_an_ordered_set_stays_in_order_whatever_goes_wrong() -> None:
    async with Cluster((GATE,)) as cluster, PodAgent(cluster, start=3, stop=5):
        watched = Watched(cluster)
        replica = await cluster.manage(*FLAGS, strict=False, faults=RATE)
        made = stateful_set(replicas=REPLICAS, volumeClaimTemplates=[claim_template()])
        await cluster.client.create(STATEFUL_SETS, made)
        faults = FaultInjector(cluster, replica, FLAGS, PATHS)

        async def scale() -> None:
            await cluster.client.patch(STATEFUL_SETS, WEB, {"spec": {"replicas": one_of((0, 1, 3, 4, 6))}})

        people = (scale, scale, lambda: use(cluster), faults.kill, faults.cut, faults.deafen)
        await go_on(cluster, people, ACTIONS)
        await cluster.client.patch(STATEFUL_SETS, WEB, {"spec": {"replicas": REPLICAS}})
        await calm(cluster, faults)
        await check(cluster, REPLICAS)
        await is_quiet(cluster)
        assert (watched.early, watched.lost) == ([], [])


@pytest.mark.virtual(seeds=200)
async def test_an_update_keeps_its_limit_whatever_goes_wrong() -> None:
    async with Cluster((GATE,)) as cluster, PodAgent(cluster, start=3, stop=5):
        watched = Watched(cluster)
        limit, management = one_of((None, 1, 2, "50%")), one_of(("OrderedReady", "Parallel"))
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
        await go_on(
            cluster, (lambda: use(cluster), lambda: use(cluster), faults.kill, faults.cut, faults.deafen), ACTIONS
        )
        await calm(cluster, faults)
        await check(cluster, REPLICAS)
        assert min(watched.ready, default=REPLICAS) >= REPLICAS - (1 if limit in (None, 1) else 2)
        assert watched.lost == []


@pytest.mark.virtual(seeds=200)
async def test_a_set_comes_to_rest_whatever_people_do() -> None:
    async with Cluster((GATE,)) as cluster, PodAgent(cluster, start=3, stop=5) as agent:
        management = one_of(("OrderedReady", "Parallel"))
        replica = await cluster.manage(*FLAGS, strict=False, faults=RATE)
        made = stateful_set(replicas=REPLICAS, volumeClaimTemplates=[claim_template()], podManagementPolicy=management)
        await cluster.client.create(STATEFUL_SETS, made)
        faults = FaultInjector(cluster, replica, FLAGS, PATHS)

        async def edit() -> None:
            rolling: dict[str, Any] = one_of(({"partition": 2}, {"partition": 0, "maxUnavailable": 2}))
            policies = {"whenDeleted": one_of(("Retain", "Delete")), "whenScaled": one_of(("Retain", "Delete"))}
            change: dict[str, Any] = one_of(
                (
                    {"replicas": one_of((0, 1, 3, 8))},
                    {"ordinals": {"start": one_of((0, 2))}},
                    {"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": rolling}},
                    {"updateStrategy": {"type": "OnDelete", "rollingUpdate": None}},
                    {"persistentVolumeClaimRetentionPolicy": policies},
                    {"minReadySeconds": one_of((0, 5)), "revisionHistoryLimit": one_of((0, 1, 10))},
                )
            )
            await cluster.client.patch(STATEFUL_SETS, WEB, {"spec": change})

        async def stop_pods() -> None:
            agent.runs = one_of((lambda _: True, lambda _: False))

        async def turn() -> None:
            await label(cluster, one_of(await pods(cluster)), app=one_of(("web", "else")))

        async def drop() -> None:
            await cluster.client.delete(PODS, Key("default", one_of(await pods(cluster)).metadata.name))

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
        await go_on(cluster, people, ACTIONS)
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
            for pod in await pods(
                cluster
            ):  # one that is stuck, or has a name and other labels, is in the way of others
                await cluster.client.delete(PODS, Key("default", pod.metadata.name))
        await calm(cluster, faults)
        await check(cluster, REPLICAS)
        await is_quiet(cluster)
        claims = (await cluster.client.list(PERSISTENT_VOLUME_CLAIMS, "default")).items
        there = {pod.metadata.uid for pod in await pods(cluster)}
        owners = [
            each for one in claims for each in one.metadata.owner_references
            if one.metadata.name in {f"data-web-{number}" for number in range(REPLICAS)}
        ]  # fmt: skip
        # One that goes with a pod of before is left to the garbage collector.
        assert all(one.kind == "StatefulSet" or one.uid not in there for one in owners)
