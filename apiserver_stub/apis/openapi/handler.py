"""Serves `/openapi/v2` and everything below `/openapi/v3`. A document is built on first request, outside the event
loop.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from email.utils import format_datetime
from functools import cached_property, partial
from types import MappingProxyType
from typing import Any, Protocol
from urllib.parse import urlencode

import msgspec

from apiserver_stub.apis.openapi import gnostic, v2, v3
from apiserver_stub.apis.openapi.converted import converted
from apiserver_stub.apis.openapi.definitions import Definitions, built_in
from apiserver_stub.apis.openapi.extension import GroupPaths, merged
from apiserver_stub.apis.openapi.operation import Media, OpenAPIOperation, page, root_of
from apiserver_stub.apis.openapi.operations import operations
from apiserver_stub.common.offload import StepRunner, at_once
from apiserver_stub.encode.accept import preferred
from apiserver_stub.encode.body import JSON
from apiserver_stub.kinds.registry import ResourceChange, ResourceRegistry
from apiserver_stub.kinds.resource_info import ResourceInfo
from apiserver_stub.request.request_info import unknown
from controller_manager.common.api.errors import NotAcceptable
from controller_manager.common.api.wire import Request, Response
from controller_manager.common.base.clock import utc_now

_V2, _V3 = "/openapi/v2", "/openapi/v3"

_PAGES = frozenset({"api", "apis", "version"})
_OPTIONAL_PAGES = frozenset({".well-known/openid-configuration", "openid/v1/jwks"})
_YEAR = timedelta(days=365)
_ANY = ("application/*", "*/*")
_PROTOBUF = "application/com.github.proto-openapi.spec.{}.v1.0+protobuf"
# The name with the @ is not a valid media type (RFC 6838), but clients still use it.
_OLDER_PROTOBUF = "application/com.github.proto-openapi.spec.{}@v1.0+protobuf"


class Document:
    """One document in all its forms, each built on first request."""

    def __init__(self, version: str, messages: gnostic.Messages, make: Callable[[], dict[str, Any]]) -> None:
        self._make = make
        self._messages = messages
        self._protobuf = _PROTOBUF.format(version)
        self._names: Mapping[str, str] = MappingProxyType({
            JSON: JSON, **dict.fromkeys(_ANY, JSON),
            self._protobuf: self._protobuf, _OLDER_PROTOBUF.format(version): self._protobuf,
        })  # fmt: skip

    @cached_property
    def json(self) -> bytes:
        """The document as JSON."""
        return msgspec.json.encode(self._make())

    @cached_property
    def protobuf(self) -> bytes:
        """The document as protobuf. The tree is built again, since decoding the JSON would be one long call into C."""
        return gnostic.Writer(self._messages).message("Document", self._make())

    @cached_property
    def tag(self) -> str:
        """Return the hash of the document."""
        return _tag(self.json)

    async def answer(self, request: Request, run: StepRunner) -> Response:
        """Return the form that the caller prefers, or 304 if it has not changed. Raises `NotAcceptable`."""
        media = self._form(request.headers.get("accept", ""))
        await self.tagged(run)
        if media != JSON and "protobuf" not in vars(self):
            await run(lambda: self.protobuf)
        return _answer(request, media, self.tag, self.json if media == JSON else self.protobuf)

    async def tagged(self, run: StepRunner) -> str:
        """Return the document's tag; builds the document if necessary."""
        return self.tag if "tag" in vars(self) else await run(lambda: self.tag)

    def _form(self, accept: str) -> str:
        if not accept.strip():
            return JSON
        found = next((self._names[media] for media, _ in preferred(accept) if media in self._names), None)
        if found is None:
            raise NotAcceptable(f"only the following media types are accepted: {JSON}, {self._protobuf}")
        return found


class Extensions(Protocol):
    """The OpenAPI documents of extension servers."""

    @property
    def generation(self) -> int:
        """Return the number of changes."""

    @property
    def tags(self) -> Mapping[str, str]:
        """Return the tags of their OpenAPI 3 documents by root (`apis/GROUP/VERSION`)."""

    def parts(self) -> Mapping[str, GroupPaths]:
        """Return the parts of their OpenAPI 2 documents by root, highest priority first."""


class OpenApi:
    """The OpenAPI documents of everything that is served. When a resource changes, its documents are rebuilt.

    Documents of `extensions` are listed and merged. Their version 3 documents are proxied elsewhere, unless they are
    converted from version 2 here. Of the other served `pages`, only known ones are described.
    """

    def __init__(
        self,
        kinds: ResourceRegistry,
        media: Media | None = None,
        run: StepRunner = at_once,
        extensions: Extensions | None = None,
        pages: Iterable[str] = (),
    ) -> None:
        self._extensions = extensions
        self._generation = 0  # generation of the extensions in the whole document
        self._run = run
        self._kinds = kinds
        self._media = media or Media()
        self._pages = _PAGES | {path.strip("/") for path in pages} & _OPTIONAL_PAGES
        self._parts: dict[str, Document] = {}
        self._converted: dict[str, Document] = {}  # of extension servers without version 3
        self._whole: Document | None = None  # built on request, like all parts
        kinds.subscribe(self._forget)

    async def answer(self, request: Request, path: str) -> Response | None:
        """Return the document at `path`; None for other paths. Raises `NotFound` or `NotAcceptable`."""
        if path != _V2 and path != _V3 and not path.startswith(f"{_V3}/"):
            return None
        if self._extensions is not None and self._generation != self._extensions.generation:
            self._generation, self._whole = self._extensions.generation, None
        whole = self._whole or self._refreshed()
        if path == _V2:
            return await whole.answer(request, self._run)
        if path == _V3:
            return await self._index(request)
        root = path.removeprefix(f"{_V3}/")
        found = self._converted.get(root) or self._parts.get(root)
        if found is None:
            raise unknown()
        tag = await found.tagged(self._run)
        asked = dict(request.query).get("hash", "")
        if asked and asked != tag:  # an outdated hash: redirect to the current one
            return Response(301, {"location": _address(root, tag)})
        response = await found.answer(request, self._run)
        return _lasting(response) if asked else response

    async def _index(self, request: Request) -> Response:
        documents = {**self._parts, **self._converted}
        tags = {root: await found.tagged(self._run) for root, found in documents.items()}
        tags.update(self._extensions.tags if self._extensions else {})
        body = msgspec.json.encode(
            {"paths": {root: {"serverRelativeURL": _address(root, tag)} for root, tag in tags.items()}}
        )
        return _answer(request, JSON, _tag(body), body)

    def _forget(self, change: ResourceChange) -> None:
        self._parts.pop(root_of(change.info.group, change.info.version), None)
        self._whole = None

    def _refreshed(self) -> Document:
        kinds = tuple(self._kinds.all())
        parts = self._extensions.parts() if self._extensions else {}
        answered = self._extensions.tags if self._extensions else {}
        self._parts = {
            root: self._parts.get(root) or Document("v3", gnostic.V3, partial(self._of_root, root, held))
            for root, held in sorted(self._by_root(kinds).items())
        }
        self._converted = {
            root: Document("v3", gnostic.V3, partial(converted, part, root))
            for root, part in parts.items()
            if root not in answered
        }
        self._whole = Document("v2", gnostic.V2, partial(self._of_all, kinds, tuple(parts.values())))
        return self._whole

    @cached_property
    def _built_in(self) -> Definitions:
        return built_in()

    def _by_root(self, kinds: Iterable[ResourceInfo]) -> dict[str, tuple[ResourceInfo, ...]]:
        """Return the kinds below each path. Pages have no kinds, and groups with only custom resources have no page."""
        found: dict[str, list[ResourceInfo]] = {page: [] for page in self._pages}
        for kind in kinds:
            if kind.group and kind.definition:
                found.setdefault(f"apis/{kind.group}", [])
            found.setdefault(root_of(kind.group, kind.version), []).append(kind)
        return {root: tuple(held) for root, held in found.items()}

    def _of_root(self, root: str, kinds: tuple[ResourceInfo, ...]) -> dict[str, Any]:
        definitions = self._built_in.with_kinds(kinds)
        described = (one for kind in kinds for one in operations(kind, definitions))
        custom = bool(kinds) and not any(kind.definition for kind in kinds)
        version = (kinds[0].group, kinds[0].version) if kinds and not custom else None
        return v3.document([*_pages({root: kinds}), *described], definitions, self._media, version, custom=custom)

    def _of_all(self, kinds: tuple[ResourceInfo, ...], parts: tuple[GroupPaths, ...]) -> dict[str, Any]:
        definitions = self._built_in.with_kinds(kinds)
        described = (one for kind in kinds for one in operations(kind, definitions))
        document = v2.document([*_pages(self._by_root(kinds)), *described], definitions, self._media)
        return merged(document, parts) if parts else document


def _pages(roots: Mapping[str, tuple[ResourceInfo, ...]]) -> list[OpenAPIOperation]:
    """Return the operations of the pages for these paths, except for groups with only custom resources."""
    return [page(root) for root, kinds in roots.items() if not kinds or any(kind.definition for kind in kinds)]


def _lasting(response: Response) -> Response:
    """Return a document requested by its hash, which may be cached forever."""
    expires = format_datetime(utc_now() + _YEAR, usegmt=True)
    kept = {"cache-control": "public, immutable", "expires": expires}
    return Response(response.status, {**response.headers, **kept}, response.body)


def _answer(request: Request, media: str, tag: str, body: bytes) -> Response:
    headers = {"content-type": media, "etag": f'"{tag}"', "vary": "Accept"}
    if tag in request.headers.get("if-none-match", ""):
        return Response(304, headers)
    return Response(200, headers, body)


def _address(root: str, tag: str) -> str:
    return f"{_V3}/{root}?{urlencode({'hash': tag})}"


def _tag(body: bytes) -> str:
    return hashlib.sha512(body).hexdigest().upper()
