"""Configures logging for components and for other libraries."""

import atexit
import logging
import sys
from collections.abc import Callable, MutableMapping
from contextlib import suppress
from typing import Any, Protocol

import structlog

from controller_manager.common.base.clock import running_loop
from controller_manager.common.base.log.formats import Line, as_json, as_text, from_event, from_record, without_secrets
from controller_manager.common.base.log.logger import Levels, Logger

# Destinations of formatted lines: one stream, or two; the one for information may be buffered.


class TextStream(Protocol):
    """An object with the `write` and `flush` methods of a text stream."""

    def write(self, text: str, /) -> object:
        """Write text."""

    def flush(self) -> None:
        """Flush buffered text."""


class Streams:
    """Writes warnings and errors to `error`, other lines to `info`, or to `error` if `info` is None.

    Write errors are ignored: a broken pipe must not end the process.
    """

    def __init__(self, error: TextStream, info: TextStream | None = None) -> None:
        self._error = error
        self._info = info or error

    def write(self, severity: str, line: str) -> None:
        """Write one line, which ends in a newline."""
        stream = self._info if severity == "I" else self._error
        with suppress(OSError, ValueError):  # ValueError: the stream is closed
            stream.write(line)
            stream.flush()

    debug = info = warning = error = critical = write  # called by structlog

    def close(self) -> None:
        """Write all buffered lines."""
        if isinstance(self._info, Buffered):
            self._info.drain()


class Buffered:
    """Buffers up to `size` characters. No line is buffered for longer than `seconds` while a loop runs."""

    def __init__(self, stream: TextStream, size: int, seconds: float) -> None:
        self._stream = stream
        self._limit = size
        self._seconds = seconds
        self._held: list[str] = []
        self._size = 0
        self._is_due = False

    def write(self, text: str) -> None:
        """Buffer the text. Write the buffer first if the text does not fit."""
        if self._size + len(text) > self._limit:
            self.drain()
        if not self._held:
            self._drain_later()
        self._held.append(text)
        self._size += len(text)

    def flush(self) -> None:
        """Write the buffer only if it is full or no loop is running; otherwise keep it, since it is a buffer."""
        if self._size >= self._limit or running_loop() is None:
            self.drain()

    def drain(self) -> None:
        """Write all buffered text."""
        held, self._held, self._size = self._held, [], 0
        with suppress(OSError, ValueError):
            self._stream.write("".join(held))
            self._stream.flush()

    def _drain_later(self) -> None:
        loop = running_loop()
        if loop is not None and not self._is_due:
            self._is_due = True
            loop.call_later(self._seconds, self._drain_at_last)

    def _drain_at_last(self) -> None:
        self._is_due = False
        self.drain()


class CurrentStderr:
    """Standard error, looked up for each write, since tests replace it."""

    def write(self, text: str) -> object:
        """Write text."""
        return sys.stderr.write(text)

    def flush(self) -> None:
        """Flush buffered text."""
        sys.stderr.flush()


Form = Callable[[Line], str]


def configure(*, json: bool = False, levels: Levels | None = None, streams: Streams | None = None) -> None:
    """Configure logging: klog text or JSON, to `streams` (default: standard error). Lines of other libraries are
    written from level warning on.
    """
    form, to = as_json if json else as_text, streams or Streams(CurrentStderr())
    _use(form, levels or Levels(), to, hidden=("process",))  # the header or the log collector has it already
    logging.basicConfig(level=logging.WARNING, handlers=[_Handler(form, to)], force=True)
    atexit.register(to.close)


def get_logger(component: str) -> Logger:
    """Return a logger for a component. If logging is not configured, as in a test, debug lines are dropped and other
    lines go to the current standard error.
    """
    if not structlog.is_configured():
        _use(as_text, Levels(), Streams(CurrentStderr()), hidden=())
    logger: Logger = structlog.get_logger().bind(component=component)
    return logger


def _use(form: Form, levels: Levels, streams: Streams, *, hidden: tuple[str, ...]) -> None:
    structlog.configure(
        processors=[_Render(form, hidden)],
        wrapper_class=type("Logger", (Logger,), {"levels": levels}),
        logger_factory=lambda *_: streams,
        cache_logger_on_first_use=False,
    )


class _Render:
    """The only structlog processor: turns an event into the arguments of `Streams.write`."""

    def __init__(self, form: Form, hidden: tuple[str, ...]) -> None:
        self._form = form
        self._hidden = hidden

    def __call__(self, _: Any, method: str, event: MutableMapping[str, Any]) -> tuple[tuple[str, str], dict[str, Any]]:
        for name in self._hidden:
            event.pop(name, None)
        line = from_event(method, event)
        return (line.severity, without_secrets(self._form(line))), {}


class _Handler(logging.Handler):
    """Writes the log records of other libraries."""

    def __init__(self, form: Form, streams: Streams) -> None:
        super().__init__()
        self._form = form
        self._streams = streams

    def emit(self, record: logging.LogRecord) -> None:
        """Write one line."""
        line = from_record(record)
        self._streams.write(line.severity, without_secrets(self._form(line)))
