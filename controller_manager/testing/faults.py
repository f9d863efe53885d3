"""Fault injection for requests, by seed: lost, delayed or rejected requests, broken or stalled watches, partitions."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from enum import Enum
from typing import TypeVar

from controller_manager.common.api.errors import (
    ApiError,
    Conflict,
    Expired,
    InternalError,
    ServiceUnavailable,
    TooManyRequests,
)
from controller_manager.common.api.wire import DuplexStream, Request, Response, Sink, Upgrade, push_bookmarks
from controller_manager.common.base.random import Random, random_source
from controller_manager.common.transport.credentials import Obtain
from controller_manager.common.transport.transport import Transport, TransportError, close_body, is_watch
from controller_manager.testing.virtual import housekeeping_needed

T = TypeVar("T")


# Called with a description of a fault of the network, or of one request.
Note = Callable[[str, Request | None], None]


def _unnoted(_: str, __: Request | None) -> None:
    """Do nothing (default of `note`)."""


class _Passage:
    """A wait of the running task that `cut` can cancel; much cheaper than an `asyncio.timeout`."""

    __slots__ = ("_cancelling", "_is_cut", "_task", "soon")

    def __init__(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._task, self._cancelling, self._is_cut = task, task.cancelling(), False
        self.soon: asyncio.Handle | None = None
        """The scheduled cancellation; cancel it when the wait is over."""

    def cut(self) -> None:
        """Cancel the wait in the next turn of the loop, unless it is over by then."""
        if self.soon is None:
            self.soon = asyncio.get_running_loop().call_soon(self._cancel)

    def is_cut(self) -> bool:
        """Return whether `cut` was the only reason for the cancellation."""
        return self._is_cut and self._task.uncancel() <= self._cancelling

    def _cancel(self) -> None:
        self._is_cut = True
        self._task.cancel()


class Link:
    """A connection between two parts of one process; `note` is called with its faults."""

    def __init__(self, note: Note = _unnoted) -> None:
        self._note = note
        self.is_cut = False
        self.disturbed = False
        """True once anything was blocked or changed."""
        self._under_way: dict[_Passage, None] = {}  # in the order of their start

    def cut(self) -> None:
        """Block everything in both directions; open watches break."""
        self.is_cut = self.disturbed = True
        self._note("cut off", None)
        for passage in self._under_way:
            passage.cut()

    def heal(self) -> None:
        """Reconnect after `cut`."""
        self.is_cut = False
        self._note("connected again", None)

    async def carry(self, work: Callable[[], Awaitable[T]]) -> T:
        """Await `work` and return its result. Raises TransportError if the link is cut before it is done."""
        if self.is_cut:
            raise TransportError("the connection is cut")
        passage = _Passage()
        self._under_way[passage] = None
        try:
            return await work()
        except asyncio.CancelledError:
            if passage.is_cut():
                raise TransportError("the connection was cut") from None
            raise
        finally:
            del self._under_way[passage]
            if passage.soon is not None:
                passage.soon.cancel()

    async def answer(self, work: Callable[[], Awaitable[Response]]) -> Response:
        """Return the response of `work`; a streamed body also passes through this link."""
        response = await self.carry(work)
        if isinstance(response.body, bytes | Upgrade):
            return response
        return Response(response.status, response.headers, _LinkedBody(self, response.body))

    async def upgrade(
        self, work: Callable[[], Awaitable[tuple[Response, DuplexStream | None]]]
    ) -> tuple[Response, DuplexStream | None]:
        """Return the response and the stream of `work`; the stream also passes through this link."""
        response, stream = await self.carry(work)
        return response, stream and LinkedStream(self, stream)


class _LinkedBody(AsyncIterator[bytes]):
    """The chunks of a response that passes through a link."""

    def __init__(self, link: Link, inner: AsyncIterator[bytes]) -> None:
        self._link = link
        self._inner = inner
        self._next = aiter(inner).__anext__

    def __anext__(self) -> Awaitable[bytes]:
        return self._link.carry(self._next)

    def push_bookmarks_to(self, sink: Sink) -> None:
        """See `PushingBookmarks`. After a cut the reader has already failed, so bookmarks are harmless."""
        push_bookmarks(self._inner, sink)

    async def aclose(self) -> None:
        await close_body(Response(200, {}, self._inner))


class LinkedStream:
    """A `DuplexStream` that passes through a link."""

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


F = TypeVar("F", bound=Enum)
Intercept = Callable[[Request], Response | None]

LONGEST_DELAY = 5.0
# A request without a response fails after this time in seconds, like an HTTP request.
TIMEOUT = 60.0
# The probability of a fault of a watch chunk, relative to that of a request.
CHUNK_RATE = 0.2


class Fault(Enum):
    """A fault of a request."""

    LOST = "the request was lost"
    ANSWER_LOST = "the answer was lost"
    TIMEOUT = "the request timed out"
    SLOW = "the request took long"
    REFUSED = "the server refused"


class WatchFault(Enum):
    """A fault of a watch chunk. A SLOW chunk arrives after later changes of other watches."""

    BROKEN = "the watch broke in the middle of an event"
    EXPIRED = "the watch was left behind"
    SILENT = "the watch says nothing more, and does not end"
    SLOW = "the watch is late"


class FaultyNetwork(Link):
    """The network of one process: each request fails with probability `rate`; all fail while it is cut.

    Requests of the leader election fail only with `election`, because a manager that loses leadership ends.
    `reach(obtain)` returns a transport with the credentials of the process, or those that `obtain` returns.
    """

    def __init__(
        self,
        reach: Callable[[Obtain | None], Transport],
        rate: float = 0.0,
        *,
        election: bool = False,
        note: Note = _unnoted,
    ) -> None:
        super().__init__(note)
        self.rate = rate
        self._election = election
        self._reach = reach
        self._intercept: Intercept | None = None
        self._random: Random | None = None  # of the running loop, set on first use

    def connect(self, clusterconfig: str = "", master: str = "", obtain: Obtain | None = None) -> Transport:
        """Return a transport; the flags are ignored, because there is only one server."""
        return _Link(self, self._reach(obtain))

    def intercept(self, answer: Intercept | None) -> None:
        """Call `answer` for each request: it returns the response, or None to pass the request on."""
        self._intercept = answer

    async def carry_to(self, inner: Transport, request: Request) -> Response:
        """Return the response of `inner`, subject to faults. Raises TransportError."""
        response = await self.answer(lambda: self._send(inner, request))
        if isinstance(response.body, bytes | Upgrade):
            return response
        return Response(response.status, response.headers, _TroubledBody(self, request, response.body))

    def _draw(self, faults: type[F], rate: float) -> F | None:
        """Return one of the faults with probability `rate`, else None."""
        if self._random is None:
            self._random = random_source()
        return _one_of(*faults) if self._random.happens(rate) else None

    async def _send(self, inner: Transport, request: Request) -> Response:
        spared = not self._election and _is_of_election(request)
        fault = self._draw(Fault, 0.0 if spared else self.rate)
        if fault is not None:
            self._note(fault.value, request)
        match fault:
            case Fault.LOST:
                raise TransportError(fault.value)
            case Fault.REFUSED:
                return _refusal(request)
            case Fault.SLOW:
                await asyncio.sleep(random_source().uniform(0, LONGEST_DELAY))
        forged = self._intercept(request) if self._intercept else None
        self.disturbed = self.disturbed or forged is not None or fault is not None
        if forged is not None:
            self._note("another server answered", request)
        response = forged or await inner.send(request)
        if fault in (Fault.ANSWER_LOST, Fault.TIMEOUT):
            await close_body(response)
            await asyncio.sleep(TIMEOUT if fault is Fault.TIMEOUT else 0)
            raise TransportError(fault.value)
        return response

    def fault_of(self, request: Request) -> WatchFault | None:
        """Return the fault of the next chunk of a watch, if any."""
        fault = self._draw(WatchFault, self.rate * CHUNK_RATE)
        if fault is not None:
            self.disturbed = True
            self._note(fault.value, request)
        return fault


class _TroubledBody(AsyncIterator[bytes]):
    """The chunks of a watch, with faults. A bookmark without a fault is passed on at once."""

    def __init__(self, network: FaultyNetwork, request: Request, inner: AsyncIterator[bytes]) -> None:
        self._network = network
        self._request = request
        self._inner = inner
        self._next = aiter(inner).__anext__
        self._sink: Sink | None = None
        self._pushed: tuple[bytes, WatchFault] | None = None
        self._end: Exception | None = None

    async def __anext__(self) -> bytes:
        if self._end is not None:
            raise self._end
        chunk = await self._next()
        if self._pushed is not None:
            pushed, self._pushed = self._pushed, None
            return await self._suffer(*pushed)
        fault = self._network.fault_of(self._request) if chunk else None
        return chunk if fault is None else await self._suffer(chunk, fault)

    def push_bookmarks_to(self, sink: Sink) -> None:
        """See `PushingBookmarks`."""
        self._sink = sink
        push_bookmarks(self._inner, self._take)

    async def aclose(self) -> None:
        await close_body(Response(200, {}, self._inner))

    def _take(self, chunk: bytes) -> bool:
        assert self._sink is not None
        fault = self._network.fault_of(self._request)
        if fault is None:
            return self._sink(chunk)
        self._pushed = chunk, fault
        return False

    async def _suffer(self, chunk: bytes, fault: WatchFault) -> bytes:
        match fault:
            case WatchFault.BROKEN:
                self._end = TransportError(fault.value)
                return chunk[: len(chunk) // 2]
            case WatchFault.EXPIRED:
                self._end = StopAsyncIteration()
                return b'{"type":"ERROR","object":' + Expired("by chance").status().encode() + b"}\n"
            case WatchFault.SILENT:
                with housekeeping_needed():  # otherwise the client would not notice
                    await self._network.carry(asyncio.Event().wait)
            case WatchFault.SLOW:
                await self._network.carry(lambda: asyncio.sleep(random_source().uniform(0, LONGEST_DELAY)))
        return chunk


class _Link:
    """A transport through the network."""

    def __init__(self, network: FaultyNetwork, inner: Transport) -> None:
        self.host = inner.host
        self._network = network
        self._inner = inner

    @property
    def authorities(self) -> bytes:
        """See `Transport`."""
        return self._inner.authorities

    async def send(self, request: Request) -> Response:
        """Return the response, subject to faults. Raises TransportError."""
        return await self._network.carry_to(self._inner, request)

    async def upgrade(self, request: Request) -> tuple[Response, DuplexStream | None]:
        """Return the response and the stream. Raises TransportError while the network is cut."""
        return await self._network.upgrade(lambda: self._inner.upgrade(request))

    async def close(self) -> None:
        """Close the wrapped transport."""
        await self._inner.close()


def _is_of_election(request: Request) -> bool:
    process = request.headers.get("user-agent", "").endswith("/process")
    return process and "/leases" in request.path


def _refusal(request: Request) -> Response:
    """Return a random error that a healthy server may also return for that request."""
    possible: list[ApiError] = [error("by chance") for error in (InternalError, ServiceUnavailable, TooManyRequests)]
    if is_watch(request) or any(name == "continue" for name, _ in request.query):
        possible.append(Expired("by chance"))
    if request.method in ("PUT", "PATCH"):
        possible.append(Conflict("by chance"))
    error = _one_of(*possible)
    headers = {"retry-after": "1"} if isinstance(error, TooManyRequests) else {}
    return Response(error.code, headers, error.status().encode())


def _one_of(*choices: T) -> T:
    return choices[int(random_source().uniform(0, len(choices))) % len(choices)]
