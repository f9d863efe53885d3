"""Request bodies, which are read only after authentication, and a memory budget for all bodies."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator

import msgspec

from controller_manager.common.api import errors
from controller_manager.common.api.errors import Details, TooManyRequests
from controller_manager.common.serving import http
from controller_manager.common.serving.incoming import BodyStream, IncomingRequest

_PER_CALLER, _OF_ALL = 4, 24  # multiples of the largest body
_PATIENCE = 10.0  # seconds to wait for memory
_WAITING = 200  # maximum number of waiting requests
_TIMEOUT = 60.0  # seconds to receive a body
_BUFFER = 256 * 1024  # bytes received while the last ones are processed


class _Waiting(msgspec.Struct, frozen=True, eq=False):
    caller: str
    size: int
    turn: asyncio.Future[None]


class Budget:
    """A memory budget for bodies of at most `largest` bytes each; it is taken before reading and returned after the
    response.

    Requests wait in order of arrival. Callers that exceed their own share wait without delaying others.
    """

    def __init__(self, largest: int) -> None:
        self.held = 0  # bytes
        self._of_all = largest * _OF_ALL
        self._per_caller = largest * _PER_CALLER
        self._by_caller: Counter[str] = Counter()
        self._waiting: list[_Waiting] = []

    async def take(self, caller: str, size: int) -> None:
        """Take memory. Raises TooManyRequests if none is available for some time, or if too many requests wait."""
        if not self._waiting and self._has_room(caller, size):
            self._hold(caller, size)
            return
        if len(self._waiting) >= _WAITING:
            raise _busy()
        waiting = _Waiting(caller, size, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        self._admit()
        try:
            async with asyncio.timeout(_PATIENCE):
                await waiting.turn
        except BaseException as error:
            if waiting in self._waiting:
                self._waiting.remove(waiting)
                self._admit()
            else:  # admitted in the same loop iteration
                self.release(caller, size)
            if isinstance(error, TimeoutError):
                raise _busy() from None
            raise

    def release(self, caller: str, size: int) -> None:
        """Return memory, or a part of it."""
        self.held -= size
        self._by_caller[caller] -= size
        if self._by_caller[caller] <= 0:
            del self._by_caller[caller]
        self._admit()

    def _admit(self) -> None:
        for waiting in tuple(self._waiting):
            if waiting.turn.done():
                continue  # cancelled; its task removes it
            if self.held + waiting.size > self._of_all:
                return  # later requests must not overtake
            if self._has_room(waiting.caller, waiting.size):
                self._waiting.remove(waiting)
                self._hold(waiting.caller, waiting.size)
                waiting.turn.set_result(None)

    def _has_room(self, caller: str, size: int) -> bool:
        return self.held + size <= self._of_all and self._by_caller[caller] + size <= self._per_caller

    def _hold(self, caller: str, size: int) -> None:
        self.held += size
        self._by_caller[caller] += size


def _busy() -> TooManyRequests:
    details = Details(retry_after_seconds=1)
    return TooManyRequests("too many bodies of requests are being read, please try again later", details)


class Body(msgspec.Struct, eq=False):
    """A request body of at most `limit` bytes. Like Kubernetes, this server ignores Content-Encoding.

    It is read when the `budget` allows, and counts until `release`. Data that arrived together with the head is already
    in memory and does not count.
    """

    incoming: IncomingRequest
    content: BodyStream
    transport: asyncio.Transport | None
    limit: int
    budget: Budget
    _held: tuple[str, int] | None = None

    async def read(self, caller: str) -> bytes:
        """Return the whole body. Raises RequestEntityTooLarge, TooManyRequests and BadRequest."""
        if self.content.has_ended or self.content.error:
            if self.content.size > self.limit:
                raise self._too_large()
            return await self.content.read()
        declared = self.incoming.content_length
        size = self.limit if declared is None else declared
        if size > self.limit:
            raise self._too_large()
        await self.budget.take(caller, size)
        self._held = (caller, size)
        self._give_leave()
        body = await self._arrival()
        self.budget.release(caller, size - len(body))
        self._held = (caller, len(body))
        return body

    async def stream(self) -> AsyncIterator[bytes]:
        """Yield the body as it arrives, without buffering it. Raises BadRequest."""
        if not self.content.has_ended:
            self._give_leave()
        while part := await self.content.read():
            yield part

    def _give_leave(self) -> None:
        """Ask for the body, and buffer more of it."""
        self.content.limit = _BUFFER
        if self.incoming.waits_for_leave and self.transport is not None:
            self.transport.write(http.CONTINUE)

    def release(self) -> None:
        """Return its memory to the budget, after the response."""
        if self._held is not None:
            self.budget.release(*self._held)
            self._held = None

    async def _arrival(self) -> bytes:
        parts, size = [], 0
        try:
            async with asyncio.timeout(_TIMEOUT):
                while part := await self.content.read():
                    parts.append(part)
                    size += len(part)
                    if size > self.limit:
                        raise self._too_large()
                    await asyncio.sleep(0)  # tiny chunks take long to process
        except TimeoutError:
            raise errors.BadRequest(f"the body did not arrive within {_TIMEOUT:.0f} seconds") from None
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _too_large(self) -> errors.RequestEntityTooLarge:
        return errors.RequestEntityTooLarge(f"the body of a request is limited to {self.limit} bytes")
