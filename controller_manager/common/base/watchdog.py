"""Measures how late an event loop runs its callbacks, and logs what blocked it."""

import asyncio
import sys
import threading
from collections import deque
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import NamedTuple

import msgspec
from prometheus_client import CollectorRegistry

from controller_manager.common.base.clock import elapsed_nanoseconds
from controller_manager.common.base.log import Logger
from controller_manager.common.base.metrics import Family, Histograms
from controller_manager.common.base.stacks import Stack, running_stack

DELAY = Family(
    "asyncio_event_loop_delay_seconds",
    "Delay in seconds of a periodic timer on the event loop.",
    "histogram",
    buckets=(0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0),
)
BLOCKED = 0.1
"""Seconds of delay from which a warning is logged."""
RECORDED = 0.02
"""Seconds of delay from which a delay is recorded, if recording is enabled."""
RECORDED_EVERY = 0.01
"""Seconds between two timers while recording is enabled."""
_EVERY = 0.02  # seconds between two timers without recording
_LOOK, _RECORDED_LOOK = BLOCKED / 2, 0.005  # seconds between two samples of the thread
_MOST_LOOKS = 2_000  # samples kept per delay; the oldest are dropped
_WARN_EVERY = 10.0  # seconds between two warnings
_DEEPEST = 12  # frames of a logged stack
_NANO = 1_000_000_000


class Look(NamedTuple):
    """A sample of a loop: time in nanoseconds, stack, task, and the request or component it ran for, if known."""

    time: int
    stack: Stack
    task: str = ""
    by: str = ""


class Hold(msgspec.Struct, frozen=True):
    """A delay: when the timer was due, the samples until it ran, and when it ran."""

    due: int
    looks: tuple[Look, ...]
    ran: int

    def shares(self) -> list[tuple[Look, int]]:
        """Return the samples and the nanoseconds that each one accounts for: until the next sample; the first one also
        since the timer was due.
        """
        looks = [look for look in self.looks if self.due < look.time < self.ran]
        times = [self.due, *(look.time for look in looks[1:]), self.ran]
        return [(look, end - begin) for look, (begin, end) in zip(looks, pairwise(times), strict=True)] if looks else []


Describe = Callable[[FrameType], str]
"""Returns the request or component that a frame runs for, or an empty string. Called in another thread."""


class Watchdog:
    """Watches the loop it runs in: a timer measures the delay, and a thread samples the loop's stack while it is late.

    `record`, if given, is called with delays from `RECORDED` on. Samples are then taken more often.
    """

    def __init__(
        self,
        log: Logger,
        registry: CollectorRegistry,
        describe: Describe = lambda _: "",
        record: Callable[[Hold], None] | None = None,
    ) -> None:
        self._log = log
        self._delay = Histograms(DELAY, registry).of()
        self._describe = describe
        self._record = record
        self._every, self._pause = (RECORDED_EVERY, _RECORDED_LOOK) if record else (_EVERY, _LOOK)
        self._due = 0
        # Samples taken by the thread since the last timer.
        self._looks: deque[Look] = deque(maxlen=_MOST_LOOKS)
        self._warned_at = -_WARN_EVERY * _NANO
        self._unreported = 0

    async def run(self) -> None:
        """Watch until cancelled."""
        ended = threading.Event()
        self._due = elapsed_nanoseconds() + int(self._every * _NANO)
        seen = (asyncio.get_running_loop(), threading.get_ident(), ended)
        threading.Thread(target=self._watch, args=seen, name="watchdog", daemon=True).start()
        try:
            while True:
                await asyncio.sleep(self._every)
                self._measure()
        finally:
            ended.set()

    def _measure(self) -> None:
        now = elapsed_nanoseconds()
        looks, self._looks = self._looks, deque(maxlen=_MOST_LOOKS)
        hold = Hold(self._due, tuple(looks), now)
        self._due = now + int(self._every * _NANO)
        delay = max(0, now - hold.due) / _NANO
        self._delay.observe(delay)
        if self._record is not None and delay >= RECORDED:
            self._record(hold)
        if delay >= BLOCKED:
            self._warn(delay, hold, now)

    def _warn(self, delay: float, hold: Hold, now: int) -> None:
        if now - self._warned_at < _WARN_EVERY * _NANO:
            self._unreported += 1
            return
        longest, _ = max(hold.shares(), key=lambda share: share[1], default=(Look(now, ()), 0))
        by, stack = longest.by or longest.task or "unknown", _in_words(longest.stack)
        self._log.warning(
            "the event loop was blocked", seconds=round(delay, 3), by=by, stack=stack, others=self._unreported
        )
        self._warned_at, self._unreported = now, 0

    def _watch(self, loop: asyncio.AbstractEventLoop, thread: int, ended: threading.Event) -> None:
        """Take samples; runs in the thread."""
        while not ended.wait(self._pause):
            now = elapsed_nanoseconds()
            frame = sys._current_frames().get(thread) if now - self._due > self._pause * _NANO else None
            if frame is not None:
                task = asyncio.current_task(loop)
                name = task.get_name() if task is not None else ""
                self._looks.append(Look(now, running_stack(frame), name, self._on_behalf(frame)))

    def _on_behalf(self, frame: FrameType) -> str:
        found: FrameType | None = frame
        while found is not None:
            if by := self._describe(found):
                return by
            found = found.f_back
        return ""


def _in_words(stack: Stack) -> str:
    """Return the innermost frames, the last call first: `walk (clean.py:93) < Loop.fit (incoming.py:30)`."""
    return " < ".join(f"{one.function} ({Path(one.file).name}:{one.line})" for one in stack[:_DEEPEST])
