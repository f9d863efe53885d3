"""OpenAPI endpoints: paths, media types, caching, and added kinds."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from apiserver_stub.apis.openapi import OpenApi, definitions, handler
from apiserver_stub.kinds.registry import ResourceRegistry, built_in
from apiserver_stub.kinds.schema.schema import ANYTHING, Schemas
from controller_manager.common.api.errors import NotAcceptable, NotFound
from controller_manager.common.api.wire import Request

Read = Callable[[str], Any]
PROTOBUF_2 = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
PROTOBUF_3 = "application/com.github.proto-openapi.spec.v3.v1.0+protobuf"


def test_index_lists_every_document(read: Read, ask: Callable[..., Any]) -> None:
    paths = read("/openapi/v3")["paths"]
    assert {"api", "api/v1", "apis", "apis/apps", "apis/apps/v1", "apis/autoscaling/v2", "version"} <= paths.keys()
    for root, entry in paths.items():
        path, _, tag = entry["serverRelativeURL"].partition("?hash=")
        assert path == f"/openapi/v3/{root}"
        response = ask(path, query={"hash": tag})
        assert response.headers["etag"] == f'"{tag}"'
        assert response.headers["cache-control"] == "public, immutable"
        assert response.headers["expires"].endswith("GMT")
        assert all(served.startswith(f"/{root}/") for served in msgspec.json.decode(response.body)["paths"])


def test_response_without_hash_is_not_cacheable(ask: Callable[..., Any]) -> None:
    response = ask("/openapi/v3/api/v1")
    assert (response.headers["content-type"], response.headers["vary"]) == ("application/json", "Accept")
    assert not {"cache-control", "expires"} & response.headers.keys()


def test_outdated_hash_is_redirected(ask: Callable[..., Any], read: Read) -> None:
    response = ask("/openapi/v3/apis/apps/v1", query={"hash": "OLD"})
    assert response.status == 301
    assert response.headers["location"] == read("/openapi/v3")["paths"]["apis/apps/v1"]["serverRelativeURL"]


@pytest.mark.parametrize("path", ["/openapi/v2", "/openapi/v3", "/openapi/v3/api/v1"])
def test_matching_etag_gets_304(ask: Callable[..., Any], path: str) -> None:
    tag = ask(path).headers["etag"]
    again = ask(path, if_none_match=tag)
    assert (again.status, again.body, again.headers["etag"]) == (304, b"", tag)


@pytest.mark.parametrize(
    ("path", "accept", "media"),
    [
        ("/openapi/v2", "", "application/json"),
        ("/openapi/v2", "*/*", "application/json"),
        ("/openapi/v2", PROTOBUF_2, PROTOBUF_2),
        ("/openapi/v2", f"{PROTOBUF_2.replace('2.v1', '2@v1')},application/json", PROTOBUF_2),
        ("/openapi/v2", "text/plain, application/*;q=0.1", "application/json"),
        ("/openapi/v3/apis/apps/v1", "application/json, */*", "application/json"),
        ("/openapi/v3/apis/apps/v1", PROTOBUF_3.replace("3.v1", "3@v1"), PROTOBUF_3),
    ],
)
def test_preferred_media_type_is_served(ask: Callable[..., Any], path: str, accept: str, media: str) -> None:
    assert ask(path, accept=accept).headers["content-type"] == media


@pytest.mark.parametrize(("path", "accept"), [("/openapi/v2", "text/html"), ("/openapi/v3/api/v1", PROTOBUF_2)])
def test_other_media_types_are_not_acceptable(ask: Callable[..., Any], path: str, accept: str) -> None:
    with pytest.raises(NotAcceptable, match="protobuf"):
        ask(path, accept=accept)


@pytest.mark.parametrize("path", ["/api/v2", "/apis/apps/v9", "/apis/apps/v1/deployments", "/"])
def test_other_documents_are_not_found(ask: Callable[..., Any], path: str) -> None:
    with pytest.raises(NotFound):
        ask(f"/openapi/v3{path}")


def test_other_paths_are_not_handled(kinds: ResourceRegistry) -> None:
    assert asyncio.run(OpenApi(kinds).answer(Request("GET", "/openapi"), "/openapi")) is None


def test_definitions_are_read_at_first_request(
    kinds: ResourceRegistry, ask: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Servers start, and serve objects, without reading them."""
    read: list[bool] = []
    monkeypatch.setattr(handler, "built_in", lambda: read.append(True) or definitions.built_in())
    descriptions = OpenApi(kinds)
    assert asyncio.run(descriptions.answer(Request("GET", "/api/v1/pods"), "/api/v1/pods")) is None
    assert read == []
    ask("/openapi/v3/api/v1", of=descriptions)
    ask("/openapi/v2", of=descriptions)
    assert read == [True]


def test_documents_follow_added_and_removed_kinds(ask: Callable[..., Any]) -> None:
    kinds = built_in()
    descriptions = OpenApi(kinds)
    before = msgspec.json.decode(ask("/openapi/v3", of=descriptions).body)["paths"]
    deployment = kinds.find("apps", "v1", "deployments")
    assert deployment is not None
    names = {"group": "stable.example.com", "kind": "CronTab", "plural": "crontabs", "definition": ""}
    cron_tab = replace(deployment, **names, subresources={}, schema=ANYTHING)
    kinds.add(cron_tab)
    after = msgspec.json.decode(ask("/openapi/v3", of=descriptions).body)["paths"]
    assert {root: after[root] for root in before} == before, "other documents stay what they were"
    assert after.keys() - before.keys() == {"apis/stable.example.com/v1"}
    whole = msgspec.json.decode(ask("/openapi/v3/apis/stable.example.com/v1", of=descriptions).body)
    assert whole["components"]["schemas"]["com.example.stable.v1.CronTab"]["x-kubernetes-preserve-unknown-fields"]
    kinds.remove(cron_tab)
    assert msgspec.json.decode(ask("/openapi/v3", of=descriptions).body)["paths"] == before
    with pytest.raises(NotFound):
        ask("/openapi/v3/apis/stable.example.com/v1", of=descriptions)


STEP = {
    "type": "object",
    "required": ["name"],
    "fields": {"name": {"type": "string", "enum": ["a", "b"]}, "after": {"type": "array", "items": {"ref": "Step"}}},
}
CRON_TAB = {
    "type": "object",
    "fields": {
        "spec": {
            "type": "object",
            "required": ["cron"],
            "fields": {
                "cron": {"type": "string"},
                "steps": {"type": "array", "listType": "map", "listMapKeys": ["name"], "items": {"ref": "Step"}},
                "limits": {"type": "object", "mapType": "atomic", "values": {"type": "int-or-string"}},
                "free": {"type": "object", "preserve": True},
                "at": {"type": "time"},
                "key": {"type": "bytes"},
            },
        }
    },
}


def test_pages_of_service_account_keys_are_described(ask: Callable[..., Any]) -> None:
    pages = ("/.well-known/openid-configuration", "/openid/v1/jwks", "/metrics")
    descriptions = OpenApi(built_in(), pages=pages)
    paths = msgspec.json.decode(ask("/openapi/v3", of=descriptions).body)["paths"]
    assert {".well-known/openid-configuration", "openid/v1/jwks"} <= paths.keys()
    assert "metrics" not in paths
    document = msgspec.json.decode(ask("/openapi/v3/openid/v1/jwks", of=descriptions).body)
    keys = document["paths"]["/openid/v1/jwks/"]["get"]
    assert keys["operationId"] == "getServiceAccountIssuerOpenIDKeyset"
    assert list(keys["responses"]["200"]["content"]) == ["application/jwk-set+json"]


def test_kind_without_definition_uses_its_schema(ask: Callable[..., Any]) -> None:
    kinds = built_in()
    deployment = kinds.find("apps", "v1", "deployments")
    assert deployment is not None
    schema = Schemas({"CronTab": CRON_TAB, "Step": STEP}).node("CronTab")
    names = {"group": "stable.example.com", "kind": "CronTab", "plural": "crontabs", "definition": ""}
    kinds.add(replace(deployment, **names, subresources={}, schema=schema))
    descriptions = OpenApi(kinds)
    whole = msgspec.json.decode(ask("/openapi/v3/apis/stable.example.com/v1", of=descriptions).body)
    described = whole["components"]["schemas"]["com.example.stable.v1.CronTab"]
    assert sorted(described["properties"]) == ["apiVersion", "kind", "metadata", "spec"]
    spec = described["properties"]["spec"]
    assert spec["required"] == ["cron"]
    assert spec["properties"]["limits"] == {
        "type": "object",
        "x-kubernetes-map-type": "atomic",
        "additionalProperties": {"x-kubernetes-int-or-string": True},
    }
    assert spec["properties"]["free"] == {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    assert spec["properties"]["at"] == {"type": "string", "format": "date-time"}
    assert spec["properties"]["key"] == {"type": "string", "format": "byte"}
    steps = spec["properties"]["steps"]
    assert (steps["x-kubernetes-list-type"], steps["x-kubernetes-list-map-keys"]) == ("map", ["name"])
    step = steps["items"]
    assert step["properties"]["name"] == {"type": "string", "enum": ["a", "b"]}
    assert step["properties"]["after"]["items"] == {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    patches = whole["paths"]["/apis/stable.example.com/v1/namespaces/{namespace}/crontabs/{name}"]["patch"]
    assert "application/strategic-merge-patch+json" not in patches["requestBody"]["content"]
    assert (
        "com.example.stable.v1.CronTab" in msgspec.json.decode(ask("/openapi/v2", of=descriptions).body)["definitions"]
    )
    for path, accept in (("/openapi/v2", PROTOBUF_2), ("/openapi/v3/apis/stable.example.com/v1", PROTOBUF_3)):
        assert b"stable.example.com" in ask(path, of=descriptions, accept=accept).body
    patch = whole["paths"]["/apis/stable.example.com/v1/namespaces/{namespace}/crontabs/{name}"]["patch"]
    assert patch["operationId"] == "patchStableExampleComV1NamespacedCronTab"
    assert "application/strategic-merge-patch+json" not in patch["requestBody"]["content"]
    assert "application/vnd.kubernetes.protobuf" not in patch["responses"]["200"]["content"]
    assert b"CronTab" in ask("/openapi/v2", of=descriptions).body
    assert b"CronTab" in ask("/openapi/v2", of=descriptions, accept=PROTOBUF_2).body
