"""Servers on the loopback interface, and a handler that records its requests."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

from controller_manager.common.api.wire import Request, Response
from controller_manager.common.serving.http_server import HTTPServer

TEXT = {"content-type": "text/plain"}


class Pushing:
    """A stream without own chunks: pushed data goes to the sink."""

    def __init__(self) -> None:
        self.ready, self.closed, self.looks = asyncio.Event(), asyncio.Event(), asyncio.Event()

    def push_to(self, sink: Callable[[bytes], bool]) -> None:
        self._sink = sink
        self.ready.set()

    def push(self, chunk: bytes) -> bool:
        return self._sink(chunk) or self.looks.set() or False

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        await self.looks.wait()
        self.looks.clear()
        return b""

    async def aclose(self) -> None:
        self.closed.set()


class Handler:
    """Records requests and answers by path."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.closed = asyncio.Event()
        self.started = asyncio.Event()
        self.pushing = Pushing()

    async def __call__(self, request: Request) -> Response:
        self.requests.append(await request.received("caller"))
        match request.path:
            case "/stream":
                return Response(200, TEXT, self._ticks(3))
            case "/endless":
                return Response(200, TEXT, self._ticks(None))
            case "/pushed":
                return Response(200, TEXT, self.pushing)
            case "/broken":
                return Response(200, TEXT, self._break())
            case "/flood":
                return Response(200, TEXT, self._flood())
            case "/big":
                return Response(200, TEXT, b"x" * (3 * 1024 * 1024 + 7))
            case "/fails":
                raise RuntimeError("a bug")
            case "/slow":
                self.started.set()
                await asyncio.sleep(0.2)
            case "/empty":
                return Response(204)
            case "/unknown":
                return Response(401)
        return Response(200, TEXT, b"hello")

    async def _ticks(self, count: int | None) -> AsyncIterator[bytes]:
        try:
            number = 0
            while count is None or number < count:
                yield b"tick\n"
                number += 1
                if count is None:
                    await asyncio.Event().wait()
        finally:
            self.closed.set()

    async def _flood(self) -> AsyncIterator[bytes]:
        try:
            while True:
                self.requests.append(Request("", ""))
                yield b"x" * 65536
        finally:
            self.closed.set()

    async def _break(self) -> AsyncIterator[bytes]:
        yield b"first"
        raise RuntimeError("the store is gone")


@contextlib.asynccontextmanager
async def serving(handler: Handler, context: Any = None, **more: Any) -> AsyncIterator[HTTPServer]:
    server = HTTPServer(handler, "127.0.0.1", 0, context, **more)
    await server.start()
    try:
        yield server
    finally:
        await server.stop(1.0)


async def raw(port: int, text: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(text)
    answer = await asyncio.wait_for(reader.read(), 30)
    writer.close()
    return answer
