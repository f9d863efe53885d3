"""Programs of others that are run for what they say: for so long, and so much of it."""

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
"""Seconds in which a program that was killed is waited for: some hang in the kernel."""
_PIECE = 1 << 16


class TooMuchOutputError(Exception):
    """A program said more than it may."""


class ProgramResult(NamedTuple):
    """A program that has ended: its exit status, that of a signal negative, and its output with its errors."""

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
    """Run a program in a session of its own until it and its output have ended; its `errors` are a part of that unless
    they go elsewhere (None: where those of this process go).

    Raises OSError if it cannot be started; TimeoutError, or TooMuchOutputError after `longest` bytes: then, and when
    the caller is cancelled, it is killed with all that it started.
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
                said = await _read(output, longest)
                return ProgramResult(await process.wait(), said)
        except BaseException:
            await _kill(process)
            raise


async def started(starting: Coroutine[Any, Any, Process]) -> Process:
    """Return a process, which has a session of its own, once it has started.

    It is killed if the caller is cancelled before: until asyncio has taken over its pipes, whoever is cancelled waits
    for its end, which is never told then (Python 3.11 and 3.12).
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
    said = bytearray()
    while piece := await stream.read(_PIECE):
        said += piece
        if len(said) > longest:
            raise TooMuchOutputError
    return bytes(said)


async def _kill(process: Process) -> None:
    """End a program and what it started, which may go on after it."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    with process_running(), contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_GRACE):
            await process.wait()
