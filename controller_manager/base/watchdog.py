"""Watches how long an event loop keeps what is due waiting, and finds out who kept it waiting."""

import asyncio
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import NamedTuple

from prometheus_client import CollectorRegistry

from controller_manager.base.log import Logger
from controller_manager.base.measure import elapsed_nanoseconds
from controller_manager.base.metrics import Family, Histograms

DELAY = Family(
    "asyncio_event_loop_delay_seconds",
    "How much later than due the event loop ran a timer that looks after it.",
    "histogram",
    buckets=(0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0),
)
BLOCKED = 0.1
"""Seconds of delay that are worth a line in the log."""
_EVERY = 0.02  # seconds between two looks
_TOLD_EVERY = 10.0  # seconds between two lines in the log
_DEEPEST = 12  # frames of a stack that is told
_NANO = 1_000_000_000


class Sample(NamedTuple):
    """What a loop was doing: the task, on whose behalf if that is known, and the innermost frames."""

    task: str
    by: str
    stack: str


Describe = Callable[[FrameType], str]
"""On whose behalf a frame runs; empty if it does not tell. Called in another thread."""


class Watchdog:
    """Looks after the loop it runs in. A thread of its own looks at the loop's stack while a look is overdue."""

    def __init__(self, log: Logger, registry: CollectorRegistry, describe: Describe = lambda _: "") -> None:
        self._log = log
        self._delay = Histograms(DELAY, registry).of()
        self._describe = describe
        self._due = 0
        self._sample: Sample | None = None
        self._ended = threading.Event()
        self._told_at = -_TOLD_EVERY * _NANO
        self._untold = 0

    async def run(self) -> None:
        """Watch until cancelled."""
        self._due = elapsed_nanoseconds() + int(_EVERY * _NANO)
        thread = threading.Thread(
            target=self._watch, args=(asyncio.get_running_loop(), threading.get_ident()), name="watchdog", daemon=True
        )
        thread.start()
        try:
            while True:
                await asyncio.sleep(_EVERY)
                self._look()
        finally:
            self._ended.set()

    def _look(self) -> None:
        now = elapsed_nanoseconds()
        delay, sample = max(0, now - self._due) / _NANO, self._sample
        self._due, self._sample = now + int(_EVERY * _NANO), None
        self._delay.observe(delay)
        if delay < BLOCKED:
            return
        if now - self._told_at < _TOLD_EVERY * _NANO:
            self._untold += 1
            return
        told = sample or Sample("", "", "")
        by = told.by or told.task or "unknown"
        self._log.warning(
            "the event loop was blocked", seconds=round(delay, 3), by=by, stack=told.stack, others_untold=self._untold
        )
        self._told_at, self._untold = now, 0

    def _watch(self, loop: asyncio.AbstractEventLoop, thread: int) -> None:
        """Runs in the thread."""
        while not self._ended.wait(BLOCKED / 2):
            if self._sample is None and elapsed_nanoseconds() - self._due > BLOCKED / 2 * _NANO:
                self._sample = self._seen(loop, thread)

    def _seen(self, loop: asyncio.AbstractEventLoop, thread: int) -> Sample | None:
        frame = sys._current_frames().get(thread)
        if frame is None:
            return None
        task = asyncio.current_task(loop)
        return Sample(task.get_name() if task is not None else "", self._on_behalf(frame), stack_of(frame))

    def _on_behalf(self, frame: FrameType) -> str:
        found: FrameType | None = frame
        while found is not None:
            if by := self._describe(found):
                return by
            found = found.f_back
        return ""


def stack_of(frame: FrameType) -> str:
    """The innermost frames, the last call first: `walk (clean.py:93) < fit (incoming.py:30)`."""
    parts: list[str] = []
    found: FrameType | None = frame
    while found is not None and len(parts) < _DEEPEST:
        parts.append(f"{found.f_code.co_name} ({Path(found.f_code.co_filename).name}:{found.f_lineno})")
        found = found.f_back
    return " < ".join(parts)
