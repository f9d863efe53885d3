"""Finds reconciles that wake themselves for ever: each run writes an object, whose change alone causes the next run."""

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field
from traceback import walk_stack
from typing import TypeVar

from controller_manager.common.base.errors import is_ours, line_of
from controller_manager.framework.work import LoopRun

LIMIT = 50
"""Runs in a row that only their own writes caused; a reconcile that comes to rest needs a few."""
_REMEMBERED = 10_000  # objects whose last writer is known, and keys that wrote
# Causes of a run that say nothing of who changed what.
_NEUTRAL = ("error", "conflict")

K = TypeVar("K")
V = TypeVar("V")
_Writer = tuple[str, Hashable]


class HotLoopError(Exception):
    """A reconcile whose own writes have woken it too often in a row; raised in place of its next write."""


@dataclass(slots=True)
class _Streak:
    """The runs in a row of one key that its own writes caused, and the objects that each of them has written."""

    run: LoopRun
    runs: int = 1
    common: set[str] = field(default_factory=set)
    written: set[str] = field(default_factory=set)


class HotLoops:
    """What controllers of a cluster write, by run.

    A run continues a streak if the key itself was the last to write each object whose change woke it, and if it writes
    an object that all runs of the streak have written.
    """

    def __init__(self) -> None:
        self.found: dict[str, str] = {}
        """A sentence for each controller with such a reconcile."""
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
        """Note that a run, or another client (None), has written an object: `resource namespace/name`."""
        writer = None if run is None else (run.loop, run.key)
        _remember(self._last_writers, obj, writer)
        if run is not None:
            self._streak(run).written.add(obj)

    def _streak(self, run: LoopRun) -> _Streak:
        """Return the streak of the key, to which the run belongs from now on."""
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
        """Return whether a key was the last to write each object that woke it."""
        objects = [cause.rpartition(" ")[0] for cause in run.causes if cause not in _NEUTRAL]
        return bool(objects) and all(self._last_writers.get(obj) == (run.loop, run.key) for obj in objects)


def _remember(memory: OrderedDict[K, V], key: K, value: V) -> V:
    memory[key] = value
    memory.move_to_end(key)
    if len(memory) > _REMEMBERED:
        memory.popitem(last=False)
    return value


def _writing_line() -> str:
    """Return the line of the author's code that is writing."""
    for frame, line in walk_stack(None):
        module = frame.f_globals.get("__name__", "")
        if module == "asyncio.events":  # the loop, which runs a task that the author did not start
            break
        if not is_ours(frame) and not module.startswith("asyncio."):
            return line_of(frame, line)
    return "an unknown line"
