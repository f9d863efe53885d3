"""Headers and media types, Response compression, Table representation, Protobuf envelope."""

import gzip
import json
from typing import Any

import pytest
import yaml

from tests.apiserver_stub.api_client import types_and_names

CONFIGS = "/api/v1/namespaces/default/configmaps"
PROTOBUF = "application/vnd.kubernetes.protobuf"
TABLE = "application/json;as=Table;g=meta.k8s.io;v=v1"
CBOR = "--feature-gates=CBORServingAndStorage=true"


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        ("", "application/json"),
        ("*/*", "application/json"),
        ("application/json", "application/json"),
        ("application/yaml", "application/yaml"),
        (PROTOBUF, PROTOBUF),
        (f"{PROTOBUF},application/json", PROTOBUF),
        ("application/xml,application/yaml", "application/yaml"),
        ("application/cbor,application/json", "application/json"),
        (f"{TABLE},application/json", "application/json"),
        ("application/yaml;q=0.5,application/json;q=0.9", "application/json"),
    ],
)
@pytest.mark.parametrize("url", [CONFIGS, f"{CONFIGS}/a"])
async def test_accepted_media_type_is_served(api: Any, url: str, accept: str, content_type: str) -> None:
    """Accept: one or several types, with fallback."""
    await api.config("a")
    answer = await api.get(url, accept=accept)
    assert (answer.status, answer.headers["content-type"]) == (200, content_type)


@pytest.mark.parametrize(
    "accept", ["application/xml", "text/html", "application/cbor", f"{PROTOBUF};as=Table;g=meta.k8s.io;v=v1"]
)
async def test_unsupported_accept_header_gets_406(api: Any, accept: str) -> None:
    """Errors: 406 when no type is supported; CBOR is gated."""
    answer = await api.get(CONFIGS, accept=accept)
    assert (answer.status, answer.tree["reason"]) == (406, "NotAcceptable")


@pytest.mark.parametrize("content_type", ["text/plain", "application/xml", "application/cbor", "multipart/form-data"])
async def test_unsupported_body_type_is_rejected(api: Any, content_type: str) -> None:
    """Content-Type: the type of the request body."""
    answer = await api.post(CONFIGS, b"{}", content_type=content_type)
    assert (answer.status, answer.tree["reason"]) == (415, "UnsupportedMediaType")


async def test_request_and_response_types_may_differ(api: Any) -> None:
    """Headers and media types: a response type may differ from the request type."""
    text = b"metadata:\n  name: a\ndata:\n  k: v\n"
    made = await api.post(CONFIGS, text, content_type="application/yaml", accept=PROTOBUF)
    assert (made.status, made.headers["content-type"]) == (201, PROTOBUF)
    read = await api.get(f"{CONFIGS}/a", accept="application/yaml")
    assert yaml.safe_load(read.body) == (await api.get(f"{CONFIGS}/a")).tree
    body = {"metadata": {"name": "b"}}
    assert (await api.post(CONFIGS, body, accept="application/yaml")).headers["content-type"] == "application/yaml"


async def test_protobuf_envelope(api: Any) -> None:
    """Protobuf envelope: the prefix, then Unknown with typeMeta (1) and raw (2)."""
    await api.config("a", data={"k": "v"})
    body = (await api.get(f"{CONFIGS}/a", accept=PROTOBUF)).body
    assert body[:4] == b"\x6b\x38\x73\x00"
    assert body[4:].startswith(b"\x0a\x0f\x0a\x02v1\x12\x09ConfigMap\x12")
    made = await api.put(f"{CONFIGS}/a", body, content_type=PROTOBUF)
    assert (made.status, made.tree["data"]) == (200, {"k": "v"})


@pytest.mark.virtual
@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        ("application/json", "application/json"),
        ("application/json;stream=watch", "application/json;stream=watch"),
        (PROTOBUF, f"{PROTOBUF};stream=watch"),
        (f"{PROTOBUF};stream=watch,application/json", f"{PROTOBUF};stream=watch"),
    ],
)
async def test_watches_are_framed_by_their_type(api: Any, accept: str, content_type: str) -> None:
    """Watching, in protobuf: each event after its length."""
    await api.delete(CONFIGS)
    await api.config("a")
    await api.config("b")
    answer = await api.get(f"{CONFIGS}?watch=1&timeoutSeconds=1", accept=accept)
    assert answer.status == 200
    assert answer.headers["content-type"].partition(";")[0] == content_type.partition(";")[0]
    if "protobuf" not in accept:
        assert types_and_names(answer.events) == [("ADDED", "a"), ("ADDED", "b")]
        return
    frames, data = [], answer.body
    while data:
        size = int.from_bytes(data[:4], "big")
        frames.append(data[4 : 4 + size])
        data = data[4 + size :]
    assert len(frames) == 2
    assert all(frame.startswith(b"\x0a\x05ADDED\x12") for frame in frames)
    assert all(b"k8s\0" in frame for frame in frames)


def text(value: Any) -> Any:
    """The same value with text instead of byte strings, as CBOR strings are written here."""
    if isinstance(value, dict):
        return {text(name): text(found) for name, found in value.items()}
    if isinstance(value, list):
        return list(map(text, value))
    return value.decode() if isinstance(value, bytes) else value


@pytest.mark.virtual
async def test_cbor_needs_feature_gate(started: Any) -> None:
    """application/cbor, application/apply-patch+cbor and application/cbor-seq, gated by CBORServingAndStorage."""
    import cbor2

    async with started(CBOR) as api:
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "v"}}
        made = await api.post(CONFIGS, cbor2.dumps(body), content_type="application/cbor", accept="application/cbor")
        assert (made.status, made.headers["content-type"]) == (201, "application/cbor")
        assert made.body[:3] == b"\xd9\xd9\xf7"
        assert text(cbor2.loads(made.body[3:])) == (await api.get(f"{CONFIGS}/a")).tree
        body["data"] = {"k": "w"}
        url = f"{CONFIGS}/a?fieldManager=me&force=true"
        assert (await api.patch(url, cbor2.dumps(body), "apply-patch+cbor")).tree["data"] == {"k": "w"}
        watched = await api.get(f"{CONFIGS}?watch=1&timeoutSeconds=1&labelSelector=x", accept="application/cbor")
        assert watched.headers["content-type"] == "application/cbor-seq"
        listed = text(cbor2.loads((await api.get(CONFIGS, accept="application/cbor")).body[3:]))
        assert listed["kind"] == "ConfigMapList"
        assert (await api.patch(f"{CONFIGS}/a", b"\xa0", "merge-patch+cbor")).status == 415


@pytest.mark.virtual
async def test_large_responses_are_compressed_on_request(api: Any) -> None:
    """Response compression: get and list, with `content-encoding: gzip`, the same bytes inside."""
    for number in range(8):
        await api.config(f"c{number}", data={"text": "lorem ipsum " * 4000})
    for url in (CONFIGS, f"{CONFIGS}?limit=5"):
        plain, packed = await api.get(url), await api.get(url, accept_encoding="gzip")
        assert "content-encoding" not in plain.headers
        assert packed.headers["content-encoding"] == "gzip"
        assert len(packed.body) < len(plain.body) / 5
        assert gzip.decompress(packed.body) == plain.body
    small = await api.get(f"{CONFIGS}?limit=1&labelSelector=x", accept_encoding="gzip")
    assert "content-encoding" not in small.headers
    watched = await api.get(f"{CONFIGS}?watch=1&timeoutSeconds=1", accept_encoding="gzip")
    assert "content-encoding" not in watched.headers


async def test_compression_can_be_disabled(started: Any) -> None:
    """Versioning: APIResponseCompression is on by default, and has a gate."""
    async with started("--feature-gates=APIResponseCompression=false") as api:
        await api.config("a", data={"text": "x" * 200_000})
        assert "content-encoding" not in (await api.get(CONFIGS, accept_encoding="gzip")).headers


async def test_table_has_columns_and_rows(api: Any) -> None:
    """Table representation: column definitions with name and type, and a row per object."""
    await api.config("a", data={"k": "v", "m": "w"})
    table = (await api.get(f"{CONFIGS}/a", accept=TABLE)).tree
    assert (table["kind"], table["apiVersion"]) == ("Table", "meta.k8s.io/v1")
    assert [(column["name"], column["type"]) for column in table["columnDefinitions"]] == [
        ("Name", "string"),
        ("Data", "string"),
        ("Age", "string"),
    ]
    (row,) = table["rows"]
    assert row["cells"][:2] == ["a", 2]
    assert (row["object"]["kind"], row["object"]["metadata"]["name"]) == ("PartialObjectMetadata", "a")


async def test_kind_without_own_columns_has_name_and_age(api: Any) -> None:
    """Table representation: Name and Created At."""
    url = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaimtemplates"
    table = (await api.get("/api/v1/namespaces/default/limitranges", accept=TABLE)).tree
    assert table["kind"] == "Table"
    columns = [
        (column["name"], column["type"]) for column in (await api.get(url, accept=TABLE)).tree["columnDefinitions"]
    ]
    assert columns in ([("Name", "string"), ("Created At", "date")], [("Name", "string"), ("Age", "string")])


async def test_metadata_only(api: Any) -> None:
    """PartialObjectMetadata and its list, in JSON and protobuf."""
    made = await api.config("a", data={"k": "v"})
    accept = "as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
    partial = (await api.get(f"{CONFIGS}/a", accept=f"application/json;{accept}")).tree
    assert partial == {
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": made.tree["metadata"],
    }
    listed = await api.get(CONFIGS, accept=f"application/json;{accept.replace('Metadata', 'MetadataList')}")
    assert listed.tree["kind"] == "PartialObjectMetadataList"
    binary = await api.get(f"{CONFIGS}/a", accept=f"{PROTOBUF};{accept}")
    assert b"PartialObjectMetadata" in binary.body


@pytest.mark.parametrize("accept", ["application/yaml", PROTOBUF])
async def test_errors_are_a_status_in_any_media_type(api: Any, accept: str) -> None:
    """Errors: every error is a Status."""
    answer = await api.get(f"{CONFIGS}/nothing", accept=accept)
    assert answer.status == 404
    assert b"NotFound" in answer.body
    if answer.headers["content-type"] == "application/json":
        assert json.loads(answer.body)["kind"] == "Status"


@pytest.mark.parametrize("pretty", ["pretty=1", "pretty=true"])
async def test_pretty_parameter_indents_json(api: Any, pretty: str) -> None:
    """Query parameters: `pretty` indents."""
    await api.config("a")
    answer = await api.get(f"{CONFIGS}/a?{pretty}")
    assert b'\n  "kind": "ConfigMap"' in answer.body
    assert answer.tree == (await api.get(f"{CONFIGS}/a")).tree
