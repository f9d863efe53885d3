"""Deleted objects leave nothing in the memory of a manager (virtual time)."""

import gc
import re
import sys
import tracemalloc
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise

import pytest
from msgspec.structs import replace

import controllers
from controller_manager.app import catalog
from controller_manager.common.api.core import NAMESPACES, PODS, SERVICES
from controller_manager.common.api.resource import Key
from controller_manager.common.base.random import random_source
from controller_manager.common.options.flag import Options
from controller_manager.framework import Context, ControllerSpec, For, PolicyRule, Requeue, TerminalError
from controller_manager.framework.client import events
from controller_manager.framework.controller import cache_barrier
from controller_manager.testing import Cluster, Replica, builders, hot_loops, timeline
from controllers.garbage_collector import graph

ROUNDS = 15
QUIET = 700.0  # seconds; longer than any watch and than the aggregation of equal events

# Where the manager allocates; the server keeps a history on purpose and is left out.
PLACES = re.compile(r"/(controllers|controller_manager/(app|cache|client|controller|work))/")

Held = Mapping[str, int]


@pytest.fixture(autouse=True)
def small_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make bounded caches small: absent owners, counted events and their lifetime, and history."""
    monkeypatch.setattr(graph, "MOST_ABSENT", 3)
    monkeypatch.setattr(events, "_REFILL", 25 / QUIET)
    monkeypatch.setattr(timeline, "_MOST", 50)
    monkeypatch.setattr(hot_loops, "_REMEMBERED", 10)
    monkeypatch.setattr(cache_barrier, "_REMEMBERED", 10)


@contextmanager
def traced() -> Iterator[None]:
    """Trace allocations by line of code from here on."""
    tracemalloc.start()
    try:
        yield
    finally:
        tracemalloc.stop()


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


def held() -> Held:
    """Return the number of live allocations by line of the manager's code.

    Bytes would not do: a dict that has spare room grows in leaps.
    """
    sys._clear_type_cache()  # Python caches up to 4096 names of attributes that C code looks up
    gc.collect()
    found = ((one.traceback[0], one.count) for one in tracemalloc.take_snapshot().statistics("lineno"))
    return {f"{line.filename}:{line.lineno}": count for line, count in found if PLACES.search(line.filename)}


def leaks(after: Sequence[Held], least: int) -> Mapping[str, list[int]]:
    """Return the lines whose live allocations grow by at least `least` each time, and their growth.

    Other lines do not grow each time, or by less: buffers of watches, due retries, counts above 256.
    """
    more = {
        line: [later.get(line, 0) - earlier.get(line, 0) for earlier, later in pairwise(after)] for line in after[-1]
    }
    return {line: steps for line, steps in more.items() if min(steps) >= least}


@pytest.mark.virtual
async def test_deleted_objects_leave_no_memory() -> None:
    async with Cluster() as cluster:
        await cluster.manage("--leader-elect=false", "--kube-api-qps=0")
        with traced():
            for wave in ("first", "second", "third"):  # until all bounded caches are full
                await come_and_go(cluster, wave)
            after = []
            for wave in ("fourth", "fifth", "sixth"):
                await come_and_go(cluster, wave)
                after.append(held())
        assert leaks(after, ROUNDS) == {}  # a leak would be one key per pod


class FailingController:
    """A controller whose reconciles end in a random one of all possible ways."""

    def __init__(self, context: Context, options: Options) -> None:
        self._context = context

    async def reconcile(self, key: Key) -> Requeue | None:
        pod = self._context.informers.get(PODS).get(key)
        mood = int(random_source().uniform(0, 7))
        if pod is not None:
            self._context.events.warning(pod, "Moody", f"{key} is not to be trusted")
        if mood == 0:
            raise RuntimeError(f"no mood for {key}")
        if mood == 1:
            raise TerminalError(f"no more of {key}")
        if pod is not None and mood == 2:
            await self._context.client.patch(PODS, key, {"metadata": {"labels": {"mood": str(mood)}}})
        return Requeue(600) if mood == 4 else None


MAY = (PolicyRule(("",), ("pods",), ("patch",)),)
FAILING = ControllerSpec(
    name="moody-controller", reconciler=FailingController, options=Options, watches=(For(PODS),), rbac=MAY
)
PODS_EACH = 10


async def run_an_hour(cluster: Cluster, replica: Replica, name: str, namespaces: int) -> None:
    """Create and delete whole namespaces under faults, then wait until all is quiet."""
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
        replica.network.heal()
        await cluster.sleep(60)
        await cluster.client.delete(NAMESPACES, Key("", space))
        await cluster.sleep(60)
    replica.network.rate = 0
    # Wait until remembered events expire, then write one more event, which removes them.
    await cluster.advance(QUIET + 1)
    await cluster.client.create(PODS, builders.pod(name))
    await cluster.advance(1)
    await cluster.client.delete(PODS, Key("default", name))
    await cluster.advance(60)


@pytest.mark.virtual
@pytest.mark.parametrize(("hours", "namespaces"), [(3, 3), pytest.param(5, 10, marks=pytest.mark.long)])
async def test_hours_of_faults_leave_no_memory(hours: int, namespaces: int) -> None:
    async with Cluster() as cluster:
        specs = (*catalog.discover(controllers), FAILING)
        replica = await cluster.manage("--leader-elect=false", "--kube-api-qps=0", specs=specs, strict=False)
        with traced():
            after = []
            for hour in range(hours):
                await run_an_hour(cluster, replica, f"hour-{hour}", namespaces)
                after.append(held())
        assert not replica.has_ended
        assert leaks(after, namespaces * PODS_EACH) == {}  # a leak would be one key per pod
