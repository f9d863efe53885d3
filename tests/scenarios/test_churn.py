"""What comes and goes leaves nothing behind in a manager's memory (virtual time)."""

import gc
import sys
import tracemalloc
from itertools import pairwise

import pytest
from msgspec.structs import replace

import controllers
from controller_manager.api.core import CONFIG_MAPS, NAMESPACES, PODS, SERVICES, ConfigMap
from controller_manager.api.model import ObjectMeta, OwnerReference
from controller_manager.api.resource import Key
from controller_manager.app import catalog
from controller_manager.base.chance import chance
from controller_manager.controller import Context, For, GiveUp, Requeue, Rule, Spec
from controller_manager.options import Options
from controller_manager.testing import Cluster, Replica, builders
from controllers.garbage_collector.identity import MOST_ABSENT

ROUNDS = 40

# Where the manager allocates; what the server does too is left out, which keeps a history on purpose.
PLACES = ("controllers", *(f"controller_manager/{name}" for name in ("app", "cache", "client", "controller", "work")))
FILTERS = [tracemalloc.Filter(True, f"*/{place}/*") for place in PLACES]


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


async def fill_memories(cluster: Cluster) -> None:
    """Fill what is bounded by a number: the garbage collector remembers so many owners that are not there."""
    for number in range(MOST_ABSENT + 1):
        owner = OwnerReference(api_version="v1", kind="ConfigMap", name="none", uid=f"none-{number}")
        meta = ObjectMeta(name=f"lost-{number}", namespace="default", owner_references=(owner,))
        await cluster.client.create(CONFIG_MAPS, ConfigMap(metadata=meta))
    await cluster.advance(60)


def held() -> int:
    """How many pieces of memory the manager's code allocated and something still holds.

    Bytes would not do: a dict that has room for more than is in it grows in leaps.
    """
    sys._clear_type_cache()  # where Python remembers the names of attributes that C code asked for, up to 4096 of them
    gc.collect()
    return len(tracemalloc.take_snapshot().filter_traces(FILTERS).traces)


@pytest.mark.virtual
async def test_objects_that_came_and_went_leave_nothing_behind() -> None:
    async with Cluster() as cluster:
        tracemalloc.start()
        try:
            await cluster.manage("--leader-elect=false", "--kube-api-qps=0")
            await fill_memories(cluster)
            await come_and_go(cluster, "first")
            await come_and_go(cluster, "second")
            before = held()
            await come_and_go(cluster, "third")
            assert held() - before < ROUNDS  # one forgotten key of each pod would be more
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


MAY = (Rule(("",), ("pods",), ("patch",)),)
MOODY = Spec(name="moody-controller", reconciler=Moody, options=Options, watches=(For(PODS),), rbac=MAY)
PODS_EACH = 5


async def an_hour(cluster: Cluster, replica: Replica, name: str, namespaces: int) -> None:
    """Whole namespaces come and go, while watches break and requests are lost; then all is quiet for two hours."""
    for number in range(namespaces):
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
    # Until what is remembered of events makes no difference any more, and one more event, which has it forgotten.
    await cluster.advance(8000)
    await cluster.client.create(PODS, builders.pod(name))
    await cluster.advance(1)
    await cluster.client.delete(PODS, Key("default", name))
    await cluster.advance(60)


@pytest.mark.virtual
@pytest.mark.parametrize(("hours", "namespaces"), [(3, 5), pytest.param(5, 10, marks=pytest.mark.long)])
async def test_hours_of_failures_and_lost_watches_leave_nothing_behind(hours: int, namespaces: int) -> None:
    async with Cluster() as cluster:
        specs = (*catalog.discover(controllers), MOODY)
        replica = await cluster.manage("--leader-elect=false", "--kube-api-qps=0", specs=specs, strict=False)
        tracemalloc.start()
        try:
            await fill_memories(cluster)
            after = []
            for hour in range(hours):
                await an_hour(cluster, replica, f"hour-{hour}", namespaces)
                after.append(held())
        finally:
            tracemalloc.stop()
        assert not replica.has_ended
        # A leak grows every hour: one forgotten key of each pod is a tuple and a name, at least. What is allowed is
        # what breathes: counts of buckets that have become larger than 256, wire buffers, retries that are due.
        assert min(later - earlier for earlier, later in pairwise(after)) < 2 * namespaces * PODS_EACH
