"""Proxies requests for aggregated group versions to extension servers."""

import asyncio
import math
from collections.abc import AsyncIterator

from msgspec.structs import replace

from apiserver_stub.apis.aggregation.api_services import APIService, APIServices
from apiserver_stub.apis.aggregation.descriptions import ExtensionDescriptions
from apiserver_stub.apis.aggregation.discovery import ExtensionDiscovery
from apiserver_stub.apis.aggregation.extension_servers import ExtensionServers
from apiserver_stub.apis.aggregation.front_proxy import forwarded
from apiserver_stub.common.spans import current_span
from apiserver_stub.request.api_request import AGGREGATOR, RequestContext
from apiserver_stub.request.request_info import RequestInfo, check_path
from apiserver_stub.webhooks.relay import passed_back, upgraded
from controller_manager.common.api.errors import ApiError, Timeout
from controller_manager.common.api.wire import Request, Response, offered_protocols
from controller_manager.common.base.clock import monotonic
from controller_manager.common.serving.authentication import RequestHeaderConfig, User
from controller_manager.common.transport.connection_pool import ConnectionTarget, authority
from controller_manager.common.transport.transport import ConfigError, TransportError, close_body

_DISCOVERY = 5.0  # timeout in seconds of a version's resource list, since every client waits for it
_TEXT = {"content-type": "text/plain; charset=utf-8", "x-content-type-options": "nosniff"}


class ExtensionProxy:
    """Proxies requests to the servers behind APIServices.

    The timeout is `patience` seconds, except for endless responses. `redirects` says whether redirects are returned or
    rejected. User headers of the `proxies` of this server are removed.
    """

    def __init__(
        self,
        services: APIServices,
        servers: ExtensionServers,
        discovery: ExtensionDiscovery,
        descriptions: ExtensionDescriptions,
        patience: float,
        *,
        proxies: RequestHeaderConfig,
        redirects: bool = False,
    ) -> None:
        self._services = services
        self._discovery = discovery
        self._descriptions = descriptions
        self._redirects = redirects
        self._proxies = proxies
        self._servers = servers
        self._patience = patience

    def serves(self, info: RequestInfo) -> bool:
        """Return whether a request is for an aggregated group version."""
        return bool(self._services.remote) and self._service(info) is not None

    async def answer(self, context: RequestContext, user: User) -> Response:
        """Return the extension server's response; the body is streamed.

        Raises `Timeout`, and `BadRequest` or `NotFound` for a path outside of any API.
        """
        request, info = context.http, context.info
        context.component = AGGREGATOR
        context.long_running = info.is_long_running
        context.resolved = bool(info.resource) and self._discovery.serves(info.group, info.version, info.resource)
        check_path(info.path)
        service = self._service(info)
        if service is None or not service.is_available:
            return _refused(503, "service unavailable")
        try:
            origin = self._servers.origin(service)
        except ApiError:
            return _refused(503, "service unavailable")
        except ConfigError as error:
            return _refused(500, str(error))
        passed = forwarded(request, user, context.audit_id, authority(origin), self._proxies)
        ends_at = self._end_of(info)
        try:
            async with asyncio.timeout_at(None if ends_at == math.inf else ends_at):
                if offered_protocols(request):
                    return await self._upgrade(origin, request, passed)
                return await self._send(origin, request, passed, ends_at)
        except TransportError as error:
            return _refused(503, f"error trying to reach service: {error}")
        except TimeoutError:
            if _is_discovery(info):
                return _refused(503, "error trying to reach service: timed out")
            raise Timeout("request did not complete within the allotted timeout") from None

    def _service(self, info: RequestInfo) -> APIService | None:
        if info.resource:
            return self._services.remote.get((info.group, info.version))
        match info.path.split("/", 4):
            case ["", "apis", group, version, *_]:
                return self._services.remote.get((group, version))
            case ["", "api", version, *_]:
                return self._services.remote.get(("", version))
            case ["", "openapi", "v3", "apis", name] if f"apis/{name}" in self._descriptions.tags:
                group, _, version = name.partition("/")
                return self._services.remote.get((group, version))
        return None

    def _end_of(self, info: RequestInfo) -> float:
        """Return the loop time at which the request times out."""
        if info.is_long_running:
            return math.inf
        return monotonic() + (_DISCOVERY if _is_discovery(info) else self._patience)

    async def _send(self, origin: ConnectionTarget, request: Request, passed: Request, ends_at: float) -> Response:
        body = None if request.unread is None else request.unread.stream()
        response = await self._passed_on(origin, passed, body)
        if not self._redirects and 300 <= response.status < 400 and response.headers.get("location"):
            await close_body(response)
            why = "the backend attempted to redirect this request, which is not permitted"
            return Response(502, {"content-type": _TEXT["content-type"]}, why.encode())
        return await passed_back(response, ends_at)

    async def _passed_on(
        self, origin: ConnectionTarget, passed: Request, body: AsyncIterator[bytes] | None
    ) -> Response:
        span = current_span()
        if span is None:
            return await self._servers.transport.send(origin, passed, body)
        with span.client(passed.method, f"https://{authority(origin)}{passed.path}") as call:
            passed = replace(passed, headers={**passed.headers, **call.headers})
            response = await self._servers.transport.send(origin, passed, body)
            call.note({"http.response.status_code": response.status})
        return response

    async def _upgrade(self, origin: ConnectionTarget, request: Request, passed: Request) -> Response:
        offer = replace(passed, headers={**passed.headers, "upgrade": request.headers["upgrade"]})
        response, stream = await self._servers.transport.upgrade(origin, offer)
        return await passed_back(response) if stream is None else upgraded(response, stream)


def _is_discovery(info: RequestInfo) -> bool:
    return not info.resource and info.path.strip("/").count("/") == 2


def _refused(status: int, why: str) -> Response:
    return Response(status, _TEXT, f"{why}\n".encode())
