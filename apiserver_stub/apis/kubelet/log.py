"""Container logs: checked, requested from the kubelet, and streamed to the client."""

import ssl
from collections.abc import Callable
from typing import Any

from apiserver_stub.apis.kubelet.connections import KubeletConnections
from apiserver_stub.apis.kubelet.locations import container_of
from apiserver_stub.apis.kubelet.lookup import Lookup
from apiserver_stub.apis.kubelet.metrics import KubeletMetrics
from apiserver_stub.apis.kubelet.options import log_options
from apiserver_stub.apis.kubelet.reader import upgraded_to_read
from apiserver_stub.apis.kubelet.websocket import offers_websocket
from apiserver_stub.request.api_request import APIRequest
from apiserver_stub.request.request_info import not_allowed
from apiserver_stub.webhooks.relay import passed_back
from controller_manager.common.api.errors import (
    ApiError,
    BadRequest,
    Details,
    UnknownError,
    from_response,
    internal_error,
    what_clients_make_of,
)
from controller_manager.common.api.wire import Request, Response
from controller_manager.common.transport.connection_pool import ConnectionTarget, authority
from controller_manager.common.transport.transport import TransportError, close_body

_LONGEST_REFUSAL = 50_000  # bytes of a kubelet's error response
_TEXT = {"content-type": "text/plain"}
_FINE = range(200, 207)
_REFUSED = 400


class PodLogs:
    """Serves pods/log. A single one of a container's `streams` may be selected only if the feature is enabled. `check`
    raises `NotAcceptable` if the client accepts no served media type.
    """

    def __init__(
        self,
        lookup: Lookup,
        connections: KubeletConnections,
        metrics: KubeletMetrics,
        check: Callable[[APIRequest], object],
        *,
        streams: bool,
    ) -> None:
        self._check = check
        self._lookup = lookup
        self._connections = connections
        self._metrics = metrics
        self._streams = streams

    async def __call__(self, request: APIRequest) -> Response:
        """Return the log; 204 without content for a pod without a node. Raises `ApiError`."""
        if request.http.is_head:
            raise not_allowed()
        self._check(request)
        options = log_options(request, streams=self._streams)
        self._metrics.log(verified=not options.unverified)
        pod = await self._lookup.pod(request, request.name)
        container = container_of(pod, request.name, options.container)
        if not pod.spec.node_name:
            return Response(204)
        kubelet = await self._lookup.kubelet(request, pod.spec.node_name)
        origin = self._connections.kubelet(kubelet, verified=not options.unverified)
        path = f"/containerLogs/{request.namespace}/{request.name}/{container}"
        asked = Request("GET", path, target=f"{path}?{options.query}" if options.query else path)
        response = await self._ask(origin, asked)
        if response.status not in _FINE:
            raise await _refused(request, response)
        if offers_websocket(request.http):
            return upgraded_to_read(request.http, response)
        passed = await passed_back(response)
        return Response(200, _TEXT, passed.body)

    async def _ask(self, origin: ConnectionTarget, request: Request) -> Response:
        try:
            response = await self._connections.transport.send(origin, request)
        except TransportError as error:
            if isinstance(_root(error), ssl.SSLCertVerificationError):
                self._metrics.unverified()
            raise UnknownError(f'Get "https://{authority(origin)}{request.target}": {error}') from error
        if 300 <= response.status < 400 and "location" in response.headers:
            await close_body(response)
            raise UnknownError(f'Get "{response.headers["location"]}": redirects forbidden')
        return response


def _root(error: BaseException) -> BaseException:
    while error.__cause__ is not None:
        error = error.__cause__
    return getattr(error, "certificate_error", error)


async def _refused(request: APIRequest, response: Response) -> ApiError:
    """Return the error for a kubelet's error response."""
    text = (await _beginning(response)).decode("utf-8", "replace")
    status = response.status
    if status == 500:
        return internal_error(text)
    if status == 400:
        return BadRequest(text)
    error = from_response(status, text.encode())
    if status < _REFUSED:
        error.reason = ""  # there is no reason for this code
    error.message = f"{what_clients_make_of(status, text)} ( pods/log {request.name})"
    error.details = Details(name=request.name, kind="pods/log")
    return error


async def _beginning(response: Response) -> bytes:
    body: Any = response.body
    if isinstance(body, bytes):
        return body[:_LONGEST_REFUSAL]
    found = bytearray()
    try:
        async for part in body:
            found += part
            if len(found) >= _LONGEST_REFUSAL:
                break
    except TransportError as error:
        raise internal_error(str(error)) from error
    finally:
        await close_body(response)
    return bytes(found[:_LONGEST_REFUSAL])
