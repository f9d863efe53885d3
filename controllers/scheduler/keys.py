"""What the workers of the scheduler are given to do, as keys of one queue."""

from typing import Protocol

import msgspec


class Cycle(msgspec.Struct, frozen=True):
    """The pods that are next."""


class Binding(msgspec.Struct, frozen=True):
    """A pod for which a node was found, by its uid."""

    uid: str


class Report(msgspec.Struct, frozen=True):
    """A pod for which there is no node, by its uid."""

    uid: str


class Preemption(msgspec.Struct, frozen=True):
    """A pod for which others have to go, by its uid."""

    uid: str


SchedulerKey = Cycle | Binding | Report | Preemption


class Enqueue(Protocol):
    """Has something be done, at once or `after` so many seconds; `cause` is for people."""

    def __call__(self, key: SchedulerKey, cause: str, after: float = 0.0) -> None: ...
