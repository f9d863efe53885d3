"""Informers shared by their users."""

import asyncio
from typing import Any

import pytest

from controller_manager.common.api.core import PODS
from controller_manager.common.api.resource import Resource
from controller_manager.common.base.deadlines import MovingDeadlines
from controller_manager.common.base.runtime import Runtime
from controller_manager.common.base.tasks import Tasks
from controller_manager.framework import Informers
from controller_manager.testing.virtual import VirtualLoop

pytestmark = pytest.mark.virtual

POD = "/api/v1/namespaces/a/pods/one"
OTHER_VERSION = Resource("", "v2", "pods", "Pod", True, PODS.metadata_only().type)


def watching(api: Any) -> int:
    """Return the number of requests for pods."""
    return len(api.requests)


async def test_acquire_returns_existing_covering_informer() -> None:
    informers = Informers(object(), Runtime("test"))
    informers.get(PODS, namespace="a")
    whole = informers.get(PODS)
    assert informers.acquire(PODS.metadata_only()) is whole
    assert informers.acquire(OTHER_VERSION) is whole
    informers.release(whole)
    informers.release(whole)
    assert whole in tuple(informers)


async def test_acquired_informer_ends_with_last_release(api: Any) -> None:
    api.put(POD)
    informers = Informers(api.client(), Runtime("test"))
    async with Tasks() as tasks:
        tasks.start(informers.run(), name="informers")
        first = informers.acquire(PODS.metadata_only())
        assert informers.acquire(PODS.metadata_only()) is first
        assert informers.required == ()
        assert informers.filling == (first,)
        await first.synced()
        assert informers.filling == ()
        informers.release(first)
        assert tuple(informers) == (first,)
        informers.release(first)
        assert tuple(informers) == ()
        asked = watching(api)
        await asyncio.sleep(4000)
        assert watching(api) == asked
        again = informers.acquire(PODS.metadata_only())
        assert again is not first
        informers.release(first)
        assert tuple(informers) == (again,)


async def test_acquired_informer_stays_if_also_required(api: Any) -> None:
    informers = Informers(api.client(), Runtime("test"))
    borrowed = informers.acquire(PODS)
    assert informers.get(PODS) is borrowed
    assert informers.required == (borrowed,)
    informers.release(borrowed)
    assert tuple(informers) == (borrowed,)


async def test_watches_share_one_silence_timer(api: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    api.put(POD)
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    call_at, timers = loop.call_housekeeping_at, set()

    def counted(when: float, callback: Any, *args: Any) -> Any:
        if isinstance(owner := getattr(callback, "__self__", None), MovingDeadlines):
            timers.add(owner)
        return call_at(when, callback, *args)

    monkeypatch.setattr(loop, "call_housekeeping_at", counted)
    informers = Informers(api.client(), Runtime("test"))
    async with Tasks() as tasks:
        tasks.start(informers.run(), name="informers")
        for one in (informers.get(PODS), informers.get(PODS, namespace="a")):
            await one.synced()
        await asyncio.sleep(60)
        (only,) = timers
        assert len(only) == 2
