"""Writes of a reconcile, and when the caches have seen them."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from controller_manager.common.api.core import ENDPOINTS, PODS, SERVICES, Pod
from controller_manager.common.api.model import ObjectMeta
from controller_manager.common.api.resource import Key
from controller_manager.common.api.wire import Request, Response
from controller_manager.common.base.runtime import Runtime
from controller_manager.common.base.tasks import Tasks, all_of
from controller_manager.common.options.flag import Options
from controller_manager.common.transport.authenticated import InProcessTransport
from controller_manager.framework import Change, Client, Informers
from controller_manager.framework.client.codec import WriteResult
from controller_manager.framework.controller.cache_barrier import CacheBarrier
from controller_manager.framework.controller.spec import For, Mapped
from controller_manager.framework.controller.watches import EventHandler
from controller_manager.framework.work.loop import LONGEST_HOLD

pytestmark = pytest.mark.virtual

KEY = Key("a", "x")


@asynccontextmanager
async def synced(api: Any) -> AsyncIterator[Informers]:
    informers = Informers(api.client(), Runtime("test"))
    async with Tasks() as tasks:
        tasks.start(informers.run(), name="informers")
        for resource in (PODS, SERVICES):
            await informers.get(resource).synced()
        yield informers


def nothing_cached() -> Informers:
    return Informers(Client(InProcessTransport(unanswered)), Runtime("test"))


async def unanswered(request: Request) -> Response:
    raise AssertionError(f"nothing should be asked: {request.path}")


def when_seen(informers: Informers, writes: list[WriteResult], call: Callable[[], None]) -> None:
    """Note these writes in a run, and call `call` once the caches have seen them."""
    barrier = CacheBarrier(informers)
    with barrier.noting("run"):
        for write in writes:
            barrier.note(write)
    barrier.when_seen("run", call)


async def test_known_version_from_informers_or_own_writes(api: Any) -> None:
    async with synced(api) as informers:
        made = await api.client().create(PODS, pod("", uid=""))
        await asyncio.sleep(1)
        barrier, key = CacheBarrier(informers), Key(made.metadata.namespace, made.metadata.name)
        barrier.note(WriteResult(PODS, key, "1"))
        barrier.note(WriteResult(ENDPOINTS, key, "2"))
        assert barrier.known_version(PODS, key) == made.metadata.resource_version
        assert barrier.known_version(PODS, Key("a", "other")) == ""
        assert barrier.known_version(ENDPOINTS, key) == "2"
        assert barrier.known_version(ENDPOINTS, Key("a", "other")) == ""


async def test_writes_are_attributed_to_their_reconcile() -> None:
    async def reconcile(name: str) -> list[str]:
        with barrier.noting(name) as writes:
            barrier.note(WriteResult(PODS, Key("a", name), "1"))
            await asyncio.sleep(1)
            await all_of(*(child(name, version) for version in "23"))
        return [f"{write.key.name}@{write.version}" for write in writes.values()]

    async def child(name: str, version: str) -> None:
        barrier.note(WriteResult(PODS, Key("a", f"{name}-{version}"), version))

    barrier = CacheBarrier(nothing_cached())
    barrier.note(WriteResult(PODS, KEY, "unattributed"))
    assert await all_of(reconcile("x"), reconcile("y")) == [["x@1", "x-2@2", "x-3@3"], ["y@1", "y-2@2", "y-3@3"]]


def test_last_write_of_an_object_counts() -> None:
    barrier = CacheBarrier(nothing_cached())
    with barrier.noting("x") as writes:
        barrier.note(WriteResult(PODS, KEY, "1"))
        barrier.note(WriteResult(PODS.metadata_only(), KEY, "2"))
    assert [write.version for write in writes.values()] == ["2"]


async def test_all_informers_must_see_all_writes(api: Any) -> None:
    called: list[str] = []
    async with synced(api) as informers:
        writes = [WriteResult(PODS, KEY, "101"), WriteResult(SERVICES, KEY, "102"), WriteResult(ENDPOINTS, KEY, "103")]
        when_seen(informers, writes, lambda: called.append("all"))
        api.put("/api/v1/namespaces/a/pods/x")
        await asyncio.sleep(1)
        assert called == []
        api.put("/api/v1/namespaces/a/services/x")
        await asyncio.sleep(1)
        assert called == ["all"]
        when_seen(informers, writes, lambda: called.append("at once"))
        when_seen(informers, [], lambda: called.append("nothing to see"))
        assert called == ["all", "at once", "nothing to see"]


async def test_deletion_without_version_is_seen_when_object_disappears(api: Any) -> None:
    called: list[str] = []
    api.put("/api/v1/namespaces/a/pods/x", metadata={"uid": "one"})
    async with synced(api) as informers:
        when_seen(informers, [WriteResult(PODS, KEY, gone="another")], lambda: called.append("already"))
        when_seen(informers, [WriteResult(PODS, KEY, gone="one")], lambda: called.append("gone"))
        api.put("/api/v1/namespaces/a/pods/x")
        await asyncio.sleep(1)
        assert called == ["already"]
        api.drop("/api/v1/namespaces/a/pods/x")
        await asyncio.sleep(1)
        assert called == ["already", "gone"]


async def test_informers_with_other_selection_are_not_awaited(api: Any) -> None:
    called: list[str] = []
    async with synced(api) as informers:
        informers.get(ENDPOINTS, namespace="b")
        informers.get(ENDPOINTS, labels="app=web")
        await asyncio.sleep(1)
        when_seen(informers, [WriteResult(ENDPOINTS, KEY, "500")], lambda: called.append("seen"))
        assert called == ["seen"]


async def test_ended_event_handler_unsubscribes(api: Any) -> None:
    async with synced(api) as informers:
        feed = EventHandler([For(PODS)], informers, Options(), lambda *_, after: None)
        async with Tasks() as tasks:
            tasks.start(feed.run(), name="feed")
            await asyncio.sleep(1)
            assert len(informers.get(PODS)._subscribers) == 1
        assert informers.get(PODS)._subscribers == ()


def pod(version: str, uid: str = "one") -> Pod:
    return Pod(metadata=ObjectMeta(namespace="a", name="x", uid=uid, resource_version=version))


@pytest.mark.parametrize(
    ("write", "change", "after", "is_one"),
    [
        pytest.param(WriteResult(PODS, KEY, "5"), Change(pod("4"), pod("5")), 1, True, id="the written version"),
        pytest.param(WriteResult(PODS, KEY, "5"), Change(pod("3"), pod("4")), 1, False, id="an earlier version"),
        pytest.param(WriteResult(PODS, KEY, "5"), Change(pod("5"), pod("6")), 1, False, id="a later version"),
        pytest.param(WriteResult(PODS, Key("a", "y"), "5"), Change(pod("4"), pod("5")), 1, False, id="another object"),
        pytest.param(WriteResult(SERVICES, KEY, "5"), Change(pod("4"), pod("5")), 1, False, id="another resource"),
        pytest.param(WriteResult(PODS, KEY, "5"), Change(pod("5"), None), 1, False, id="deleted after the write"),
        pytest.param(WriteResult(PODS, KEY, gone="one"), Change(pod("5"), None), 1, True, id="the deleted object"),
        pytest.param(
            WriteResult(PODS, KEY, gone="two"), Change(pod("5"), None), 1, False, id="a version before the deletion"
        ),
        pytest.param(WriteResult(PODS, KEY, "5"), Change(pod("4"), pod("5")), LONGEST_HOLD + 1, False, id="too late"),
    ],
)
async def test_echo_of_own_write_is_recognized(
    write: WriteResult, change: Change[Pod], after: float, is_one: bool
) -> None:
    barrier = CacheBarrier(nothing_cached(), {"pods"})
    barrier.note(write)
    await asyncio.sleep(after)
    assert barrier.is_echo(PODS, change) is is_one
    assert not barrier.is_echo(PODS, change), "an echo is recognized once"


async def test_unobserved_writes_expire() -> None:
    barrier = CacheBarrier(nothing_cached(), {"pods"})
    for number in range(100):
        barrier.note(WriteResult(PODS, Key("a", str(number)), "5"))
        await asyncio.sleep(1)
    assert len(barrier._awaited) <= LONGEST_HOLD + 1


@pytest.mark.parametrize("echoes", [True, False])
async def test_watch_without_echoes_ignores_own_writes(api: Any, echoes: bool) -> None:
    woken: list[str] = []
    async with synced(api) as informers:
        own = CacheBarrier(informers, {"pods"})
        watch = Mapped(PODS, lambda _, change: (change.object.metadata.resource_version,), echoes=echoes)
        feed = EventHandler([watch], informers, Options(), lambda key, *_, after: woken.append(str(key)), own.is_echo)
        async with Tasks() as tasks:
            tasks.start(feed.run(), name="feed")
            own.note(WriteResult(PODS, KEY, "101"))
            api.put("/api/v1/namespaces/a/pods/x")
            await asyncio.sleep(1)
            api.put("/api/v1/namespaces/a/pods/x")
            await asyncio.sleep(1)
    assert woken == (["101", "102"] if echoes else ["102"])


async def test_echo_before_response_is_recognized_after_the_run(api: Any) -> None:
    woken: list[Any] = []
    async with synced(api) as informers:
        own = CacheBarrier(informers, {"pods"})
        watch = Mapped(PODS, lambda _, change: (change.key, change.key), echoes=False)
        feed = EventHandler([watch], informers, Options(), lambda key, *_, after: woken.append(key), own.is_echo)
        async with Tasks() as tasks:
            tasks.start(feed.run(), name="feed")
            for answered in (True, False):
                feed.began(KEY)
                api.put("/api/v1/namespaces/a/pods/x")
                await asyncio.sleep(1)
                assert woken == []
                if answered:
                    own.note(WriteResult(PODS, KEY, "101"))
                feed.ended(KEY)
            assert woken == [KEY], "an unconfirmed write may be of another client"
