"""The body of a request, left on the wire until somebody who knows the caller asks for it."""

import asyncio

from aiohttp import HttpVersion11, web
from aiohttp.http_exceptions import HttpProcessingError

from controller_manager.api import errors
from controller_manager.serving import http
from controller_manager.serving.budget import Budget

_TIMEOUT = 60.0  # seconds a body may take to arrive
_PIECE = 128 * 1024  # bytes that are taken from the wire at a time


class Body:
    """One body of at most `limit` bytes, as it came: like Go's, this server does not look at Content-Encoding.

    It is read as no more than the `budget` allows, and counts until `release`. What came together with the head is in
    memory anyway and takes nothing.
    """

    __slots__ = ("_budget", "_held", "_incoming", "_limit")

    def __init__(self, incoming: web.BaseRequest, limit: int, budget: Budget) -> None:
        self._incoming = incoming
        self._limit = limit
        self._budget = budget
        self._held: tuple[str, int] | None = None

    @property
    def arrived(self) -> bool:
        """Whether nothing of it is left on the wire."""
        return self._incoming.content.is_eof()

    async def read(self, caller: str) -> bytes:
        """All of it, for a caller who has been let in. Raises RequestEntityTooLarge, TooManyRequests and BadRequest."""
        incoming, content, limit = self._incoming, self._incoming.content, self._limit
        declared = incoming.content_length
        if (declared or 0) > limit:
            raise self._too_large()
        if content.is_eof() and content.exception() is None:
            return self._within_limit(content.read_nowait())
        size = limit if declared is None else declared
        await self._budget.take(caller, size)
        self._held = (caller, size)
        if _waits_for_leave(incoming) and incoming.transport is not None:
            incoming.transport.write(http.CONTINUE)
        body = await self._arrival()
        self._budget.release(caller, size - len(body))
        self._held = (caller, len(body))
        return body

    def release(self) -> None:
        """Count it no more: its request has been answered."""
        if self._held is not None:
            self._budget.release(*self._held)
            self._held = None

    async def _arrival(self) -> bytes:
        content, parts, size = self._incoming.content, [], 0
        content.set_read_chunk_size(_PIECE)
        try:
            async with asyncio.timeout(_TIMEOUT):
                while part := await content.readany():
                    parts.append(part)
                    size += len(part)
                    if size > self._limit:
                        raise self._too_large()
                    await asyncio.sleep(0)  # tiny chunks take long to look at
        except TimeoutError:
            raise errors.BadRequest(f"the body did not arrive within {_TIMEOUT:.0f} seconds") from None
        except (web.RequestPayloadError, HttpProcessingError) as error:
            raise errors.BadRequest(f"the body cannot be read: {error}") from None
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _within_limit(self, body: bytes) -> bytes:
        if len(body) > self._limit:
            raise self._too_large()
        return body

    def _too_large(self) -> errors.RequestEntityTooLarge:
        return errors.RequestEntityTooLarge(f"the body of a request is limited to {self._limit} bytes")


def _waits_for_leave(incoming: web.BaseRequest) -> bool:
    """Whether the client sends its body only when told to (RFC 9110, section 10.1.1)."""
    return incoming.headers.get("expect", "").lower() == "100-continue" and incoming.version >= HttpVersion11
