"""Compression of large answers (API concepts, Response compression), a piece at a time."""

import asyncio
from collections.abc import AsyncIterator

from isal import isal_zlib
from msgspec.structs import replace

from apiserver_stub.encode.accept import weights
from controller_manager.api.wire import Response, Upgrade

_SMALLEST = 128 * 1024  # bytes from which an answer is compressed
_PIECE = 512 * 1024  # bytes compressed at once; takes a millisecond
_CONTAINER = 31  # a gzip header around, and the largest window


def wanted(accept_encoding: str) -> bool:
    """Tell whether a caller prefers gzip, or does not mind (RFC 9110, section 12.5.3)."""
    found = weights(accept_encoding)
    weight = found.get("gzip", found.get("*", 0.0))
    return weight > 0 and weight >= found.get("identity", 0.0)


def compressed(response: Response) -> Response:
    """Return the answer in gzip if it is large or comes in chunks, and is not encoded already."""
    body = response.body
    small = isinstance(body, bytes) and len(body) <= _SMALLEST
    if isinstance(body, Upgrade) or small or "content-encoding" in response.headers:
        return response
    vary = ", ".join(filter(None, (response.headers.get("vary"), "Accept-Encoding")))
    headers = {**response.headers, "content-encoding": "gzip", "vary": vary}
    if isinstance(body, bytes) and len(body) <= _PIECE:
        return replace(response, headers=headers, body=isal_zlib.compress(body, level=1, wbits=_CONTAINER))
    return replace(response, headers=headers, body=_chunks(body))


async def _chunks(body: bytes | AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    compressor = isal_zlib.compressobj(1, wbits=_CONTAINER)
    async for chunk in _single(body) if isinstance(body, bytes) else body:
        for start in range(0, len(chunk), _PIECE):
            yield compressor.compress(chunk[start : start + _PIECE])
            await asyncio.sleep(0)
    yield compressor.flush()


async def _single(body: bytes) -> AsyncIterator[bytes]:
    yield body
