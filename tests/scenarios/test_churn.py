"""What comes and goes leaves nothing behind in a manager's memory (virtual time)."""

import gc
import tracemalloc
from itertools import pairwise

import pytest
from msgspec.structs import replace

import controllers
from controller_manager.api.core import NAMESPACES, PODS, SERVICES
from controller_manager.api.resource import Key
from controller_manager.app import catalog
from controller_manager.base.chance import chance
from controller_manager.controller import Context, For, GiveUp, Requeue, Spec
from controller_manager.options import Options
from controller_manager.testing import Cluster, Replica, builders

PACKAGES = ("app", "base", "cache", "client", "controller", "leader", "serving", "work")
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
    folders = ("controllers", *(f"controller_manager/{package}" for package in PACKAGES))
    filters = [tracemalloc.Filter(True, f"*/{folder}/*") for folder in folders]
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


class Moody:
    """A controller whose reconciles end in every way there is, by chance."""

    def __init__(self, context: Context, options: Options) -> None:
        self._context = context

    async def reconcile(self, key: Key) -> Requeue | None:
        pod = self._context.informers.get(PODS).get(key)
        mood = int(chance().uniform(0, 7))
        if pod is not None:
            self._context.events.warning(pod, "Moody", f"{key} is not to be trusted")
        if mood == 0:
            raise RuntimeError(f"no mood for {key}")
        if mood == 1:
            raise GiveUp(f"no more of {key}")
        if pod is not None and mood == 2:
            await self._context.client.patch(PODS, key, {"metadata": {"labels": {"mood": str(mood)}}})
        return Requeue(600) if mood == 4 else None


MOODY = Spec(name="moody-controller", reconciler=Moody, options=Options, watches=(For(PODS),))
NAMESPACES_AN_HOUR, PODS_EACH = 10, 5
# A leak grows every hour, what breathes does not. One forgotten key of each pod would be twice this.
BYTES_PER_POD = 60


async def an_hour(cluster: Cluster, replica: Replica, name: str) -> None:
    """Whole namespaces come and go, while watches break and requests are lost; then all is quiet for two hours."""
    for number in range(NAMESPACES_AN_HOUR):
        space = f"{name}-{number}"
        await cluster.client.create(NAMESPACES, builders.namespace(space))
        await cluster.client.create(SERVICES, builders.service("s", {"app": space}, namespace=space))
        for index in range(PODS_EACH):
            pod = builders.pod(f"p-{index}", namespace=space, labels={"app": space}, ip="10.0.0.1")
            made = await cluster.client.create(PODS, pod)
            await cluster.client.update(PODS, replace(made, status=pod.status), subresource="status")
        if number % 5 == 0:
            replica.network.cut()
        replica.network.rate = 0.3 if number % 7 == 0 else 0
        await cluster.sleep(3)
        replica.network.mend()
        await cluster.sleep(60)
        await cluster.client.delete(NAMESPACES, Key("", space))
        await cluster.sleep(60)
    replica.network.rate = 0
    await cluster.advance(8000)  # until what is remembered of events makes no difference any more


@pytest.mark.virtual
async def test_hours_of_failures_and_lost_watches_leave_nothing_behind() -> None:
    async with Cluster() as cluster:
        specs = (*catalog.discover(controllers), MOODY)
        replica = await cluster.manage("--leader-elect=false", "--kube-api-qps=0", specs=specs)
        await an_hour(cluster, replica, "first")
        tracemalloc.start()
        try:
            after = []
            for hour in ("second", "third", "fourth"):
                await an_hour(cluster, replica, hour)
                after.append(held())
        finally:
            tracemalloc.stop()
        assert not replica.has_ended
        growth = min(later - earlier for earlier, later in pairwise(after))
        assert growth < NAMESPACES_AN_HOUR * PODS_EACH * BYTES_PER_POD
