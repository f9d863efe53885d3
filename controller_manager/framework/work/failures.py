"""The failing keys of a control loop, with error, time and number of failures; pure."""

from collections.abc import Hashable, Mapping, Sequence
from math import inf
from typing import Generic, TypeVar

import msgspec

from controller_manager.common.api import errors
from controller_manager.common.base.errors import author_line, describe
from controller_manager.framework.work.spinning import Spinning

# The state of a control loop, as plain data for web pages and APIs.


class Running(msgspec.Struct, frozen=True):
    """A key being reconciled: for how many seconds, and the causes."""

    key: str
    seconds: float
    causes: tuple[str, ...]


class Due(msgspec.Struct, frozen=True):
    """A key that is due in `seconds`, the causes, and the number of failures in a row."""

    key: str
    seconds: float
    failures: int
    causes: tuple[str, ...]


class Failing(msgspec.Struct, frozen=True):
    """A key whose last run failed, `seconds` ago, with `error` (type and message), after `failures` in a row.

    `given_up`: not retried until something changes. `defect`: retries cannot succeed, because the controller raised an
    unexpected exception or the server rejected the request as invalid. `stubborn`: counts as a defect only because it
    failed many times in a row; an outdated cache may be the reason. `transient`: a network error or a busy server.
    `causes` are the causes of the run, without retries. `retry_seconds` is the time until the next retry, None if it
    was given up. `where` is the line of the controller's code that the error passed through, if known.
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
    """A run that wrote something, `seconds` ago: its key, its causes, and the first of its `count` writes."""

    key: str
    seconds: float
    causes: tuple[str, ...]
    writes: tuple[str, ...]
    count: int


class LoopState(msgspec.Struct, frozen=True):
    """The state of a control loop: counts of keys, the keys themselves, and the results of past runs.

    `next` are the first of the `delayed` keys. `failing` are some of the `failing_keys` keys whose last run failed;
    `failing_more` is set if more may have failed. `last_error` is `last_error_seconds` old. `outcomes` counts finished
    reconciles by outcome (done, requeue, give_up, conflict, error) since the loop started. `failures_in_a_row` counts
    failed runs since the last success, without keys that were given up. `acted` are the last runs that wrote something,
    newest first. `spinning` are keys whose runs repeatedly ask to be requeued at once. `where` is the file and line of
    the reconcile function.
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

# Causes that only say that the last run failed.
_AGAIN = ("error", "conflict")
# Maximum number of failing keys with details.
_MOST = 1000
# An error that may be temporary counts as a defect after this number of failures in a row.
_STUBBORN = 10
_TIMELY = (errors.Unauthorized, errors.Forbidden, errors.NotFound, errors.AlreadyExists)
# Errors about the request itself, which a retry cannot solve.
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
        """Return this failure as plain data."""
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
    """The last failure of each failing key, oldest first. `in_a_row` counts the failures since the last success.

    Above the maximum number of keys, entries are dropped in this order, oldest first: failures that a retry may solve,
    defects, given-up keys. `is_incomplete` is true until the dropped keys have been retried.
    """

    def __init__(self) -> None:
        self.in_a_row = 0
        # In the order in which entries are dropped: failures that a retry may solve, defects, given-up keys.
        self._passing: dict[K, _Failure] = {}
        self._defects: dict[K, _Failure] = {}
        self._given_up: dict[K, _Failure] = {}
        # When all dropped keys will have been retried.
        self._complete_at = 0.0

    def __len__(self) -> int:
        return len(self._passing) + len(self._defects) + len(self._given_up)

    @property
    def retried(self) -> int:
        """The number of failing keys that are retried."""
        return len(self._passing) + len(self._defects)

    def is_incomplete(self, now: float) -> bool:
        """Return whether dropped keys may still be failing."""
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
        """Record that a run of a key failed. `retry_in` is the seconds until the retry; None means given up.

        `where` is the line to report if the traceback has no line of the author's code.
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
        """Record that a run of a key succeeded."""
        self.in_a_row = 0
        self._pop(key)

    def state(self, now: float, most: int) -> tuple[Failing, ...]:
        """Return at most `most` failing keys: defects first, then those with the most failures in a row."""
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
    """Return whether an error after `failures` failures in a row is a defect, which retries cannot solve.

    | error | is a defect |
    |--|--|
    | network error, conflict, busy or failing server | never |
    | invalid request; exception that is typical of a programming error | at once |
    | other rejection by the server, other exception of the controller | after ten in a row |
    """
    if isinstance(error, _WRONG):
        return True
    if isinstance(error, errors.ApiError):
        return failures >= _STUBBORN and isinstance(error, _TIMELY)
    return failures >= _STUBBORN and not isinstance(error, OSError)  # TimeoutError is one
