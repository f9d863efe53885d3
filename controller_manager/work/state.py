"""The state of a control loop, as plain data for people and pages."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Running:
    """A key being worked on: for how many seconds, and why."""

    key: str
    seconds: float
    causes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Due:
    """A key that is due in so many seconds, why, and after how many failures in a row."""

    key: str
    seconds: float
    failures: int
    causes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Failing:
    """A key whose last run failed: `error` says how, with the type, so many `seconds` ago, after `failures` in a row.

    `given_up` is one that is not tried again before something changes; `defect` one that no retry will mend: the
    controller raised what it should not, or the server calls what it sent invalid. `causes` are why it ran, as far as
    anything but the failure caused that; `retry_seconds` is when it is tried again, None if it has been given up. A
    `stubborn` one is a defect only since it lasts: a local copy that is out of date may be behind it.
    """

    key: str
    error: str
    seconds: float
    failures: int
    given_up: bool
    defect: bool
    causes: tuple[str, ...] = ()
    retry_seconds: float | None = None
    stubborn: bool = False


@dataclass(frozen=True, slots=True)
class LoopState:
    """The state of a control loop: numbers of keys, the keys themselves, and how the past ones went.

    `next` are the first of the `delayed`; `failing` some of the keys that failed and have not run well since, of
    `failing_keys` that are remembered, and `failing_more` if others were forgotten; `last_error` was so many
    `last_error_seconds` ago; `outcomes` counts finished reconciles by outcome (done, requeue, give_up, conflict, error)
    since this loop began; `failures_in_a_row` are the runs that failed since any last went well, but for those of keys
    that were given up.
    """

    name: str
    workers: int
    ready: int
    delayed: int
    running: tuple[Running, ...]
    next: tuple[Due, ...]
    failing: tuple[Failing, ...]
    failing_keys: int
    failing_more: bool = field(default=False, kw_only=True)
    last_error: str
    last_error_seconds: float
    outcomes: Mapping[str, int]
    failures_in_a_row: int = 0
