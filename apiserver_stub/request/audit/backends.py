"""The parts common to all audit backends: modes, limits and the buffer of the mode `batch`."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from enum import StrEnum
from itertools import islice
from typing import Protocol

import msgspec

from apiserver_stub.request.audit.events import truncated
from apiserver_stub.request.audit.metrics import AuditMetrics
from controller_manager.common.base.bucket import TokenBucket
from controller_manager.common.base.clock import monotonic
from controller_manager.common.base.tasks import Tasks

_MOST_BYTES = 256 << 20  # of events in one buffer
_AT_ONCE = 32  # batches that are delivered at the same time
_TRUNCATE, _BUFFERED = "truncate", "buffered"


class Mode(StrEnum):
    """When a request continues: after its events are buffered, or after they are delivered. In blocking-strict mode, a
    request whose RequestReceived event fails is rejected.
    """

    BATCH = "batch"
    BLOCKING = "blocking"
    BLOCKING_STRICT = "blocking-strict"


class Backend(Protocol):
    """Stores or sends events."""

    strict: bool
    """Whether a request is rejected if its first event is not delivered."""
    in_order: bool
    """Whether a delivered event implies that delivery of all earlier ones was attempted."""

    def accept(self, event: bytes, *, wait: bool) -> Awaitable[bool] | None:
        """Accept an event. Return an awaitable of whether it was delivered; None without `wait`, or in a mode that does
        not wait.
        """

    async def run(self) -> None:
        """Deliver buffered events until canceled."""

    async def close(self) -> None:
        """Deliver the remaining events, for a few seconds at most."""


def fit(event: bytes, most: int, metrics: AuditMetrics) -> bytes | None:
    """Return the event, without its objects if it exceeds `most` bytes. An event that is still too large is dropped and
    counted.
    """
    if len(event) <= most:
        return event
    smaller = truncated(event)
    if len(smaller) <= most:
        return smaller
    metrics.lost(_TRUNCATE, [event], "an event is too large even without its objects")
    return None


class BatchLimits(msgspec.Struct, frozen=True):
    """The limits of a buffer: events in the buffer and in a batch, bytes of a batch, seconds that an event waits for
    others, batches per second (0: unlimited) and their burst.
    """

    buffer: int
    batch: int
    bytes: int
    wait: float
    rate: float = 0.0
    burst: int = 1


Deliver = Callable[[Sequence[bytes]], Awaitable[None]]
"""Delivers a batch. Failures are counted in the metrics and not raised."""


class Buffer:
    """Events that wait for delivery in batches; what there is no room for is lost."""

    def __init__(self, limits: BatchLimits, deliver: Deliver, metrics: AuditMetrics, *, in_order: bool) -> None:
        self._limits = limits
        self._deliver = deliver
        self._metrics = metrics
        self._at_once = asyncio.Semaphore(1 if in_order else _AT_ONCE)
        self._events: deque[bytes] = deque()
        self._bytes = 0
        self._arrived = asyncio.Event()
        self._under_way: dict[int, Sequence[bytes]] = {}
        self._throttle = TokenBucket(limits.rate, limits.burst) if limits.rate else None
        self._number = 0

    def add(self, event: bytes) -> None:
        """Buffer an event, or drop it if the buffer is full."""
        if len(self._events) >= self._limits.buffer or self._bytes + len(event) > _MOST_BYTES:
            self._metrics.lost(_BUFFERED, [event], "the buffer is full")
            return
        self._events.append(event)
        self._bytes += len(event)
        if len(self._events) == 1 or len(self._events) >= self._limits.batch:
            self._arrived.set()

    async def run(self) -> None:
        """Deliver batches until canceled; batches in flight then return to the buffer."""
        async with Tasks() as tasks:
            while True:
                await self._collect()
                if self._throttle is not None:
                    await asyncio.sleep(self._throttle.take(monotonic()))
                await self._at_once.acquire()
                number, batch = self._number, self._take()
                self._number += 1
                self._under_way[number] = batch
                tasks.start(self._carry(number, batch), name="audit batch")

    async def drain(self, seconds: float) -> None:
        """Deliver the remaining events for at most `seconds`; the rest is dropped."""
        returned = [event for number in sorted(self._under_way) for event in self._under_way[number]]
        self._under_way.clear()
        self._events.extendleft(reversed(returned))
        batch: Sequence[bytes] = ()
        try:
            async with asyncio.timeout(seconds):
                while self._events:
                    batch = self._take()
                    await self._deliver(batch)
                    batch = ()
        except TimeoutError:
            left = [*batch, *self._events]
            self._events.clear()
            self._metrics.lost(_BUFFERED, left, "the server stops")

    async def _collect(self) -> None:
        """Return when a batch is full or has waited long enough."""
        while not self._events:
            self._arrived.clear()
            await self._arrived.wait()
        ends = monotonic() + self._limits.wait
        while len(self._events) < self._limits.batch and (left := ends - monotonic()) > 0:
            self._arrived.clear()
            try:
                async with asyncio.timeout(left):
                    await self._arrived.wait()
            except TimeoutError:
                return

    def _take(self) -> Sequence[bytes]:
        """Remove the events of one batch, at least one."""
        count = size = 0
        for event in islice(self._events, self._limits.batch):
            size += len(event)
            if count and size > self._limits.bytes:
                break
            count += 1
        batch = [self._events.popleft() for _ in range(count)]
        self._bytes -= sum(map(len, batch))
        return batch

    async def _carry(self, number: int, batch: Sequence[bytes]) -> None:
        try:
            await self._deliver(batch)
            del self._under_way[number]
        finally:
            self._at_once.release()
