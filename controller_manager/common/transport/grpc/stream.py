"""A call whose messages go both ways."""

import asyncio
from collections.abc import Awaitable, Callable

from controller_manager.common.api.protobuf.services import Method
from controller_manager.common.api.tree import Tree
from controller_manager.common.transport.grpc.call import StreamCall, framed, read_answer
from controller_manager.common.transport.http2 import Http2Connection


class GrpcStream:
    """A call whose messages go both ways. A task that is cancelled while it reads or writes ends the call."""

    def __init__(
        self, method: Method, headers: bytes, connect: Callable[[], Awaitable[Http2Connection]], largest: int
    ) -> None:
        self._method = method
        self._headers = headers
        self._connect = connect
        self._call = StreamCall(largest)
        self._opening = asyncio.Lock()

    async def connected(self) -> None:
        """Return once the call has reached the server. Raises `GrpcError`."""
        if self._call.stream is None:
            async with self._opening:
                await self._open()

    async def read(self) -> Tree | None:
        """Return the next message, None when the server has ended the call. Raises `GrpcError`."""
        try:
            await self.connected()
            data = await self._call.next()
        except asyncio.CancelledError:
            self.close()
            raise
        return None if data is None else read_answer(self._method, data)

    async def write(self, message: Tree) -> None:
        """Send a message, as soon as the server takes more. Raises `GrpcError`."""
        body = self._method.request.write(message)
        try:
            await self.connected()
            self._call.check()
            assert self._call.stream is not None
            self._call.stream.write(framed(body))
            await self._call.stream.drained()
            self._call.check()
        except asyncio.CancelledError:
            self.close()
            raise

    async def end(self) -> None:
        """Say that no message follows; the server may send others."""
        await self.connected()
        if self._call.stream is not None:
            self._call.stream.write(b"", end=True)

    def close(self) -> None:
        """End the call at once; nothing happens to one that is over."""
        self._call.close()

    async def _open(self) -> None:
        if self._call.stream is None:
            self._call.check()
            connection = await self._connect()
            self._call.check()
            self._call.stream = connection.request(self._headers, self._call)
