"""What every task and every thread is doing right now: tasks are to this process what goroutines are to others."""

import asyncio
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from controller_manager.serving.pprof.cpu import Describe
from controller_manager.serving.pprof.profile import COUNT, Labels, Profile, RawStack, Sample, Unit, labels_of
from controller_manager.serving.pprof.stacks import Places, running_stack, waiting_stack

RUNNING, READY, WAITING = "running", "ready", "waiting"
_TASKS = Unit("goroutine", COUNT)  # as pprof and those who collect profiles call them
_THREADS = Unit("threadcreate", COUNT)
_THREAD_COMMENTS = ("A stack is what the thread is doing now, not what created it.",)


@dataclass(frozen=True, slots=True)
class TaskState:
    """What one task is doing; `waits_for` names another task, or a type, and is empty unless it waits."""

    name: str
    state: str
    waits_for: str
    stack: RawStack


def task_states() -> Iterator[TaskState]:
    """Every task of the running loop, the one that asks among them."""
    me = asyncio.current_task()
    for task in asyncio.all_tasks():
        yield task_state(task, running=task is me)


def task_state(task: "asyncio.Task[Any]", *, running: bool = False) -> TaskState:
    """What one task is doing; a `running` one is the one that asks."""
    work: Any = task.get_coro()
    if running:
        return TaskState(task.get_name(), RUNNING, "", running_stack(sys._getframe(), within=_frame_of(work)))
    future = awaited(task)
    stack = waiting_stack(work)
    if future is None or future.done():
        return TaskState(task.get_name(), READY, "", stack)
    name = future.get_name() if isinstance(future, asyncio.Task) else type(future).__name__
    return TaskState(task.get_name(), WAITING, name, stack)


def awaited(task: "asyncio.Task[Any]") -> "asyncio.Future[Any] | None":
    """The future that wakes a task; None if it was not yet started, or is about to run."""
    future: asyncio.Future[Any] | None = getattr(task, "_fut_waiter", None)
    return future


def task_profile(describe: Describe) -> Profile:
    """One sample for each task; `describe` makes labels of its name."""
    places = Places()
    samples = tuple(
        Sample(places.stack(one.stack), labels_of({**describe(one.name), "state": one.state}), (1,))
        for one in task_states()
    )
    return Profile((_TASKS,), samples, (), _TASKS.type, _TASKS, 1)


def thread_profile() -> Profile:
    """One sample for each thread that runs Python."""
    places = Places()
    return Profile(
        (_THREADS,),
        tuple(Sample(places.stack(stack), labels, (1,)) for stack, labels in _threads()),
        _THREAD_COMMENTS,
        _THREADS.type,
        _THREADS,
        1,
    )


def _threads() -> Iterator[tuple[RawStack, Labels]]:
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    for ident, frame in sys._current_frames().items():
        yield running_stack(frame), labels_of({"thread": names.get(ident, "")})


def _frame_of(work: Any) -> Any:
    return getattr(work, "cr_frame", None) or getattr(work, "gi_frame", None)
