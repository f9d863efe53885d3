"""What comes and goes leaves nothing behind in a manager's memory (virtual time)."""

import gc
import tracemalloc

import pytest
from msgspec.structs import replace

from controller_manager.api.core import PODS, SERVICES
from controller_manager.api.resource import Key
from controller_manager.testing import Cluster, builders

PACKAGES = ("app", "cache", "client", "controller", "leader", "work")
ROUNDS = 40
# A leak of one small object per round is more than this; caches that fill up once are less.
BYTES_PER_ROUND = 100


async def come_and_go(cluster: Cluster, wave: str) -> None:
    for number in range(ROUNDS):
        name = f"{wave}-{number}"
        pod = builders.pod(name, labels={"app": name}, ip="10.0.0.1")
        await cluster.client.create(SERVICES, builders.service(name, {"app": name}))
        made = await cluster.client.create(PODS, pod)
        await cluster.client.update(PODS, replace(made, status=pod.status), subresource="status")
        await cluster.sleep(1)
        await cluster.client.delete(PODS, Key("default", name))
        await cluster.client.delete(SERVICES, Key("default", name))
    await cluster.advance(60)


def held() -> int:
    """Bytes that the manager's code allocated and something still holds; the server keeps a history on purpose."""
    gc.collect()
    filters = [tracemalloc.Filter(True, f"*/controller_manager/{package}/*") for package in PACKAGES]
    return sum(trace.size for trace in tracemalloc.take_snapshot().filter_traces(filters).traces)


@pytest.mark.virtual
async def test_objects_that_came_and_went_leave_nothing_behind() -> None:
    async with Cluster() as cluster:
        await cluster.manage("--leader-elect=false", "--kube-api-qps=0")
        await come_and_go(cluster, "first")
        tracemalloc.start()
        try:
            await come_and_go(cluster, "second")
            before = held()
            await come_and_go(cluster, "third")
            assert held() - before < ROUNDS * BYTES_PER_ROUND
        finally:
            tracemalloc.stop()
