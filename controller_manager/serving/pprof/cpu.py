"""Where CPU time goes: the kernel's profiling timer interrupts whatever computes, and the interrupted stack is noted.

A thread that looks at other threads would only see where they let it run. The timer's signal is handled in the main
thread, between two steps of the interpreter, so what a call into C code cost is found at the line that called it.
"""

import asyncio
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import FrameType

from controller_manager.api.errors import Conflict, ServiceUnavailable
from controller_manager.base import measure
from controller_manager.serving.pprof.profile import (
    COUNT,
    NANOSECONDS,
    Frame,
    Labels,
    Profile,
    RawStack,
    Unit,
    labels_of,
)
from controller_manager.serving.pprof.stacks import Tally, running_stack

PERIOD = 10_000_000  # nanoseconds of CPU time between two ticks
UNITS = (Unit("samples", COUNT), Unit("cpu", NANOSECONDS))
_LEAST = PERIOD // 10  # what a thread has spent since it was last seen is kept for later if it is less
_MOST_STACKS = 20_000  # with their labels; ticks beyond are counted together
_OUTSIDE = (Frame("(threads that run no Python)"),)
C_CODE = (
    "C code has no frames of its own here: what it cost is found at the Python line that called it, or, if the event "
    "loop called it (sockets, TLS), at the frame that runs the loop or the next that Python ran."
)

Describe = Callable[[str], dict[str, str]]
Note = Callable[[RawStack, Labels, int], None]


@contextmanager
def ticking(tick: Callable[[FrameType | None], None]) -> Iterator[None]:
    """Call `tick` with the interrupted frame whenever this process has computed for another `PERIOD`.

    Raises Conflict if somebody uses the timer already, ServiceUnavailable outside of the main thread.
    """
    if signal.getsignal(signal.SIGPROF) not in (signal.SIG_DFL, signal.SIG_IGN):
        raise Conflict("another profile uses the profiling timer of this process: try again when it has ended")
    if threading.current_thread() is not threading.main_thread():
        raise ServiceUnavailable("CPU time can only be sampled where the event loop runs in the main thread")
    signal.signal(signal.SIGPROF, lambda _, frame: tick(frame))
    signal.siginterrupt(signal.SIGPROF, False)
    signal.setitimer(signal.ITIMER_PROF, PERIOD / 1e9, PERIOD / 1e9)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, signal.SIG_IGN)  # one may be on its way, and the default is to end the process


class CpuMeter:
    """Finds out at each tick which threads have spent CPU time since they were last seen, and on which stacks.

    Make it, and tick it, in the thread of the running event loop; `note(stack, labels, nanoseconds)` is told.
    """

    def __init__(self, describe: Describe, note: Note) -> None:
        self._loop = asyncio.get_running_loop()
        self._me = threading.get_ident()
        self._describe = describe
        self._note = note
        self._began = measure.process_nanoseconds()
        self._spent = {ident: measure.thread_nanoseconds(ident) for ident in sys._current_frames()}
        self._attributed = 0

    def tick(self, frame: FrameType | None) -> None:
        """The running thread was interrupted in `frame`."""
        frames = sys._current_frames()
        names = {thread.ident: thread.name for thread in threading.enumerate()} if len(frames) > 1 else {}
        for ident, found in frames.items():
            nanoseconds = self._take(ident)
            if nanoseconds and ident == self._me:
                self._note(running_stack(frame), self._labels(), nanoseconds)
            elif nanoseconds:
                labels = labels_of({"thread": names.get(ident, "")})
                self._note(running_stack(found), labels, nanoseconds)
        for ident in self._spent.keys() - frames.keys():
            del self._spent[ident]

    def outside(self) -> int:
        """Nanoseconds spent by threads that no tick could see, as they run no Python."""
        rest = measure.process_nanoseconds() - self._began - self._attributed
        return rest if rest > len(self._spent) * PERIOD else 0  # what is not seen yet of the others is no more

    def _take(self, ident: int) -> int:
        """What a thread has spent since it was last seen, if it is worth being noted."""
        now, before = measure.thread_nanoseconds(ident), self._spent.get(ident, 0)
        spent = now - before if now >= before else now  # else a new thread got the ident of one that has ended
        if spent < _LEAST:
            self._spent.setdefault(ident, 0)
            return 0
        self._spent[ident] = now
        self._attributed += spent
        return spent

    def _labels(self) -> Labels:
        task = asyncio.current_task(self._loop)
        return labels_of(self._describe(task.get_name())) if task is not None else ()


async def cpu_profile(seconds: float, describe: Describe) -> Profile:
    """What computes during the next seconds; `describe` makes labels of the name of a task. Raises as `ticking`."""
    ticks = Tally(len(UNITS), _MOST_STACKS)
    meter = CpuMeter(describe, partial(_note, ticks))
    with ticking(meter.tick):
        await asyncio.sleep(seconds)
    outside = meter.outside()
    sums = await asyncio.to_thread(ticks.sums)
    if outside:
        sums.add(_OUTSIDE, (), outside // PERIOD, outside)
    return Profile(UNITS, tuple(sums.samples()), (C_CODE,), "cpu", Unit("cpu", NANOSECONDS), PERIOD)


def _note(ticks: Tally, stack: RawStack, labels: Labels, nanoseconds: int) -> None:
    ticks.add(stack, labels, 1, nanoseconds)
