"""The work queue, and the control loop that reconciles its keys. Neither depends on API objects."""

from controller_manager.framework.work.failures import Due, Failing, LoopState, Running
from controller_manager.framework.work.loop import (
    STALE_CACHE,
    ControlLoop,
    LoopRun,
    Requeue,
    TerminalError,
    current_run,
)
from controller_manager.framework.work.metrics import WorkMetrics
from controller_manager.framework.work.queue import Exponential, Priority, QueueEntry, WorkQueue
from controller_manager.framework.work.spinning import SHORTEST_REQUEUE, Spinning

__all__ = [
    "SHORTEST_REQUEUE",
    "STALE_CACHE",
    "ControlLoop",
    "Due",
    "Exponential",
    "Failing",
    "LoopRun",
    "LoopState",
    "Priority",
    "QueueEntry",
    "Requeue",
    "Running",
    "Spinning",
    "TerminalError",
    "WorkMetrics",
    "WorkQueue",
    "current_run",
]
