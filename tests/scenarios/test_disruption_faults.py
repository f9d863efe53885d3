"""Pod disruption budgets under faults (failed requests, silent watches, lost managers), by seed, in virtual time.

For every seed, while pods are deleted only by eviction:

1. Once all pods were healthy, there are never fewer healthy ones than the budget requires.
2. After recovery the status is correct, and nothing is written any more.

If the controller misses pod changes for two minutes, it counts evicted pods as existing, as upstream does. This is
rare; the first invariant is not checked then.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from apiserver_stub.watch_cache.row import Change
from controller_manager.common.api.apps import REPLICA_SETS
from controller_manager.common.api.core import PODS, Pod, is_pod_ready
from controller_manager.common.api.policy import POD_DISRUPTION_BUDGETS, PodDisruptionBudget
from controller_manager.common.api.timestamps import time_of
from controller_manager.common.base.clock import utc_now
from controller_manager.common.base.random import random_source
from controller_manager.testing import Cluster
from controller_manager.testing.fault_injector import RATE, FaultInjector
from controller_manager.testing.pod_agent import PodAgent
from controllers.disruption import DELETION_TIMEOUT
from tests.scenarios.faults import assert_no_writes, heal_and_settle, random_choice, run_random_actions
from tests.scenarios.test_disruption import evict, numbers, protect
from tests.scenarios.workloads import pods, replica_set

FLAGS = ("--leader-elect=false", "--controllers=disruption,replicaset")
READ = (PODS.path(), POD_DISRUPTION_BUDGETS.path(), REPLICA_SETS.path())
REPLICAS = 6
ACTIONS = 12
LONGEST_DEAFNESS = 60.0
# Budgets, and the numbers of pods that must be healthy.
BUDGETS: tuple[tuple[dict[str, Any], int], ...] = (
    ({"minAvailable": 4}, 4),
    ({"minAvailable": "50%"}, 3),
    ({"minAvailable": "100%"}, 6),
    ({"maxUnavailable": 1}, 5),
    ({"maxUnavailable": "30%"}, 4),
    ({"maxUnavailable": 3, "unhealthyPodEvictionPolicy": "AlwaysAllow"}, 3),
)


class Healthy:
    """Counts ready pods after each change; `overlooked` if the time of an evicted pod was over before its deletion was
    seen.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.least = REPLICAS
        self.overlooked = False
        self._let_go: Mapping[str, str] = {}
        self._pods: dict[str, bool] = {}
        cluster.api.store.subscribe(self._note)

    def begin(self) -> None:
        """Start to count, since all pods are healthy now."""
        self.least = self._count()

    def _note(self, changes: Sequence[Change]) -> None:
        for one in changes:
            if one.row.resource == PODS.name:
                pod = Pod.decode(one.row.data)
                stays = not one.deleted and pod.metadata.deletion_timestamp is None
                self._pods[one.row.key] = stays and is_pod_ready(pod)
            elif one.row.resource == POD_DISRUPTION_BUDGETS.name:
                self._note_budget(PodDisruptionBudget.decode(one.row.data).status.disrupted_pods)
        self.least = min(self.least, self._count())

    def _note_budget(self, let_go: Mapping[str, str]) -> None:
        dropped = [when for name, text in self._let_go.items() if name not in let_go and (when := time_of(text))]
        self.overlooked = self.overlooked or any(utc_now() - when >= DELETION_TIMEOUT for when in dropped)
        self._let_go = let_go

    def _count(self) -> int:
        return sum(self._pods.values())


@pytest.mark.virtual(seeds=200)
async def test_evictions_stay_within_budget_despite_faults() -> None:
    async with Cluster() as cluster, PodAgent(cluster, start=3, stop=10):
        spec, desired = random_choice(BUDGETS)
        healthy = Healthy(cluster)
        replica = await cluster.manage(*FLAGS, strict=False)
        await cluster.client.create(REPLICA_SETS, replica_set(replicas=REPLICAS))
        await protect(cluster, **spec)
        await cluster.advance(60)
        healthy.begin()
        replica.network.rate = RATE
        faults = FaultInjector(cluster, replica, FLAGS, READ)

        async def drain() -> None:
            await evict(cluster, random_choice(await pods(cluster)).metadata.name)

        async def stop_watches() -> None:
            await faults.deafen()
            await cluster.sleep(random_source().uniform(0, LONGEST_DEAFNESS))
            faults.replica.network.intercept(None)

        await run_random_actions(
            cluster, (drain, drain, drain, drain, faults.kill, faults.cut, stop_watches), ACTIONS, longest=10
        )
        await heal_and_settle(cluster, faults)
        assert healthy.least >= desired or healthy.overlooked
        assert await numbers(cluster) == (REPLICAS, desired, REPLICAS, REPLICAS - desired)
        await assert_no_writes(cluster)
