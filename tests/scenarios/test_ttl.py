"""The TTL controller in a whole cluster, in virtual time.

Invariant: once the cluster is quiet, all nodes have the same TTL, which is right for their number.
"""

import pytest

from controller_manager.common.api.core import NODES, Node
from controller_manager.common.api.model import ObjectMeta
from controller_manager.common.api.resource import Key
from controller_manager.common.base.random import random_source
from controller_manager.testing import Cluster
from controllers.ttl import SPECS, STEPS, TTL

pytestmark = pytest.mark.virtual


async def grow(cluster: Cluster, first: int, last: int) -> None:
    for number in range(first, last):
        await cluster.client.create(NODES, Node(metadata=ObjectMeta(name=f"n-{number}")))


async def ttls(cluster: Cluster) -> set[str]:
    return {(n.metadata.annotations or {}).get(TTL, "nothing") for n in (await cluster.client.list(NODES)).items}


async def test_ttl_of_all_nodes_follows_cluster_size() -> None:
    async with Cluster() as cluster:
        await cluster.manage("--leader-elect=false", "--kube-api-qps=-1", specs=SPECS)
        await grow(cluster, 0, 100)
        await cluster.settle()
        assert await ttls(cluster) == {"0"}
        await grow(cluster, 100, 101)
        await cluster.settle()
        assert await ttls(cluster) == {"15"}
        for number in range(11):
            await cluster.client.delete(NODES, Key("", f"n-{number}"))
        await cluster.settle()
        assert await ttls(cluster) == {"15"}
        await cluster.client.delete(NODES, Key("", "n-11"))
        await cluster.settle()
        assert await ttls(cluster) == {"0"}


async def test_edited_ttl_is_restored_without_other_writes() -> None:
    async with Cluster() as cluster:
        await grow(cluster, 0, 3)
        await cluster.manage("--leader-elect=false", specs=SPECS)
        await cluster.settle()
        before = cluster.api.store.revision
        await cluster.client.patch(NODES, Key("", "n-1"), {"metadata": {"annotations": {TTL: "soon"}}})
        await cluster.settle()
        assert await ttls(cluster) == {"0"}
        assert cluster.api.store.revision == before + 2


@pytest.mark.virtual(seeds=200)
async def test_ttl_of_all_nodes_is_correct_after_faults(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = tuple((low / 10, high / 10, ttl) for low, high, ttl in STEPS)
    monkeypatch.setattr("controllers.ttl.STEPS", steps)  # a tenth of the nodes is enough
    async with Cluster() as cluster:
        await grow(cluster, 0, 8)
        replica = await cluster.manage("--leader-elect=false", "--kube-api-qps=-1", specs=SPECS, faults=0.2)
        count = 8
        for _ in range(3):
            more = int(random_source().uniform(0, 3))
            await grow(cluster, count, count + more)
            count += more
            await cluster.sleep(random_source().uniform(0, 20))
        replica.network.rate = 0
        await cluster.advance(200)
        (seconds,) = await ttls(cluster)
        assert any(low <= count <= high and str(ttl) == seconds for low, high, ttl in steps)
