"""The destinations of finished lines: one stream, or two of which that for information may be buffered."""

import sys
from contextlib import suppress
from typing import Protocol

from controller_manager.base.loop import running_loop


class Stream(Protocol):
    """Anything text can be written to."""

    def write(self, text: str, /) -> object:
        """Take it."""

    def flush(self) -> None:
        """Pass on what was taken."""


class Streams:
    """Warnings and worse go to `error` at once; the rest to `info`, or to the same stream where there is none.

    What can't be written is lost: a broken pipe ends no process.
    """

    def __init__(self, error: Stream, info: Stream | None = None) -> None:
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

    def __init__(self, stream: Stream, size: int, seconds: float) -> None:
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
