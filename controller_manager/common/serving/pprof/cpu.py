"""The CPU profile: the kernel's profiling timer interrupts whatever computes, and the interrupted stack is noted.

A thread that looks at other threads would only see where they let it run. The timer's signal is handled in the main
thread, between two steps of the interpreter, so what a call into C code cost is found at the line that called it.
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
_LEAST = PERIOD // 10  # what a thread has spent since it was last seen is kept for later if it is less
_MOST_STACKS = 20_000  # with their labels; ticks beyond are counted together
C_CODE = (
    "C code has no frames of its own here: what it cost is found at the Python line that called it, or, if the event "
    "loop called it (sockets, TLS), at the frame that runs the loop or the next that Python ran."
)

Note = Callable[[Stack, SampleLabels, int], None]
"""Is told where so many nanoseconds were spent."""


@contextmanager
def ticking(describe: Describe, note: Note) -> Iterator[None]:
    """Note what has computed whenever this process has for another `PERIOD`.

    Raises Conflict if somebody uses the timer already, ServiceUnavailable outside of the main thread.
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
        signal.signal(signal.SIGPROF, signal.SIG_IGN)  # one may be on its way, and the default is to end the process


class _Meter:
    """Finds out at each tick which threads have spent CPU time since they were last seen, and on which stacks."""

    def __init__(self, describe: Describe, note: Note) -> None:
        self._loop = asyncio.get_running_loop()
        self._describe = describe
        self._note = note
        self._spent = {ident: clock.thread_nanoseconds(ident) for ident in sys._current_frames()}

    def tick(self, interrupted: FrameType | None) -> None:
        """The main thread was interrupted, in that frame."""
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
        """Return what a thread has spent since it was last seen, if it is worth being noted."""
        now, before = clock.thread_nanoseconds(ident), self._spent[ident]
        if before - now > _LEAST:  # a new thread got the ident of one that has ended
            before = 0
        spent = now - before  # some kernels let a thread's clock go back a little
        if spent < _LEAST:
            return 0
        self._spent[ident] = now
        return spent

    def _labels(self) -> SampleLabels:
        task = asyncio.current_task(self._loop)
        return labels_of(self._describe(task.get_name())) if task is not None else ()


async def cpu_profile(seconds: float, describe: Describe) -> Profile:
    """Return what computes during the next seconds. Raises as `ticking`."""
    ticks = Tally(len(_UNITS), _MOST_STACKS)
    with ticking(describe, lambda stack, labels, nanoseconds: ticks.add(stack, labels, 1, nanoseconds)):
        await asyncio.sleep(seconds)
    return Profile(_UNITS, tuple(ticks.samples()), (C_CODE,), period=PERIOD)
