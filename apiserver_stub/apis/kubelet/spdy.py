"""A SPDY/3.1 client for kubelets: only this side opens streams, and there is no flow control (The Chromium Projects,
SPDY Protocol, Draft 3.1).
"""

import asyncio
import zlib
from collections.abc import AsyncIterator, Mapping
from typing import NamedTuple

from apiserver_stub.apis.kubelet.buffered import PIECE, BufferedReader
from controller_manager.common.api.wire import DuplexStream

_WORDS = (
    "options head post put delete trace accept accept-charset accept-encoding accept-language accept-ranges age allow "
    "authorization cache-control connection content-base content-encoding content-language content-length "
    "content-location content-md5 content-range content-type date etag expect expires from host if-match "
    "if-modified-since if-none-match if-range if-unmodified-since last-modified location max-forwards pragma "
    "proxy-authenticate proxy-authorization range referer retry-after server te trailer transfer-encoding upgrade "
    "user-agent vary via warning www-authenticate method get status 200_OK version HTTP/1.1 url public set-cookie "
    "keep-alive origin"
)
_REST = (
    "100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505203 Non-Authoritative "
    "Information204 No Content301 Moved Permanently400 Bad Request401 Unauthorized403 Forbidden404 Not Found500 "
    "Internal Server Error501 Not Implemented503 Service UnavailableJan Feb Mar Apr May Jun Jul Aug Sept Oct Nov Dec "
    "00:00:00 Mon, Tue, Wed, Thu, Fri, Sat, Sun, GMTchunked,text/html,image/png,image/jpg,image/gif,application/xml,"
    "application/xhtml+xml,text/plain,text/javascript,publicprivatemax-age=gzip,deflate,sdchcharset=utf-8charset="
    "iso-8859-1,utf-,*,enq=0."
)
_CONTROL = 0x8003_0000  # the first word of a control frame, without its type
_SYN_STREAM, _RST_STREAM, _PING, _GOAWAY = 1, 3, 6, 7
_FIN = 1
_LONGEST = 64  # bytes of control frames that are decoded


class Data(NamedTuple):
    """Data received on a stream; it is the last if it `ends`."""

    stream: int
    data: bytes
    ends: bool


class SpdyConnection:
    """Streams over one connection. One task receives while others send."""

    def __init__(self, stream: DuplexStream) -> None:
        self._stream = stream
        self._reader = BufferedReader(stream)
        self._headers = zlib.compressobj(zdict=_dictionary())
        self._last = -1
        self._sending = asyncio.Lock()

    async def open(self, headers: Mapping[str, str]) -> int:
        """Open a stream and return its ID. Raises ConnectionError."""
        self._last += 2
        block = len(headers).to_bytes(4, "big")
        for name, value in headers.items():
            block += b"".join(len(text).to_bytes(4, "big") + text for text in (name.lower().encode(), value.encode()))
        packed = self._headers.compress(block) + self._headers.flush(zlib.Z_SYNC_FLUSH)
        opening = self._last.to_bytes(4, "big") + bytes(6)  # no associated stream, highest priority, slot 0
        await self._write(_control(_SYN_STREAM, opening + packed))
        return self._last

    async def send(self, stream: int, data: bytes, *, ends: bool = False) -> None:
        """Send data on a stream; `ends` half-closes it. Raises ConnectionError."""
        for start in range(0, len(data), PIECE):
            part = data[start : start + PIECE]
            await self._write(_data(stream, part, ends=ends and start + PIECE >= len(data)))
        if ends and not data:
            await self._write(_data(stream, b"", ends=True))

    async def receive(self) -> AsyncIterator[Data]:
        """Yield received data in pieces and answer pings. Raises ConnectionError, also for a GOAWAY."""
        while True:
            head = await self._reader.exactly(8)
            first, flags, size = int.from_bytes(head[:4], "big"), head[4], int.from_bytes(head[5:], "big")
            if first < 1 << 31:
                async for part in self._parts(first, size, ends=bool(flags & _FIN)):
                    yield part
            elif size > _LONGEST:
                await self._reader.skip(size)
            else:
                ended = await self._obey(first & 0xFFFF, flags, await self._reader.exactly(size))
                if ended is not None:
                    yield ended

    async def _parts(self, stream: int, size: int, *, ends: bool) -> AsyncIterator[Data]:
        if not size:
            yield Data(stream, b"", ends)
        while size:
            data = await self._reader.some(size)
            size -= len(data)
            yield Data(stream, data, ends and not size)

    async def _obey(self, kind: int, flags: int, content: bytes) -> Data | None:
        """Handle a control frame; return the end of the stream if it ends one."""
        stream = int.from_bytes(content[:4], "big")
        if kind == _PING and stream % 2 == 0:
            await self._write(_control(_PING, content))
        elif kind == _GOAWAY:
            raise ConnectionResetError("the other side leaves")
        elif kind == _RST_STREAM or flags & _FIN:
            return Data(stream, b"", ends=True)
        return None

    async def _write(self, frame: bytes) -> None:
        async with self._sending:
            await self._stream.write(frame)


def _control(kind: int, content: bytes) -> bytes:
    return (_CONTROL | kind).to_bytes(4, "big") + len(content).to_bytes(4, "big") + content


def _data(stream: int, content: bytes, *, ends: bool) -> bytes:
    return stream.to_bytes(4, "big") + (ends << 24 | len(content)).to_bytes(4, "big") + content


def _dictionary() -> bytes:
    """Return the compression dictionary of headers (section 2.6.10.1)."""
    words = (word.replace("_", " ").encode() for word in _WORDS.split(" "))
    return b"".join(len(word).to_bytes(4, "big") + word for word in words) + _REST.encode()
