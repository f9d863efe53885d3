"""Event recording never blocks; equal events are counted; floods and outages are bounded."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from controller_manager.common.api.core import Namespace, ObjectReference, Pod
from controller_manager.common.api.errors import ApiError, Forbidden, not_found
from controller_manager.common.api.model import ObjectMeta
from controller_manager.common.api.wire import Request, Response
from controller_manager.common.transport.authenticated import InProcessTransport
from controller_manager.framework import Client, TransportError
from controller_manager.framework.client.events import Correlator, EventWriter, Occurrence, Recorder

POD = Pod(api_version="v1", kind="Pod", metadata=ObjectMeta(name="a", namespace="ns", uid="u", resource_version="3"))
virtual = pytest.mark.virtual


class Server:
    """Stores events by path; fails as often as `down` requires."""

    def __init__(self) -> None:
        self.events: dict[str, Any] = {}
        self.requests: list[str] = []
        self.down = 0
        self.refusal: ApiError | None = None

    async def __call__(self, request: Request) -> Response:
        self.requests.append(request.method)
        if self.down:
            self.down -= 1
            raise TransportError("down")
        if self.refusal:
            return Response(self.refusal.code, {}, self.refusal.status().encode())
        body = msgspec.json.decode(request.body)
        if request.method == "POST":
            self.events[f"{request.path}/{body['metadata']['name']}"] = body
            return Response(201, {}, request.body)
        if request.path not in self.events:
            gone = not_found("", "events", "x")
            return Response(404, {}, gone.status().encode())
        self.events[request.path].update(body)
        return Response(200, {}, msgspec.json.encode(self.events[request.path]))

    @property
    def only(self) -> Any:
        [event] = self.events.values()
        return event


class RecorderSetup:
    def __init__(self, capacity: int = 1000) -> None:
        self.server = Server()
        self.registry = CollectorRegistry()
        client = Client(InProcessTransport(self.server))
        self.writer = EventWriter(client, "host-1", registry=self.registry, capacity=capacity)
        self.recorder: Recorder = self.writer.recorder("tester")

    def count(self, outcome: str) -> float:
        return self.registry.get_sample_value("event_recorder_events_total", {"outcome": outcome}) or 0

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(self.writer.run())
            yield
            task.cancel()


@virtual
async def test_event_has_reporter_object_reason_and_time() -> None:
    setup = RecorderSetup()
    async with setup.running():
        setup.recorder.event(POD, "Warning", "Failed", "it broke", "Start")
        await setup.writer.flush()
    [path] = setup.server.events
    event = setup.server.only
    name = event["metadata"].pop("name")
    assert path == f"/api/v1/namespaces/ns/events/{name}"
    assert name.startswith("a.")
    assert event == {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"namespace": "ns"},
        "involvedObject": {
            "apiVersion": "v1",
            "kind": "Pod",
            "namespace": "ns",
            "name": "a",
            "uid": "u",
            "resourceVersion": "3",
        },
        "type": "Warning",
        "reason": "Failed",
        "message": "it broke",
        "action": "Start",
        "count": 1,
        "source": {"component": "tester"},
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "firstTimestamp": "2026-01-01T00:00:00Z",
        "lastTimestamp": "2026-01-01T00:00:00Z",
        "reportingComponent": "tester",
        "reportingInstance": "host-1",
    }


@virtual
async def test_cluster_scoped_event_uses_default_namespace_and_is_cut() -> None:
    setup = RecorderSetup()
    namespace = Namespace(api_version="v1", kind="Namespace", metadata=ObjectMeta(name="n" * 253))
    async with setup.running():
        setup.recorder.normal(namespace, "R" * 200, "x" * 5000)
        await setup.writer.flush()
    event = setup.server.only
    assert event["metadata"]["namespace"] == "default"
    lengths = [len(event[field]) for field in ("message", "reason", "action")]
    assert (len(event["metadata"]["name"]), lengths) == (253, [1024, 128, 128])


@virtual
async def test_equal_events_are_counted_within_ten_minutes() -> None:
    setup = RecorderSetup()
    async with setup.running():
        for _ in range(3):
            setup.recorder.normal(POD, "Did", "it")
            await asyncio.sleep(60)
        assert (setup.server.only["count"], setup.server.only["lastTimestamp"]) == (3, "2026-01-01T00:02:00Z")
        assert setup.server.requests == ["POST", "PATCH", "PATCH"]
        setup.recorder.warning(POD, "Did", "it")
        setup.recorder.normal(POD, "Did", "another")
        await asyncio.sleep(601)
        setup.recorder.normal(POD, "Did", "it")
        await setup.writer.flush()
    assert sorted(event["count"] for event in setup.server.events.values()) == [1, 1, 1, 3]


@virtual
async def test_expired_counted_event_is_created_again() -> None:
    setup = RecorderSetup()
    async with setup.running():
        setup.recorder.normal(POD, "Did", "it")
        await setup.writer.flush()
        setup.server.events.clear()
        setup.recorder.normal(POD, "Did", "it")
        await setup.writer.flush()
    assert setup.server.only["count"] == 2


@virtual
async def test_warnings_have_their_own_budget() -> None:
    setup = RecorderSetup()
    async with setup.running():
        for number in range(40):
            setup.recorder.normal(POD, "Did", f"it {number}")
        setup.recorder.warning(POD, "Failed", "it")
        await setup.writer.flush()
    assert (len(setup.server.events), setup.count("spam")) == (26, 15)


@virtual
async def test_events_per_object_are_limited() -> None:
    setup = RecorderSetup()
    other = msgspec.structs.replace(POD, metadata=ObjectMeta(name="b", namespace="ns"))
    async with setup.running():
        for number in range(40):
            setup.recorder.normal(POD, "Did", f"it {number}")
        setup.recorder.normal(other, "Did", "it")
        await setup.writer.flush()
        assert (len(setup.server.events), setup.count("spam"), setup.count("written")) == (26, 15, 26)
        await asyncio.sleep(301)
        setup.recorder.normal(POD, "Did", "more")
        setup.recorder.normal(POD, "Did", "even more")
        await setup.writer.flush()
    assert (len(setup.server.events), setup.count("spam")) == (27, 16)


@virtual
async def test_full_queue_drops_oldest_events() -> None:
    setup = RecorderSetup(capacity=3)
    for number in range(10):
        setup.recorder.normal(POD, "Did", f"it {number}")
    async with setup.running():
        await setup.writer.flush()
    assert [event["message"] for event in setup.server.events.values()] == ["it 7", "it 8", "it 9"]
    assert setup.count("overflow") == 7


@virtual
async def test_short_outage_is_retried_and_long_one_drops_event() -> None:
    setup = RecorderSetup()
    setup.server.down = 3
    async with setup.running():
        setup.recorder.normal(POD, "Did", "it")
        await setup.writer.flush()
        assert setup.server.only["count"] == 1
        setup.server.down = 4
        setup.recorder.normal(POD, "Did", "something else")
        await setup.writer.flush()
        assert (len(setup.server.events), setup.count("unreachable")) == (1, 1)
        setup.recorder.normal(POD, "Did", "something else")
        await setup.writer.flush()
    assert [event["count"] for event in setup.server.events.values()] == [1, 1]


@virtual
async def test_refused_event_is_dropped_and_next_one_sent() -> None:
    setup = RecorderSetup()
    setup.server.refusal = Forbidden("the namespace is terminating")
    async with setup.running():
        setup.recorder.normal(POD, "Did", "it")
        await setup.writer.flush()
        setup.server.refusal = None
        setup.recorder.normal(POD, "Did", "it")
        await setup.writer.flush()
    assert (setup.count("refused"), setup.server.only["count"]) == (1, 1)


@virtual
async def test_failing_client_does_not_block_other_recorders() -> None:
    setup, other = RecorderSetup(), Server()
    other.down = 1000
    recorder = setup.writer.through(Client(InProcessTransport(other))).recorder("other")
    async with setup.running():
        recorder.normal(POD, "Did", "it")
        setup.recorder.normal(POD, "Did", "it")
        await asyncio.sleep(1)
        assert len(setup.server.events) == 1
        await setup.writer.flush()
    assert (setup.count("written"), setup.count("unreachable")) == (1, 1)
    assert other.requests == ["POST"] * 4


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("xy"), st.floats(0, 700)), max_size=80))
def test_event_counts_add_up_and_names_are_created_once(happened: list[tuple[str, str, float]]) -> None:
    names = iter(range(1000))
    correlator = Correlator(lambda name: f"{name}.{next(names)}")
    now, admitted, latest = 0.0, 0, dict[str, int]()
    for name, note, gap in happened:
        now += gap
        regarding = ObjectReference(kind="Pod", namespace="ns", name=name)
        record = correlator.admit(Occurrence(regarding, "c", "Normal", "R", note, "", now))
        if record is None:
            continue
        admitted += 1
        assert (record.count == 1) == (record.name not in latest)
        assert record.count == latest.get(record.name, 0) + 1
        latest[record.name] = record.count
    assert sum(latest.values()) == admitted
