"""The document of OpenAPI 2: every operation of the API and every definition, which older clients read at one go."""

from collections.abc import Iterable
from typing import Any

from apiserver_stub.openapi.definitions import STATUS, Definitions
from apiserver_stub.openapi.operation import PARAMETERS, PATH_PARAMETERS, PHRASES, TEXT, Media, Operation, by_path
from apiserver_stub.openapi.schemas import V2
from controller_manager.options import release_version

Document = dict[str, Any]

_TOKEN = {"description": "A bearer token.", "type": "apiKey", "name": "authorization", "in": "header"}
_REFUSED = {"description": "A refusal", "schema": V2.ref(STATUS)}


def document(operations: Iterable[Operation], definitions: Definitions, media: Media) -> Document:
    """Return the operations, and all definitions they refer to."""
    paths, named = by_path(operations, _of_path, lambda operation: _told(operation, media))
    return {
        "swagger": "2.0",
        "info": {"title": "Kubernetes", "version": release_version()},
        "paths": paths,
        "definitions": V2.definitions(definitions, definitions.closure({STATUS, *named})),
        "securityDefinitions": {"BearerToken": _TOKEN},
        "security": [{"BearerToken": []}],
    }


def _told(operation: Operation, media: Media) -> Document:
    answer = {"type": "string"} if operation.answer == TEXT else V2.ref(operation.answer)
    parameters = [_query(name) for name in operation.query]
    if operation.body:
        needed = {} if operation.method == "delete" else {"required": True}
        parameters.append({"name": "body", "in": "body", **needed, "schema": V2.ref(operation.body)})
    return {
        "description": operation.sentence,
        "operationId": operation.name,
        "consumes": media.consumed(operation) or ["*/*"],
        "produces": media.produced(operation),
        "parameters": parameters,
        "responses": {
            **{code: {"description": PHRASES[code], "schema": answer} for code in operation.codes},
            "401": {"description": "Unauthorized"},
            "default": _REFUSED,
        },
        "schemes": ["https"],
        "tags": [operation.tag],
        **operation.extensions,
    }


def _of_path(operation: Operation) -> list[Document]:
    held = [
        {"in": "path", "description": PATH_PARAMETERS[name], "required": True, **_named(name)}
        for name in operation.held
    ]
    return [*held, _query("pretty")] if operation.about else held


def _query(name: str) -> Document:
    kind, sentence = PARAMETERS[name]
    return {"in": "query", "description": sentence, **_named(name, kind)}


def _named(name: str, kind: str = "string") -> Document:
    return {"name": name, "type": kind, "uniqueItems": True}
