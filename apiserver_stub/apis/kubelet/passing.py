"""Requests passed to kubelets, pods and services, including protocol upgrades."""

from collections.abc import Sequence

from msgspec.structs import replace

from apiserver_stub.apis.kubelet.connections import KubeletConnections
from apiserver_stub.webhooks.relay import passed_back, upgraded, without_caller
from controller_manager.common.api.errors import UnknownError
from controller_manager.common.api.wire import Request, Response
from controller_manager.common.serving.authentication import RequestHeaderConfig
from controller_manager.common.transport.connection_pool import ConnectionTarget
from controller_manager.common.transport.duplex import SocketStream
from controller_manager.common.transport.transport import TransportError

VERSION = "x-stream-protocol-version"
"""The header with the protocols spoken over SPDY."""
_FORWARDED_FOR = "x-forwarded-for"
_REFUSED = 400


class Passing:
    """Passes requests on, without credentials and without the user headers of this server's `proxies`."""

    def __init__(self, connections: KubeletConnections, proxies: RequestHeaderConfig) -> None:
        self.connections = connections
        self._proxies = proxies

    def spdy_offer(self, request: Request, target: str, versions: Sequence[str]) -> Request:
        """Return the SPDY upgrade request that replaces a client's WebSocket request."""
        passed = self.passed(request, target)
        kept = {name: value for name, value in passed.headers.items() if not name.startswith("sec-websocket-")}
        headers = {**kept, "upgrade": "SPDY/3.1", VERSION: ", ".join(versions)}
        return Request("POST", target, (), headers, repeated={VERSION: tuple(versions)}, target=target)

    def passed(self, request: Request, target: str) -> Request:
        """Return the request to send to `target`, with the client's address added."""
        passed = without_caller(request, self._proxies)
        before = passed.headers.get(_FORWARDED_FOR, "")
        addresses = ", ".join(one for one in (before, request.remote) if one)
        forwarded = {_FORWARDED_FOR: addresses} if addresses else {}
        host = {"host": request.headers["host"]} if "host" in request.headers else {}
        method = "HEAD" if request.is_head else request.method
        return replace(passed, method=method, headers={**passed.headers, **forwarded, **host}, target=target)

    async def upgrade(self, origin: ConnectionTarget, request: Request, target: str) -> Response:
        """Return the response to an upgrade request: the protocol switch, or the error of the target. Raises
        `UnknownError` if it is neither.
        """
        passed = self.passed(request, target)
        offer = replace(passed, headers={**passed.headers, "upgrade": request.headers["upgrade"]})
        response, stream = await self.change(origin, offer)
        return response if stream is None else upgraded(response, stream)

    async def change(self, origin: ConnectionTarget, offer: Request) -> tuple[Response, SocketStream | None]:
        """Return the response to an upgrade request, and the stream if the protocol was switched. Raises the errors of
        `upgrade`.
        """
        try:
            response, stream = await self.connections.transport.upgrade(origin, offer)
        except TransportError as error:
            raise UnknownError(f"error dialing backend: {error}") from error
        if stream is not None:
            return response, stream
        if response.status < _REFUSED:
            raise UnknownError(f"invalid upgrade response: status code {response.status}")
        return await passed_back(response), None
