"""The CPU profile: the kernel's profiling timer interrupts the process, and the interrupted stack is recorded.

A sampling thread would only see other threads where they release the GIL. The signal is handled in the main thread
between two bytecode instructions, so the cost of a call into C code is attributed to the line of the call.
"""

import asyncio
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from controller_manager.common.api.errors import Conflict, ServiceUnavailable
from controller_manager.common.base import clock
from controller_manager.common.base.stacks import Stack, running_stack
from controller_manager.common.serving.pprof.profile import (
    COUNT,
    NANOSECONDS,
    Profile,
    SampleLabels,
    Tally,
    Unit,
    labels_of,
)
from controller_manager.common.serving.pprof.tasks import Describe

PERIOD = 10_000_000  # nanoseconds of CPU time between two ticks
_UNITS = (Unit("samples", COUNT), Unit("cpu", NANOSECONDS))
_LEAST = PERIOD // 10  # less CPU time of a thread is recorded with its next sample
_MOST_STACKS = 20_000  # with their labels; further samples are counted together
C_CODE = (
    "C code has no frames of its own here: what it cost is found at the Python line that called it, or, if the event "
    "loop called it (sockets, TLS), at the frame that runs the loop or the next that Python ran."
)

Note = Callable[[Stack, SampleLabels, int], None]
"""Called with the nanoseconds spent at a stack."""


@contextmanager
def ticking(describe: Describe, note: Note) -> Iterator[None]:
    """Record running stacks after each `PERIOD` of CPU time of this process.

    Raises Conflict if the timer is in use, ServiceUnavailable outside of the main thread.
    """
    if signal.getsignal(signal.SIGPROF) not in (signal.SIG_DFL, signal.SIG_IGN):
        raise Conflict("another profile uses the profiling timer of this process: try again when it has ended")
    if threading.current_thread() is not threading.main_thread():
        raise ServiceUnavailable("CPU time can only be sampled where the event loop runs in the main thread")
    meter = _Meter(describe, note)
    signal.signal(signal.SIGPROF, lambda _, frame: meter.tick(frame))
    signal.siginterrupt(signal.SIGPROF, False)
    signal.setitimer(signal.ITIMER_PROF, PERIOD / 1e9, PERIOD / 1e9)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, signal.SIG_IGN)  # a signal may be pending, and the default ends the process


class _Meter:
    """Finds at each tick the threads that have used CPU time since the last one, and their stacks."""

    def __init__(self, describe: Describe, note: Note) -> None:
        self._loop = asyncio.get_running_loop()
        self._describe = describe
        self._note = note
        self._spent = {ident: clock.thread_nanoseconds(ident) for ident in sys._current_frames()}

    def tick(self, interrupted: FrameType | None) -> None:
        """Handle a signal that interrupted the main thread in that frame."""
        frames = sys._current_frames()
        self._spent = {ident: self._spent.get(ident, 0) for ident in frames}
        names = {thread.ident: thread.name for thread in threading.enumerate()} if len(frames) > 1 else {}
        for ident, frame in frames.items():
            nanoseconds = self._take(ident)
            if nanoseconds and ident == threading.get_ident():
                self._note(running_stack(interrupted), self._labels(), nanoseconds)
            elif nanoseconds:
                self._note(running_stack(frame), labels_of({"thread": names.get(ident, "")}), nanoseconds)

    def _take(self, ident: int) -> int:
        """Return the CPU time of a thread since it was last recorded, 0 if it is too small."""
        now, before = clock.thread_nanoseconds(ident), self._spent[ident]
        if before - now > _LEAST:  # a new thread has the ident of an ended one
            before = 0
        spent = now - before  # the clock of a thread may go back a little on some kernels
        if spent < _LEAST:
            return 0
        self._spent[ident] = now
        return spent

    def _labels(self) -> SampleLabels:
        task = asyncio.current_task(self._loop)
        return labels_of(self._describe(task.get_name())) if task is not None else ()


async def cpu_profile(seconds: float, describe: Describe) -> Profile:
    """Return the CPU profile of the next seconds. Raises like `ticking`."""
    ticks = Tally(len(_UNITS), _MOST_STACKS)
    with ticking(describe, lambda stack, labels, nanoseconds: ticks.add(stack, labels, 1, nanoseconds)):
        await asyncio.sleep(seconds)
    return Profile(_UNITS, tuple(ticks.samples()), (C_CODE,), period=PERIOD)
