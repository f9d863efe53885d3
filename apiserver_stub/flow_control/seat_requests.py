"""The requests of a priority level: the seats they are estimated to take, and the queues they wait in."""

from collections import OrderedDict

import msgspec

# Seconds that a request is expected to be executed, until it is known.
EXPECTED = 0.003


class WorkEstimate(msgspec.Struct, frozen=True, gc=False):
    """The seats of a request while it is executed, and those it keeps for `latency` seconds afterwards, for what it has
    set off.
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
    """Requests that wait in one queue, first come first served, and what is executed of it."""

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
    """A request that waits for seats of a level or has them; times are of one clock, in seconds.

    `waiting` and `executing` say which; neither is when it is over. One that is `queued` did not find seats at once.
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
        """The name of its FlowSchema, where that is known."""
        return ""

    @property
    def is_mutating(self) -> bool:
        """Tell whether it may change something."""
        return False
