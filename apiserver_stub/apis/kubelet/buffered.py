"""Read exact numbers of bytes from a stream."""

from controller_manager.common.api.wire import DuplexStream

PIECE = 64 * 1024
"""Maximum bytes returned at a time."""


class BufferedReader:
    """Reads from a stream and buffers the rest for the next read. Only one task may read."""

    def __init__(self, stream: DuplexStream) -> None:
        self._stream = stream
        self._buffer = bytearray()

    async def exactly(self, size: int) -> bytes:
        """Return exactly `size` bytes. Raises ConnectionError if the stream ends before."""
        while len(self._buffer) < size:
            await self._fill()
        return self._take(size)

    async def some(self, most: int) -> bytes:
        """Return at least one byte, and at most `most` or one piece. Raises ConnectionError if the stream has ended."""
        if not self._buffer:
            await self._fill()
        return self._take(min(most, PIECE))

    async def skip(self, size: int) -> None:
        """Discard `size` bytes. Raises the errors of `exactly`."""
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
