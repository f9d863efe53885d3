"""An OpenAPI 3 document: the operations of one group version or page, and the definitions they need."""

from collections.abc import Iterable
from typing import Any

from apiserver_stub.apis.openapi.definitions import Definitions
from apiserver_stub.apis.openapi.operation import PHRASES, TEXT, Media, OpenAPIOperation, by_path, describe
from apiserver_stub.apis.openapi.schemas import V3
from controller_manager.common.options.flag import release_version

Document = dict[str, Any]

_TEXT = {"schema": {"type": "string"}}
_INFO_OF_CUSTOM = {"title": "Kubernetes CRD Swagger", "version": "v0.1.0"}
_TOKEN = {"description": "A bearer token.", "in": "header", "name": "authorization", "type": "apiKey"}


def document(
    operations: Iterable[OpenAPIOperation],
    definitions: Definitions,
    media: Media,
    version: tuple[str, str] | None = None,
    *,
    custom: bool = False,
) -> Document:
    """Return the operations of a group version, or of `custom` resources, and all definitions they refer to."""
    paths, named = by_path(operations, lambda operation: _described(operation, media), _parameter)
    schemas = V3.definitions(definitions, definitions.closure(named), version)
    found: Document = {"openapi": "3.0.0", "info": _INFO_OF_CUSTOM, "paths": paths, "components": {"schemas": schemas}}
    if not custom:
        found["info"] = {"title": "Kubernetes", "version": release_version()}
        found["components"]["securitySchemes"] = {"BearerToken": _TOKEN}
    return found


def _described(operation: OpenAPIOperation, media: Media) -> Document:
    answer = _TEXT if operation.answer == TEXT else {"schema": V3.ref(operation.answer)}
    content = dict.fromkeys(media.produced(operation), answer)
    found: Document = {
        "description": operation.sentence,
        "operationId": operation.name,
        "responses": {
            **{code: {"description": PHRASES[code], "content": content} for code in operation.codes},
            "401": {"description": "Unauthorized"},
        },
        "tags": [operation.tag],
        **operation.extensions,
    }
    if operation.body:
        whole = {"schema": V3.ref(operation.body)}
        content = dict.fromkeys(media.consumed(operation), whole)
        found["requestBody"] = {"content": content, **({} if operation.method == "delete" else {"required": True})}
    return found


def _parameter(name: str, place: str) -> Document:
    kind, description = describe(name, place)
    needed = {"required": True} if place == "path" else {}
    schema = {"type": kind, "uniqueItems": True}
    return {"name": name, "in": place, "description": description, **needed, "schema": schema}
