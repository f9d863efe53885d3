"""The keys of the scheduler's work queue."""

from typing import Protocol

import msgspec


class Cycle(msgspec.Struct, frozen=True):
    """Run a scheduling cycle."""


class Binding(msgspec.Struct, frozen=True):
    """Bind the pod with that uid."""

    uid: str


class Report(msgspec.Struct, frozen=True):
    """Report that there is no node for the pod with that uid."""

    uid: str


class Preemption(msgspec.Struct, frozen=True):
    """Preempt others for the pod with that uid."""

    uid: str


SchedulerKey = Cycle | Binding | Report | Preemption


class Enqueue(Protocol):
    """Enqueues a key, at once or `after` a number of seconds. `cause` is for diagnostics."""

    def __call__(self, key: SchedulerKey, cause: str, after: float = 0.0) -> None: ...
