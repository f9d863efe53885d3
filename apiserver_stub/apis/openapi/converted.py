"""Convert OpenAPI 2 documents to OpenAPI 3 for extension servers without version 3. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from apiserver_stub.apis.openapi import gnostic
from apiserver_stub.apis.openapi.extension import DEFINITIONS, GroupPaths
from apiserver_stub.encode.body import JSON

_SCHEMAS = "#/components/schemas/"
_METHODS = ("get", "put", "post", "delete", "patch")
_OF_VALUES = ("type", "format", "uniqueItems")


def converted(part: GroupPaths, title: str) -> dict[str, Any]:
    """Return the OpenAPI 3 document with the same content, as far as it can be converted."""
    return dict(gnostic.fitted(gnostic.V3, "Document", {
        "openapi": "3.0.0",
        "info": {"title": title, "version": "unversioned"},
        "paths": {path: _item(item) for path, item in part.paths.items()},
        "components": {"schemas": _with_refs(part.definitions)},
    }))  # fmt: skip


def _item(item: Mapping[str, Any]) -> dict[str, Any]:
    shared = {"parameters": _parameters(item.get("parameters", ()))}
    return {**shared, **{method: _operation(item[method]) for method in _METHODS if method in item}}


def _operation(operation: Mapping[str, Any]) -> dict[str, Any]:
    parameters = operation.get("parameters", ())
    kept = {key: value for key, value in operation.items() if key in ("tags", "description", "operationId")}
    operation_3 = {
        **kept,
        **{key: value for key, value in operation.items() if key.startswith("x-")},
        "parameters": _parameters(parameters),
        "responses": _responses(operation.get("responses", {}), operation.get("produces") or [JSON]),
    }
    body = next((one for one in parameters if one.get("in") == "body"), None)
    if body is not None:
        content = _content(body.get("schema", {}), operation.get("consumes") or [JSON])
        operation_3["requestBody"] = {"content": content, **({"required": True} if body.get("required") else {})}
    return operation_3


def _parameters(parameters: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [_parameter(one) for one in parameters if one.get("in") in ("path", "query")]


def _parameter(parameter: Mapping[str, Any]) -> dict[str, Any]:
    schema = {key: parameter[key] for key in _OF_VALUES if key in parameter}
    return {**{key: value for key, value in parameter.items() if key not in _OF_VALUES}, "schema": schema}


def _responses(responses: Mapping[str, Any], produced: Sequence[str]) -> dict[str, Any]:
    return {
        code: {
            "description": response.get("description", ""),
            **({"content": _content(response["schema"], produced)} if "schema" in response else {}),
        }
        for code, response in responses.items()
    }


def _content(schema: Any, media: Sequence[str]) -> dict[str, Any]:
    return {one: {"schema": _with_refs(schema)} for one in media}


def _with_refs(tree: Any) -> Any:
    """Return schemas with the reference paths of version 3."""
    if isinstance(tree, list):
        return [_with_refs(one) for one in tree]
    if not isinstance(tree, dict):
        return tree
    return {
        key: value.replace(DEFINITIONS, _SCHEMAS, 1) if key == "$ref" and isinstance(value, str) else _with_refs(value)
        for key, value in tree.items()
    }
