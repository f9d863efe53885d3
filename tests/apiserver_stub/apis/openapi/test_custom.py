"""OpenAPI of custom resources equals that of kube-apiserver 1.36, except for descriptions."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from openapi_spec_validator import OpenAPIV30SpecValidator

from apiserver_stub.apis.apiextensions.resources import resources_of
from apiserver_stub.apis.openapi import OpenApi
from apiserver_stub.kinds.registry import ResourceRegistry
from controller_manager.common.api.tree import Tree
from controller_manager.common.api.wire import Request
from tests.apiserver_stub.apis.openapi.normalization import without_descriptions, without_empty_defaults

ROWS = [json.loads(line) for line in (Path(__file__).parent / "data" / "custom.jsonl").read_text().splitlines()]
PROTOBUF = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"


def documents_of(definition: Tree) -> OpenApi:
    kinds = ResourceRegistry()
    for kind in resources_of(definition):
        kinds.add(kind)
    return OpenApi(kinds)


def ask(documents: OpenApi, path: str, accept: str = "application/json") -> bytes:
    response = asyncio.run(documents.answer(Request("GET", path, (), {"accept": accept}), path))
    assert response is not None
    assert response.status == 200
    assert isinstance(response.body, bytes)
    return response.body


def summary_of(document: Any, schemas: Any, about: Any) -> Any:
    """Return the kind and its lists in a document, and the actions of its paths."""
    actions = {
        path: sorted([method, found["x-kubernetes-action"]] for method, found in item.items() if method != "parameters")
        for path, item in document["paths"].items()
        if path in about["paths"] or "/watch/" in path
    }
    return {"schemas": without_descriptions({name: schemas.get(name) for name in about["schemas"]}), "paths": actions}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["what"])
def test_v3_matches_kube_apiserver(row: Any) -> None:
    documents, group = documents_of(row["definition"]), row["definition"]["spec"]["group"]
    for version, expected in row["openapi"]["3"].items():
        found = json.loads(ask(documents, f"/openapi/v3/apis/{group}/{version}"))
        assert summary_of(found, found["components"]["schemas"], expected) == expected


@pytest.mark.parametrize("row", [row for row in ROWS if "2" in row["openapi"]], ids=lambda row: row["what"])
def test_v2_matches_kube_apiserver(row: Any) -> None:
    found = json.loads(ask(documents_of(row["definition"]), "/openapi/v2"))
    for version, expected in row["openapi"]["2"].items():
        said = summary_of(found, found["definitions"], expected)
        said["paths"] = {path: actions for path, actions in said["paths"].items() if f"/{version}/" in path}
        assert said == expected


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["what"])
def test_document_is_valid_and_encodes_as_protobuf(row: Any) -> None:
    documents, spec = documents_of(row["definition"]), row["definition"]["spec"]
    found = json.loads(ask(documents, f"/openapi/v3/apis/{spec['group']}/{spec['versions'][0]['name']}"))
    OpenAPIV30SpecValidator(without_empty_defaults(found)).validate()
    assert spec["names"]["kind"].encode() in ask(documents, "/openapi/v2", PROTOBUF)


def test_schema_descriptions_are_served() -> None:
    row = ROWS[-1]
    found = json.loads(ask(documents_of(row["definition"]), "/openapi/v3/apis/oa.example.com/v1"))
    assert found["components"]["schemas"]["com.example.oa.v1.Whole"]["description"] == "Root desc"


def operation(path: str, method: str) -> Any:
    """An operation of gizmos in version 3, with the names of its query parameters."""
    row = next(row for row in ROWS if row["what"] == "status and scale")
    spec = row["definition"]["spec"]
    version, plural = spec["versions"][0]["name"], spec["names"]["plural"]
    document = json.loads(ask(documents_of(row["definition"]), f"/openapi/v3/apis/{spec['group']}/{version}"))
    assert document["info"] == {"title": "Kubernetes CRD Swagger", "version": "v0.1.0"}
    assert list(document["components"]) == ["schemas"]
    scope = "/namespaces/{namespace}" if spec["scope"] == "Namespaced" else ""
    item = document["paths"][f"/apis/{spec['group']}/{version}{scope}/{plural}{path}"]
    found = item[method]
    parameters = [*item["parameters"], *found.get("parameters", ())]
    return {**found, "query": {one["name"] for one in parameters if one["in"] == "query"}}


def test_operations_match_kube_apiserver() -> None:
    """Some differ from those of built-in kinds."""
    listing, deleting = operation("", "get"), operation("", "delete")
    assert list(listing["responses"]["200"]["content"]) == ["application/json", "application/yaml"]
    assert "requestBody" not in deleting
    assert deleting["query"] == listing["query"] > {"watch", "allowWatchBookmarks", "labelSelector", "pretty"}
    assert operation("/{name}", "get")["query"] == {"pretty", "resourceVersion"}
    patch = operation("/{name}", "patch")
    assert list(patch["responses"]) == ["200", "401"]
    assert list(patch["requestBody"]["content"]) == [
        "application/json-patch+json", "application/merge-patch+json", "application/apply-patch+yaml",
    ]  # fmt: skip
    put = operation("/{name}/scale", "put")
    assert list(put["requestBody"]["content"]) == ["application/json", "application/yaml"]
