"""The one place where logging is configured, for components and for other libraries alike."""

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

# The destinations of finished lines: one stream, or two of which that for information may be buffered.


class TextStream(Protocol):
    """Anything text can be written to."""

    def write(self, text: str, /) -> object:
        """Take it."""

    def flush(self) -> None:
        """Pass on what was taken."""


class Streams:
    """Warnings and worse go to `error` at once; the rest to `info`, or to the same stream where there is none.

    What can't be written is lost: a broken pipe ends no process.
    """

    def __init__(self, error: TextStream, info: TextStream | None = None) -> None:
        self._error = error
        self._info = info or error

    def write(self, severity: str, line: str) -> None:
        """Write one line, its newline included."""
        stream = self._info if severity == "I" else self._error
        with suppress(OSError, ValueError):  # ValueError: the stream is closed
            stream.write(line)
            stream.flush()

    debug = info = warning = error = critical = write  # what structlog calls

    def close(self) -> None:
        """Write what is still buffered."""
        if isinstance(self._info, Buffered):
            self._info.drain()


class Buffered:
    """Holds up to `size` characters back, no line for longer than `seconds` while a loop runs."""

    def __init__(self, stream: TextStream, size: int, seconds: float) -> None:
        self._stream = stream
        self._limit = size
        self._seconds = seconds
        self._held: list[str] = []
        self._size = 0
        self._is_due = False

    def write(self, text: str) -> None:
        """Keep it, or write it with all that was kept."""
        if self._size + len(text) > self._limit:
            self.drain()
        if not self._held:
            self._drain_later()
        self._held.append(text)
        self._size += len(text)

    def flush(self) -> None:
        """Nothing happens: that is what it is for."""
        if self._size >= self._limit or running_loop() is None:
            self.drain()

    def drain(self) -> None:
        """Write all that was kept."""
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
    """Whatever standard error is at the moment: tests exchange it."""

    def write(self, text: str) -> object:
        """Take it."""
        return sys.stderr.write(text)

    def flush(self) -> None:
        """Pass on what was taken."""
        sys.stderr.flush()


Form = Callable[[Line], str]


def configure(*, json: bool = False, levels: Levels | None = None, streams: Streams | None = None) -> None:
    """Write every line as klog does, or as JSON, to `streams` (standard error) from now on, those of other libraries
    from warnings on.
    """
    form, to = as_json if json else as_text, streams or Streams(CurrentStderr())
    _use(form, levels or Levels(), to, hidden=("process",))  # the header, or the collector of the log, tells it
    logging.basicConfig(level=logging.WARNING, handlers=[_Handler(form, to)], force=True)
    atexit.register(to.close)


def get_logger(component: str) -> Logger:
    """A logger that says which component speaks. Where nobody has configured logs, as in a test, debug lines are left
    out and the others go to what is standard error then.
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
    """The only processor: makes of an event what `Streams.write` takes."""

    def __init__(self, form: Form, hidden: tuple[str, ...]) -> None:
        self._form = form
        self._hidden = hidden

    def __call__(self, _: Any, method: str, event: MutableMapping[str, Any]) -> tuple[tuple[str, str], dict[str, Any]]:
        for name in self._hidden:
            event.pop(name, None)
        line = from_event(method, event)
        return (line.severity, without_secrets(self._form(line))), {}


class _Handler(logging.Handler):
    """Writes what other libraries say."""

    def __init__(self, form: Form, streams: Streams) -> None:
        super().__init__()
        self._form = form
        self._streams = streams

    def emit(self, record: logging.LogRecord) -> None:
        """Write one line."""
        line = from_record(record)
        self._streams.write(line.severity, without_secrets(self._form(line)))
