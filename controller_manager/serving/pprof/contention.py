"""What holds the event loop, so that every other task has to wait: a thread asks the loop for a sign of life, and looks
at what it is doing when none comes.
"""

import asyncio
import contextlib
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

from controller_manager.base import measure
from controller_manager.serving.pprof.cpu import Describe
from controller_manager.serving.pprof.profile import COUNT, NANOSECONDS, Labels, Profile, RawStack, Unit, labels_of
from controller_manager.serving.pprof.stacks import Tally, running_stack

PAUSE = 0.01  # seconds between an answer and the next question
PATIENCE = 0.02  # seconds an answer may take
_LOOK = 0.005  # seconds between two looks at what the loop is doing instead
_MOST_LOOKS = 2_000  # kept of one stretch, the last
_MOST_STACKS = 5_000
UNITS = (Unit("contentions", COUNT), Unit("delay", NANOSECONDS))
_OFF = "Nothing is recorded: start with --contention-profiling."
_ON = (
    f"Recorded since the start: what kept all tasks waiting, as a rule by computing. From "
    f"{1000 * (PAUSE + PATIENCE):.0f} ms on it is always seen, below {1000 * PATIENCE:.0f} ms never. What a task waits "
    "for by itself is not in here."
)
_NO_MUTEXES = "Empty, as it must be: tasks of one thread share what they have without locks. See block."


class Look(NamedTuple):
    """What the loop was doing at some time, in nanoseconds."""

    time: int
    stack: RawStack
    labels: Labels


@dataclass(frozen=True, slots=True)
class Hold:
    """A stretch during which the loop did not answer: when it was asked, what was seen, when it answered."""

    asked: int
    looks: tuple[Look, ...]
    answered: int

    def delays(self) -> list[tuple[Look, int]]:
        """How long the loop was held by what each look has seen: until the next one; the first since the question."""
        looks = [look for look in self.looks if look.time < self.answered]
        times = [self.asked, *(look.time for look in looks[1:]), self.answered]
        return [(look, end - begin) for look, (begin, end) in zip(looks, pairwise(times), strict=True)] if looks else []


class ContentionWatch:
    """Records who holds the running loop, for as long as `run` runs; `describe` makes labels of a task's name."""

    def __init__(self, describe: Describe) -> None:
        self._describe = describe
        self._on = False
        self._delays = Tally(len(UNITS), _MOST_STACKS)

    async def run(self) -> None:
        """Watch until cancelled."""
        self._on = True
        loop = asyncio.get_running_loop()
        watcher = _Watcher(loop, self._describe, self.record)
        watcher.start()
        try:
            await loop.create_future()
        finally:
            watcher.stop()

    def record(self, hold: Hold) -> None:
        """Add what one stretch has cost; it counts once, for the stack that was seen first."""
        for place, (look, nanoseconds) in enumerate(hold.delays()):
            self._delays.add(look.stack, look.labels, int(place == 0), nanoseconds)

    def profile(self) -> Profile:
        """What was recorded so far."""
        samples = tuple(self._delays.sums().samples())
        return Profile(UNITS, samples, (_ON if self._on else _OFF,), "delay", UNITS[0], 1)

    def __len__(self) -> int:
        """How often the loop was held."""
        return self._delays.total(0)


def mutex_profile() -> Profile:
    """Empty, with the reason."""
    return Profile(UNITS, (), (_NO_MUTEXES,), "delay", UNITS[0], 1)


class _Watcher(threading.Thread):
    """Asks the loop again and again; all it finds is handed over to the loop's own thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, describe: Describe, record: Callable[[Hold], None]) -> None:
        super().__init__(name="contention", daemon=True)
        self._loop = loop
        self._held_thread = threading.get_ident()
        self._describe = describe
        self._record = record
        self._stopped = threading.Event()

    def stop(self) -> None:
        """End soon."""
        self._stopped.set()

    def run(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop was closed
            while not self._stopped.wait(PAUSE):
                self._ask()

    def _ask(self) -> None:
        answers: list[int] = []
        answered = threading.Event()

        def answer() -> None:
            answers.append(measure.elapsed_nanoseconds())
            answered.set()

        asked, looks = measure.elapsed_nanoseconds(), list[Look]()
        self._loop.call_soon_threadsafe(answer)
        while not answered.wait(_LOOK):
            if self._stopped.is_set():
                return
            looks = [*looks[-_MOST_LOOKS:], self._look()]
        if answers[0] - asked >= PATIENCE * 1e9:
            self._loop.call_soon_threadsafe(self._record, Hold(asked, tuple(looks), answers[0]))

    def _look(self) -> Look:
        now = measure.elapsed_nanoseconds()
        frame = sys._current_frames().get(self._held_thread)
        task: asyncio.Task[Any] | None = asyncio.current_task(self._loop)
        labels = labels_of(self._describe(task.get_name())) if task is not None else ()
        return Look(now, running_stack(frame), labels)
