"""The contention profile: the stacks that kept every other task waiting for the event loop, as the watchdog saw."""

from controller_manager.base.watchdog import RECORDED, RECORDED_EVERY, Hold
from controller_manager.serving.pprof.profile import COUNT, NANOSECONDS, Profile, Tally, Unit, labels_of
from controller_manager.serving.pprof.tasks import Describe

_UNITS = (Unit("contentions", COUNT), Unit("delay", NANOSECONDS))
_MOST_STACKS = 5_000
_ON = (
    "Recorded since the start: what kept all tasks waiting, as a rule by computing. From "
    f"{1000 * (RECORDED_EVERY + RECORDED):.0f} ms on it is always seen, below {1000 * RECORDED:.0f} ms never. What a "
    "task waits for by itself is not in here."
)
_OFF = "Nothing is recorded: start with --contention-profiling."
_NO_MUTEXES = "Empty, as it must be: tasks of one thread share what they have without locks. See block."


class Contention:
    """The recorded delays, if recording is `on`; `describe` makes labels of a task's name."""

    def __init__(self, describe: Describe, *, on: bool) -> None:
        self._describe = describe
        self._comments = (_ON if on else _OFF,)
        self._delays = Tally(len(_UNITS), _MOST_STACKS)

    def record(self, hold: Hold) -> None:
        """Add what one delay has cost; it counts once, for the stack that was seen first."""
        for place, (look, nanoseconds) in enumerate(hold.shares()):
            labels = labels_of(self._describe(look.task)) if look.task else ()
            self._delays.add(look.stack, labels, int(place == 0), nanoseconds)

    def profile(self) -> Profile:
        """Return what was recorded so far."""
        return Profile(_UNITS, tuple(self._delays.samples()), self._comments)

    def __len__(self) -> int:
        """Return how often the loop was held."""
        return self._delays.total(0)


def mutex_profile() -> Profile:
    """Empty, with the reason."""
    return Profile(_UNITS, (), (_NO_MUTEXES,))
