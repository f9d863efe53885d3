"""Events never hold up who records them; equal ones become a count; floods and outages are bounded."""

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
from controller_manager.framework.client import Client, InProcessTransport, TransportError
from controller_manager.framework.client.events import Correlator, EventWriter, Occurrence, Recorder

POD = Pod(api_version="v1", kind="Pod", metadata=ObjectMeta(name="a", namespace="ns", uid="u", resource_version="3"))
virtual = pytest.mark.virtual


class Server:
    """Keeps events by path; fails as often as told."""

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


class Kit:
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
    kit = Kit()
    async with kit.running():
        kit.recorder.event(POD, "Warning", "Failed", "it broke", "Start")
        await kit.writer.flush()
    [path] = kit.server.events
    event = kit.server.only
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
    kit = Kit()
    namespace = Namespace(api_version="v1", kind="Namespace", metadata=ObjectMeta(name="n" * 253))
    async with kit.running():
        kit.recorder.normal(namespace, "R" * 200, "x" * 5000)
        await kit.writer.flush()
    event = kit.server.only
    assert event["metadata"]["namespace"] == "default"
    lengths = [len(event[field]) for field in ("message", "reason", "action")]
    assert (len(event["metadata"]["name"]), lengths) == (253, [1024, 128, 128])


@virtual
async def test_equal_events_are_counted_within_ten_minutes() -> None:
    kit = Kit()
    async with kit.running():
        for _ in range(3):
            kit.recorder.normal(POD, "Did", "it")
            await asyncio.sleep(60)
        assert (kit.server.only["count"], kit.server.only["lastTimestamp"]) == (3, "2026-01-01T00:02:00Z")
        assert kit.server.requests == ["POST", "PATCH", "PATCH"]
        kit.recorder.warning(POD, "Did", "it")
        kit.recorder.normal(POD, "Did", "another")
        await asyncio.sleep(601)
        kit.recorder.normal(POD, "Did", "it")
        await kit.writer.flush()
    assert sorted(event["count"] for event in kit.server.events.values()) == [1, 1, 1, 3]


@virtual
async def test_expired_counted_event_is_created_again() -> None:
    kit = Kit()
    async with kit.running():
        kit.recorder.normal(POD, "Did", "it")
        await kit.writer.flush()
        kit.server.events.clear()
        kit.recorder.normal(POD, "Did", "it")
        await kit.writer.flush()
    assert kit.server.only["count"] == 2


@virtual
async def test_warnings_have_their_own_budget() -> None:
    kit = Kit()
    async with kit.running():
        for number in range(40):
            kit.recorder.normal(POD, "Did", f"it {number}")
        kit.recorder.warning(POD, "Failed", "it")
        await kit.writer.flush()
    assert (len(kit.server.events), kit.count("spam")) == (26, 15)


@virtual
async def test_events_per_object_are_limited() -> None:
    kit = Kit()
    other = msgspec.structs.replace(POD, metadata=ObjectMeta(name="b", namespace="ns"))
    async with kit.running():
        for number in range(40):
            kit.recorder.normal(POD, "Did", f"it {number}")
        kit.recorder.normal(other, "Did", "it")
        await kit.writer.flush()
        assert (len(kit.server.events), kit.count("spam"), kit.count("written")) == (26, 15, 26)
        await asyncio.sleep(301)
        kit.recorder.normal(POD, "Did", "more")
        kit.recorder.normal(POD, "Did", "even more")
        await kit.writer.flush()
    assert (len(kit.server.events), kit.count("spam")) == (27, 16)


@virtual
async def test_full_queue_drops_oldest_events() -> None:
    kit = Kit(capacity=3)
    for number in range(10):
        kit.recorder.normal(POD, "Did", f"it {number}")
    async with kit.running():
        await kit.writer.flush()
    assert [event["message"] for event in kit.server.events.values()] == ["it 7", "it 8", "it 9"]
    assert kit.count("overflow") == 7


@virtual
async def test_short_outage_is_retried_and_long_one_drops_event() -> None:
    kit = Kit()
    kit.server.down = 3
    async with kit.running():
        kit.recorder.normal(POD, "Did", "it")
        await kit.writer.flush()
        assert kit.server.only["count"] == 1
        kit.server.down = 4
        kit.recorder.normal(POD, "Did", "something else")
        await kit.writer.flush()
        assert (len(kit.server.events), kit.count("unreachable")) == (1, 1)
        kit.recorder.normal(POD, "Did", "something else")
        await kit.writer.flush()
    assert [event["count"] for event in kit.server.events.values()] == [1, 1]


@virtual
async def test_refused_event_is_dropped_and_next_one_sent() -> None:
    kit = Kit()
    kit.server.refusal = Forbidden("the namespace is terminating")
    async with kit.running():
        kit.recorder.normal(POD, "Did", "it")
        await kit.writer.flush()
        kit.server.refusal = None
        kit.recorder.normal(POD, "Did", "it")
        await kit.writer.flush()
    assert (kit.count("refused"), kit.server.only["count"]) == (1, 1)


@virtual
async def test_failing_client_does_not_block_other_recorders() -> None:
    kit, other = Kit(), Server()
    other.down = 1000
    recorder = kit.writer.through(Client(InProcessTransport(other))).recorder("other")
    async with kit.running():
        recorder.normal(POD, "Did", "it")
        kit.recorder.normal(POD, "Did", "it")
        await asyncio.sleep(1)
        assert len(kit.server.events) == 1
        await kit.writer.flush()
    assert (kit.count("written"), kit.count("unreachable")) == (1, 1)
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
