"""Serves the discovery paths. The documents are rebuilt after the served resources have changed."""

import hashlib
from collections.abc import Iterable
from typing import Any, Protocol

import msgspec

from apiserver_stub.apis.discovery.documents import (
    GROUP,
    GroupVersion,
    aggregated,
    aggregated_list,
    listed,
    local_versions,
    plain_documents,
)
from apiserver_stub.encode.accept import preferred
from apiserver_stub.kinds.registry import ResourceRegistry
from apiserver_stub.request.request_info import unknown
from controller_manager.common.api.errors import NotAcceptable
from controller_manager.common.api.wire import Request, Response

_PLAIN = "application/json"
AGGREGATED = f"application/json;g={GROUP};v=v2;as=APIGroupDiscoveryList"
_ANY_JSON = frozenset({"application/json", "application/*", "*/*"})
_IS_AGGREGATED = frozenset({("g", GROUP), ("v", "v2"), ("as", "APIGroupDiscoveryList")})


class Page(msgspec.Struct, frozen=True):
    """An encoded document."""

    media_type: str
    body: bytes
    etag: str


class Extensions(Protocol):
    """The group versions of APIServices, those of extension servers included."""

    @property
    def generation(self) -> int:
        """Return the number of changes."""

    def merged(self, local: Iterable[GroupVersion]) -> Iterable[GroupVersion]:
        """Return everything that is served, given the local group versions."""


class Discovery:
    """Serves discovery. `elsewhere` are the paths of other pages for the list of all paths."""

    def __init__(
        self,
        kinds: ResourceRegistry,
        elsewhere: tuple[str, ...] = (),
        address: str = "",
        extensions: Extensions | None = None,
    ) -> None:
        self._extensions = extensions
        self._kinds = kinds
        self._elsewhere = elsewhere
        self._address = address
        self._generation = (-1, -1)  # of the current documents
        self._documents: dict[str, dict[str, Any]] = {}  # in the plain form
        self._plain: dict[str, Page] = {}  # encoded on request
        self._aggregated: dict[str, Page] = {}

    def answer(self, request: Request, path: str) -> Response:
        """Return the document at `path` (without a trailing slash). Raises `NotFound` or `NotAcceptable`."""
        self._refresh()
        if path not in self._documents:
            raise unknown()
        wants_plain = _wants_plain(request.headers.get("accept", ""), has_aggregated=path in self._aggregated)
        page = self._plain_page(path) if wants_plain else self._aggregated[path]
        headers = {"content-type": page.media_type, "vary": "Accept", "etag": page.etag}
        if page.media_type == AGGREGATED:
            headers["cache-control"] = "public"
        if page.etag in request.headers.get("if-none-match", ""):
            return Response(304, headers)
        return Response(200, headers, page.body)

    def _refresh(self) -> None:
        extensions = self._extensions
        generation = self._kinds.generation, extensions.generation if extensions else 0
        if self._generation == generation:
            return
        self._generation = generation
        local = local_versions(self._kinds.all())
        versions = local if extensions is None else list(extensions.merged(local))
        plain = plain_documents(listed(versions), self._address)
        plain[""] = {"paths": sorted({*plain, *self._elsewhere})}
        self._documents, self._plain = plain, {}
        core = aggregated(one for one in versions if not one.group)
        others = aggregated(one for one in versions if one.group)
        self._aggregated = {
            "/api": _page(AGGREGATED, aggregated_list(core)),
            "/apis": _page(AGGREGATED, aggregated_list(others)),
        }

    def _plain_page(self, path: str) -> Page:
        page = self._plain.get(path)
        if page is None:
            page = self._plain[path] = _page(_PLAIN, self._documents[path])
        return page


def _wants_plain(accept: str, *, has_aggregated: bool) -> bool:
    """Return whether the `Accept` header prefers the plain form. Raises `NotAcceptable` if it accepts no offered
    form.
    """
    if not accept.strip():
        return True
    for media_type, parameters in preferred(accept):
        if media_type not in _ANY_JSON:
            continue
        if "as" not in parameters:
            return True
        if has_aggregated and parameters.items() >= _IS_AGGREGATED:
            return False
    raise NotAcceptable(f"only the following media types are accepted: {_PLAIN}, {AGGREGATED}")


def _page(media_type: str, document: dict[str, Any]) -> Page:
    body = msgspec.json.encode(document)
    return Page(media_type, body, f'"{hashlib.sha512(body).hexdigest().upper()}"')
