"""The keys of a control loop that fail, how and for how long; pure."""

from collections.abc import Hashable, Mapping, Sequence
from math import inf
from typing import Generic, TypeVar

import msgspec

from controller_manager.common.api import errors
from controller_manager.common.base.errors import author_line, describe
from controller_manager.framework.work.spinning import Spinning

# The state of a control loop, as plain data for people and pages.


class Running(msgspec.Struct, frozen=True):
    """A key being worked on: for how many seconds, and why."""

    key: str
    seconds: float
    causes: tuple[str, ...]


class Due(msgspec.Struct, frozen=True):
    """A key that is due in so many seconds, why, and after how many failures in a row."""

    key: str
    seconds: float
    failures: int
    causes: tuple[str, ...]


class Failing(msgspec.Struct, frozen=True):
    """A key whose last run failed: `error` says how, with the type, so many `seconds` ago, after `failures` in a row.

    `given_up` is one that is not tried again before something changes; `defect` one that no retry will mend: the
    controller raised what it should not, or the server calls what it sent invalid. `causes` are why it ran, as far as
    anything but the failure caused that; `retry_seconds` is when it is tried again, None if it has been given up. A
    `stubborn` one is a defect only since it lasts: a local copy that is out of date may be behind it. `where` is the
    line of the controller's code that the error came through, if that is known. A `transient` one is of the
    network, or of a server that is busy.
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
    where: str = ""
    transient: bool = False


class Acted(msgspec.Struct, frozen=True):
    """A run that changed something, so many `seconds` ago: its key, why it ran, and the first of its `count` writes."""

    key: str
    seconds: float
    causes: tuple[str, ...]
    writes: tuple[str, ...]
    count: int


class LoopState(msgspec.Struct, frozen=True):
    """The state of a control loop: numbers of keys, the keys themselves, and how the past ones went.

    `next` are the first of the `delayed`; `failing` some of the keys that failed and have not run well since, of
    `failing_keys` that are remembered, and `failing_more` if others were forgotten; `last_error` was so many
    `last_error_seconds` ago; `outcomes` counts finished reconciles by outcome (done, requeue, give_up, conflict, error)
    since this loop began; `failures_in_a_row` are the runs that failed since any last went well, but for those of keys
    that were given up. `acted` are the last runs that changed something, the newest first. `spinning` are keys whose
    runs ask again and again to be requeued at once. `where` is the file and line of the function that works on a key.
    """

    name: str
    workers: int
    ready: int
    delayed: int
    running: tuple[Running, ...]
    next: tuple[Due, ...]
    failing: tuple[Failing, ...]
    failing_keys: int
    last_error: str
    last_error_seconds: float
    outcomes: Mapping[str, int]
    failures_in_a_row: int = 0
    acted: tuple[Acted, ...] = ()
    failing_more: bool = False
    spinning: tuple[Spinning, ...] = ()
    where: str = ""


K = TypeVar("K", bound=Hashable)

# Causes that say no more than that the last run failed.
_AGAIN = ("error", "conflict")
# So many keys are remembered.
_MOST = 1000
# A refusal that may be of its time is none after so many in a row.
_STUBBORN = 10
_TIMELY = (errors.Unauthorized, errors.Forbidden, errors.NotFound, errors.AlreadyExists)
# What the server calls wrong with a request whatever else happens: repeating it is of no use.
_REFUSALS = (
    *(errors.BadRequest, errors.Invalid, errors.MethodNotAllowed, errors.NotAcceptable),
    *(errors.UnsupportedMediaType, errors.RequestEntityTooLarge),
)
_TRANSIENT = (ConnectionError, errors.ServiceUnavailable, errors.Timeout, errors.TooManyRequests)
_SLIPS = (ArithmeticError, AssertionError, AttributeError, ImportError, LookupError, NameError, NotImplementedError)
_WRONG = (*_REFUSALS, *_SLIPS, RecursionError, TypeError)


class _Failure(msgspec.Struct):
    error: str
    at: float
    failures: int
    given_up: bool
    defect: bool
    causes: tuple[str, ...]
    retry_at: float | None
    stubborn: bool
    where: str
    transient: bool

    def failing(self, key: str, now: float) -> Failing:
        """As plain data."""
        retry = None if self.retry_at is None else max(0.0, self.retry_at - now)
        return Failing(
            key,
            self.error,
            now - self.at,
            self.failures,
            self.given_up,
            self.defect,
            self.causes,
            retry,
            self.stubborn,
            self.where,
            self.transient,
        )


class Failures(Generic[K]):
    """The last failure of each key that has not run well since, oldest first; `in_a_row` counts the failures since any
    key last ran well.

    Of more keys than can be remembered, those are forgotten that are known again soonest: those that will be tried
    again, and among them those that a retry may mend; the longest ago first. Until then `is_incomplete` says so.
    """

    def __init__(self) -> None:
        self.in_a_row = 0
        # In the order in which they are forgotten: what a retry may mend, defects, what was given up.
        self._passing: dict[K, _Failure] = {}
        self._defects: dict[K, _Failure] = {}
        self._given_up: dict[K, _Failure] = {}
        # When all that was forgotten will have been tried again.
        self._complete_at = 0.0

    def __len__(self) -> int:
        return len(self._passing) + len(self._defects) + len(self._given_up)

    @property
    def retried(self) -> int:
        """Return how many of these keys have not been given up."""
        return len(self._passing) + len(self._defects)

    def is_incomplete(self, now: float) -> bool:
        """Return whether there may be keys that failed and were forgotten, and have not been tried again."""
        return now < self._complete_at

    def note(
        self,
        key: K,
        error: BaseException,
        now: float,
        causes: Sequence[str] = (),
        retry_in: float | None = None,
        where: str = "",
    ) -> None:
        """Note that the run of a key failed, which `causes` had caused; without `retry_in` seconds it is given up.

        `where` is the line to name if the traceback of the error has none of the author's.
        """
        before = self._pop(key)
        failures = before.failures + 1 if before else 1
        given_up = retry_in is None
        defect = not given_up and is_defect(error, failures)
        why = tuple(cause for cause in causes if cause not in _AGAIN) or (before.causes if before else ())
        retry_at = None if retry_in is None else now + retry_in
        stubborn = defect and not is_defect(error, 1)
        place = self._given_up if given_up else self._defects if defect else self._passing
        line = author_line(error) or where
        transient = isinstance(error, _TRANSIENT)
        place[key] = _Failure(
            describe(error), now, failures, given_up, defect, why, retry_at, stubborn, line, transient
        )
        self.in_a_row += not given_up
        if len(self) > _MOST:
            self._forget_one()

    def forget(self, key: K) -> None:
        """The key ran well."""
        self.in_a_row = 0
        self._pop(key)

    def state(self, now: float, most: int) -> tuple[Failing, ...]:
        """Return the failing keys: defects first, then what fails longest in a row."""
        every = (*self._defects.items(), *self._passing.items(), *self._given_up.items())
        order = sorted(every, key=lambda item: (not item[1].defect, -item[1].failures))
        return tuple(last.failing(str(key), now) for key, last in order[:most])

    def _pop(self, key: K) -> _Failure | None:
        for place in (self._passing, self._defects, self._given_up):
            if place and (found := place.pop(key, None)) is not None:
                return found
        return None

    def _forget_one(self) -> None:
        place = self._passing or self._defects or self._given_up
        gone = place.pop(next(iter(place)))
        self._complete_at = max(self._complete_at, inf if gone.retry_at is None else gone.retry_at)


def is_defect(error: BaseException, failures: int) -> bool:
    """Return whether no retry will mend an error, which came after so many `failures` in a row.

    | error | is a defect |
    |--|--|
    | trouble on the way, a conflict, a server that is busy or broken | never |
    | what the server calls wrong with the request itself; what a slip of the author raises | at once |
    | another refusal, another error of the author's | after ten in a row |
    """
    if isinstance(error, _WRONG):
        return True
    if isinstance(error, errors.ApiError):
        return failures >= _STUBBORN and isinstance(error, _TIMELY)
    return failures >= _STUBBORN and not isinstance(error, OSError)  # TimeoutError is one
