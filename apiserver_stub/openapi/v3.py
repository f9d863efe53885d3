"""A document of OpenAPI 3: the operations of one version of a group, or of one page, and the definitions they need."""

from collections.abc import Iterable
from typing import Any

from apiserver_stub.encode.body import JSON_PATCH
from apiserver_stub.openapi.definitions import STATUS, Definitions
from apiserver_stub.openapi.operation import PARAMETERS, PATH_PARAMETERS, PHRASES, TEXT, Media, Operation, by_path
from apiserver_stub.openapi.schemas import V3
from controller_manager.options import release_version

Document = dict[str, Any]

_TEXT = {"schema": {"type": "string"}}
_LIST_OF_OPERATIONS = {"schema": {"type": "array", "items": {"type": "object"}}}
_TOKEN = {"description": "A bearer token.", "in": "header", "name": "authorization", "type": "apiKey"}


def document(operations: Iterable[Operation], definitions: Definitions, media: Media) -> Document:
    """Return the operations, and all definitions they refer to."""
    paths, named = by_path(operations, _of_path, lambda operation: _told(operation, media))
    paths = {path: {name: said for name, said in item.items() if said} for path, item in paths.items()}
    return {
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": release_version()},
        "paths": paths,
        "components": {
            "schemas": V3.definitions(definitions, definitions.closure({STATUS, *named})),
            "securitySchemes": {"BearerToken": _TOKEN},
        },
        "security": [{"BearerToken": []}],
    }


def _told(operation: Operation, media: Media) -> Document:
    answer = _TEXT if operation.answer == TEXT else {"schema": V3.ref(operation.answer)}
    content = dict.fromkeys(media.produced(operation), answer)
    refused = {one: {"schema": V3.ref(STATUS)} for one in media.refused}
    told: Document = {
        "description": operation.sentence,
        "operationId": operation.name,
        **({"parameters": [_query(name) for name in operation.query]} if operation.query else {}),
        "responses": {
            **{code: {"description": PHRASES[code], "content": content} for code in operation.codes},
            "401": {"description": "Unauthorized", "content": refused},
            "default": {"description": "A refusal", "content": refused},
        },
        "tags": [operation.tag],
        **operation.extensions,
    }
    if operation.body:
        told["requestBody"] = _body(operation, media)
    return told


def _body(operation: Operation, media: Media) -> Document:
    whole = {"schema": V3.ref(operation.body)}
    content = {one: _LIST_OF_OPERATIONS if one == JSON_PATCH else whole for one in media.consumed(operation)}
    return {"content": content, **({} if operation.method == "delete" else {"required": True})}


def _of_path(operation: Operation) -> list[Document]:
    held = [
        {
            "name": name,
            "in": "path",
            "description": PATH_PARAMETERS[name],
            "required": True,
            "schema": _schema("string"),
        }
        for name in operation.held
    ]
    return [*held, _query("pretty")] if operation.about else held


def _query(name: str) -> Document:
    kind, sentence = PARAMETERS[name]
    return {"name": name, "in": "query", "description": sentence, "schema": _schema(kind)}


def _schema(kind: str) -> Document:
    return {"type": kind, "uniqueItems": True}
