"""OpenAPI of aggregated servers: the parts that are merged, and name conflicts."""

from typing import Any

import pytest

from apiserver_stub.apis.openapi import gnostic
from apiserver_stub.apis.openapi.converted import converted
from apiserver_stub.apis.openapi.extension import GroupPaths, merged, part_of

ROOT = "/apis/x.example.com/v1"
REF = {"$ref": "#/definitions/Foo"}


def operation(**more: Any) -> dict[str, Any]:
    return {"operationId": "readFoo", "responses": {"200": {"description": "OK", "schema": REF}}, **more}


def document(**more: Any) -> dict[str, Any]:
    definitions = {
        "Foo": {"type": "object", "properties": {"spec": {"$ref": "#/definitions/Spec"}}},
        "Spec": {"type": "object", "properties": {"again": {"$ref": "#/definitions/Foo"}}},
        "Unused": {"type": "object"},
    }
    paths = {
        f"{ROOT}/foos": {"get": operation()},
        "/apis/x.example.com/v10/foos": {"get": operation()},
        "/version/": {},
    }
    return {"swagger": "2.0", "paths": paths, "definitions": definitions, **more}


def test_part_has_own_paths_and_referenced_definitions() -> None:
    found = part_of(document(), ROOT)
    assert list(found.paths) == [f"{ROOT}/foos"]
    assert list(found.definitions) == ["Foo", "Spec"]


def test_shared_parameters_are_inlined() -> None:
    shared = {"limit-1": {"name": "limit", "in": "query", "type": "integer", "uniqueItems": True}}
    item = {"get": operation(parameters=[{"$ref": "#/parameters/limit-1"}, {"$ref": "#/parameters/gone"}])}
    found = part_of(document(paths={f"{ROOT}/foos": item}, parameters=shared), ROOT)
    assert found.paths[f"{ROOT}/foos"]["get"]["parameters"] == [shared["limit-1"]]


@pytest.mark.parametrize("odd", [None, [], "x", {}, {"paths": 1}, {"paths": []}])
def test_document_without_paths_is_rejected(odd: Any) -> None:
    with pytest.raises(ValueError, match="it has no paths"):
        part_of(odd, ROOT)


def test_unknown_parts_of_document_are_dropped() -> None:
    odd = {
        "get": operation(tags="x", description=5, parameters=[1, {"in": "cookie"}], surprise={}),
        "post": 1,
        "put": {},
    }
    definitions = {"Foo": {"type": ["object"], "properties": {"a": {"type": "string"}, "b": 7}, "x-more": [1]}}
    found = part_of(document(paths={f"{ROOT}/foos": odd, f"{ROOT}/bars": 1}, definitions=definitions), ROOT)
    assert found.paths == {f"{ROOT}/foos": {"get": operation(parameters=[]), "put": {}}}
    assert found.definitions == {"Foo": {"properties": {"a": {"type": "string"}}, "x-more": [1]}}
    whole = merged({"paths": {}, "definitions": {}}, [found])
    assert gnostic.Writer(gnostic.V2).message("Document", whole)


def test_too_deep_document_is_rejected() -> None:
    deep: dict[str, Any] = {}
    for _ in range(5000):
        deep = {"properties": {"a": deep}}
    with pytest.raises(ValueError, match="too deep"):
        part_of(document(definitions={"Foo": deep}), ROOT)


def test_definitions_of_the_same_name_are_renamed() -> None:
    ours = {"paths": {"/a": {"get": 1}}, "definitions": {"Foo": {"description": "ours"}, "Spec": {"type": "string"}}}
    same = GroupPaths({f"{ROOT}/foos": {"get": operation()}}, {"Foo": {"description": "theirs"}})
    other = GroupPaths(
        {"/a": {}, "/b": {"get": operation()}},
        {"Foo": {"properties": {"s": {"$ref": "#/definitions/Spec"}}}, "Spec": {"type": "object"}},
    )
    found = merged(ours, [same, other, other])
    assert found["definitions"] == {
        "Foo": {"description": "ours"},
        "Spec": {"type": "string"},
        "Spec_v2": {"type": "object"},
        "Foo_v2": {"properties": {"s": {"$ref": "#/definitions/Spec_v2"}}},
        "Foo_v3": {"properties": {"s": {"$ref": "#/definitions/Spec_v2"}}},
    }
    assert found["paths"]["/a"] == {"get": 1}
    schema = {"$ref": "#/definitions/Foo_v2"}
    assert found["paths"]["/b"]["get"]["responses"]["200"]["schema"] == schema
    assert ours["definitions"]["Foo"] == {"description": "ours"}


def test_version_2_part_is_converted_to_version_3() -> None:
    parameters = [
        {"in": "body", "name": "body", "required": True, "schema": REF},
        {"in": "query", "name": "dryRun", "type": "string", "uniqueItems": True, "description": "try"},
    ]
    about = {"x-kubernetes-action": "post", "consumes": ["a/b"], "produces": ["c/d", "e/f"], "tags": ["x"]}
    name = {"in": "path", "name": "name", "type": "string", "required": True}
    paths = {f"{ROOT}/foos": {"post": operation(parameters=parameters, **about), "parameters": [name]}}
    found = converted(part_of(document(paths=paths), ROOT), "x")
    ref = {"schema": {"$ref": "#/components/schemas/Foo"}}
    assert found["paths"][f"{ROOT}/foos"] == {
        "parameters": [{"in": "path", "name": "name", "required": True, "schema": {"type": "string"}}],
        "post": {
            "operationId": "readFoo",
            "tags": ["x"],
            "x-kubernetes-action": "post",
            "parameters": [
                {
                    "in": "query",
                    "name": "dryRun",
                    "description": "try",
                    "schema": {"type": "string", "uniqueItems": True},
                }
            ],
            "requestBody": {"content": {"a/b": ref}, "required": True},
            "responses": {"200": {"description": "OK", "content": {"c/d": ref, "e/f": ref}}},
        },
    }
    schemas = found["components"]["schemas"]
    assert schemas["Foo"]["properties"] == {"spec": {"$ref": "#/components/schemas/Spec"}}
    assert gnostic.Writer(gnostic.V3).message("Document", found)
