"""The requests of a priority level: the seats they are estimated to take, and the queues they wait in."""

from collections import OrderedDict

import msgspec

# The assumed execution time in seconds before it is known.
EXPECTED = 0.003


class WorkEstimate(msgspec.Struct, frozen=True, gc=False):
    """The seats of a request while it executes, and those it holds for `latency` seconds afterwards for its watch
    events.
    """

    initial: int = 1
    final: int = 0
    latency: float = 0.0

    @property
    def seats(self) -> int:
        """The seats it has all the time: the greater of both."""
        return max(self.initial, self.final)


ONE_SEAT = WorkEstimate()


def work_of(estimate: WorkEstimate) -> float:
    """Return the seat-seconds that a request is expected to take."""
    return estimate.initial * EXPECTED + estimate.final * estimate.latency


class Queue:
    """A FIFO queue of waiting requests, and its executing requests."""

    __slots__ = ("executing", "finish_r", "index", "next_r", "waiting", "work")

    def __init__(self, index: int) -> None:
        self.index = index
        self.waiting: OrderedDict[SeatRequest, None] = OrderedDict()
        self.executing = 0  # requests
        self.work = 0.0  # seat-seconds that wait
        self.next_r = 0.0
        self.finish_r = 0.0  # of the request that has waited longest

    @property
    def head(self) -> "SeatRequest":
        """The request that has waited longest."""
        return next(iter(self.waiting))


class SeatRequest(msgspec.Struct, eq=False, kw_only=True):
    """A request that waits for or holds seats of a level; times are seconds of one clock.

    `waiting` and `executing` are its state; both are False when it has finished. `queued` means that it found no seats
    at once.
    """

    estimate: WorkEstimate = ONE_SEAT
    seats: int = 1
    work: float = EXPECTED
    arrived: float = 0.0
    started: float = 0.0
    arrived_r: float = 0.0
    queued: bool = False
    waiting: bool = False
    executing: bool = False
    queue: Queue | None = None

    @property
    def schema(self) -> str:
        """The name of its FlowSchema, if known."""
        return ""

    @property
    def is_mutating(self) -> bool:
        """Return whether the request may change objects."""
        return False
