"""Controllers that fail to start, crash or hang: others continue, and health endpoints report it."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

import pytest

from controller_manager.app.catalog import AnySpec
from controller_manager.common.api import errors
from controller_manager.common.api.core import NAMESPACES, PODS, SERVICES
from controller_manager.common.api.resource import Key, Resource
from controller_manager.common.api.wire import Request, Response
from controller_manager.common.base.clock import monotonic
from controller_manager.common.options.flag import Options
from controller_manager.framework import Change, Context, ControllerSpec, For, Informers, Mapped, Requeue
from controller_manager.framework.controller.runner import ControllerState, Phase
from controller_manager.testing import Cluster, Replica, builders

pytestmark = pytest.mark.virtual


class Healthy:
    """A controller that records its keys."""

    seen: list[str]

    def __init__(self, context: Context, options: Options) -> None:
        pass

    async def reconcile(self, key: Key) -> Requeue | None:
        self.seen.append(key.name)
        return None


class Failing(Healthy):
    """A controller whose constructor raises while `broken` returns true."""

    broken: Callable[[], bool]
    tries: list[float]

    def __init__(self, context: Context, options: Options) -> None:
        self.tries.append(monotonic())
        if type(self).broken():
            raise RuntimeError("no such cloud")


def healthy_controller(resource: Resource[Any] = PODS) -> tuple[AnySpec, list[str]]:
    seen: list[str] = []
    made = type("Seen", (Healthy,), {"seen": seen})
    return ControllerSpec(name="well-controller", reconciler=made, options=Options, watches=(For(resource),)), seen


def failing_controller(broken: Callable[[], bool] = lambda: True) -> tuple[AnySpec, list[float]]:
    tries: list[float] = []
    made = type("Failing", (Failing,), {"tries": tries, "seen": [], "broken": staticmethod(broken)})
    return ControllerSpec(name="ill-controller", reconciler=made, options=Options, watches=(For(NAMESPACES),)), tries


@asynccontextmanager
async def managing(*flags: str, specs: Sequence[AnySpec]) -> AsyncIterator[tuple[Cluster, Replica]]:
    async with Cluster() as cluster:
        yield cluster, await cluster.manage(*flags, specs=specs, strict=False)


async def page(replica: Replica, path: str) -> tuple[int, str]:
    response = await replica.manager.pages.handle(Request("GET", path))
    assert isinstance(response.body, bytes)
    return response.status, response.body.decode()


async def statuses(replica: Replica) -> list[int]:
    return [(await page(replica, path))[0] for path in ("/livez", "/healthz", "/readyz")]


def state(replica: Replica, name: str = "ill-controller") -> ControllerState:
    return next(one for one in replica.manager.state().controllers if one.name == name)


def sample(replica: Replica, family: str, labels: dict[str, str]) -> float | None:
    return replica.manager._controllers[0]._context.runtime.registry.get_sample_value(family, labels)


async def test_failing_constructor_affects_one_controller_only() -> None:
    (healthy, seen), (failing, tries) = healthy_controller(), failing_controller()
    async with managing(specs=(failing, healthy)) as (cluster, replica):
        await cluster.client.create(PODS, builders.pod("a"))
        await cluster.sleep(5)
        assert seen == ["a"]
        found = state(replica)
        assert (found.phase, found.crash) == (Phase.CRASHED, "RuntimeError: no such cloud")
        assert found.restarts == len(tries) > 1
        assert await statuses(replica) == [200, 200, 500]
        _, text = await page(replica, "/readyz")
        assert "[-]ill-controller failed: reason withheld\n[+]well-controller ok\n" in text
        assert sample(replica, "controller_restarts_total", {"controller": "ill-controller"}) == len(tries)
        for name, runs in (("ill-controller", 0), ("well-controller", 1)):
            labels = {"manager": "manager-1", "name": name}
            assert sample(replica, "running_managed_controllers", labels) == runs


async def test_start_retries_back_off_to_one_minute() -> None:
    failing, tries = failing_controller()
    async with managing(specs=(failing,)) as (cluster, _):
        await cluster.sleep(600)
        pauses = [after - before for before, after in pairwise(tries)]
        assert pauses[:7] == pytest.approx([1, 2, 4, 8, 16, 32, 60], abs=0.01)
        assert set(pauses[7:]) == {60.0}


async def test_healthz_fails_after_ten_minutes_of_crashes_and_recovers() -> None:
    broken = True
    failing, _ = failing_controller(lambda: broken)
    async with managing(specs=(failing,)) as (cluster, replica):
        await cluster.sleep(590)
        assert await statuses(replica) == [200, 200, 500]
        await cluster.sleep(30)
        assert await statuses(replica) == [200, 500, 500]
        assert not replica.has_ended
        broken = False
        await cluster.sleep(125)
        assert await statuses(replica) == [200, 200, 200]
        assert state(replica).phase is Phase.RUNNING
        assert state(replica).failing_seconds == 0


async def test_failed_watch_restarts_controller_with_all_objects() -> None:
    poison = {"b"}

    def keys(_: Informers, change: Change[Any]) -> Iterable[Key]:
        if change.key.name in poison:
            raise ValueError(f"what is {change.key.name}?")
        return (change.key,)

    seen: list[str] = []
    made = type("Seen", (Healthy,), {"seen": seen})
    spec = ControllerSpec(name="ill-controller", reconciler=made, options=Options, watches=(Mapped(PODS, keys),))
    async with managing(specs=(spec,)) as (cluster, replica):
        await cluster.client.create(PODS, builders.pod("a"))
        await cluster.sleep(70)
        await cluster.client.create(PODS, builders.pod("b"))
        await cluster.sleep(0.5)
        assert state(replica).crash == "ValueError: what is b?"
        poison.clear()
        await cluster.sleep(2)
        assert seen == ["a", "a", "b"]
        assert state(replica).phase is Phase.RUNNING


@pytest.mark.parametrize("refusal", [errors.Forbidden("not you"), errors.NotFound("no such resource")])
async def test_refused_informer_blocks_its_controllers_only(refusal: errors.ApiError) -> None:
    def refuse(request: Request) -> Response | None:
        if not refused or "/services" not in request.path:
            return None
        return Response(refusal.code, {}, refusal.status().encode())

    refused = True
    healthy, seen = healthy_controller()
    made = type("Seen", (Healthy,), {"seen": []})
    other = ControllerSpec(name="ill-controller", reconciler=made, options=Options, watches=(For(SERVICES),))
    async with managing(specs=(other, healthy)) as (cluster, replica):
        replica.network.intercept(refuse)
        await cluster.client.create(PODS, builders.pod("a"))
        await cluster.sleep(1000)
        assert seen == ["a"]
        assert state(replica).phase is Phase.WAITING
        assert state(replica).waits_for == (f"services ({refusal})",)
        assert await statuses(replica) == [200, 200, 500]
        refused = False
        await cluster.sleep(31)
        assert state(replica).phase is Phase.RUNNING
        assert await statuses(replica) == [200, 200, 200]


async def test_conflicting_index_crashes_one_controller_only() -> None:
    def watch() -> For[Any]:
        return For(PODS, indexes={"by-node": lambda pod: (pod.spec.node_name,)})

    made = type("Seen", (Healthy,), {"seen": []})
    first = ControllerSpec(name="first-controller", reconciler=made, options=Options, watches=(watch(),))
    second = ControllerSpec(name="second-controller", reconciler=made, options=Options, watches=(watch(),))
    async with managing(specs=(first, second)) as (cluster, replica):
        await cluster.sleep(5)
        assert state(replica, "first-controller").phase is Phase.RUNNING
        assert state(replica, "second-controller").crash == "ValueError: another index is called 'by-node' already"


async def test_stop_cancels_endless_reconcile_and_releases_lease() -> None:
    ends: list[str] = []

    class Endless(Healthy):
        async def reconcile(self, key: Key) -> Requeue | None:
            try:
                await asyncio.Event().wait()
            finally:
                ends.append(key.name)
            return None

    spec = ControllerSpec(name="ill-controller", reconciler=Endless, options=Options, watches=(For(PODS),))
    async with managing(specs=(spec,)) as (cluster, replica):
        await cluster.client.create(PODS, builders.pod("a"))
        await cluster.sleep(3)
        began = monotonic()
        assert [one.key for one in state(replica).work.running] == ["default/a"]
        ending = await replica.stop()
        assert ending.status == 0
        assert ends == ["a"]
        assert 4.9 < monotonic() - began < 8
        assert state(replica).phase is Phase.STOPPED
