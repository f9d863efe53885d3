"""One connection of a site as aiohttp's server keeps it, and the writing of answers on it."""

import _ssl
import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from controller_manager.api import errors
from controller_manager.api.wire import Certificate
from controller_manager.base.clock import wall_seconds
from controller_manager.base.log import get_logger
from controller_manager.serving import http
from controller_manager.serving.trust import digest

_PIECE = 1024 * 1024  # TLS moves a big body several times faster in pieces


class _Written:
    """What aiohttp gets in place of a response: everything is on the wire already."""

    __slots__ = ("keep_alive",)

    def __init__(self, *, keep_alive: bool) -> None:
        self.keep_alive = keep_alive

    async def prepare(self, request: web.BaseRequest) -> None:
        """Nothing is left to prepare."""

    async def write_eof(self) -> None:
        """Nothing is left to write."""


KEEP = cast("web.StreamResponse", _Written(keep_alive=True))
CLOSE = cast("web.StreamResponse", _Written(keep_alive=False))


class Connection(RequestHandler):
    """One connection: remembers the client's certificate, and answers what never reaches the handler."""

    __slots__ = ("answering", "certificate")
    answering: bool  # from the first byte of an answer to its last
    certificate: Certificate | None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.answering = False
        self.certificate = http.certificate_of(transport.get_extra_info("peercert"), _root(transport))
        super().connection_made(transport)

    def handle_error(
        self, request: web.BaseRequest, status: int = 500, exc: BaseException | None = None, message: str | None = None
    ) -> Any:
        """Answer a request that is no HTTP (400) or whose handler failed (500), and close the connection."""
        if status < 500:
            error: errors.ApiError = errors.BadRequest(f"the request is not valid HTTP: {message or exc}")
        else:
            get_logger("site").error("a request failed", path=request.path, exc_info=exc)
            error = errors.InternalError("an internal error occurred")
        if self.answering or self.transport is None:
            self.force_close()
            raise ConnectionResetError("the answer broke off")
        refusal = http.refusal(error)
        framing = http.content_length(refusal.status, len(cast("bytes", refusal.body)))
        head = http.head(refusal.status, refusal.headers, http.date_line(wall_seconds()), framing, keep=False)
        self.transport.write(head + cast("bytes", refusal.body))
        return CLOSE


def open_transport(incoming: web.BaseRequest) -> asyncio.Transport:
    """The transport of a request; raises ConnectionError when the client is gone."""
    transport = incoming.transport
    if transport is None or transport.is_closing():
        raise ConnectionResetError("the client is gone")
    return transport


async def write_whole(incoming: web.BaseRequest, head: bytes, body: bytes) -> None:
    """Write an answer; returns once the client has taken most of it. Raises ConnectionError when it is gone."""
    if len(body) <= _PIECE:
        open_transport(incoming).write(head + body)
        return await incoming.writer.drain()
    open_transport(incoming).write(head)
    view = memoryview(body)
    for start in range(0, len(body), _PIECE):
        open_transport(incoming).write(view[start : start + _PIECE])
        await incoming.writer.drain()
    return None


async def write_chunks(incoming: web.BaseRequest, body: AsyncIterator[bytes], *, chunked: bool) -> None:
    """Write each chunk as it comes, no faster than the client takes them."""
    async for chunk in body:
        if chunk:
            framed = (http.chunk_size(len(chunk)), chunk, b"\r\n") if chunked else (chunk,)
            open_transport(incoming).writelines(framed)
            await incoming.writer.drain()


def _root(transport: asyncio.BaseTransport) -> str:
    """The digest of the authority that the verified chain of the client's certificate ends in; empty without one."""
    inner = getattr(transport.get_extra_info("ssl_object"), "_sslobj", None)
    chain = inner.get_verified_chain() if inner is not None else None  # public from Python 3.13 on
    return digest(chain[-1].public_bytes(_ssl.ENCODING_DER)) if chain else ""
