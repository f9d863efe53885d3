"""Responses in protobuf: equal to those of an independent encoder, and decoded back."""

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from apiserver_stub.encode.json import DEEPEST
from apiserver_stub.encode.protobuf import collection, decode, envelope, frame, knows, raw
from apiserver_stub.encode.serializers import RowEncoder, row_encoder
from apiserver_stub.kinds.data import load
from apiserver_stub.kinds.registry import built_in
from apiserver_stub.watch_cache.row import Row
from controller_manager.common.api.protobuf.wire import fields

CRD = "apiextensions.k8s.io/v1", "CustomResourceDefinition"
REVIEW = "authorization.k8s.io/v1", "SelfSubjectAccessReview"


def body(tree: Any, api_version: str, kind: str) -> bytes:
    return envelope(api_version, kind, raw(json.dumps(tree).encode(), api_version, kind))


def round_trip(tree: Any, api_version: str, kind: str) -> Any:
    """The object after encoding and decoding, without its type."""
    found = decode(body(tree, api_version, kind), "v1", "Anything")
    assert (found.pop("apiVersion"), found.pop("kind")) == (api_version, kind)
    return found


def without_head(field: bytes) -> bytes:
    """The content of field 2."""
    [(tag, content)] = fields(field)
    assert tag == 2 << 3 | 2
    assert isinstance(content, bytes)
    return content


def is_empty(value: Any) -> bool:
    """Whether a value holds nothing."""
    if isinstance(value, dict):
        return all(map(is_empty, value.values()))
    return value in ("", "0", 0, False, None, [])


def is_contained(tree: Any, found: Any) -> bool:
    """Whether all of an object is in another, whose further values are empty."""
    if isinstance(tree, list) and isinstance(found, list) and len(tree) == len(found):
        return all(map(is_contained, tree, found))
    if not isinstance(tree, dict) or not isinstance(found, dict):
        return bool(tree == found)
    kept = (is_contained(value, found[name]) if name in found else is_empty(value) for name, value in tree.items())
    return all(kept) and all(is_empty(found[name]) for name in found.keys() - tree.keys())


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.data())
def test_any_object_is_encoded_like_protobuf_package(whole_writer: Any, objects: Any, data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from([kind for kind in whole_writer.kinds if "/" in kind]))
    api_version, _, name = kind.rpartition("/")
    tree = data.draw(objects(whole_writer.kinds[kind]))
    written = raw(json.dumps(tree).encode(), api_version, name)
    assert without_head(written) == whole_writer.raw(whole_writer.kinds[kind], tree)
    found = round_trip(tree, api_version, name)
    assert is_contained(tree, found)
    assert raw(json.dumps(found).encode(), api_version, name) == written


def test_body_recorded_from_kubectl_is_encoded_equally(can_i: bytes) -> None:
    assert body(decode(can_i, *REVIEW), *REVIEW) == can_i


@pytest.mark.parametrize(
    ("spec", "written"),
    [
        ({}, "1200"),
        ({"finalizers": []}, "1200"),
        ({"finalizers": ["", "ü"]}, "1206 0a00 0a02c3bc"),
        (None, "1200"),
        ({"finalizers": None, "invented": {"a": 1}}, "1200"),
    ],
)
def test_handwritten_bytes_are_encoded(spec: Any, written: str) -> None:
    """Fields that are not pointers are written even when unset; null and unknown fields are skipped."""
    nothing = "0a 10 0a00 1200 1a00 2200 2a00 3200 3800 4200"
    expected = bytes.fromhex(nothing + written + "1a02 0a00")
    assert without_head(raw(json.dumps({"kind": "Namespace", "spec": spec}).encode(), "v1", "Namespace")) == expected


@pytest.mark.parametrize(
    ("api_version", "kind", "field", "value"),
    [
        ("v1", "ConfigMap", "data", {"": "", "b": "2", "a": "1", "ü": "\U0001d11e", "long": "x" * 300}),
        ("v1", "Secret", "data", {"k": "AP8=", "none": ""}),
        ("v1", "Secret", "immutable", False),
        ("scheduling.k8s.io/v1", "PriorityClass", "value", -(1 << 31)),
        ("apps/v1", "ControllerRevision", "revision", -(1 << 63)),
        ("apps/v1", "ControllerRevision", "revision", (1 << 63) - 1),
        ("apps/v1", "ControllerRevision", "data", {"a": [1, None, {"b": "ü"}], "c": 1.5}),
        ("v1", "Event", "eventTime", "2026-01-02T03:04:05.000006Z"),
        ("v1", "Event", "firstTimestamp", "1969-12-31T23:59:59Z"),
        ("networking.k8s.io/v1", "NetworkPolicy", "spec",
         {"podSelector": {}, "ingress": [{}], "egress": [{"ports": [{"port": 0}]}]}),
        ("authorization.k8s.io/v1", "SubjectAccessReview", "status", {"allowed": False, "reason": "no"}),
        ("authentication.k8s.io/v1", "TokenReview", "status", {"user": {"extra": {"b": ["x", ""], "a": []}}}),
        ("policy/v1", "Eviction", "deleteOptions", {"gracePeriodSeconds": 0, "preconditions": {"uid": ""}}),
        ("autoscaling/v1", "Scale", "spec", {"replicas": 3}),
        ("v1", "Status", "details",
         {"name": "x", "causes": [{"reason": "R", "message": "m", "field": "f"}], "retryAfterSeconds": 1}),
        ("v1", "DeleteOptions", "propagationPolicy", "Orphan"),
    ],
)  # fmt: skip
def test_every_field_type_is_encoded(api_version: str, kind: str, field: str, value: Any) -> None:
    assert round_trip({field: value}, api_version, kind)[field] == value


def test_maps_are_written_sorted_by_key() -> None:
    """Equal objects have equal bytes."""
    keys = ["z", "ü", "", "ab", "a", "𝄞", "B"]
    written = [
        raw(json.dumps({"data": dict.fromkeys(order, "v")}).encode(), "v1", "ConfigMap")
        for order in (keys, sorted(keys))
    ]
    assert written[0] == written[1]


def test_custom_resource_schemas_are_encoded() -> None:
    schema: Any = {
        "default": {"a": []},
        "enum": [1, "a", None],
        "maximum": -1.5,
        "minimum": 0,
        "items": {"type": "string"},
        "additionalProperties": False,
        "additionalItems": {"not": {"$ref": "x"}},
        "dependencies": {"a": ["b"], "c": {"items": [{"type": "string"}]}},
        "x-kubernetes-preserve-unknown-fields": False,
    }
    [version] = round_trip({"spec": {"versions": [{"schema": {"openAPIV3Schema": schema}}]}}, *CRD)["spec"]["versions"]
    assert version["schema"]["openAPIV3Schema"] == schema


@pytest.mark.parametrize("field", ["items", "not", "additionalProperties"])
def test_deepest_object_is_encoded(field: str) -> None:
    schema: Any = {}
    for _ in range(DEEPEST - 8):
        schema = {field: schema}
    tree = {"spec": {"versions": [{"schema": {"openAPIV3Schema": schema}}]}}
    assert raw(json.dumps(tree).encode(), *CRD)


def test_kinds_with_messages_are_known() -> None:
    for kind in load("schema.json")["kinds"]:
        assert knows(*kind.removeprefix("/").rsplit("/", 1))
    assert knows("v1", "Status")
    assert knows("v1", "PodList")
    assert knows("meta.k8s.io/v1", "PartialObjectMetadataList")
    assert not knows("meta.k8s.io/v1", "Table")
    assert not knows("example.com/v1", "Pod")
    with pytest.raises(LookupError, match="no message"):
        raw(b"{}", "example.com/v1", "Pod")


@pytest.mark.parametrize("size", [0, 1, 300_000])
def test_collection_is_encoded_as_list(size: int) -> None:
    """API concepts, Protobuf envelope: also for lists; chunks hold whole items, of about 512 KiB."""
    items = [{"metadata": {"name": f"c-{n}"}, "data": {"k": "x" * size}} for n in range(size and 5)]
    metadata = {"resourceVersion": "7", "continue": "go on", "remainingItemCount": 0}
    raws = [raw(json.dumps(item).encode(), "v1", "ConfigMap") for item in items]
    pieces = list(collection("v1", "ConfigMapList", metadata, raws))
    assert max(map(len, pieces)) < 1 << 20
    tree = {"apiVersion": "v1", "kind": "ConfigMapList", "metadata": metadata, "items": items}
    assert b"".join(pieces) == body(tree, "v1", "ConfigMapList")
    assert is_contained(tree, decode(b"".join(pieces), "v1", "Anything"))


def test_watch_event_contains_object_envelope(whole_writer: Any) -> None:
    shown = body({"metadata": {"name": "n"}}, "v1", "Namespace")
    framed = frame("ADDED", shown)
    assert int.from_bytes(framed[:4], "big") == len(framed) - 4
    event = dict(fields(framed[4:]))
    assert event.keys() == {1 << 3 | 2, 2 << 3 | 2}
    assert event[1 << 3 | 2] == b"ADDED"
    assert list(fields(event[2 << 3 | 2])) == [(1 << 3 | 2, shown)]


def rows_of(count: int) -> list[Row]:
    named = ({"metadata": {"name": f"c-{n}", "labels": {"a": "b"}}, "data": {"k": "v"}} for n in range(count))
    return [Row("configmaps", tree["metadata"]["name"], 1, json.dumps(tree).encode()) for tree in named]


def test_rows_are_encoded_whole_or_as_metadata(cached_rows: Any) -> None:
    kind = built_in().find("", "v1", "configmaps")
    assert kind is not None
    [row] = rows_of(1)
    tree = json.loads(row.data)
    for partial, expected in ((False, tree), (True, {"metadata": tree["metadata"]})):
        encoder = row_encoder(kind, partial)
        cached_rows.clear()
        found = decode(encoder.whole(row, cached_rows), "v1", "Anything")
        assert found == {"apiVersion": encoder.api_version, "kind": encoder.kind, **expected}


def test_row_is_encoded_once(cached_rows: Any) -> None:
    made: list[bytes] = []
    encoder = RowEncoder("v1", "ConfigMap", "a", lambda data: made.append(data) or data[:4])
    [row] = rows_of(1)
    assert [encoder.raw(row, cached_rows) for _ in range(2)] == [row.data[:4]] * 2
    assert encoder.whole(row, cached_rows) == envelope("v1", "ConfigMap", row.data[:4])
    assert encoder.event("ADDED", row, cached_rows) == frame("ADDED", envelope("v1", "ConfigMap", row.data[:4]))
    assert made == [row.data]


def test_rows_are_encoded_in_requested_version(cached_rows: Any) -> None:
    """Rows stored in one version are written in another."""
    kind = built_in().find("events.k8s.io", "v1", "events")
    assert kind is not None
    assert kind.from_storage is not None
    stored = {"apiVersion": "v1", "kind": "Event", "metadata": {"name": "e"}, "message": "boo", "reason": "R"}
    row = Row("events", "default/e", 1, json.dumps(stored).encode())
    found = decode(row_encoder(kind, partial=False).whole(row, cached_rows), "v1", "Anything")
    assert (found["apiVersion"], found["kind"], found["note"]) == ("events.k8s.io/v1", "Event", "boo")
