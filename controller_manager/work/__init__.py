"""The queue of keys that wait for work, and the loop that works on them; neither knows the API's objects."""

from controller_manager.work.failures import Due, Failing, LoopState, Running
from controller_manager.work.loop import STALE_CACHE, ControlLoop, Requeue, Run, TerminalError, current_run
from controller_manager.work.metrics import WorkMetrics
from controller_manager.work.queue import Entry, Exponential, Priority, WorkQueue
from controller_manager.work.spinning import SHORTEST_REQUEUE, Spinning

__all__ = [
    "SHORTEST_REQUEUE",
    "STALE_CACHE",
    "ControlLoop",
    "Due",
    "Entry",
    "Exponential",
    "Failing",
    "LoopState",
    "Priority",
    "Requeue",
    "Run",
    "Running",
    "Spinning",
    "TerminalError",
    "WorkMetrics",
    "WorkQueue",
    "current_run",
]
