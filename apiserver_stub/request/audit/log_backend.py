"""The log backend: writes events as lines, in order.

A write into the page cache takes microseconds, and passing it to a thread costs more. So the event loop writes until a
write is slow; then a thread writes until its writes are fast again.
"""

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Protocol

from apiserver_stub.request.audit.backends import BatchLimits, Buffer, Mode, fit
from apiserver_stub.request.audit.events import legacy_line
from apiserver_stub.request.audit.log_file import LogFile, Rotation
from apiserver_stub.request.audit.metrics import AuditMetrics
from controller_manager.common.base.clock import elapsed_nanoseconds, hold_time, release_time, working_for

_PLUGIN = "log"
_FAREWELL = 5.0  # seconds that the last lines have
_PATIENCE = 0.01  # seconds that an event without waiters is delayed to join others
_MOST_WAITING = 10_000  # queued events
_QUICK = 0.002  # seconds of a write that is fast enough for the event loop
_QUICK_IN_TURN = 1000  # writes by the thread until the loop writes again


_Waiting = tuple[bytes, asyncio.Future[bool] | None]
_OnWritten = Callable[[dict[int, str]], None]
_Work = tuple[asyncio.AbstractEventLoop, Sequence[bytes], _OnWritten]


class Lines(Protocol):
    """A destination for lines. The event loop may write directly to files on disk."""

    on_disk: bool

    def write(self, lines: Sequence[bytes]) -> dict[int, str]:
        """Append lines in order; return the errors by line number."""

    def close(self) -> None:
        """Stop writing and release the destination."""


class StandardOutput:
    """Writes lines to standard output, which may block on a slow reader."""

    on_disk = False

    def write(self, lines: Sequence[bytes]) -> dict[int, str]:
        """Write lines in order; return the errors by line number."""
        try:
            data = memoryview(b"\n".join((*lines, b"")))
            sys.stdout.flush()
            while data:
                data = data[os.write(sys.stdout.fileno(), data) :]
        except OSError as error:
            return dict.fromkeys(range(len(lines)), str(error.strerror or error))
        return {}

    def close(self) -> None:
        """Do nothing: standard output stays open."""


class _Writer:
    """Writes lines in order, in the loop or in one thread. A thread with a queue has less overhead than an executor,
    which would cost as much as the rest of the audit.
    """

    def __init__(self, lines: Lines) -> None:
        self._lines = lines
        self._slow = 1  # writes by the thread before the loop writes again
        self._work: SimpleQueue[_Work | None] = SimpleQueue()
        self._thread: Thread | None = None

    @property
    def is_quick(self) -> bool:
        """Whether the loop may write itself."""
        return self._slow == 0 and self._lines.on_disk

    def write_now(self, lines: Sequence[bytes]) -> dict[int, str]:
        """Write lines; return why some could not be, by their number."""
        began = elapsed_nanoseconds()
        refused = self._lines.write(lines)
        self._judge(began)
        return refused

    def _judge(self, began: int) -> None:
        if elapsed_nanoseconds() - began > _QUICK * 1e9:
            self._slow = _QUICK_IN_TURN
        elif self._slow:
            self._slow -= 1

    def write(self, loop: asyncio.AbstractEventLoop, lines: Sequence[bytes], on_written: _OnWritten) -> None:
        """Write lines in the thread. `on_written` is called in the loop with the errors by line."""
        if self._thread is None or not self._thread.is_alive():
            self._thread = Thread(target=self._run, name="audit-log", daemon=True)
            self._thread.start()
        hold_time(loop)
        self._work.put((loop, lines, on_written))

    def close(self) -> None:
        """Stop the thread after all writes."""
        self._work.put(None)

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            loop, lines, on_written = work
            refused = dict.fromkeys(range(len(lines)), "the log failed")
            try:
                with working_for(loop):
                    refused = self.write_now(lines)
            finally:
                loop.call_soon_threadsafe(_in_loop, loop, on_written, refused)
        self._lines.close()


def _in_loop(loop: asyncio.AbstractEventLoop, on_written: _OnWritten, refused: dict[int, str]) -> None:
    release_time(loop)
    on_written(refused)


class LogBackend:
    """Appends events to a file, or to standard output for the path `-`, as JSON or in the format `legacy`. Events of
    one loop turn, or that arrive during a write, are written together.
    """

    in_order = True

    def __init__(
        self,
        path: str,
        rotation: Rotation,
        legacy: bool,
        mode: Mode,
        limits: BatchLimits,
        most: int,
        metrics: AuditMetrics,
    ) -> None:
        self.strict = mode is Mode.BLOCKING_STRICT
        self._legacy = legacy
        self._most = most
        self._metrics = metrics
        self._aside = ThreadPoolExecutor(max_workers=1, thread_name_prefix="audit-log-tidy")
        lines: Lines = StandardOutput()
        if path != "-":
            lines = file = LogFile(Path(path), rotation, self._aside.submit)
            file.open()
        self._writer = _Writer(lines)
        self._buffer = Buffer(limits, self._deliver, metrics, in_order=True) if mode is Mode.BATCH else None
        self._waiting: list[_Waiting] = []
        self._is_writing = False
        self._done: asyncio.Event | None = None  # set when all is written and no more events can arrive
        self._begins_soon = False  # at the end of this turn of the loop
        self._begins_late = False  # for events without waiters

    def accept(self, event: bytes, *, wait: bool) -> Awaitable[bool] | None:
        """Accept an event. Return an awaitable of whether it was written; None in the mode `batch` and without `wait`,
        when the event may be delayed until the next write.
        """
        fitted = fit(event, self._most, self._metrics) if self._most else event
        if fitted is None:
            return None
        if self._buffer is not None:
            self._buffer.add(fitted)
            return None
        return self._enqueue(fitted, wait=wait)

    async def run(self) -> None:
        """Write buffered events until canceled."""
        if self._buffer is not None:
            await self._buffer.run()

    async def close(self) -> None:
        """Write the remaining events and close the file."""
        if self._buffer is not None:
            await self._buffer.drain(_FAREWELL)
        try:
            async with asyncio.timeout(_FAREWELL):
                self._done = asyncio.Event()
                if self._waiting and not self._is_writing:
                    self._begin(asyncio.get_running_loop())
                if self._is_writing:
                    await self._done.wait()
        except TimeoutError:
            left, self._waiting = self._waiting, []
            self._metrics.lost(_PLUGIN, [event for event, _ in left], "the server stops")
        self._writer.close()
        self._aside.shutdown(wait=False)

    def _enqueue(self, event: bytes, *, wait: bool) -> asyncio.Future[bool] | None:
        """Queue an event for the next write."""
        if len(self._waiting) >= _MOST_WAITING:
            self._metrics.lost(_PLUGIN, [event], "too many events wait to be written")
            return None
        loop = asyncio.get_running_loop()
        written = loop.create_future() if wait else None
        self._waiting.append((event, written))
        if not self._is_writing and not self._begins_soon:
            if wait:
                self._begins_soon = True
                loop.call_soon(self._begin_soon, loop)
            elif not self._begins_late:
                self._begins_late = True
                loop.call_later(_PATIENCE, self._begin_late, loop)
        return written

    def _begin_soon(self, loop: asyncio.AbstractEventLoop) -> None:
        self._begins_soon = False
        if self._waiting and not self._is_writing:
            self._begin(loop)

    def _begin_late(self, loop: asyncio.AbstractEventLoop) -> None:
        self._begins_late = False
        if self._waiting and not self._is_writing:
            self._begin(loop)

    def _begin(self, loop: asyncio.AbstractEventLoop) -> None:
        """Write all queued events, in the loop or in the thread."""
        group, self._waiting = self._waiting, []
        lines = self._form([event for event, _ in group])
        self._is_writing = True
        if self._writer.is_quick:
            self._finish(loop, group, self._writer.write_now(lines))
        else:
            self._writer.write(loop, lines, partial(self._finish, loop, group))

    def _finish(self, loop: asyncio.AbstractEventLoop, group: Sequence[_Waiting], refused: dict[int, str]) -> None:
        """Notify the waiters of their results and start the next write."""
        self._is_writing = False
        if refused:
            self._report([event for event, _ in group], refused)
        for number, (_, written) in enumerate(group):
            if written is not None and not written.done():
                written.set_result(number not in refused)
        if self._waiting:
            self._begin(loop)
        elif self._done is not None:
            self._done.set()

    async def _deliver(self, batch: Sequence[bytes]) -> None:
        loop = asyncio.get_running_loop()
        done: asyncio.Future[dict[int, str]] = loop.create_future()
        self._writer.write(loop, self._form(batch), partial(_resolve, done))
        refused = await done
        if refused:
            self._report(batch, refused)

    def _form(self, events: Sequence[bytes]) -> Sequence[bytes]:
        return [legacy_line(event).encode() for event in events] if self._legacy else events

    def _report(self, events: Sequence[bytes], refused: dict[int, str]) -> None:
        why = next(iter(refused.values()))
        self._metrics.lost(_PLUGIN, [events[number] for number in refused], why)


def _resolve(done: asyncio.Future[dict[int, str]], refused: dict[int, str]) -> None:
    if not done.done():  # the waiter was canceled
        done.set_result(refused)
