"""Headers and media types, Response compression, Table representation, Protobuf envelope; mostly over a socket."""

import asyncio
import gzip
import io
import json
import re
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import cbor2
import pytest
import yaml

from apiserver_stub.common.flags import FLAGS
from apiserver_stub.encode import cbor, protobuf
from apiserver_stub.process.build import build
from apiserver_stub.process.lifecycle import ApiServer
from controller_manager.common.api.protobuf.wire import fields
from controller_manager.common.base.runtime import Runtime
from controller_manager.common.serving.http_server import HTTPServer
from tests.apiserver_stub.api_client import CONFIGS, Answer, ApiClient
from tests.apiserver_stub.running_server import FLAGS_OF_ALL, Started

PROTOBUF, CBOR, JSON, YAML = protobuf.MEDIA_TYPE, "application/cbor", "application/json", "application/yaml"
AGE = re.compile(rb',"\d+s"\]')  # a second may pass between them
AS_TABLE = "application/json;as=Table;g=meta.k8s.io;v=v1"


class RawClient:
    """A client that sends bytes to a server's socket."""

    def __init__(self, api: ApiServer, server: HTTPServer) -> None:
        self.api = api
        self._server = server
        self._writers: list[asyncio.StreamWriter] = []

    async def ask(self, method: str, target: str, body: bytes = b"", **headers: str) -> Answer:
        reader = await self.send(method, target, body, **headers)
        status, found = await head(reader)
        if found.get("transfer-encoding") == "chunked":
            return Answer(status, found, b"".join([chunk async for chunk in chunks(reader)]))
        return Answer(status, found, await reader.readexactly(int(found["content-length"])))

    async def send(self, method: str, target: str, body: bytes = b"", **headers: str) -> asyncio.StreamReader:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._server.port)
        named = {"host": "x", "authorization": "Bearer s3cret", "connection": "close"}
        named |= {name.replace("_", "-"): value for name, value in headers.items()}
        if body:
            named["content-length"] = str(len(body))
        lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in named.items()), "", ""]
        self._writers.append(writer)
        writer.write("\r\n".join(lines).encode() + body)
        return reader

    async def config(self, name: str, text: str = "v") -> None:
        body = json.dumps({"metadata": {"name": name}, "data": {"k": text}}).encode()
        assert (await self.ask("POST", CONFIGS, body)).status == 201


async def head(reader: asyncio.StreamReader) -> tuple[int, dict[str, str]]:
    status, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().strip().split("\r\n")
    return int(status.split()[1]), {line.partition(": ")[0]: line.partition(": ")[2] for line in lines}


async def chunks(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    while size := int(await reader.readline(), 16):
        yield await reader.readexactly(size)
        await reader.readexactly(2)


async def start(folder: Path, *flags: str) -> tuple[ApiServer, HTTPServer]:
    tokens = folder / "tokens.csv"
    tokens.write_text("s3cret,jane,42,system:masters\n")
    given = (*FLAGS_OF_ALL, f"--token-auth-file={tokens}", *flags)
    api = build(FLAGS.parse(given), Runtime("test"))
    server = HTTPServer(api.handle, "127.0.0.1", 0, None)
    await api.start()
    await server.start()
    return api, server


@pytest.fixture
async def wire(tmp_path: Path) -> AsyncIterator[RawClient]:
    """A server with CBOR."""
    api, server = await start(tmp_path, "--feature-gates=CBORServingAndStorage=true")
    yield RawClient(api, server)
    api.end_streams()
    await server.stop()
    await api.stop()


@pytest.fixture
async def plain(tmp_path: Path) -> AsyncIterator[RawClient]:
    """A server with the default features."""
    api, server = await start(tmp_path)
    yield RawClient(api, server)
    api.end_streams()
    await server.stop()
    await api.stop()


READ: dict[str, Callable[[bytes], Any]] = {
    JSON: json.loads,
    YAML: yaml.safe_load,
    PROTOBUF: lambda data: protobuf.decode(data, "", ""),
    CBOR: lambda data: cbor.load(data)[0],
}


def lines_of(data: bytes) -> Iterator[tuple[str, Any]]:
    for line in data.splitlines():
        event = json.loads(line)
        yield event["type"], event["object"]


def frames_of(data: bytes) -> Iterator[tuple[str, Any]]:
    while data:
        size = int.from_bytes(data[:4], "big")
        event = dict(fields(data[4 : 4 + size]))
        kind, embedded = event[1 << 3 | 2], event[2 << 3 | 2]
        yield kind.decode(), protobuf.decode(dict(fields(embedded))[1 << 3 | 2], "", "")
        data = data[4 + size :]


def items_of(data: bytes) -> Iterator[tuple[str, Any]]:
    source = io.BytesIO(data)
    while source.tell() < len(data):
        begin = source.tell()
        cbor2.CBORDecoder(source).decode()
        event = cbor.load(data[begin : source.tell()])[0]
        yield event["type"], event["object"]


Events = list[tuple[str, Any]]


async def events_until(
    reader: asyncio.StreamReader, decode: Callable[[bytes], Iterator[tuple[str, Any]]], enough: Callable[[Events], bool]
) -> Events:
    """Read the events of a watch until there are enough."""
    body = b""
    async for chunk in chunks(reader):
        body += chunk
        if enough(events := list(decode(body))):
            return events
    raise AssertionError(f"the watch ended after {body!r}")


EVENTS = {JSON: lines_of, f"{PROTOBUF};stream=watch": frames_of, "application/cbor-seq": items_of}
MARKS = "allowWatchBookmarks=1&sendInitialEvents=1&resourceVersionMatch=NotOlderThan"


async def test_watch_events_are_equal_in_every_media_type(wire: RawClient) -> None:
    """API concepts, Headers and media types, and Watching, rule 2."""
    await wire.config("a")
    accepts = (JSON, f"{PROTOBUF};stream=watch", CBOR)
    readers = [await wire.send("GET", f"{CONFIGS}?watch=1&{MARKS}&timeoutSeconds=600", accept=a) for a in accepts]
    heads = [await head(reader) for reader in readers]
    await wire.config("b")
    changed = await wire.ask(
        "PATCH", f"{CONFIGS}/b", b'{"data":{"k":"w"}}', content_type="application/merge-patch+json"
    )
    assert changed.status == 200
    await wire.ask("DELETE", f"{CONFIGS}/a")
    found = {}
    for (_, headers), reader in zip(heads, readers, strict=True):
        medium = headers["content-type"]
        found[medium] = await events_until(reader, EVENTS[medium], lambda events: events[-1][0] == "DELETED")
    assert found.keys() == EVENTS.keys()
    spoken = found[JSON]
    kinds = [(kind, tree["metadata"].get("name")) for kind, tree in spoken if tree["kind"] == "ConfigMap"]
    assert [kind for kind in kinds if kind[1] != "kube-root-ca.crt"] == [
        ("ADDED", "a"), ("BOOKMARK", None), ("ADDED", "b"), ("MODIFIED", "b"), ("DELETED", "a"),
    ]  # fmt: skip
    for medium, events in found.items():
        assert [(kind, without_empty_values(tree)) for kind, tree in events] == [
            (kind, without_empty_values(tree)) for kind, tree in spoken
        ], medium


def without_empty_values(tree: Any) -> Any:
    """A tree without values that protobuf does not distinguish from missing ones."""
    if isinstance(tree, dict):
        return {key: without_empty_values(child) for key, child in tree.items() if child not in (None, {}, [], "")}
    return [without_empty_values(child) for child in tree] if isinstance(tree, list) else tree


async def test_only_first_table_of_stream_has_columns(wire: RawClient) -> None:
    await wire.config("a")
    reader = await wire.send("GET", f"{CONFIGS}?watch=1&{MARKS}&timeoutSeconds=600", accept=AS_TABLE)
    await head(reader)
    await wire.config("b")
    events = await events_until(reader, lines_of, lambda events: len(events) == 3)
    assert [kind for kind, _ in events] == ["ADDED", "BOOKMARK", "ADDED"]
    assert [tree["columnDefinitions"] is None for _, tree in events] == [False, True, True]
    assert [tree["rows"][0]["cells"][0] for _, tree in events] == ["a", "", "b"]


@pytest.mark.parametrize("accept", [JSON, YAML, PROTOBUF, CBOR, AS_TABLE])
async def test_long_lists_are_compressed_and_equal(wire: RawClient, accept: str) -> None:
    """API concepts, Response compression."""
    for number in range(60):
        await wire.config(str(number), "x" * 20_000)
    target = f"{CONFIGS}?includeObject=Object"
    identity = await wire.ask("GET", target, accept=accept)
    found = await wire.ask("GET", target, accept=accept, accept_encoding="gzip")
    assert "content-encoding" not in identity.headers
    assert (found.headers["content-encoding"], found.headers["vary"]) == ("gzip", "Accept-Encoding")
    assert found.headers["content-type"] == identity.headers["content-type"]
    assert AGE.sub(b"", gzip.decompress(found.body)) == AGE.sub(b"", identity.body)
    assert len(found.body) < len(identity.body) / 5


async def test_small_bodies_and_watches_are_not_compressed(wire: RawClient) -> None:
    await wire.config("large", "x" * 900_000)
    large = await wire.ask("GET", f"{CONFIGS}/large", accept_encoding="gzip")
    assert json.loads(gzip.decompress(large.body))["data"]["k"] == "x" * 900_000
    body = json.dumps({"metadata": {"name": "another"}, "data": {"k": "x" * 900_000}}).encode()
    made = await wire.ask("POST", CONFIGS, body, accept_encoding="gzip")
    small = await wire.ask("GET", "/api/v1/namespaces/default", accept_encoding="gzip")
    assert all("content-encoding" not in found.headers for found in (made, small))
    reader = await wire.send("GET", f"{CONFIGS}?watch=1", accept_encoding="gzip")
    assert "content-encoding" not in (await head(reader))[1]
    assert (await events_until(reader, lines_of, bool))[0][0] == "ADDED"


@pytest.mark.parametrize(
    ("media", "write"),
    [
        (JSON, lambda tree: json.dumps(tree).encode()),
        (YAML, lambda tree: yaml.safe_dump(tree).encode()),
        (CBOR, lambda tree: b"\xd9\xd9\xf7" + cbor2.dumps(tree)),
        (CBOR, lambda tree: cbor.dump(json.dumps(tree).encode())),
        (
            PROTOBUF,
            lambda tree: protobuf.envelope(
                "v1", "ConfigMap", protobuf.raw(json.dumps(tree).encode(), "v1", "ConfigMap")
            ),
        ),
    ],
)
@pytest.mark.parametrize("accept", [JSON, YAML, CBOR, PROTOBUF])
async def test_response_media_type_may_differ_from_body(
    wire: RawClient, media: str, write: Callable[[Any], bytes], accept: str
) -> None:
    """API concepts, Headers and media types: a response type may differ from the request type."""
    tree = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "ü", "no": "1"}}
    made = await wire.ask("POST", CONFIGS, write(tree), content_type=media, accept=accept)
    assert (made.status, made.headers["content-type"]) == (201, accept)
    assert READ[accept](made.body)["data"] == tree["data"]
    found = await wire.ask("GET", f"{CONFIGS}/a", accept=accept)
    assert without_empty_values(READ[accept](found.body)) == without_empty_values(READ[accept](made.body))
    gone = await wire.ask("DELETE", f"{CONFIGS}/a", accept=accept)
    assert READ[accept](gone.body)["status"] == "Success"
    missing = await wire.ask("GET", f"{CONFIGS}/a", accept=accept)
    assert (missing.status, missing.headers["content-type"]) == (404, accept)
    assert READ[accept](missing.body)["reason"] == "NotFound"


async def test_cbor_can_be_applied(wire: RawClient) -> None:
    tree = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "v"}}
    target, media = f"{CONFIGS}/a?fieldManager=me", "application/apply-patch+cbor"
    made = await wire.ask("PATCH", target, cbor.dump(json.dumps(tree).encode()), content_type=media)
    assert (made.status, json.loads(made.body)["data"]) == (201, {"k": "v"})
    twice = await wire.ask("PATCH", target, bytes.fromhex("a2 6161 01 6161 02"), content_type=media)
    assert (twice.status, json.loads(twice.body)["reason"]) == (400, "BadRequest")
    merged = await wire.ask("PATCH", f"{CONFIGS}/a", b"\xa0", content_type=CBOR)
    assert merged.status == 415


@pytest.mark.parametrize(
    ("method", "target", "media"),
    [
        ("POST", CONFIGS, CBOR),
        ("PUT", f"{CONFIGS}/a", CBOR),
        ("DELETE", f"{CONFIGS}/a", CBOR),
        ("PATCH", f"{CONFIGS}/a", "application/apply-patch+cbor"),
        ("POST", CONFIGS, "text/plain"),
        ("PATCH", f"{CONFIGS}/a", "application/json"),
        ("POST", CONFIGS, "application/apply-patch+yaml"),
    ],
)
async def test_unsupported_body_media_types_are_rejected(
    plain: RawClient, method: str, target: str, media: str
) -> None:
    """API concepts, Versioning: CBOR is off by default."""
    found = await plain.ask(method, target, b"\xa0", content_type=media)
    status = json.loads(found.body)
    assert (found.status, status["reason"]) == (415, "UnsupportedMediaType")
    assert "accepted media types include: application/json" in status["message"]
    assert "cbor" not in status["message"]


@pytest.mark.parametrize("target", [CONFIGS, f"{CONFIGS}?watch=1", f"{CONFIGS}/kube-root-ca.crt", "/api/v1/nodes"])
async def test_cbor_is_not_served_by_default(plain: RawClient, target: str) -> None:
    found = await plain.ask("GET", target, accept=CBOR)
    status = json.loads(found.body)
    assert (found.status, status["reason"]) == (406, "NotAcceptable")
    assert status["message"].startswith("only the following media types are accepted: application/json, ")


def test_cbor_without_package_fails_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cbor, "available", lambda: False)
    flags = (*FLAGS_OF_ALL, "--feature-gates=AllAlpha=true")
    with pytest.raises(ValueError, match="needs the package cbor2"):
        build(FLAGS.parse(flags), Runtime("test"))


@pytest.mark.parametrize("accept", ["", AS_TABLE, PROTOBUF])
async def test_other_pages_ignore_accept_header(plain: RawClient, accept: str) -> None:
    found = await plain.ask("GET", "/version", accept=accept)
    assert (found.status, found.headers["content-type"]) == (200, JSON)


async def test_protobuf_envelope(api: ApiClient) -> None:
    """Protobuf envelope: the prefix, then Unknown with typeMeta (1) and raw (2)."""
    await api.config("a", data={"k": "v"})
    body = (await api.get(f"{CONFIGS}/a", accept=PROTOBUF)).body
    assert body[:4] == b"\x6b\x38\x73\x00"
    assert body[4:].startswith(b"\x0a\x0f\x0a\x02v1\x12\x09ConfigMap\x12")
    made = await api.put(f"{CONFIGS}/a", body, content_type=PROTOBUF)
    assert (made.status, made.tree["data"]) == (200, {"k": "v"})


async def test_compression_can_be_disabled(started: Started) -> None:
    """Versioning: APIResponseCompression is on by default, and has a gate."""
    async with started("--feature-gates=APIResponseCompression=false") as api:
        await api.config("a", data={"text": "x" * 200_000})
        assert "content-encoding" not in (await api.get(CONFIGS, accept_encoding="gzip")).headers


async def test_table_has_columns_and_rows(api: ApiClient) -> None:
    """Table representation: column definitions with name and type, and a row per object."""
    await api.config("a", data={"k": "v", "m": "w"})
    table = (await api.get(f"{CONFIGS}/a", accept=AS_TABLE)).tree
    assert (table["kind"], table["apiVersion"]) == ("Table", "meta.k8s.io/v1")
    assert [(column["name"], column["type"]) for column in table["columnDefinitions"]] == [
        ("Name", "string"),
        ("Data", "string"),
        ("Age", "string"),
    ]
    (row,) = table["rows"]
    assert row["cells"][:2] == ["a", 2]
    assert (row["object"]["kind"], row["object"]["metadata"]["name"]) == ("PartialObjectMetadata", "a")


async def test_kind_without_own_columns_has_name_and_age(api: ApiClient) -> None:
    """Table representation: Name and Created At."""
    url = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaimtemplates"
    table = (await api.get("/api/v1/namespaces/default/limitranges", accept=AS_TABLE)).tree
    assert table["kind"] == "Table"
    columns = [
        (column["name"], column["type"]) for column in (await api.get(url, accept=AS_TABLE)).tree["columnDefinitions"]
    ]
    assert columns in ([("Name", "string"), ("Created At", "date")], [("Name", "string"), ("Age", "string")])
