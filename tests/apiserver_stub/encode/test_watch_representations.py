"""Watch events in the requested representation."""

import json
from typing import Any

import pytest

from apiserver_stub.encode import cbor
from apiserver_stub.kinds.schema.zero_values import zero_object
from apiserver_stub.request.api_request import APIRequest, Reply, ResponseStream
from apiserver_stub.watch_cache.event_encoder import EventEncoder, bookmark
from controller_manager.common.api.errors import (
    Expired,
)
from controller_manager.common.api.protobuf.wire import fields
from tests.apiserver_stub.encode.negotiation import (
    AS_PARTIAL,
    AS_TABLE,
    CBOR,
    JSON,
    KINDS,
    PROTOBUF,
    WITH_CBOR,
    RecordedRepresentation,
    call,
    from_protobuf,
    pod,
)


async def opened(asked: APIRequest) -> EventEncoder:
    """The event encoder of a watch."""
    found = RecordedRepresentation()
    await WITH_CBOR.respond(asked, WITH_CBOR.check(asked), Reply(ResponseStream(found.open)))
    return found.last


def event(represent: EventEncoder, kind: str, data: bytes) -> Any:
    tree = json.loads(represent.event(kind, data))
    assert tree["type"] == kind
    return tree["object"]


async def test_only_first_table_of_watch_has_columns() -> None:
    first = await opened(call(AS_TABLE, "watch"))
    later = first.rest
    assert later is not None
    assert later.rest is None
    assert first.name != later.name
    headed, headless = (event(represent, "ADDED", pod("a")) for represent in (first, later))
    assert headed["columnDefinitions"]
    assert headless["columnDefinitions"] is None
    assert headed["rows"] == headless["rows"]


@pytest.mark.parametrize("kind", [kind for kind in KINDS.all() if kind.persisted], ids=lambda kind: kind.name)
async def test_bookmark_is_a_table_row_with_resource_version(kind: Any) -> None:
    asked = call(AS_TABLE, "watch", (kind.group, kind.version, kind.plural))
    mark = bookmark(kind.api_version, kind.kind, 8, zero_object(kind.name, kind.schema))
    table = event(await opened(asked), "BOOKMARK", mark)
    assert table["metadata"] == {"resourceVersion": "8"}
    assert len(table["rows"][0]["cells"]) == len(table["columnDefinitions"])
    assert table["rows"][0]["object"]["metadata"]["resourceVersion"] == "8"


async def test_end_of_initial_events_is_marked_without_objects() -> None:
    represent = await opened(call(AS_TABLE, "watch", includeObject="None"))
    end = event(represent, "BOOKMARK", bookmark("v1", "Pod", 8, {}, initial_end=True))
    assert end["rows"][0]["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    assert event(represent, "BOOKMARK", bookmark("v1", "Pod", 8, {}))["rows"][0]["object"] is None


async def test_watch_error_uses_the_media_type_of_the_watch() -> None:
    """API concepts, Watching, rule 4, and Errors."""
    refusal = Expired("too old resource version")
    for accept in (JSON, AS_TABLE, AS_PARTIAL):
        assert json.loads((await opened(call(accept, "watch"))).failure(refusal))["object"]["reason"] == "Expired"
    item, _ = cbor.load((await opened(call(CBOR, "watch"))).failure(refusal))
    assert (item["type"], item["object"]["code"]) == ("ERROR", 410)
    frame = (await opened(call(PROTOBUF, "watch"))).failure(refusal)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    shown = dict(fields(frame[4:]))
    assert shown[1 << 3 | 2] == b"ERROR"
    status = from_protobuf(dict(fields(shown[2 << 3 | 2]))[1 << 3 | 2])
    assert (status["kind"], status["reason"], status["code"]) == ("Status", "Expired", 410)


async def test_encoded_events_are_shared_by_representation() -> None:
    accepts = ["", JSON, f"{JSON};pretty=1", PROTOBUF, CBOR, AS_TABLE, AS_TABLE + "beta1", AS_PARTIAL]
    names = [(await opened(call(accept, "watch"))).name for accept in accepts]
    assert len(set(names)) == len(names) - 2
    assert (await opened(call(AS_TABLE, "watch"))).name != (
        await opened(call(AS_TABLE, "watch", includeObject="None"))
    ).name
