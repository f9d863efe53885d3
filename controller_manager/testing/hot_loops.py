"""Detects hot loops: reconciles that wake themselves forever, as each run writes an object that causes the next."""

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field
from traceback import walk_stack
from typing import TypeVar

from controller_manager.common.base.errors import is_ours, line_of
from controller_manager.framework.work.loop import LoopRun

LIMIT = 50
"""Maximum number of runs in a row that only the key's own writes caused. A reconcile that converges needs few."""
_REMEMBERED = 10_000  # maximum number of objects with a known last writer, and of keys that wrote
# Causes that do not name a changed object.
_NEUTRAL = ("error", "conflict")

K = TypeVar("K")
V = TypeVar("V")
_Writer = tuple[str, Hashable]


class HotLoopError(Exception):
    """A reconcile was woken by its own writes too often in a row; raised instead of its next write."""


@dataclass(slots=True)
class _Streak:
    """The number of runs in a row that the key's own writes caused, and the objects that each of them wrote."""

    run: LoopRun
    runs: int = 1
    common: set[str] = field(default_factory=set)
    written: set[str] = field(default_factory=set)


class HotLoops:
    """Detects hot loops by the writes of each run.

    A run continues a streak if its key was the last writer of each object that woke it, and if all runs of the streak
    have written a common object.
    """

    def __init__(self) -> None:
        self.found: dict[str, str] = {}
        """The messages by controller."""
        self._last_writers: OrderedDict[str, _Writer | None] = OrderedDict()
        self._streaks: OrderedDict[_Writer, _Streak] = OrderedDict()

    def check(self, run: LoopRun) -> None:
        """Raise `HotLoopError` if the run that is about to write continues a streak that is too long."""
        streak = self._streak(run)
        if streak.runs < LIMIT:
            return
        objects = ", ".join(sorted(streak.common))
        text = f"{run.loop} ran {streak.runs} times in a row on {run.key} because of its own writes of {objects}"
        sentence = f"{text}; write only what differs; woken by: {', '.join(run.causes)}; at {_writing_line()}"
        self.found.setdefault(run.loop, sentence)
        raise HotLoopError(sentence)

    def wrote(self, run: LoopRun | None, obj: str) -> None:
        """Record that a run, or another client (None), has written an object: `resource namespace/name`."""
        writer = None if run is None else (run.loop, run.key)
        _remember(self._last_writers, obj, writer)
        if run is not None:
            self._streak(run).written.add(obj)

    def _streak(self, run: LoopRun) -> _Streak:
        """Return the streak of the run's key, after adding the run to it."""
        writer = run.loop, run.key
        streak = self._streaks.get(writer)
        if streak is None:
            streak = _remember(self._streaks, writer, _Streak(run))
        elif streak.run is not run:
            common = streak.common & streak.written if streak.runs > 1 else streak.written
            streak = _Streak(run, streak.runs + 1, common) if common and self._woke_itself(run) else _Streak(run)
            _remember(self._streaks, writer, streak)
        return streak

    def _woke_itself(self, run: LoopRun) -> bool:
        """Return whether the run's key was the last writer of each object that woke it."""
        objects = [cause.rpartition(" ")[0] for cause in run.causes if cause not in _NEUTRAL]
        return bool(objects) and all(self._last_writers.get(obj) == (run.loop, run.key) for obj in objects)


def _remember(memory: OrderedDict[K, V], key: K, value: V) -> V:
    memory[key] = value
    memory.move_to_end(key)
    if len(memory) > _REMEMBERED:
        memory.popitem(last=False)
    return value


def _writing_line() -> str:
    """Return the line of the author's code that makes the current write."""
    for frame, line in walk_stack(None):
        module = frame.f_globals.get("__name__", "")
        if module == "asyncio.events":  # the event loop: the author did not start this task
            break
        if not is_ours(frame) and not module.startswith("asyncio."):
            return line_of(frame, line)
    return "an unknown line"
