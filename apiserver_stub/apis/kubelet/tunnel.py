"""Tunnels SPDY through WebSocket messages for port forwarding to kubelets without WebSocket support."""

from collections.abc import AsyncIterator
from contextlib import suppress
from functools import partial

from apiserver_stub.apis.kubelet.passing import VERSION
from apiserver_stub.apis.kubelet.websocket import PROTOCOL, Piece, WebSocket, handshake, subprotocols
from apiserver_stub.webhooks.relay import Relay
from controller_manager.common.api.wire import DuplexStream, Request, Response, Upgrade
from controller_manager.common.transport.duplex import SocketStream

_PREFIX, _SUFFIX = "SPDY/3.1+", ".k8s.io"


def tunneled(request: Request) -> list[str]:
    """Return the protocols that a client offers for SPDY within a WebSocket."""
    offered = subprotocols(request)
    return [one.removeprefix(_PREFIX) for one in offered if one.startswith(_PREFIX) and one.endswith(_SUFFIX)]


def through_tunnel(request: Request, response: Response, stream: SocketStream) -> Response:
    """Return a response that connects the client to the kubelet, which accepted SPDY with `response`. Raises
    `BadRequest` and `Forbidden`.
    """
    relay = Relay(stream)  # closes the stream if the client never connects
    headers = handshake(request, [_PREFIX + response.headers.get(VERSION, "")])
    return Response(101, headers, Upgrade(PROTOCOL, partial(_talk, relay)))


async def _talk(relay: Relay, caller: DuplexStream) -> None:
    tunnel = Tunnel(caller)
    await relay.serve(tunnel)
    with suppress(ConnectionError):  # the client may be gone
        await tunnel.aclose()


class Tunnel:
    """A `DuplexStream` of the bytes in WebSocket messages."""

    def __init__(self, stream: DuplexStream) -> None:
        self._socket = WebSocket(stream)
        self._pieces: AsyncIterator[Piece] = self._socket.receive()
        self._left = b""

    async def read(self, n: int) -> bytes:
        """See `DuplexStream`."""
        while not self._left:
            piece = await anext(self._pieces, None)
            if piece is None:
                return b""
            self._left = piece.data
        found, self._left = self._left[:n], self._left[n:]
        return found

    async def write(self, data: bytes) -> None:
        """See `DuplexStream`."""
        await self._socket.send(data)

    async def aclose(self) -> None:
        """See `DuplexStream`."""
        await self._socket.close()
