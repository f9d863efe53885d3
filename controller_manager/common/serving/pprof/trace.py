"""The trace profile: all tasks over some seconds, with one sample per interval in one state, in order of time."""

import asyncio
from typing import Any

import msgspec

from controller_manager.common.base import clock
from controller_manager.common.base.stacks import Stack
from controller_manager.common.base.standard_library import awaited
from controller_manager.common.serving.pprof.cpu import C_CODE, PERIOD, ticking
from controller_manager.common.serving.pprof.profile import (
    COUNT,
    NANOSECONDS,
    Profile,
    Sample,
    SampleLabels,
    Unit,
    labels_of,
)
from controller_manager.common.serving.pprof.tasks import RUNNING, Describe, task_state

_UNITS = (Unit("stretches", COUNT), Unit("time", NANOSECONDS))
_PAUSE = 0.01  # minimum seconds between two samplings of the tasks
_SHARE = 20  # sampling may take 1/20 of the time
_MOST_STRETCHES = 50_000
_ORDER = (
    "Samples are in order of time: the label start says when a stretch began, state what the task did, waits_for for "
    f"what. Waiting is seen every {_PAUSE * 1000:.0f} ms or less often, so that shorter waits are left out; running is "
    "CPU time, from the profiling timer."
)
_EARLY = "The trace ended early, at its bound."


class _Stretch(msgspec.Struct):
    """An interval, in nanoseconds since the start, that a task spent in one state at one stack."""

    begin: int
    end: int
    stack: Stack
    labels: SampleLabels


class _Timeline:
    """Samples the tasks of the running loop, and records what runs in between."""

    def __init__(self, describe: Describe) -> None:
        self._describe = describe
        self._began = clock.elapsed_nanoseconds()
        self.stretches: list[_Stretch] = []
        # By task: the awaited future when last sampled, and the current interval.
        self._open: dict[asyncio.Task[Any], tuple[object, _Stretch]] = {}

    @property
    def full(self) -> bool:
        """Return whether the maximum number of intervals is reached."""
        return len(self.stretches) >= _MOST_STRETCHES

    def look(self) -> float:
        """Sample all other tasks; the interval of a task that still awaits the same future is extended.

        Returns the seconds it took.
        """
        now, before, self._open = self._now(), self._open, {}
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            if self.full:
                break
            future = awaited(task)
            known, stretch = before.get(task, (None, None))
            if stretch is None or future is None or future is not known:
                state = task_state(task)
                labels = {**self._describe(state.name), "state": state.state, "waits_for": state.waits_for}
                stretch = _Stretch(now, now, state.stack, labels_of(labels))
                self.stretches.append(stretch)
            stretch.end = now
            self._open[task] = (future, stretch)
        return (self._now() - now) / 1e9

    def ran(self, stack: Stack, labels: SampleLabels, nanoseconds: int) -> None:
        """Record CPU time that was spent until now."""
        if not self.full:
            now, labels = self._now(), labels_of({**dict(labels), "state": RUNNING})
            self.stretches.append(_Stretch(max(0, now - nanoseconds), now, stack, labels))

    def _now(self) -> int:
        return clock.elapsed_nanoseconds() - self._began


async def trace_profile(seconds: float, describe: Describe) -> Profile:
    """Return a trace of the next seconds. Raises like `cpu.ticking`."""
    timeline = _Timeline(describe)
    until = clock.monotonic() + seconds
    with ticking(describe, timeline.ran):
        while (left := until - clock.monotonic()) > 0 and not timeline.full:
            cost = timeline.look()
            await asyncio.sleep(min(left, max(_PAUSE, _SHARE * cost)))
        timeline.look()
    samples = tuple(
        Sample(
            one.stack, labels_of({**dict(one.labels), "start": f"{one.begin / 1e6:.3f} ms"}), (1, one.end - one.begin)
        )
        for one in sorted(timeline.stretches, key=lambda stretch: stretch.begin)
    )
    return Profile(_UNITS, samples, (_ORDER, C_CODE, *((_EARLY,) if timeline.full else ())), period=PERIOD)
