"""Reading so many bytes of a stream, neither more nor less."""

from controller_manager.common.api.wire import DuplexStream

PIECE = 64 * 1024
"""Bytes that are handed on at a time."""


class BufferedReader:
    """Reads from a stream; what came beyond is there for the next read. One task reads."""

    def __init__(self, stream: DuplexStream) -> None:
        self._stream = stream
        self._buffer = bytearray()

    async def exactly(self, size: int) -> bytes:
        """Return so many bytes. Raises ConnectionError if the stream ends before."""
        while len(self._buffer) < size:
            await self._fill()
        return self._take(size)

    async def some(self, most: int) -> bytes:
        """Return at least one byte, and at most so many or a piece. Raises ConnectionError if the stream has ended."""
        if not self._buffer:
            await self._fill()
        return self._take(min(most, PIECE))

    async def skip(self, size: int) -> None:
        """Read so many bytes that nobody wants. Raises as `exactly`."""
        while size:
            size -= len(await self.some(size))

    def _take(self, most: int) -> bytes:
        found = bytes(self._buffer[:most])
        del self._buffer[:most]
        return found

    async def _fill(self) -> None:
        found = await self._stream.read(PIECE)
        if not found:
            raise ConnectionResetError("the other side has closed the stream")
        self._buffer += found
