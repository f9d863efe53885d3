"""What the workers of the scheduler are given to do, as keys of one queue."""

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Cycle:
    """The pods that are next."""


@dataclass(frozen=True, slots=True)
class Binding:
    """A pod for which a node was found, by its uid."""

    uid: str


@dataclass(frozen=True, slots=True)
class Report:
    """A pod for which there is no node, by its uid."""

    uid: str


@dataclass(frozen=True, slots=True)
class Preemption:
    """A pod for which others have to go, by its uid."""

    uid: str


Key = Cycle | Binding | Report | Preemption


class Enqueue(Protocol):
    """Has something be done, at once or `after` so many seconds; `cause` is for people."""

    def __call__(self, key: Key, cause: str, after: float = 0.0) -> None: ...
