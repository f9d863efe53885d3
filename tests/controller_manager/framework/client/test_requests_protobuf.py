"""Objects sent as protobuf equal those sent as JSON and lose no field."""

import json
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from apiserver_stub.encode.protobuf import decode
from apiserver_stub.kinds.registry import built_in
from controller_manager.common.api import errors
from controller_manager.common.api.core import ENDPOINTS, PODS, Endpoints, EndpointSubset, Pod
from controller_manager.common.api.model import Object, ObjectMeta
from controller_manager.common.api.resource import Key, Resource
from controller_manager.common.api.wire import Request, Response
from controller_manager.common.transport.authenticated import InProcessTransport
from controller_manager.framework import Client
from controller_manager.framework.client.requests import JSON, PROTOBUF, RequestEncoder
from controller_manager.testing import Cluster

pytestmark = pytest.mark.virtual

WIDGETS = Resource("example.org", "v1", "widgets", "Widget", True, Object)
MANIFESTS = sorted((Path(__file__).parents[3] / "manifests").glob("*.yaml"))
# Fields that the server sets.
ALLOTTED = re.compile(r'("clusterIPs?"|"nodePort"):(?!"None")(\[[^]]*\]|"[^"]*"|\d+)')
POD: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "a", "namespace": "default", "resourceVersion": "7"},
    "spec": {"containers": [{"name": "c", "image": "i", "env": [{"name": "A", "value": "1"}]}]},
}


def tree_of(request: Request) -> Any:
    return decode(request.body, "", "") if request.headers["content-type"] == PROTOBUF else json.loads(request.body)


def without_empty_objects(value: Any) -> Any:
    """Return a value without its empty objects, which Go clients write where a field is not a pointer."""
    if isinstance(value, dict):
        return {name: inner for name, value in value.items() if (inner := without_empty_objects(value)) != {}}
    return [without_empty_objects(item) for item in value] if isinstance(value, list) else value


class Server:
    """Answers a write with its body, unless the resource accepts JSON only."""

    def __init__(self, *as_json_only: str) -> None:
        self.requests: list[Request] = []
        self._as_json_only = as_json_only
        self.client = Client(InProcessTransport(self.handle), bodies=RequestEncoder(PROTOBUF))

    async def handle(self, request: Request) -> Response:
        self.requests.append(request)
        if request.headers["content-type"] == PROTOBUF and request.path.endswith(self._as_json_only):
            error = errors.UnsupportedMediaType("JSON, please")
            return Response(error.code, {}, error.status().encode())
        return Response(200, {}, msgspec.json.encode(tree_of(request)))

    @property
    def types(self) -> list[str]:
        return [request.headers["content-type"] for request in self.requests]


def pod(tree: Any = POD) -> Pod:
    return Pod.decode(msgspec.json.encode(tree))


async def test_objects_are_sent_as_protobuf_and_read_as_json() -> None:
    server = Server()
    created = await server.client.create(PODS, pod())
    await server.client.update(PODS, created, subresource="status")
    await server.client.patch(PODS, Key("default", "a"), {"metadata": {"labels": {"a": "b"}}})
    await server.client.delete(PODS, Key("default", "a"), uid="u")
    assert server.types == [PROTOBUF, PROTOBUF, "application/merge-patch+json", JSON]
    assert {request.headers["accept"] for request in server.requests} == {JSON}
    assert without_empty_objects(tree_of(server.requests[0])) == POD


async def test_custom_kinds_are_sent_as_json() -> None:
    server = Server()
    await server.client.create(WIDGETS, Object(metadata=ObjectMeta(name="a", namespace="default")))
    assert server.types == [JSON]


async def test_refused_protobuf_is_retried_as_json_per_resource() -> None:
    server = Server("/pods")
    first = server.client
    for client in (first, first.derive(user_agent="another")):
        await client.create(PODS, pod())
    endpoints = Endpoints(metadata=ObjectMeta(name="a", namespace="default"))
    await first.create(ENDPOINTS, endpoints)
    assert server.types == [PROTOBUF, JSON, JSON, PROTOBUF]
    assert [without_empty_objects(tree_of(request))["spec"] for request in server.requests[:3]] == [POD["spec"]] * 3


async def test_refused_json_raises_unsupported_media_type() -> None:
    async def refuse(_: Request) -> Response:
        error = errors.UnsupportedMediaType("never")
        return Response(error.code, {}, error.status().encode())

    with pytest.raises(errors.UnsupportedMediaType):
        await Client(InProcessTransport(refuse), bodies=RequestEncoder(PROTOBUF)).create(PODS, pod())


values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner, max_size=2),
    max_leaves=4,
)
places = st.sampled_from([(), ("metadata",), ("spec",), ("spec", "containers", 0), ("spec", "containers", 0, "env", 0)])


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(places, st.text(min_size=1, max_size=8), values), max_size=3))
async def test_update_preserves_unknown_fields(additions: list[tuple[tuple[Any, ...], str, Any]]) -> None:
    """Fields of a newer server are returned to it in either encoding."""
    tree = json.loads(json.dumps(POD))
    for path, name, value in additions:
        found = tree
        for part in path:
            found = found[part]
        found.setdefault(f"x-{name}", value)
    server = Server()
    read = pod(tree)
    labelled = msgspec.structs.replace(read.metadata, labels={"changed": "yes"})
    await server.client.update(PODS, msgspec.structs.replace(read, metadata=labelled))
    tree["metadata"]["labels"] = {"changed": "yes"}
    assert without_empty_objects(tree_of(server.requests[0])) == without_empty_objects(tree)
    assert server.types == [JSON if additions else PROTOBUF]


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with Cluster() as cluster:
        yield cluster


def client_of(cluster: Cluster, media_type: str) -> Client:
    from controller_manager.testing.cluster import ADMIN

    return Client(cluster.transport(ADMIN), bodies=RequestEncoder(media_type))


def objects() -> Iterator[tuple[Resource[Object], Any]]:
    """Return the manifests of built-in kinds, all in one namespace."""
    kinds = {(kind.api_version, kind.kind): kind for kind in built_in().all()}
    for file in MANIFESTS:
        for tree in yaml.safe_load_all(file.read_text()):
            kind = kinds.get((tree["apiVersion"], tree["kind"]))
            if kind is None or kind.kind in ("CustomResourceDefinition", "Namespace"):
                continue
            if kind.namespaced:
                tree["metadata"]["namespace"] = "default"
            yield Resource(kind.group, kind.version, kind.plural, kind.kind, kind.namespaced, Object), tree


async def stored_objects(media_type: str) -> list[Any]:
    """Return the manifests as stored after creation and update in this encoding."""
    found = []
    async with Cluster() as cluster:
        client = client_of(cluster, media_type)
        for resource, tree in objects():
            made = await client.update(
                resource, await client.create(resource, Object.decode(json.dumps(tree).encode()))
            )
            body = json.loads(ALLOTTED.sub(r"\1:0", made.raw.decode()))
            del body["metadata"]
            found.append(body)
    return found


async def test_protobuf_and_json_writes_store_the_same_object() -> None:
    as_json = await stored_objects(JSON)
    assert len(as_json) > 20
    assert await stored_objects(PROTOBUF) == as_json


async def test_endpoints_in_protobuf_equal_those_in_json(cluster: Cluster) -> None:
    subset = {"addresses": [{"ip": "10.0.0.1", "nodeName": "n"}], "ports": [{"name": "http", "port": 80}]}
    for name, media_type in (("a", JSON), ("b", PROTOBUF)):
        client = client_of(cluster, media_type)
        made = await client.create(ENDPOINTS, Endpoints(metadata=ObjectMeta(name=name, namespace="default")))
        filled = msgspec.convert((subset,), tuple[EndpointSubset, ...])
        await client.update(ENDPOINTS, msgspec.structs.replace(made, subsets=filled))
    found = [await cluster.client.get(ENDPOINTS, Key("default", name)) for name in ("a", "b")]
    assert found[0].subsets == found[1].subsets
    assert [json.loads(one.raw)["subsets"][0]["ports"] for one in found] == [
        [{"name": "http", "port": 80, "protocol": "TCP"}]
    ] * 2
