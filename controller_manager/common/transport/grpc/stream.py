"""A bidirectional streaming call."""

import asyncio
from collections.abc import Awaitable, Callable

from controller_manager.common.api.protobuf.services import Method
from controller_manager.common.api.tree import Tree
from controller_manager.common.transport.grpc.call import StreamCall, framed, read_answer
from controller_manager.common.transport.http2 import Http2Connection


class GrpcStream:
    """A bidirectional streaming call. Cancelling a task that reads or writes ends the call."""

    def __init__(
        self, method: Method, headers: bytes, connect: Callable[[], Awaitable[Http2Connection]], largest: int
    ) -> None:
        self._method = method
        self._headers = headers
        self._connect = connect
        self._call = StreamCall(largest)
        self._opening = asyncio.Lock()

    async def connected(self) -> None:
        """Return when the request was sent to the server. Raises `GrpcError`."""
        if self._call.stream is None:
            async with self._opening:
                await self._open()

    async def read(self) -> Tree | None:
        """Return the next message, None after the server has ended the call. Raises `GrpcError`."""
        try:
            await self.connected()
            data = await self._call.next()
        except asyncio.CancelledError:
            self.close()
            raise
        return None if data is None else read_answer(self._method, data)

    async def write(self, message: Tree) -> None:
        """Send a message when flow control allows it. Raises `GrpcError`."""
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
        """Signal that no more messages follow; the server may still send messages."""
        await self.connected()
        if self._call.stream is not None:
            self._call.stream.write(b"", end=True)

    def close(self) -> None:
        """Cancel the call; does nothing if it is over."""
        self._call.close()

    async def _open(self) -> None:
        if self._call.stream is None:
            self._call.check()
            connection = await self._connect()
            self._call.check()
            self._call.stream = connection.request(self._headers, self._call)
