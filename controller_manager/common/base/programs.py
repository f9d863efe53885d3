"""Runs external programs for their output, with limits on time and output size."""

import asyncio
import contextlib
import os
import signal
from asyncio.subprocess import Process
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, NamedTuple

from .clock import process_running
from .tasks import spawn

_GRACE = 5.0
"""Seconds to wait for a killed program; some hang in the kernel."""
_PIECE = 1 << 16


class TooMuchOutputError(Exception):
    """The output of a program exceeded its limit."""


class ProgramResult(NamedTuple):
    """The exit status of a program, negative for a signal, and its output including standard error."""

    status: int
    output: bytes


async def run_program(
    words: Sequence[str],
    *,
    seconds: float,
    longest: int,
    environment: Mapping[str, str] | None = None,
    errors: int | None = asyncio.subprocess.STDOUT,
) -> ProgramResult:
    """Run a program in its own session until it exits and its output is closed. Its standard error is part of the
    output unless `errors` redirects it (None: to the standard error of this process).

    Raises OSError if the program cannot be started, TimeoutError, or TooMuchOutputError after `longest` bytes. On
    timeout, too much output or cancellation, the program and its children are killed.
    """
    with process_running():
        process = await started(
            asyncio.create_subprocess_exec(
                *words,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=errors,
                env=environment,
                start_new_session=True,
            )
        )
        output = process.stdout
        if output is None:
            raise RuntimeError("a pipe was asked for")
        try:
            async with asyncio.timeout(seconds):
                found = await _read(output, longest)
                return ProgramResult(await process.wait(), found)
        except BaseException:
            await _kill(process)
            raise


async def started(starting: Coroutine[Any, Any, Process]) -> Process:
    """Wait until a process, which has its own session, has started, and return it.

    If the caller is cancelled before, the process is killed. The start itself is not cancelled: until asyncio has
    connected the pipes, a cancelled caller would wait forever for the exit (Python 3.11 and 3.12).
    """
    task = spawn(starting, name="the start of a program")
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        while not task.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait((task,))
        if task.exception() is None:
            await _kill(task.result())
        raise


async def _read(stream: asyncio.StreamReader, longest: int) -> bytes:
    found = bytearray()
    while piece := await stream.read(_PIECE):
        found += piece
        if len(found) > longest:
            raise TooMuchOutputError
    return bytes(found)


async def _kill(process: Process) -> None:
    """Kill a program and its children, which may outlive it."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    with process_running(), contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_GRACE):
            await process.wait()
