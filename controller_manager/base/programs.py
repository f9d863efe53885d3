"""Programs of others that are run for what they say: for so long, and so much of it."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Sequence
from typing import NamedTuple

from .clock import process_running

_GRACE = 5.0
"""Seconds in which a program that was killed is waited for: some hang in the kernel."""
_PIECE = 1 << 16


class TooMuchOutputError(Exception):
    """A program said more than it may."""


class Ended(NamedTuple):
    """A program that has ended: its exit status, that of a signal negative, and its output with its errors."""

    status: int
    output: bytes


async def run_program(words: Sequence[str], *, seconds: float, longest: int) -> Ended:
    """Run a program in a session of its own until it and its output have ended.

    Raises OSError if it cannot be started; TimeoutError, or TooMuchOutputError after `longest` bytes: then, and when
    the caller is cancelled, it is killed with all that it started.
    """
    with process_running():
        process = await asyncio.create_subprocess_exec(
            *words,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
        output = process.stdout
        if output is None:
            raise RuntimeError("a pipe was asked for")
        try:
            async with asyncio.timeout(seconds):
                said = await _read(output, longest)
                return Ended(await process.wait(), said)
        except BaseException:
            await _kill(process)
            raise


async def _read(stream: asyncio.StreamReader, longest: int) -> bytes:
    said = bytearray()
    while piece := await stream.read(_PIECE):
        said += piece
        if len(said) > longest:
            raise TooMuchOutputError
    return bytes(said)


async def _kill(process: asyncio.subprocess.Process) -> None:
    """End a program and what it started, which may go on after it."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    with process_running(), contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_GRACE):
            await process.wait()
