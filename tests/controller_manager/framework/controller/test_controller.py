"""Whole controllers against a faulty API, in virtual time."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller_manager.common.api.core import ENDPOINTS, PODS, SERVICES, Endpoints, Pod
from controller_manager.common.api.model import ObjectMeta
from controller_manager.common.base.random import random_source
from controller_manager.common.base.runtime import Runtime
from controller_manager.common.base.tasks import Tasks
from controller_manager.common.options.flag import Options
from controller_manager.framework import (
    Change,
    Context,
    ControllerSpec,
    For,
    Informers,
    Key,
    Mapped,
    Owned,
    Requeue,
    Watch,
)
from controller_manager.framework.client.events import EventWriter
from controller_manager.framework.controller.runner import Controller, Phase
from controller_manager.framework.work.metrics import WorkMetrics
from controller_manager.testing.virtual import run

pytestmark = pytest.mark.virtual

SERVICE = "/api/v1/namespaces/a/services/{}"
POD = "/api/v1/namespaces/a/pods/{}"

Reconcile = Callable[[Context, Key], Any]


class Process:
    """A process that runs controllers against the fake API."""

    def __init__(self, api: Any) -> None:
        self.api = api
        self.runtime = Runtime("test")
        self.client = api.client()
        self.informers = Informers(self.client, self.runtime)
        self.metrics = WorkMetrics(self.runtime.registry)
        self.events = EventWriter(self.client, "test")

    def controller(self, reconcile: Reconcile, *watches: Watch, name: str = "test", workers: int = 1) -> Controller:
        """Return a controller that runs `reconcile`."""

        class Simple:
            def __init__(self, context: Context, options: Options) -> None:
                self._context = context

            async def reconcile(self, key: Key) -> Requeue | None:
                outcome: Requeue | None = await reconcile(self._context, key)
                return outcome

        spec = ControllerSpec(name=name, reconciler=Simple, watches=watches, options=Options, workers=lambda _: workers)
        log = self.runtime.log(name)
        context = Context(self.client, self.informers, self.events.recorder(name), log, self.runtime)
        return Controller(spec, context, Options(), self.metrics)


@asynccontextmanager
async def running(process: Process, *controllers: Controller) -> AsyncIterator[None]:
    async with Tasks() as tasks:
        tasks.start(process.informers.run(), name="informers")
        for controller in controllers:
            tasks.start(controller.run(), name=controller.spec.name)
        yield


class Runs:
    """Records the keys it reconciles."""

    def __init__(self) -> None:
        self.keys: list[str] = []
        self.at: list[float] = []

    async def __call__(self, _: Context, key: Key) -> None:
        self.keys.append(key.name)
        self.at.append(round(asyncio.get_running_loop().time(), 1))


async def test_existing_and_changed_objects_are_reconciled(api: Any) -> None:
    api.put(SERVICE.format("one"))
    process, runs = Process(api), Runs()
    async with running(process, process.controller(runs, For(SERVICES))):
        await asyncio.sleep(1)
        assert runs.keys == ["one"]
        api.put(SERVICE.format("two"))
        api.drop(SERVICE.format("one"))
        await asyncio.sleep(1)
    assert runs.keys == ["one", "two", "one"]


async def test_controller_waits_for_all_its_informers(api: Any, refusal: Any) -> None:
    api.put(SERVICE.format("one"))
    api.before = lambda request: refusal(503, "ServiceUnavailable") if "pods" in request.path else None
    process, runs = Process(api), Runs()
    controller = process.controller(runs, For(SERVICES), Owned(PODS, SERVICES))
    async with running(process, controller):
        await asyncio.sleep(100)
        assert runs.keys == []
        assert controller.waits_for == ("pods (refused)",)
        assert controller.state().phase is Phase.WAITING
        api.before = None
        await asyncio.sleep(60)
        assert controller.waits_for == ()
    assert runs.keys == ["one"]


async def test_change_overtakes_initial_objects(api: Any) -> None:
    for number in range(50):
        api.put(SERVICE.format(f"old-{number:02}"))
    process, runs = Process(api), Runs()

    async def slow(context: Context, key: Key) -> None:
        await runs(context, key)
        await asyncio.sleep(1)

    async with running(process, process.controller(slow, For(SERVICES))):
        await asyncio.sleep(2.5)
        api.put(SERVICE.format("old-40"))
        await asyncio.sleep(100)
    assert runs.keys[3] == "old-40"
    assert Counter(runs.keys).most_common(1) == [("old-00", 1)]


async def test_delayed_changes_are_batched(api: Any) -> None:
    def all_services(informers: Informers, _: Change[Pod]) -> Iterable[Key]:
        return [Key("a", service.metadata.name) for service in informers.get(SERVICES).list("a")]

    api.put(SERVICE.format("one"))
    process, runs = Process(api), Runs()
    watches = For(SERVICES), Mapped(PODS, all_services, delay=lambda _: 5.0)
    async with running(process, process.controller(runs, *watches)):
        await asyncio.sleep(10)
        for number in range(4):
            api.put(POD.format(number))
            await asyncio.sleep(1)
        await asyncio.sleep(10)
    assert runs.at == [0.0, 15.0]


async def make_pod(context: Context, key: Key) -> None:
    """Create the pod of a service that has none."""
    if context.informers.get(PODS).get(key) is None:
        await context.client.create(PODS, Pod(metadata=ObjectMeta(namespace=key.namespace, name=key.name)))


async def test_reconcile_sees_own_writes_despite_late_watch(api: Any) -> None:
    api.put(SERVICE.format("one"))
    process = Process(api)
    controller = process.controller(make_pod, For(SERVICES), Owned(PODS, SERVICES))

    def late(request: Any, _: Any) -> None:
        api.mute = api.mute or request.method == "POST"

    api.after = late
    async with running(process, controller):
        await asyncio.sleep(0.5)
        assert POD.format("one") in api.objects
        for _ in range(5):  # while the watches hang
            controller._loop.add(Key("a", "one"), "again")
            await asyncio.sleep(1)
        assert [request.method for request in api.requests].count("POST") == 1
        api.mute = False
        api.put(POD.format("other"))
        await asyncio.sleep(1)
        state = controller.state().work
    assert [request.method for request in api.requests].count("POST") == 1
    assert state is not None
    assert (state.last_error, state.ready, state.running) == ("", 0, ())
    assert process.runtime.registry.get_sample_value("reconcile_total", {"name": "test", "outcome": "done"}) == 2


async def test_unobserved_writes_hold_a_key_for_ten_seconds(api: Any) -> None:
    api.put(SERVICE.format("one"))
    process = Process(api)
    controller = process.controller(make_pod, For(SERVICES), Owned(PODS, SERVICES))

    def never(request: Any, _: Any) -> None:
        api.mute = api.mute or request.method == "POST"

    api.after = never
    async with running(process, controller):
        await asyncio.sleep(1)
        controller._loop.add(Key("a", "one"), "again")
        await asyncio.sleep(8)
        assert [request.method for request in api.requests].count("POST") == 1
        await asyncio.sleep(2)
        assert [request.method for request in api.requests].count("POST") >= 2
    assert process.runtime.registry.get_sample_value("reconcile_unsettled_total", {"name": "test"}) == 1


async def test_crashed_controller_restarts_alone(api: Any) -> None:
    wrong = {"two"}

    def keys(_: Informers, change: Change[Any]) -> Iterable[Key]:
        if change.key.name in wrong:
            raise ValueError("can't map that")
        return (change.key,)

    process, fragile, robust = Process(api), Runs(), Runs()
    api.put(SERVICE.format("one"))
    controllers = (
        process.controller(fragile, Mapped(SERVICES, keys), name="fragile"),
        process.controller(robust, For(SERVICES), name="robust"),
    )
    async with running(process, *controllers):
        await asyncio.sleep(1)
        api.put(SERVICE.format("two"))
        await asyncio.sleep(0.5)
        api.put(SERVICE.format("three"))
        wrong.clear()
        await asyncio.sleep(5)
        api.put(SERVICE.format("four"))
        await asyncio.sleep(1)
    assert robust.keys == ["one", "two", "three", "four"]
    assert fragile.keys == ["one", "one", "two", "three", "four"]


async def test_stop_finishes_running_reconciles(api: Any) -> None:
    api.put(SERVICE.format("one"))
    api.put(SERVICE.format("two"))
    process, finished = Process(api), Runs()

    async def slow(context: Context, key: Key) -> None:
        await asyncio.sleep(3)
        await finished(context, key)

    controller = process.controller(slow, For(SERVICES))
    async with Tasks() as tasks:
        tasks.start(process.informers.run(), name="informers")
        work = tasks.start(controller.run(), name="controller")
        await asyncio.sleep(1)
        controller.stop()
        await work
    assert finished.keys == ["one"]


async def test_stop_ends_waiting_for_informers(api: Any, refusal: Any) -> None:
    api.before = lambda _: refusal(503, "ServiceUnavailable")
    process = Process(api)
    controller = process.controller(Runs(), For(SERVICES))
    async with Tasks() as tasks:
        tasks.start(process.informers.run(), name="informers")
        work = tasks.start(controller.run(), name="controller")
        await asyncio.sleep(1)
        controller.stop()
        async with asyncio.timeout(1):
            await work


async def test_stop_ends_crash_backoff_at_once(api: Any) -> None:
    def keys(_: Informers, __: Change[Any]) -> Iterable[Key]:
        raise ValueError("can't map that")

    api.put(SERVICE.format("one"))
    process = Process(api)
    controller = process.controller(Runs(), Mapped(SERVICES, keys))
    async with Tasks() as tasks:
        tasks.start(process.informers.run(), name="informers")
        work = tasks.start(controller.run(), name="controller")
        await asyncio.sleep(20)  # the backoff is 16 seconds by now
        controller.stop()
        async with asyncio.timeout(0.1):
            await work


async def test_indexes_of_watches_are_added(api: Any) -> None:
    api.put(POD.format("x"), spec={"nodeName": "n1"})
    process, runs = Process(api), Runs()
    watch = For(PODS, indexes={"node": lambda pod: (pod.spec.node_name,)})
    async with running(process, process.controller(runs, watch)):
        await asyncio.sleep(1)
        assert [pod.metadata.name for pod in process.informers.get(PODS).by_index("node", "n1")] == ["x"]


async def mirror(context: Context, key: Key) -> Requeue | None:
    """Write Endpoints for every service, and count the writes in an annotation."""
    service = context.informers.get(SERVICES).get(key)
    current = context.informers.get(ENDPOINTS).get(key)
    if service is None:
        if current is not None:
            await context.client.delete(ENDPOINTS, key)
        return None
    marks = {"of": service.metadata.resource_version}
    meta = ObjectMeta(namespace=key.namespace, name=key.name, annotations=marks)
    if current is None:
        await context.client.create(ENDPOINTS, Endpoints(metadata=meta))
    elif current.metadata.annotations != marks:
        meta = ObjectMeta(
            namespace=key.namespace,
            name=key.name,
            annotations=marks,
            resource_version=current.metadata.resource_version,
        )
        await context.client.update(ENDPOINTS, Endpoints(metadata=meta))
    return None


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_random_failures_reach_the_wanted_state(make_api: Any, seed: int) -> None:
    async def scenario() -> None:
        api = make_api()
        process = Process(api)
        watches = For(SERVICES), Mapped(ENDPOINTS, lambda _, change: (change.key,))
        controller = process.controller(mirror, *watches, workers=3)

        async def slow_and_sometimes_lost(_: Any, __: Any = None) -> None:
            await asyncio.sleep(random_source().uniform(0, 0.2))
            if random_source().uniform(0, 1) < 0.1:
                raise OSError("lost")

        api.before = api.after = slow_and_sometimes_lost
        async with running(process, controller):
            for _ in range(60):
                await asyncio.sleep(random_source().uniform(0, 3))
                path = SERVICE.format("abc"[int(random_source().uniform(0, 3))])
                dice = random_source().uniform(0, 1)
                if dice < 0.1:
                    api.hang_up()
                elif dice < 0.15:
                    api.compact()
                elif dice < 0.35 and path in api.objects:
                    api.drop(path)
                else:
                    api.put(path)
            api.before = api.after = None
            await asyncio.sleep(1500)
            wanted = {path.rpartition("/")[2]: obj for path, obj in api.objects.items() if "/services/" in path}
            there = {path.rpartition("/")[2]: obj for path, obj in api.objects.items() if "/endpoints/" in path}
            assert {name: obj["metadata"]["annotations"]["of"] for name, obj in there.items()} == {
                name: obj["metadata"]["resourceVersion"] for name, obj in wanted.items()
            }

    run(scenario(), seed=seed)
