"""Long work on an event loop gives way to short work: it goes on in slices, in the time that is left, and fairly.

Whoever works for long calls `give_way` every so often. Requests come first: a slice begins when the loop has had
nothing else to do for a moment, or when other work has had its part of the time. Event loops know no priorities, so a
callback looks, once in a round of the loop, at what else went on in that round; none is there while nobody has long
work.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from contextvars import ContextVar
from heapq import heappop, heappush
from typing import Generic, TypeVar

from controller_manager.common.base.clock import precise_clock

T = TypeVar("T")

SLICE = 0.0005
"""Seconds after which a slice is over; it ends with the piece of work that is under way then."""
_TURN = 0.005  # seconds
_SHORT_SLICE = 0.0001  # seconds, while there is short work
_SHARE = 1 / 8  # of the time, that long work has although short work never ends
_QUIET = 0.00002  # seconds beyond three times the shortest round of the loop: nothing else happened in it
_FORGET = 1.01  # by which the shortest round is taken to be longer with each that follows: machines change their speed
_CALM = 0.005  # seconds without anything else to do, after which slices are longer
_SETTLED = 0.0002  # seconds without anything else to do, after which there is time: clients need some to ask again
_MOST_OWED = 0.005  # seconds that long work has had in advance: machines that stop for a while make slices long
_RATIO = _SHARE / (1 - _SHARE)
_REMEMBERED = 1024  # callers whose slices are remembered while they have no work


class Pace:
    """Decides when the next slice is due, from looks at the loop; pure. Times are seconds of one clock."""

    __slots__ = ("_busy_at", "_credit", "_is_owed", "_looked_at", "_shortest")

    def __init__(self, now: float) -> None:
        self._looked_at = self._busy_at = now
        self._shortest = 0.001  # round of the loop, in seconds
        self._credit = 0.0  # seconds that long work has yet to get for what short work took, or has had in advance
        self._is_owed = False

    def decide(self, now: float, *, arrived: bool) -> bool:
        """Return whether a slice is due, at a look at the loop; `arrived` says that requests came since the last."""
        took, self._looked_at = now - self._looked_at, now
        self._shortest = min(took, self._shortest * _FORGET)
        if arrived or took > 3 * self._shortest + _QUIET:
            self._busy_at = now
        self._credit = min(self._credit + took * _RATIO, SLICE)
        self._is_owed = now - self._busy_at < _SETTLED
        return not self._is_owed or self._credit >= 0

    @property
    def slice(self) -> float:
        """Return how many seconds the slice that is due should last."""
        return _SHORT_SLICE if self._looked_at - self._busy_at < _CALM else SLICE

    def begin(self, now: float) -> None:
        """Look for the first time since nobody waited."""
        self._looked_at = self._busy_at = now

    def spent(self, began: float, now: float) -> None:
        """Take in that a slice, the last that was due, is over; one that short work waited for is reckoned up."""
        self._looked_at = now
        if self._is_owed:
            self._credit = max(self._credit - (now - began), -_MOST_OWED)


class FairQueue(Generic[T]):
    """Those who wait, by caller: the next is of the caller who has had least, whose waiters come in turn; pure."""

    __slots__ = ("_floor", "_heap", "_number", "_spent", "_taken", "_waiting")

    def __init__(self) -> None:
        self._waiting: dict[str, deque[T]] = {}
        self._spent: dict[str, float] = {}
        self._heap: list[tuple[float, int, str]] = []  # callers of whom somebody waits, but for the one that was taken
        self._taken: str | None = None
        self._floor = 0.0  # what the caller had spent who came last: nobody who comes back has had less
        self._number = 0

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, caller: str, waiter: T) -> None:
        """Have somebody wait."""
        waiting = self._waiting.get(caller)
        if waiting is not None:
            waiting.append(waiter)
            return
        self._waiting[caller] = deque([waiter])
        if caller != self._taken:
            self._push(caller)

    def take(self) -> T:
        """Return who is next, who waits no longer; there must be somebody. `charge` comes before the next."""
        self._floor, _, caller = heappop(self._heap)
        waiting = self._waiting[caller]
        waiter = waiting.popleft()
        if not waiting:
            del self._waiting[caller]
        self._taken = caller
        return waiter

    def charge(self, seconds: float) -> None:
        """Take in how long the one took who was taken."""
        caller, self._taken = self._taken, None
        if caller is None:
            return
        if len(self._spent) > _REMEMBERED:
            self._spent = {one: spent for one, spent in self._spent.items() if spent > self._floor}
        self._spent[caller] = max(self._spent.get(caller, 0.0), self._floor) + seconds
        if caller in self._waiting:
            self._push(caller)

    def _push(self, caller: str) -> None:
        self._number += 1
        heappush(self._heap, (max(self._spent.get(caller, 0.0), self._floor), self._number, caller))


class Slices:
    """The slices of one loop, handed out one at a time to the tasks that wait for them.

    Who takes in short work counts it in `arrived`.
    """

    __slots__ = ("_began", "_clock", "_is_looking", "_loop", "_pace", "_queue", "_seen", "arrived", "holder", "until")

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Callable[[], float] | None = None) -> None:
        self._loop = loop
        self._clock = clock or precise_clock()
        self._queue: FairQueue[asyncio.Future[None]] = FairQueue()
        self._pace = Pace(self._clock())
        self._is_looking = False
        self._began: float | None = None  # the slice that is under way
        self._seen = 0
        self.arrived = 0
        self.holder: Share | None = None
        """Whose slice it is."""
        self.until = 0.0
        """When it is over."""

    def is_over(self) -> bool:
        """Return whether the slice that is under way has lasted long enough."""
        return self._clock() >= self.until

    async def wait(self, share: "Share") -> None:
        """Return when the next slice of a share begins."""
        waiter: asyncio.Future[None] = self._loop.create_future()
        self._queue.add(share.caller, waiter)
        if not self._is_looking:
            self._is_looking = True
            self._seen = self.arrived
            self._pace.begin(self._clock())
            self._loop.call_soon(self._look)
        await waiter
        self.holder, self.until = share, self._clock() + self._pace.slice

    def _look(self) -> None:
        """See what went on in the last round of the loop, and begin a slice in the next if one is due."""
        now = self._clock()
        if self._began is not None:
            self._pace.spent(self._began, now)
            self._queue.charge(now - self._began)
            self._began = self.holder = None
        elif self._pace.decide(now, arrived=self.arrived != self._seen):
            self._grant()
        self._seen = self.arrived
        if self._began is None and not self._queue:
            self._is_looking = False
        else:
            self._loop.call_soon(self._look)

    def _grant(self) -> None:
        while self._queue:
            waiter = self._queue.take()
            if not waiter.done():
                self._began = self._clock()
                self._loop.call_soon(self._begin)  # directly before the waiter: between now and then others may run
                waiter.set_result(None)
                return
            self._queue.charge(0.0)

    def _begin(self) -> None:
        self._began = self._clock()


class Share:
    """The part of the slices that one connection, or another task with long work, has in the name of its `caller`."""

    __slots__ = ("_slices", "caller")

    def __init__(self, slices: Slices) -> None:
        self._slices = slices
        self.caller = ""

    def enter(self) -> None:
        """Have what the running task does from now on be part of this share."""
        _CURRENT.set(self)

    def beside(self) -> "Share":
        """Return a share of the same slices, in nobody's name."""
        return Share(self._slices)

    async def give_way(self) -> None:
        """See `give_way`."""
        slices = self._slices
        if slices.holder is not self or slices.is_over():
            await slices.wait(self)


_CURRENT: ContextVar[Share | None] = ContextVar("share of the slices", default=None)


async def give_way() -> None:
    """Let short work go first, and other long work that is due: called by long work before each of its pieces, which
    take a few hundred microseconds at most. Returns at once while a slice lasts. Where nobody hands out slices,
    everything else gets one turn.
    """
    share = _CURRENT.get()
    if share is None:
        await asyncio.sleep(0)
    else:
        await share.give_way()


def share_beside() -> Share | None:
    """Return another share of the slices that the running task has one of; None where nobody hands out slices."""
    share = _CURRENT.get()
    return None if share is None else share.beside()


def charge_to(caller: str) -> None:
    """Have the slices of this task, until it says otherwise, count for a caller."""
    share = _CURRENT.get()
    if share is not None:
        share.caller = caller


class Turn:
    """The time that a task takes for a loop of many small pieces before other work runs.

    In virtual time a turn never ends, so that what happens does not depend on the speed of the machine.
    """

    __slots__ = ("_clock", "_until")

    def __init__(self) -> None:
        self._clock = precise_clock()
        self._until = self._clock() + _TURN

    async def give_way(self) -> None:
        """Let other work run if the turn is over: called between pieces that take a few milliseconds at most."""
        if self._clock() >= self._until:
            await give_way()
            self._until = self._clock() + _TURN
