"""Revisions of daemon sets and stateful sets that users delete, in virtual time."""

from typing import Any

import pytest

from controller_manager.common.api.apps import CONTROLLER_REVISIONS, DAEMON_SETS, STATEFUL_SETS
from controller_manager.common.api.resource import key_of
from controller_manager.testing import Cluster
from controller_manager.testing.pod_agent import PodAgent
from tests.scenarios.daemon_sets import join
from tests.scenarios.faults import break_watches
from tests.scenarios.workloads import daemon_set, label, owned, stateful_set

pytestmark = pytest.mark.virtual


@pytest.mark.parametrize(("kind", "made"), [(DAEMON_SETS, daemon_set()), (STATEFUL_SETS, stateful_set())])
async def test_revision_deleted_before_cache_sees_it_is_recreated(kind: Any, made: Any) -> None:
    async with Cluster() as cluster, PodAgent(cluster):
        await join(cluster, "a")
        replica = await cluster.manage("--leader-elect=false", "--controllers=daemonset,statefulset", strict=False)
        await cluster.settle()
        replica.network.intercept(break_watches(CONTROLLER_REVISIONS.path()))
        replica.network.cut()
        replica.network.heal()
        await cluster.client.create(kind, made)
        await cluster.sleep(30)
        (first,) = (await cluster.client.list(CONTROLLER_REVISIONS, "default")).items
        await cluster.client.delete(CONTROLLER_REVISIONS, key_of(first))
        await cluster.sleep(60)
        replica.network.intercept(None)
        await cluster.advance(60)
        for pod in await owned(cluster):
            await label(cluster, pod, seen="")
        await cluster.settle()
        (again,) = (await cluster.client.list(CONTROLLER_REVISIONS, "default")).items
        assert (again.data, again.metadata.uid != first.metadata.uid) == (first.data, True)
