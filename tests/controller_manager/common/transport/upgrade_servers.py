"""A server whose handler upgrades connections, and transports to it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

from controller_manager.common.api.wire import DuplexStream, Request, Response, Upgrade
from controller_manager.common.serving import tls
from controller_manager.common.serving.http_server import HTTPServer
from controller_manager.common.transport.authenticated import InProcessTransport
from controller_manager.common.transport.config import ClientConfig
from controller_manager.common.transport.http_transport import HttpTransport
from controller_manager.common.transport.transport import Transport

OFFER = Request("GET", "/echo", (("command", "sh"),), {"upgrade": "echo/1"})
StreamHandler = Callable[[DuplexStream], Awaitable[None]]


class Handler:
    """Upgrades to `echo/1` on request and passes the stream to `handle_stream`."""

    def __init__(self, handle_stream: StreamHandler) -> None:
        self.handle_stream = handle_stream
        self.requests: list[Request] = []
        self.ended = asyncio.Event()

    async def __call__(self, request: Request) -> Response:
        self.requests.append(request)
        match request.path:
            case "/refuses":
                return Response(403, {"content-type": "text/plain"}, b"no")
            case "/ordinary":
                return Response(200, {}, b"hello")
        return Response(101, {"x-answer": "yes"}, Upgrade("echo/1", self._serve))

    async def _serve(self, stream: DuplexStream) -> None:
        try:
            await self.handle_stream(stream)
        finally:
            self.ended.set()


@contextlib.asynccontextmanager
async def serving(handler: Handler, kind: str) -> AsyncIterator[tuple[Transport, HTTPServer | None]]:
    if kind == "memory":
        inner = InProcessTransport(handler)
        yield inner, None
        await inner.close()
        return
    ca = tls.make_ca("authority")
    context = tls.context_of(tls.issue(ca, "server", hosts=["127.0.0.1"])) if kind == "tls" else None
    server = HTTPServer(handler, "127.0.0.1", 0, context)
    await server.start()
    scheme = "https" if kind == "tls" else "http"
    transport = HttpTransport(ClientConfig(f"{scheme}://127.0.0.1:{server.port}", ca=ca.certificate))
    try:
        yield transport, server
    finally:
        await transport.close()
        await server.stop(1.0)


async def echo(stream: DuplexStream) -> None:
    while data := await stream.read(1000):
        assert len(data) <= 1000
        await stream.write(data)
