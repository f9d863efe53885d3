"""Watches of the typed client: fragmented events, errors and closing."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import msgspec
import pytest

from controller_manager.common.api import errors
from controller_manager.common.api.core import PODS
from controller_manager.common.api.wire import Response, Sink
from controller_manager.framework import TransportError
from tests.controller_manager.framework.client.scripted_server import POD, Chunks, Script, answer, client_of, refusal

pytestmark = pytest.mark.virtual


def event(kind: str, tree: Any) -> bytes:
    return msgspec.json.encode({"type": kind, "object": tree}) + b"\n"


async def take_all(events: AsyncGenerator[Any, None], into: list[Any] | None = None) -> list[Any]:
    taken = [] if into is None else into
    async for one in events:
        taken.append(one)
    return taken


async def test_watch_yields_events_in_any_fragmentation() -> None:
    bookmark = {"kind": "Pod", "metadata": {"resourceVersion": "12"}, "spec": {"containers": None}}
    stream = event("ADDED", POD) + event("DELETED", POD) + b"\n" + event("BOOKMARK", bookmark)
    for size in (1, 7, 100, len(stream)):
        body = Chunks(*(stream[at : at + size] for at in range(0, len(stream), size)))
        script = Script(Response(200, {}, body))
        events = await take_all(client_of(script).watch(PODS, resource_version="5", timeout=30))
        assert [one.type for one in events] == ["ADDED", "DELETED", "BOOKMARK"]
        assert msgspec.json.decode(events[0].object.raw) == POD
        assert events[2].object.metadata.resource_version == "12"
        assert body.closed
    assert script.requests[0].query == (
        ("watch", "true"),
        ("resourceVersion", "5"),
        ("allowWatchBookmarks", "true"),
        ("timeoutSeconds", "30"),
    )


class Bookmarking(Chunks):
    """Offers each chunk to a bookmark sink first, and gives the reader an empty chunk if the sink takes it."""

    def push_bookmarks_to(self, sink: Sink) -> None:
        self.sink = sink

    async def __anext__(self) -> bytes:
        while self.sink(await super().__anext__()):
            pass
        return b""


async def test_plain_bookmarks_go_to_callback_only() -> None:
    initial_end = {"annotations": {"k8s.io/initial-events-end": "true"}, "resourceVersion": "3"}
    plain = {"kind": "Pod", "metadata": {"resourceVersion": "12"}}
    chunks = (
        event("ADDED", POD),
        event("BOOKMARK", {"metadata": initial_end}),
        event("BOOKMARK", plain),
        event("BOOKMARK", plain) * 2,
        event("BOOKMARK", plain)[:-9],
        event("BOOKMARK", plain)[-9:],
        event("BOOKMARK", plain),
    )
    bookmarks: list[str] = []
    script = Script(Response(200, {}, Bookmarking(*chunks)))
    events = await take_all(client_of(script).watch(PODS, bookmarked=bookmarks.append))
    assert bookmarks == ["12", "12"]
    assert [one.type for one in events] == ["ADDED"] + ["BOOKMARK"] * 4


async def test_watch_may_send_initial_events() -> None:
    script = Script(Response(200, {}, Chunks()))
    await take_all(client_of(script).watch(PODS, "default", send_initial_events=True, labels="a=b"))
    assert script.requests[0].query == (
        ("watch", "true"),
        ("labelSelector", "a=b"),
        ("allowWatchBookmarks", "true"),
        ("sendInitialEvents", "true"),
        ("resourceVersionMatch", "NotOlderThan"),
    )


async def test_error_event_is_raised_and_closes_stream() -> None:
    status = msgspec.json.decode(errors.Expired("too old").status().encode())
    body = Chunks(event("ADDED", POD) + event("ERROR", status), forever=True)
    seen: list[Any] = []
    with pytest.raises(errors.Expired, match="too old"):
        await take_all(client_of(Script(Response(200, {}, body))).watch(PODS), seen)
    assert [one.type for one in seen] == ["ADDED"]
    assert body.closed


async def test_refused_watch_raises_at_first_step() -> None:
    with pytest.raises(errors.Expired):
        await take_all(client_of(Script(refusal(errors.Expired("gone")))).watch(PODS))


async def test_truncated_event_raises_transport_error() -> None:
    whole = event("ADDED", POD)
    seen: list[Any] = []
    with pytest.raises(TransportError, match="middle of an event"):
        await take_all(client_of(Script(Response(200, {}, Chunks(whole + whole[:-1])))).watch(PODS), seen)
    assert [one.type for one in seen] == ["ADDED"]


async def test_closing_iterator_closes_stream() -> None:
    body = Chunks(event("ADDED", POD), forever=True)
    async with aclosing(client_of(Script(Response(200, {}, body))).watch(PODS)) as events:
        async for one in events:
            assert one.type == "ADDED"
            break
    assert body.closed


async def test_cancelled_reader_closes_stream() -> None:
    body = Chunks(event("ADDED", POD), forever=True)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(5):
            await take_all(client_of(Script(Response(200, {}, body))).watch(PODS))
    assert body.closed


async def test_watch_answered_with_document_is_refused() -> None:
    with pytest.raises(TransportError, match="single document"):
        await take_all(client_of(Script(answer(POD))).watch(PODS))
