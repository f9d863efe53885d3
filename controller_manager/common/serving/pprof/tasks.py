"""The profiles of current tasks and threads (tasks correspond to goroutines), and the contention profile: the stacks
that blocked the event loop.
"""

import asyncio
import gc
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import msgspec

from controller_manager.common.base.stacks import DEEPEST, Stack, place_of, running_stack
from controller_manager.common.base.standard_library import awaited
from controller_manager.common.base.watchdog import RECORDED, RECORDED_EVERY, Hold
from controller_manager.common.serving.pprof.profile import COUNT, NANOSECONDS, Profile, Sample, Tally, Unit, labels_of

RUNNING, READY, WAITING = "running", "ready", "waiting"
_TASKS = (Unit("goroutine", COUNT),)  # the name in pprof and in profile collectors
_THREADS = (Unit("threadcreate", COUNT),)
_NOW = "A stack is what the thread is doing now, not what created it."
# The attributes of a suspended coroutine, generator or asynchronous generator for its frame and what it awaits.
_SUSPENDED = (("cr_frame", "cr_await"), ("gi_frame", "gi_yieldfrom"), ("ag_frame", "ag_await"))
# Steps between them, such as that of `anext()`, report their references only to the garbage collector.
_STEPS = ("coroutine_wrapper", "async_generator_asend", "async_generator_athrow", "anext_awaitable")

Describe = Callable[[str], dict[str, str]]
"""Returns the labels for the name of a task."""


class TaskState(msgspec.Struct, frozen=True):
    """The state of a task; `waits_for` names another task or a type, and is empty unless the task waits."""

    name: str
    state: str
    waits_for: str
    stack: Stack


def task_states() -> Iterator[TaskState]:
    """Yield the state of every task of the running loop, including the current one."""
    me = asyncio.current_task()
    for task in asyncio.all_tasks():
        yield task_state(task, running=task is me)


def task_state(task: "asyncio.Task[Any]", *, running: bool = False) -> TaskState:
    """Return the state of a task; `running` marks the current task."""
    work: Any = task.get_coro()
    if running:
        return TaskState(task.get_name(), RUNNING, "", running_stack(sys._getframe(), within=_suspended(work)[0]))
    future, stack = awaited(task), waiting_stack(work)
    if future is None or future.done():
        return TaskState(task.get_name(), READY, "", stack)
    name = future.get_name() if isinstance(future, asyncio.Task) else type(future).__name__
    return TaskState(task.get_name(), WAITING, name, stack)


def waiting_stack(work: Any) -> Stack:
    """Return the stack of a suspended coroutine and of what it awaits, innermost frame first."""
    found: list[FrameType] = []
    for _ in range(4 * DEEPEST):
        frame, waits_for = _suspended(work)
        found += [frame] if frame is not None else []
        if waits_for is None:
            break
        work = waits_for
    return tuple(map(place_of, reversed(found[-DEEPEST:])))


def _suspended(work: Any) -> tuple[FrameType | None, Any]:
    """Return the frame of a suspended object, if any, and the awaited object, if it has a frame."""
    for frame, waits_for in _SUSPENDED:
        if hasattr(work, frame):
            return getattr(work, frame), getattr(work, waits_for)
    if type(work).__name__ not in _STEPS:  # a future or similar object: the end of the chain
        return None, None
    return None, next((one for one in gc.get_referents(work) if _is_link(type(one))), None)


def _is_link(kind: type) -> bool:
    return kind.__name__ in _STEPS or any(hasattr(kind, frame) for frame, _ in _SUSPENDED)


def task_profile(describe: Describe) -> Profile:
    """Return one sample per task."""
    states = ((one.stack, {**describe(one.name), "state": one.state}) for one in task_states())
    return Profile(_TASKS, tuple(Sample(stack, labels_of(labels), (1,)) for stack, labels in states))


def thread_profile() -> Profile:
    """Return one sample per Python thread."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    stacks = ((running_stack(frame), names.get(ident, "")) for ident, frame in sys._current_frames().items())
    samples = tuple(Sample(stack, labels_of({"thread": name}), (1,)) for stack, name in stacks)
    return Profile(_THREADS, samples, (_NOW,))


_UNITS = (Unit("contentions", COUNT), Unit("delay", NANOSECONDS))
_MOST_STACKS = 5_000
_ON = (
    "Recorded since the start: what kept all tasks waiting, as a rule by computing. From "
    f"{1000 * (RECORDED_EVERY + RECORDED):.0f} ms on it is always seen, below {1000 * RECORDED:.0f} ms never. What a "
    "task waits for by itself is not in here."
)
_OFF = "Nothing is recorded: start with --contention-profiling."
_NO_MUTEXES = "Empty, as it must be: tasks of one thread share what they have without locks. See block."


class Contention:
    """The recorded delays, if recording is `on`; `describe` returns the labels for a task's name."""

    def __init__(self, describe: Describe, *, on: bool) -> None:
        self._describe = describe
        self._comments = (_ON if on else _OFF,)
        self._delays = Tally(len(_UNITS), _MOST_STACKS)

    def record(self, hold: Hold) -> None:
        """Add a delay; it is counted once, for its first stack."""
        for place, (look, nanoseconds) in enumerate(hold.shares()):
            labels = labels_of(self._describe(look.task)) if look.task else ()
            self._delays.add(look.stack, labels, int(place == 0), nanoseconds)

    def profile(self) -> Profile:
        """Return the recorded delays."""
        return Profile(_UNITS, tuple(self._delays.samples()), self._comments)

    def __len__(self) -> int:
        """Return the number of recorded delays."""
        return self._delays.total(0)


def mutex_profile() -> Profile:
    """Return an empty profile with a comment that explains it."""
    return Profile(_UNITS, (), (_NO_MUTEXES,))
