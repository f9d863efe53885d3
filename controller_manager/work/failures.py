"""Which keys of a control loop fail, how and for how long; pure."""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

from controller_manager.api import errors
from controller_manager.base.errors import describe
from controller_manager.work.state import Failing

K = TypeVar("K", bound=Hashable)

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


class Failures(Generic[K]):
    """The last failure of each key that has not run well since, oldest first."""

    def __init__(self) -> None:
        self._last: dict[K, _Failure] = {}

    def __len__(self) -> int:
        return len(self._last)

    def note(self, key: K, error: BaseException, now: float, *, given_up: bool = False) -> None:
        """The run of a key failed."""
        before = self._last.get(key)
        failures = before.failures + 1 if before else 1
        defect = not given_up and is_defect(error, failures)
        self._last[key] = _Failure(describe(error), now, failures, given_up, defect)
        if len(self._last) > _MOST:
            del self._last[next(iter(self._last))]

    def forget(self, key: K) -> None:
        """The key ran well."""
        if self._last:
            self._last.pop(key, None)

    def state(self, now: float, most: int) -> tuple[Failing, ...]:
        """What fails: defects first, then what fails longest in a row."""
        failing = [
            Failing(str(key), last.error, now - last.at, last.failures, last.given_up, last.defect)
            for key, last in self._last.items()
        ]
        return tuple(sorted(failing, key=lambda one: (not one.defect, -one.failures))[:most])


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
