"""`/openapi/v3`: which paths there are and what they may be asked, which is what clients look up before they rely on
`dryRun` and `fieldValidation`; the schemas of objects are not in it.
"""

import hashlib
from collections.abc import Iterator
from typing import Any

import msgspec

from apiserver_stub.kinds.kind import Kind
from apiserver_stub.kinds.registry import Kinds
from apiserver_stub.parse import unknown
from apiserver_stub.version import git_version
from controller_manager.api.wire import Response

ROOT = "/openapi/v3"

_HEADERS = {"content-type": "application/json"}
_ON_COLLECTION = {"get": "list", "post": "create", "delete": "deletecollection"}
_ON_OBJECT = {"get": "get", "put": "update", "patch": "patch", "delete": "delete"}
_WRITES = {
    "post": ("dryRun", "fieldValidation"),
    "put": ("dryRun", "fieldValidation"),
    "patch": ("dryRun", "fieldValidation"),
    "delete": ("dryRun",),
}


class OpenApi:
    """Answers below `/openapi/v3`; a document is made when it is first asked for, and again when the kinds change."""

    def __init__(self, kinds: Kinds) -> None:
        self._kinds = kinds
        self._shown: tuple[Kind, ...] = ()
        self._documents: dict[str, bytes] = {}

    def answer(self, path: str) -> Response:
        """The document at `path`, which lies at or below the root. Raises `NotFound`."""
        kinds = tuple(self._kinds.all())
        if kinds != self._shown:
            self._shown, self._documents = kinds, {}
        found = self._documents.get(path)
        if found is None:
            found = self._documents[path] = self._make(path)
        return Response(200, _HEADERS, found)

    def _make(self, path: str) -> bytes:
        if path == ROOT:
            return self._index()
        kinds = [kind for kind in self._shown if path == f"{ROOT}/{_root(kind)}"]
        if not kinds:
            raise unknown()
        return _encode(document(kinds))

    def _index(self) -> bytes:
        roots = dict.fromkeys(_root(kind) for kind in self._shown)
        shown = "\n".join(f"{kind.name} {kind.version}" for kind in self._shown)
        tag = hashlib.sha256(shown.encode()).hexdigest().upper()
        paths = {root: {"serverRelativeURL": f"{ROOT}/{root}?hash={tag}"} for root in roots}
        return _encode({"paths": paths})


def document(kinds: list[Kind]) -> dict[str, Any]:
    """The paths of kinds of one version as an OpenAPI 3.0 document."""
    paths = {path: operations for kind in kinds for path, operations in _paths(kind) if operations}
    return {"openapi": "3.0.0", "info": {"title": "Kubernetes", "version": git_version()}, "paths": paths}


def _paths(kind: Kind) -> Iterator[tuple[str, dict[str, Any]]]:
    scope = "/namespaces/{namespace}" if kind.namespaced else ""
    collection = f"/{_root(kind)}{scope}/{kind.plural}"
    held = ("namespace",) if kind.namespaced else ()
    yield collection, _operations(kind, _ON_COLLECTION, held)
    yield f"{collection}/{{name}}", _operations(kind, _ON_OBJECT, (*held, "name"))


def _operations(kind: Kind, verbs: dict[str, str], held: tuple[str, ...]) -> dict[str, Any]:
    found: dict[str, Any] = {method: _operation(kind, method) for method, verb in verbs.items() if verb in kind.verbs}
    if found:
        found["parameters"] = [_parameter(name, "path", required=True) for name in held]
    return found


def _operation(kind: Kind, method: str) -> dict[str, Any]:
    return {
        "parameters": [_parameter(name, "query", required=False) for name in _WRITES.get(method, ())],
        "responses": {"200": {"description": "OK"}, "401": {"description": "Unauthorized"}},
        "x-kubernetes-group-version-kind": {"group": kind.group, "version": kind.version, "kind": kind.kind},
    }


def _parameter(name: str, place: str, *, required: bool) -> dict[str, Any]:
    found: dict[str, Any] = {"name": name, "in": place, "schema": {"type": "string", "uniqueItems": True}}
    return found | {"required": True} if required else found


def _root(kind: Kind) -> str:
    return f"apis/{kind.group}/{kind.version}" if kind.group else f"api/{kind.version}"


def _encode(document: dict[str, Any]) -> bytes:
    return msgspec.json.encode(document)
