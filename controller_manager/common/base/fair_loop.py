"""Cooperative scheduling on an event loop: long work runs in short slices between requests.

Long work calls `give_way` often. Requests have priority: a slice begins when the loop was idle for a moment, or when
long work has not had its share of the time. Event loops have no priorities, so a callback checks once per loop
iteration what else ran in that iteration. The callback is scheduled only while long work is waiting.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from contextvars import ContextVar
from heapq import heappop, heappush
from typing import Generic, TypeVar
from weakref import WeakKeyDictionary

from controller_manager.common.base.clock import precise_clock

T = TypeVar("T")

SLICE = 0.0005
"""Seconds after which a slice is over; the current piece of work is finished first."""
# Seconds: the length of a slice until no request has arrived for some time. Without short slices, the 99th percentile
# of GETs beside 1,000 watchers is two thirds higher.
_SHORT_SLICE, _CALM = 0.0001, 0.005
_SHARE = 1 / 8  # share of the time that long work gets under a constant load of requests
# Seconds without a request after which a slice may begin: clients need some time to send again. Without this pause, a
# GET beside the list of 10,000 objects takes 1.1 ms; with it 0.17 ms.
_SETTLED = 0.0002
# An iteration is busy if it takes more than three times the shortest one plus `_QUIET` seconds; the shortest one grows
# by a factor per iteration, since the speed changes. Without this, half as many GETs pass beside 1,000 watchers.
_QUIET, _FORGET = 0.00002, 1.01
_MOST_OWED = 0.005  # limit in seconds of the debt of long work; a machine that pauses makes a slice long
_RATIO = _SHARE / (1 - _SHARE)
_NEVER = float("-inf")
_REMEMBERED = 1024  # number of callers without work whose usage is remembered


class Pace:
    """Decides when the next slice is due. It is pure: callers pass the time in seconds of one clock."""

    __slots__ = ("_busy_at", "_credit", "_is_owed", "_looked_at", "_shortest")

    def __init__(self, now: float) -> None:
        self._looked_at = self._busy_at = now
        self._shortest = 0.001  # seconds of the shortest loop iteration
        self._credit = 0.0  # seconds that long work may still use; negative if it used too much
        self._is_owed = False

    def decide(self, now: float, *, arrived: bool) -> bool:
        """Return whether a slice is due; `arrived` says whether requests have come since the last call."""
        took, self._looked_at = now - self._looked_at, now
        self._shortest = min(took, self._shortest * _FORGET)
        if arrived or took > 3 * self._shortest + _QUIET:
            self._busy_at = now
        self._credit = min(self._credit + took * _RATIO, SLICE)
        self._is_owed = now - self._busy_at < _SETTLED
        return not self._is_owed or self._credit >= 0

    @property
    def slice(self) -> float:
        """Return the length of the next slice in seconds."""
        return _SHORT_SLICE if self._looked_at - self._busy_at < _CALM else SLICE

    def begin(self, now: float) -> None:
        """Start measuring again after a time without waiters."""
        self._looked_at = self._busy_at = now

    def spent(self, began: float, now: float) -> None:
        """Record the end of the last slice. A slice that delayed requests is subtracted from the credit."""
        self._looked_at = now
        if self._is_owed:
            self._credit = max(self._credit - (now - began), -_MOST_OWED)


class FairQueue(Generic[T]):
    """A fair queue of waiters by caller: the next waiter belongs to the caller with the least usage. It is pure."""

    __slots__ = ("_floor", "_heap", "_number", "_spent", "_taken", "_waiting")

    def __init__(self) -> None:
        self._waiting: dict[str, deque[T]] = {}
        self._spent: dict[str, float] = {}
        self._heap: list[tuple[float, int, str]] = []  # callers with waiters, without the caller that was taken
        self._taken: str | None = None
        self._floor = 0.0  # usage of the last caller taken; a caller that returns starts with at least this
        self._number = 0

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, caller: str, waiter: T) -> None:
        """Add a waiter of a caller."""
        waiting = self._waiting.get(caller)
        if waiting is not None:
            waiting.append(waiter)
            return
        self._waiting[caller] = deque([waiter])
        if caller != self._taken:
            self._push(caller)

    def take(self) -> T:
        """Remove and return the next waiter; the queue must not be empty. Call `charge` before the next `take`."""
        self._floor, _, caller = heappop(self._heap)
        waiting = self._waiting[caller]
        waiter = waiting.popleft()
        if not waiting:
            del self._waiting[caller]
        self._taken = caller
        return waiter

    def charge(self, seconds: float) -> None:
        """Add the seconds used by the waiter taken last to the usage of its caller."""
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
    """Grants the slices of one loop, one at a time, to the tasks that wait for them.

    Code that receives a request increments `arrived`.
    """

    __slots__ = ("_began", "_clock", "_is_looking", "_loop", "_pace", "_queue", "_seen", "arrived", "holder", "until")

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Callable[[], float] | None = None) -> None:
        self._loop = loop
        self._clock = clock or precise_clock()
        self._queue: FairQueue[asyncio.Future[None]] = FairQueue()
        self._pace = Pace(self._clock())
        self._is_looking = False
        self._began: float | None = None  # start of the current slice
        self._seen = 0
        self.arrived = 0
        self.holder: Share | None = None
        """The share that has the current slice."""
        self.until = 0.0
        """When the current slice is over."""

    def is_over(self) -> bool:
        """Return whether the current slice is used up."""
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
        """Check what ran in the last loop iteration, and grant a slice in the next one if it is due."""
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
                self._loop.call_soon(self._begin)  # runs directly before the waiter; other callbacks may run before it
                waiter.set_result(None)
                return
            self._queue.charge(0.0)

    def _begin(self) -> None:
        self._began = self._clock()


class Share:
    """The slices of one connection, or of another task with long work; they are charged to its `caller`."""

    __slots__ = ("_slices", "caller")

    def __init__(self, slices: Slices) -> None:
        self._slices = slices
        self.caller = ""

    def enter(self) -> None:
        """Use this share for the running task from now on."""
        _CURRENT.set(self)

    def beside(self) -> "Share":
        """Return a share of the same slices without a caller."""
        return Share(self._slices)

    async def give_way(self) -> None:
        """See `give_way`."""
        slices = self._slices
        if slices.holder is not self or slices.is_over():
            await slices.wait(self)


_CURRENT: ContextVar[Share | None] = ContextVar("share of the slices", default=None)


_BEGAN: WeakKeyDictionary[asyncio.AbstractEventLoop, float] = WeakKeyDictionary()
"""By loop: when the slice of its tasks without a share began."""


async def give_way() -> None:
    """Let requests and other long work run first. Long work calls this before each piece of work, which takes a few
    hundred microseconds at most. Returns at once while the current slice lasts.

    Tasks without a share have slices together, and give one loop iteration to other tasks in between. In virtual time
    these slices are not over before the time advances, so that results do not depend on the speed of the machine.
    """
    share = _CURRENT.get()
    if share is not None:
        await share.give_way()
        return
    loop, clock = asyncio.get_running_loop(), precise_clock()
    if not 0 <= clock() - _BEGAN.get(loop, _NEVER) < SLICE:
        await asyncio.sleep(0)
        _BEGAN[loop] = clock()


def forget_slice() -> None:
    """End the slice of the tasks without a share of the running loop, so that what follows does not depend on it."""
    _BEGAN.pop(asyncio.get_running_loop(), None)


def share_beside() -> Share | None:
    """Return another share of the slices of the running task; None if the task has no share."""
    share = _CURRENT.get()
    return None if share is None else share.beside()


def charge_to(caller: str) -> None:
    """Charge the slices of this task to a caller from now on."""
    share = _CURRENT.get()
    if share is not None:
        share.caller = caller
