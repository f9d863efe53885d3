"""A connection that can be cut: what is under way fails then, and so does everything until it is mended."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import TypeVar

from controller_manager.api.wire import DuplexStream, Response, Upgrade
from controller_manager.client import TransportError
from controller_manager.transport.transport import close_body

T = TypeVar("T")


class Link:
    """Carries requests and answers between two parties of one process."""

    def __init__(self) -> None:
        self.is_cut = False
        self.disturbed = False
        """True once anything was kept from passing, or changed."""
        self._under_way: set[asyncio.Timeout] = set()

    def cut(self) -> None:
        """Let nothing through any more, in either direction; open watches break."""
        self.is_cut = self.disturbed = True
        now = asyncio.get_running_loop().time()
        for waiting in self._under_way:
            waiting.reschedule(now)

    def mend(self) -> None:
        """Let everything through again."""
        self.is_cut = False

    async def carry(self, work: Callable[[], Awaitable[T]]) -> T:
        """The result of `work`. Raises TransportError when the cable is cut before that is known."""
        if self.is_cut:
            raise TransportError("the connection is cut")
        waiting = asyncio.timeout(None)
        try:
            async with waiting:
                self._under_way.add(waiting)
                return await work()
        except TimeoutError:
            if waiting.expired():
                raise TransportError("the connection was cut") from None
            raise
        finally:
            self._under_way.discard(waiting)

    async def answer(self, work: Callable[[], Awaitable[Response]]) -> Response:
        """The answer that `work` gets; a streamed body comes through this cable too."""
        response = await self.carry(work)
        if isinstance(response.body, bytes | Upgrade):
            return response
        return Response(response.status, response.headers, self._stream(response.body))

    async def upgrade(
        self, work: Callable[[], Awaitable[tuple[Response, DuplexStream | None]]]
    ) -> tuple[Response, DuplexStream | None]:
        """The answer and the stream that `work` gets; the stream comes through this cable too."""
        response, stream = await self.carry(work)
        return response, stream and LinkedStream(self, stream)

    async def _stream(self, body: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
        try:
            while (chunk := await self.carry(lambda: _next(body))) is not None:
                yield chunk
        finally:
            await close_body(Response(200, {}, body))


class LinkedStream:
    """A `DuplexStream` over a link."""

    def __init__(self, link: Link, inner: DuplexStream) -> None:
        self._link = link
        self._inner = inner

    async def read(self, n: int) -> bytes:
        """See `DuplexStream`; raises TransportError when the link is cut."""
        return await self._link.carry(lambda: self._inner.read(n))

    async def write(self, data: bytes) -> None:
        """See `DuplexStream`; raises TransportError when the link is cut."""
        await self._link.carry(lambda: self._inner.write(data))

    async def aclose(self) -> None:
        """See `DuplexStream`."""
        await self._inner.aclose()


async def _next(body: AsyncIterator[bytes]) -> bytes | None:
    return await anext(body, None)
