"""Responses in the requested media type; long lists are sent in chunks."""

import asyncio
import dataclasses
import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from apiserver_stub.encode import cbor
from apiserver_stub.encode.negotiate import ContentNegotiator
from apiserver_stub.request.api_request import APIRequest, Item, Items, Reply, ResponseStream
from apiserver_stub.watch_cache.row import Row
from controller_manager.common.api.errors import (
    BadRequest,
    Details,
    NotAcceptable,
    NotFound,
    TooManyRequests,
    UnsupportedMediaType,
)
from controller_manager.common.api.wire import Request, Response
from tests.apiserver_stub.encode.negotiation import (
    AS_PARTIAL,
    AS_TABLE,
    CBOR,
    FORMS,
    JSON,
    OF_META,
    PROTOBUF,
    WITH_CBOR,
    YAML,
    RecordedRepresentation,
    call,
    from_protobuf,
    pod,
)
from tests.pace import end_slices_at_each_look


def collection(objects: list[bytes], token: str = "", remaining: int | None = None) -> Items:
    rows = [Row("pods", f"default/{n}", 7, data) for n, data in enumerate(objects)]
    return Items("9", objects, rows, token, remaining)


async def answer(
    asked: APIRequest, reply: Reply, offered: ContentNegotiator = WITH_CBOR
) -> tuple[list[bytes], dict[str, str]]:
    response = await offered.respond(asked, offered.check(asked), reply)
    return await chunks_of(response), dict(response.headers)


async def chunks_of(response: Response) -> list[bytes]:
    body = response.body
    return [body] if isinstance(body, bytes) else [chunk async for chunk in body]


READ: dict[str, Callable[[bytes], Any]] = {
    JSON: json.loads,
    YAML: yaml.safe_load,
    PROTOBUF: from_protobuf,
    CBOR: lambda data: cbor.load(data)[0],
}


async def decoded_answer(asked: APIRequest, body: Item | Items) -> Any:
    chunks, headers = await answer(asked, Reply(body))
    return READ[headers["content-type"]](b"".join(chunks))


EVENTS, CRDS = ("events.k8s.io", "v1", "events"), ("apiextensions.k8s.io", "v1", "customresourcedefinitions")


REVIEWS = ("authorization.k8s.io", "v1", "subjectaccessreviews")


PODS, DEPLOYMENTS = ("", "v1", "pods"), ("apps", "v1", "deployments")


@pytest.mark.parametrize("of", [PODS, EVENTS, CRDS, REVIEWS, DEPLOYMENTS])
@pytest.mark.parametrize(
    ("accept", "verb", "media"),
    [
        ("", "list", JSON),
        (f"{PROTOBUF},{JSON}", "list", PROTOBUF),
        (f"{PROTOBUF},{JSON}", "create", PROTOBUF),
        (f"{PROTOBUF};stream=watch,{JSON};stream=watch", "watch", f"{PROTOBUF};stream=watch"),
        (PROTOBUF, "watch", f"{PROTOBUF};stream=watch"),
        (f"{JSON};stream=watch", "watch", JSON),
        (CBOR, "get", CBOR),
        (CBOR, "watch", "application/cbor-seq"),
        ("application/cbor-seq", "watch", "application/cbor-seq"),
        (f"{YAML},{JSON}", "watch", JSON),
        (f"{PROTOBUF};as=Table;{OF_META},{AS_TABLE}", "list", JSON),
        (f"{CBOR};as=Table;{OF_META},{YAML};as=Table;{OF_META}", "list", YAML),
        (f"{PROTOBUF};as=PartialObjectMetadata;{OF_META},{JSON}", "get", PROTOBUF),
        (f"{PROTOBUF};as=PartialObjectMetadataList;{OF_META},{JSON}", "list", PROTOBUF),
        (f"{PROTOBUF};as=PartialObjectMetadata;g=meta.k8s.io;v=v1beta1,{JSON}", "get", JSON),
    ],
)
async def test_accept_header_decides_content_type(of: tuple[str, str, str], accept: str, verb: str, media: str) -> None:
    """API concepts, Headers and media types."""
    asked = call(accept, verb, of)
    if of is REVIEWS and "as=Table" in accept:  # reviews are not rows
        with pytest.raises(NotAcceptable):
            WITH_CBOR.check(asked)
        return
    status = Item(b'{"kind":"Status","apiVersion":"v1"}')
    reply = Reply(ResponseStream(RecordedRepresentation().open) if verb == "watch" else status)
    assert (await WITH_CBOR.respond(asked, WITH_CBOR.check(asked), reply)).headers["content-type"] == media


@pytest.mark.parametrize(
    ("accept", "verb"),
    [
        ("text/html", "get"),
        (f"{PROTOBUF};as=Table;{OF_META}", "list"),
        (f"{CBOR};as=Table;{OF_META}", "list"),
        (YAML, "watch"),
        ("application/cbor-seq", "list"),
        (f"{JSON};q=0", "list"),
    ],
)
def test_unsupported_accept_header_gets_406(accept: str, verb: str) -> None:
    """API concepts, Headers and media types: when none is supported, the service answers 406."""
    with pytest.raises(NotAcceptable, match="only the following media types are accepted: application/json, "):
        WITH_CBOR.check(call(accept, verb))


def test_protobuf_is_offered_only_for_kinds_with_messages() -> None:
    """API concepts, Protobuf envelope: unavailable for resources that are defined at run time."""
    known, alone = call(f"{PROTOBUF},{JSON}"), call(PROTOBUF)
    foreign = dataclasses.replace(known.kind, group="example.com", kind="Thing", definition="")
    assert FORMS.check(known).serializer.media_type == PROTOBUF
    assert FORMS.check(replace(known, kind=foreign)).serializer.media_type == JSON
    with pytest.raises(NotAcceptable):
        FORMS.check(replace(alone, kind=foreign))
    metadata = call(f"{PROTOBUF};as=PartialObjectMetadataList;{OF_META}")
    assert FORMS.check(replace(metadata, kind=foreign)).serializer.media_type == PROTOBUF


def test_subresource_uses_its_own_kind() -> None:
    whole = call(PROTOBUF, "get", DEPLOYMENTS)
    scale = replace(whole, subresource=whole.kind.subresources["scale"])
    assert FORMS.check(scale).serializer.media_type == PROTOBUF


@pytest.mark.parametrize("accept", [CBOR, f"{CBOR},text/html"])
def test_cbor_needs_feature_gate(accept: str) -> None:
    """API concepts, Versioning: CBORServingAndStorage is off by default."""
    with pytest.raises(NotAcceptable):
        FORMS.check(call(accept))
    assert FORMS.check(call(f"{CBOR},{JSON}")).serializer.media_type == JSON


@pytest.mark.parametrize(
    ("verb", "media", "named"),
    [
        ("create", "application/cbor", "application/json, application/yaml, application/vnd.kubernetes.protobuf"),
        ("delete", "application/CBOR; x=y", "application/json, application/yaml, application/vnd.kubernetes.protobuf"),
        ("patch", "application/apply-patch+cbor", "application/json-patch+json, application/merge-patch"),
    ],
)
def test_cbor_bodies_need_feature_gate(verb: str, media: str, named: str) -> None:
    whole = call(verb=verb)
    request = Request("POST", "/", headers={"content-type": media}, body=b"\xa0")
    asked = APIRequest(request, whole.user, verb, whole.kind, "", "", None, {})
    with pytest.raises(UnsupportedMediaType) as refused:
        FORMS.check(asked)
    assert f"accepted media types include: {named}" in refused.value.message
    assert WITH_CBOR.check(asked)


async def test_object_is_returned_unchanged() -> None:
    chunks, headers = await answer(call(verb="get"), Reply(Item(pod("a"))))
    assert chunks == [pod("a") + b"\n"]
    assert headers == {"content-type": "application/json"}


@pytest.mark.parametrize("accept", [JSON, YAML, PROTOBUF, CBOR])
@pytest.mark.parametrize("count", [0, 1, 2, 60])
async def test_list_is_equal_in_every_media_type(accept: str, count: int) -> None:
    items = collection([pod(str(n)) for n in range(count)], "token", 4)
    tree = await decoded_answer(call(accept), items)
    assert (tree["kind"], tree["apiVersion"]) == ("PodList", "v1")
    assert tree["metadata"] == {"resourceVersion": "9", "continue": "token", "remainingItemCount": 4}
    items_of = tree.get("items", [])
    assert [(item["metadata"]["name"], item["spec"]["nodeName"]) for item in items_of] == [
        (str(n), "y" * 10) for n in range(count)
    ]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(1, 300_000), min_size=1, max_size=6))
def test_long_list_is_sent_in_large_chunks(sizes: list[int]) -> None:
    items = collection([pod(str(n), size) for n, size in enumerate(sizes)])
    chunks, _ = asyncio.run(answer(call(), Reply(items)))
    tree = json.loads(b"".join(chunks))
    assert [item["metadata"]["name"] for item in tree["items"]] == [str(n) for n in range(len(sizes))]
    assert all(len(chunk) >= 256 * 1024 for chunk in chunks[1:-2]), "all but the brackets and the rest"


@pytest.mark.parametrize(
    "accept", [YAML, PROTOBUF, CBOR, AS_TABLE, AS_PARTIAL.replace("Metadata;", "MetadataList;"), f"{JSON};pretty=1"]
)
@pytest.mark.parametrize("sizes", [[], [10], [10, 300_000, 20], [100_000] * 7, [1] * 200])
async def test_any_list_equals_its_chunks(accept: str, sizes: list[int]) -> None:
    items = collection([pod(str(n), size) for n, size in enumerate(sizes)])
    asked = call(accept, includeObject="Object")
    chunks, headers = await answer(asked, Reply(items))
    tree = READ[headers["content-type"]](b"".join(chunks))
    found = [row["object"] for row in tree["rows"]] if "rows" in tree else tree.get("items", [])
    assert [item["metadata"]["name"] for item in found] == [str(n) for n in range(len(sizes))]
    if "PartialObjectMetadata" not in accept:
        assert [len(item["spec"]["nodeName"]) for item in found] == sizes


@pytest.mark.parametrize(
    ("accept", "count", "size", "breaths"),
    [(YAML, 200, 10, 200), (PROTOBUF, 200, 10, 12), (CBOR, 200, 10, 6), (AS_TABLE, 200, 10, 4),
     (PROTOBUF, 10, 1 << 20, 10), (CBOR, 10, 1 << 20, 10), (AS_TABLE, 10, 1 << 20, 10)],
)  # fmt: skip
async def test_long_list_yields_to_the_event_loop(accept: str, count: int, size: int, breaths: int) -> None:
    end_slices_at_each_look()
    items, turns = collection([pod(str(n), size) for n in range(count)]), 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as group:
        running = group.create_task(others())
        await answer(call(accept), Reply(items))
        running.cancel()
    assert turns >= breaths


@pytest.mark.parametrize(
    ("query", "agent", "pretty"),
    [
        ({}, "", False),
        ({"pretty": "true"}, "", True),
        ({"pretty": "1"}, "", True),
        ({"pretty": "false"}, "curl/8.1", False),
        ({"pretty": "0"}, "Mozilla/5.0 (X11)", False),
        ({"pretty": "yes"}, "", False),
        ({"pretty": ""}, "curl/8.1", True),
        ({}, "Wget/1.21", True),
        ({}, "Mozilla/5.0 (X11)", True),
        ({}, "kubectl/v1.32.0", False),
    ],
)
async def test_browsers_and_pretty_parameter_get_indented_json(query: dict[str, str], agent: str, pretty: bool) -> None:
    plain = call(verb="get", **query)
    request = Request("GET", "/", tuple(query.items()), {"user-agent": agent})
    asked = APIRequest(request, plain.user, "get", plain.kind, "", "", None, query)
    chunks, _ = await answer(asked, Reply(Item(pod("a"))))
    assert chunks[0].startswith(b'{\n  "apiVersion": "v1"') is pretty
    chunks, _ = await answer(asked, Reply(collection([pod("a"), pod("b")])))
    whole = json.loads(b"".join(chunks))
    assert (b"".join(chunks) == json.dumps(whole, indent=2).encode()) is pretty
    refusal = bytes(FORMS.refuse(NotFound("no"), request).body)
    assert refusal.startswith(b"{\n") is pretty


@pytest.mark.parametrize("accept", [AS_TABLE, AS_TABLE.replace("json", "yaml")])
async def test_objects_and_lists_are_shown_as_tables(accept: str) -> None:
    table = await decoded_answer(call(accept), collection([pod("a"), pod("b")], "token", 4))
    assert (table["kind"], table["apiVersion"]) == ("Table", "meta.k8s.io/v1")
    assert table["metadata"] == {"resourceVersion": "9", "continue": "token", "remainingItemCount": 4}
    assert [row["cells"][0] for row in table["rows"]] == ["a", "b"]
    one = await decoded_answer(call(accept, "get"), Item(pod("a")))
    assert (one["metadata"], len(one["rows"])) == ({"resourceVersion": "7"}, 1)
    assert one["rows"][0]["object"] == {
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": {"name": "a", "resourceVersion": "7"},
    }


async def test_v1beta1_tables_have_the_same_fields() -> None:
    old = await decoded_answer(call(AS_TABLE + "beta1"), collection([pod("a")]))
    new = await decoded_answer(call(AS_TABLE), collection([pod("a")]))
    assert old["apiVersion"] == old["rows"][0]["object"]["apiVersion"] == "meta.k8s.io/v1beta1"
    assert old["columnDefinitions"] == new["columnDefinitions"]
    assert old["rows"][0]["cells"] == new["rows"][0]["cells"]


@pytest.mark.parametrize("media_type", [JSON, YAML, CBOR, PROTOBUF])
async def test_objects_and_lists_are_shown_as_metadata(media_type: str) -> None:
    accept = AS_PARTIAL.replace(JSON, media_type)
    partial = {
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": {"name": "a", "resourceVersion": "7"},
    }
    assert await decoded_answer(call(accept, "get"), Item(pod("a"))) == partial
    listed = await decoded_answer(call(accept.replace("Metadata;", "MetadataList;")), collection([pod("a")]))
    assert (listed["kind"], listed["metadata"]) == ("PartialObjectMetadataList", {"resourceVersion": "9"})
    assert [item["metadata"] for item in listed["items"]] == [partial["metadata"]]


@pytest.mark.parametrize("accept", [AS_TABLE, f"{PROTOBUF},{JSON}", YAML, CBOR])
async def test_status_is_never_converted(accept: str) -> None:
    status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 200}
    found = await decoded_answer(call(accept, "delete"), Item(msgspec.json.encode(status)))
    assert {key: found[key] for key in ("kind", "apiVersion", "status", "code")} == {
        key: status[key] for key in ("kind", "apiVersion", "status", "code")
    }


@pytest.mark.parametrize(
    ("accept", "media"),
    [
        ("", JSON),
        (JSON, JSON),
        (YAML, YAML),
        (f"{PROTOBUF},{JSON}", PROTOBUF),
        (CBOR, CBOR),
        (f"{AS_TABLE},{JSON}", JSON),
        (f"{PROTOBUF};as=PartialObjectMetadata;{OF_META},{YAML}", YAML),
        (AS_TABLE, JSON),
        ("text/html", JSON),
        ("application/cbor-seq", JSON),
    ],
)
def test_errors_use_the_requested_media_type(accept: str, media: str) -> None:
    refusal = TooManyRequests("slow down, ü", Details(retry_after_seconds=7))
    response = WITH_CBOR.refuse(refusal, Request("GET", "/", headers={"accept": accept}))
    assert (response.status, response.headers) == (429, {"content-type": media, "retry-after": "7"})
    assert isinstance(response.body, bytes)
    status = READ[media](response.body)
    assert (status["kind"], status["reason"], status["code"]) == ("Status", "TooManyRequests", 429)
    assert status["message"] == "slow down, ü"


async def test_include_object_is_checked_for_tables() -> None:
    tree = await decoded_answer(call(AS_TABLE, includeObject="Object"), collection([pod("a")]))
    assert tree["rows"][0]["object"]["spec"]
    tree = await decoded_answer(call(AS_TABLE, includeObject="None"), collection([pod("a")]))
    assert tree["rows"][0]["object"] is None
    with pytest.raises(BadRequest, match="must be 'Metadata', 'Object', 'None', or empty"):
        FORMS.check(call(AS_TABLE, includeObject="Everything"))
    assert FORMS.check(call(includeObject="Everything"))


async def test_warning_headers_are_ascii_and_limited_in_size() -> None:
    """API concepts, Field validation, rule 3."""
    texts = ('unknown field "spec.a"', "bell \a, line\nend, ü", 'unknown field "spec.a"', "")
    _, headers = await answer(call(verb="get"), Reply(Item(pod("a")), 200, texts))
    assert headers["warning"] == '299 - "unknown field \\"spec.a\\"", 299 - "bell  , line end, \\\\xfc"'
    long = ("x" * 4000, "y" * 90, "z" * 7)
    _, headers = await answer(call(verb="get"), Reply(Item(pod("a")), 200, long))
    assert headers["warning"] == f'299 - "{"x" * 256}", 299 - "{"y" * 90}", 299 - "zzzzzzz"'
    many = tuple(f"{n} {'y' * 200}" for n in range(1000))
    _, headers = await answer(call(verb="get"), Reply(Item(pod("a")), 200, many))
    assert 3500 < len(headers["warning"]) < 5000
