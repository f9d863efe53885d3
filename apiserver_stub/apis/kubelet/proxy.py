"""Proxies to pods, services and nodes. Links in responses are rewritten to lead through the proxy."""

import posixpath
from urllib.parse import quote, urlencode, urlsplit

from msgspec.structs import replace

from apiserver_stub.apis.kubelet.links import Links, rewritten_body
from apiserver_stub.apis.kubelet.locations import ProxyTarget, location_of_pod
from apiserver_stub.apis.kubelet.lookup import Lookup
from apiserver_stub.apis.kubelet.options import connection_options, decoded_path
from apiserver_stub.apis.kubelet.passing import Passing
from apiserver_stub.common.spans import current_span
from apiserver_stub.request.api_request import APIRequest
from apiserver_stub.request.request_info import not_allowed
from apiserver_stub.verbs.query import is_dry_run
from apiserver_stub.verbs.scope import RequestScope
from apiserver_stub.webhooks.relay import PassingBody, passed_back
from controller_manager.common.api.errors import BadRequest, ServiceUnavailable, internal_error
from controller_manager.common.api.wire import Request, Response, Upgrade, offered_protocols
from controller_manager.common.transport.connection_pool import ConnectionTarget, authority
from controller_manager.common.transport.transport import TransportError, close_body

_METHODS = frozenset({"GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_ESCAPED = "/:@&=+$,;"  # not escaped by Go in a path
_NOUNS = {"pods": "pod", "services": "service", "nodes": "node"}
_HTML = "text/html"
_MOVED = 301
_CORS = frozenset({
    "access-control-allow-credentials", "access-control-allow-headers", "access-control-allow-methods",
    "access-control-allow-origin",
})  # fmt: skip


class Proxy:
    """Handles proxy requests for pods, services and nodes."""

    def __init__(self, scope: RequestScope, lookup: Lookup, passing: Passing) -> None:
        self._scope = scope
        self._lookup = lookup
        self._passing = passing

    async def __call__(self, request: APIRequest) -> Response:
        """Return the response of the target. Raises `ApiError`."""
        if request.http.method not in _METHODS:
            raise not_allowed()
        if is_dry_run(request.query):
            raise BadRequest("dryRun is not supported")
        options = connection_options(request)
        await self._scope.admit(request, "connect", options)
        origin = await self._origin(request)
        http, query = request.http, _query_of(request.http)
        path = joined("", options.get("path", ""))
        if offered_protocols(http):
            return await self._passing.upgrade(origin, http, f"{_quoted(path) or '/'}{query}")
        if http.path.endswith("/") and not path.endswith("/"):
            path += "/"
        if not path and http.method == "GET":
            return Response(_MOVED, {"location": f"{_quoted(http.path)}/{query}"})
        links = Links(_prefix(decoded_path(http), path), authority(origin), http.headers.get("host", ""))
        at = _quoted(path) or "/"
        passed = self._passing.passed(http, f"{at}{query}")
        uri = joined(links.prefix, at)
        passed = replace(passed, headers={**passed.headers, "x-forwarded-uri": uri})
        return await _returned(http, await self._send(origin, http, passed), links)

    async def _origin(self, request: APIRequest) -> ConnectionTarget:
        plural, connections = request.kind.plural, self._passing.connections
        target = ProxyTarget.parse(request.name, _NOUNS[plural])
        if plural == "services":
            return connections.anything(await self._lookup.service_location(request, target))
        if plural == "pods":
            return connections.anything(location_of_pod(await self._lookup.pod(request, target.name), target))
        kubelet, location = await self._lookup.node_location(request, target)
        return connections.kubelet(kubelet) if location is None else connections.anything(location)

    async def _send(self, origin: ConnectionTarget, request: Request, passed: Request) -> Response:
        body = None if request.unread is None else request.unread.stream()
        transport, span = self._passing.connections.transport, current_span()
        try:
            if span is None:
                return await transport.send(origin, passed, body)
            scheme = "https" if origin.tls else "http"
            with span.client(passed.method, f"{scheme}://{authority(origin)}{passed.path}") as call:
                passed = replace(passed, headers={**passed.headers, **call.headers})
                response = await transport.send(origin, passed, body)
                call.note({"http.response.status_code": response.status})
            return response
        except TransportError as error:
            raise ServiceUnavailable(f"error trying to reach service: {error}") from error


async def _returned(request: Request, response: Response, links: Links) -> Response:
    """Return the response for the caller, without its CORS headers."""
    location = response.headers.get("location")
    media = response.headers.get("content-type", "").partition(";")[0].strip()
    body = response.body
    assert not isinstance(body, Upgrade)
    if request.is_head and not isinstance(body, bytes):
        found = await passed_back(replace(response, body=b""))
        found = replace(found, body=PassingBody(body))  # an empty body, so that Content-Length is not sent
    elif location is None and media == _HTML:
        found = await passed_back(replace(response, body=b""))
        found = replace(found, body=rewritten_body(response, links))
    else:
        found = await passed_back(response)
    headers = {name: value for name, value in found.headers.items() if name not in _CORS}
    if location is not None:
        headers["location"] = await _redirected(response, location, links)
    return Response(found.status, headers, found.body, {k: v for k, v in found.repeated.items() if k in headers})


async def _redirected(response: Response, location: str, links: Links) -> str:
    """Return the target of a redirect. Raises `InternalError` if it is not a URL."""
    try:
        urlsplit(location)
    except ValueError as error:
        await close_body(response)
        raise internal_error(f"error trying to parse Location header: {error}") from None
    return links.rewritten(location)


def joined(before: str, path: str) -> str:
    """Return the joined and normalized path; a trailing slash is kept."""
    if not before and not path:
        return ""
    found = posixpath.normpath(f"{before}/{path}".replace("//", "/") if before else path)
    found = "/" + found.lstrip("/") if found.startswith("/") else found
    return f"{found}/" if path.endswith("/") and not found.endswith("/") else found


def _prefix(asked: str, path: str) -> str:
    """Return the requested path without the part that is passed on."""
    suffix = f"{path}/" if asked.endswith("/") and not path.endswith("/") else path
    return asked.removesuffix(suffix)


def _quoted(path: str) -> str:
    return quote(path, safe=_ESCAPED)


def _query_of(request: Request) -> str:
    """Return the query with its question mark; empty if there is none."""
    query = request.target.partition("?")[2] if request.target else urlencode(request.query, quote_via=quote)
    return f"?{query}" if query else ""
