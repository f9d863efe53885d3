"""Responses streamed over a WebSocket: each piece is a message, and messages of the client are ignored."""

import base64
from functools import partial

from apiserver_stub.apis.kubelet.websocket import PROTOCOL, WebSocket, handshake
from controller_manager.common.api.wire import DuplexStream, Request, Response, Upgrade
from controller_manager.common.base.tasks import first_of
from controller_manager.common.transport.transport import close_body

_BASE64 = "base64.binary.k8s.io"
_PROTOCOLS = ("", "binary.k8s.io", _BASE64)


def upgraded_to_read(request: Request, response: Response) -> Response:
    """Return a WebSocket response that sends the body of `response`. Raises `BadRequest` and `Forbidden`."""
    headers = handshake(request, _PROTOCOLS)
    is_text = headers.get("sec-websocket-protocol") == _BASE64
    return Response(101, headers, Upgrade(PROTOCOL, partial(_talk, response, is_text)))


async def _talk(response: Response, is_text: bool, stream: DuplexStream) -> None:
    socket = WebSocket(stream)
    try:
        await first_of(_send_body(response, socket, is_text=is_text), _ignore(socket))
    finally:
        await close_body(response)


async def _send_body(response: Response, socket: WebSocket, *, is_text: bool) -> None:
    body = response.body
    assert not isinstance(body, Upgrade)
    await socket.send(b"", text=is_text)  # confirms the connection at once
    if isinstance(body, bytes):
        await socket.send(base64.b64encode(body) if is_text else body, text=is_text)
    else:
        async for piece in body:
            await socket.send(base64.b64encode(piece) if is_text else piece, text=is_text)
    await socket.close()


async def _ignore(socket: WebSocket) -> None:
    async for _ in socket.receive():
        pass
