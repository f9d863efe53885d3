"""Events expire (API concepts, Event resource)."""

import asyncio
from typing import Any

import pytest

CORE = "/api/v1/namespaces/default/events"
EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"


def event(name: str) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": "default"},
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "action": "Tested",
        "reason": "Tested",
        "type": "Normal",
        "reportingController": "example.com/test",
        "reportingInstance": "test-1",
        "regarding": {"kind": "ConfigMap", "namespace": "default", "name": "a", "apiVersion": "v1"},
    }


async def names(api: Any, url: str = EVENTS) -> list[str]:
    return [item["metadata"]["name"] for item in (await api.get(url)).tree["items"]]


@pytest.mark.virtual
async def test_events_expire_an_hour_after_last_write(started: Any) -> None:
    """Event resource: retained for a limited time; watchers of either group see the deletion."""
    async with started() as api:
        for name in ("quiet", "busy"):
            assert (await api.post(EVENTS, event(name))).status == 201
        await api.config("a")
        await asyncio.sleep(1800)
        patch = {"series": {"count": 2, "lastObservedTime": "2026-01-01T00:30:00.000000Z"}}
        assert (await api.patch(f"{EVENTS}/busy", patch)).status == 200
        version = api.server.store.revision
        events = [await api.watch(f"timeoutSeconds=1810&resourceVersion={version}", CORE)]
        assert [(one["type"], one["object"]["kind"], one["object"]["metadata"]["name"]) for one in events[0]] == [
            ("DELETED", "Event", "quiet")
        ]
        assert events[0][0]["object"]["involvedObject"]["name"] == "a"
        assert await names(api) == await names(api, CORE) == ["busy"]
        await asyncio.sleep(1800)
        assert await names(api) == []
        assert await names(api, "/api/v1/namespaces/default/configmaps") == ["a"]


@pytest.mark.virtual
@pytest.mark.parametrize(("ttl", "left"), [("10s", []), ("2h", ["e"]), ("0", ["e"])])
async def test_event_ttl_follows_the_flag(started: Any, ttl: str, left: list[str]) -> None:
    async with started(f"--event-ttl={ttl}") as api:
        await api.post(CORE, {"metadata": {"name": "e"}, "involvedObject": {"namespace": "default"}})
        await asyncio.sleep(3700)
        assert await names(api) == left


@pytest.mark.virtual
async def test_event_ttl_continues_after_restart(started: Any) -> None:
    async with started() as api:
        await api.post(EVENTS, event("e"))
        await asyncio.sleep(3000)
    async with started() as api:
        assert await names(api) == ["e"]
        await asyncio.sleep(603)
        assert await names(api) == []
