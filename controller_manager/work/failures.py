"""Which keys of a control loop fail, how and for how long; pure."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from controller_manager.api import errors
from controller_manager.base.errors import describe
from controller_manager.work.state import Failing

K = TypeVar("K", bound=Hashable)

# Causes that say no more than that the last run failed.
_AGAIN = ("error", "conflict")
# So many keys are remembered; of more, those that began to fail first are forgotten.
_MOST = 1000
# A refusal that may be of its time is none after so many in a row.
_STUBBORN = 10
_TIMELY = (errors.Unauthorized, errors.Forbidden, errors.NotFound, errors.AlreadyExists)
# What the server calls wrong with a request whatever else happens: repeating it is of no use.
_REFUSALS = (
    *(errors.BadRequest, errors.Invalid, errors.MethodNotAllowed, errors.NotAcceptable),
    *(errors.UnsupportedMediaType, errors.RequestEntityTooLarge),
)
_SLIPS = (ArithmeticError, AssertionError, AttributeError, ImportError, LookupError, NameError, NotImplementedError)
_WRONG = (*_REFUSALS, *_SLIPS, RecursionError, TypeError)


@dataclass(slots=True)
class _Failure:
    error: str
    at: float
    failures: int
    given_up: bool
    defect: bool
    causes: tuple[str, ...]
    retry_at: float | None
    stubborn: bool

    def told(self, key: str, now: float) -> Failing:
        """As plain data."""
        retry = None if self.retry_at is None else max(0.0, self.retry_at - now)
        seconds = now - self.at
        return Failing(
            key, self.error, seconds, self.failures, self.given_up, self.defect, self.causes, retry, self.stubborn
        )


class Failures(Generic[K]):
    """The last failure of each key that has not run well since, oldest first.

    `in_a_row` counts the failures since any key last ran well.
    """

    def __init__(self) -> None:
        self.in_a_row = 0
        self._last: dict[K, _Failure] = {}

    def __len__(self) -> int:
        return len(self._last)

    @property
    def retried(self) -> int:
        """How many of these keys have not been given up."""
        return sum(not last.given_up for last in self._last.values())

    def note(
        self, key: K, error: BaseException, now: float, causes: Sequence[str] = (), retry_in: float | None = None
    ) -> None:
        """The run of a key failed, which `causes` had caused; without `retry_in` seconds it is given up."""
        before = self._last.get(key)
        failures = before.failures + 1 if before else 1
        given_up = retry_in is None
        defect = not given_up and is_defect(error, failures)
        why = tuple(cause for cause in causes if cause not in _AGAIN) or (before.causes if before else ())
        retry_at = None if retry_in is None else now + retry_in
        stubborn = defect and not is_defect(error, 1)
        self._last[key] = _Failure(describe(error), now, failures, given_up, defect, why, retry_at, stubborn)
        self.in_a_row += not given_up
        if len(self._last) > _MOST:
            del self._last[next(iter(self._last))]

    def forget(self, key: K) -> None:
        """The key ran well."""
        self.in_a_row = 0
        if self._last:
            self._last.pop(key, None)

    def state(self, now: float, most: int) -> tuple[Failing, ...]:
        """What fails: defects first, then what fails longest in a row."""
        order = sorted(self._last.items(), key=lambda item: (not item[1].defect, -item[1].failures))
        return tuple(last.told(str(key), now) for key, last in order[:most])


def is_defect(error: BaseException, failures: int) -> bool:
    """Whether no retry will mend an error, which came after so many `failures` in a row.

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
