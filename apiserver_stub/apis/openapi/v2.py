"""The OpenAPI 2 document: all operations and definitions of the API in one document for older clients."""

from collections.abc import Iterable
from typing import Any

from apiserver_stub.apis.openapi.definitions import Definitions
from apiserver_stub.apis.openapi.operation import PHRASES, TEXT, Media, OpenAPIOperation, by_path, describe
from apiserver_stub.apis.openapi.schemas import V2
from controller_manager.common.options.flag import release_version

Document = dict[str, Any]

_TOKEN = {"description": "A bearer token.", "type": "apiKey", "name": "authorization", "in": "header"}


def document(operations: Iterable[OpenAPIOperation], definitions: Definitions, media: Media) -> Document:
    """Return the operations and all definitions they refer to."""
    paths, named = by_path(operations, lambda operation: _described(operation, media), _parameter)
    return {
        "swagger": "2.0",
        "info": {"title": "Kubernetes", "version": release_version()},
        "paths": paths,
        "definitions": V2.definitions(definitions, definitions.closure(named)),
        "securityDefinitions": {"BearerToken": _TOKEN},
        "security": [{"BearerToken": []}],
    }


def _described(operation: OpenAPIOperation, media: Media) -> Document:
    answer = {"type": "string"} if operation.answer == TEXT else V2.ref(operation.answer)
    found: Document = {
        "description": operation.sentence,
        "operationId": operation.name,
        **({"consumes": consumed} if (consumed := media.consumed(operation)) else {}),
        "produces": media.produced(operation),
        "responses": {
            **{code: {"description": PHRASES[code], "schema": answer} for code in operation.codes},
            "401": {"description": "Unauthorized"},
        },
        "schemes": ["https"],
        "tags": [operation.tag],
        **operation.extensions,
    }
    if operation.body:
        needed = {} if operation.method == "delete" else {"required": True}
        found["parameters"] = [{"name": "body", "in": "body", **needed, "schema": V2.ref(operation.body)}]
    return found


def _parameter(name: str, place: str) -> Document:
    kind, description = describe(name, place)
    needed = {"required": True} if place == "path" else {}
    return {"name": name, "in": place, "description": description, **needed, "type": kind, "uniqueItems": True}
