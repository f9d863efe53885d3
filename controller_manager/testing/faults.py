"""A network that fails on purpose: lost requests and answers, refusals, delays, broken watches, or cut off whole."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable

from controller_manager.api.errors import InternalError
from controller_manager.api.wire import Request, Response
from controller_manager.base.chance import chance
from controller_manager.base.tasks import Tasks
from controller_manager.client import Transport, TransportError
from controller_manager.client.transport import close_body

Intercept = Callable[[Request], Response | None]

LONGEST_DELAY = 5.0
# A watch breaks at one in so many of the chunks at which a request would fail.
CHUNKS_PER_BREAK = 5


class FaultyTransport:
    """Passes requests to `inner`; each fails with probability `rate`, all fail while it is `cut`."""

    def __init__(self, inner: Transport, rate: float = 0.0) -> None:
        self.host = inner.host
        self.rate = rate
        self._inner = inner
        self._cut = asyncio.Event()
        self._intercept: Intercept | None = None

    def cut(self) -> None:
        """Let nothing through any more, in either direction; open watches break."""
        self._cut.set()

    def mend(self) -> None:
        """Let everything through again."""
        self._cut.clear()

    def intercept(self, answer: Intercept | None) -> None:
        """Ask `answer` first from now on: what it returns is the answer, None passes the request on."""
        self._intercept = answer

    async def send(self, request: Request) -> Response:
        """The answer, if the network lets both pass. Raises TransportError."""
        fault = self._draw()
        if self._cut.is_set() or fault == "request lost":
            raise TransportError("the request was lost")
        if fault == "delay":
            await asyncio.sleep(chance().uniform(0, LONGEST_DELAY))
        if fault == "refusal":
            error = InternalError("by chance")
            return Response(error.code, {}, error.status().encode())
        forged = self._intercept(request) if self._intercept else None
        response = forged or await self._inner.send(request)
        if self._cut.is_set() or fault == "answer lost":
            await close_body(response)
            raise TransportError("the answer was lost")
        if isinstance(response.body, bytes):
            return response
        return Response(response.status, response.headers, self._leaking(response.body))

    async def close(self) -> None:
        """Close the transport behind."""
        await self._inner.close()

    def _draw(self) -> str:
        if chance().uniform(0, 1) >= self.rate:
            return ""
        faults = ("request lost", "answer lost", "delay", "refusal")
        return faults[int(chance().uniform(0, len(faults))) % len(faults)]

    async def _leaking(self, body: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
        """The chunks of a watch until it breaks, which may be in the middle of an event."""
        try:
            while (chunk := await self._next(body)) is not None:
                if chance().uniform(0, 1) < self.rate / CHUNKS_PER_BREAK:
                    yield chunk[: len(chunk) // 2]
                    raise TransportError("the watch broke")
                yield chunk
        finally:
            await close_body(Response(200, {}, body))

    async def _next(self, body: AsyncIterator[bytes]) -> bytes | None:
        async with Tasks() as tasks:
            following = tasks.start(_chunk(body), name="next chunk")
            cut = tasks.start(self._cut.wait(), name="cut")
            await asyncio.wait((cut, following), return_when=asyncio.FIRST_COMPLETED)
            if following.done():
                chunk: bytes | None = following.result()
                return chunk
        raise TransportError("the watch was cut")


async def _chunk(body: AsyncIterator[bytes]) -> bytes | None:
    return await anext(body, None)
