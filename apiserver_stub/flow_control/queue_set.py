"""Fair queuing of the requests of a priority level (KEP-1040, Fair queuing for server requests); no clock, no I/O.

R(t), the virtual time, is the work in seat-seconds done for each queue with requests: it advances by the seats in use,
divided by the number of such queues. Each queue stores the R at which its next request would be dispatched if queues
were served bit by bit; the request that would finish first is dispatched first.
"""

from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from operator import attrgetter

from apiserver_stub.flow_control.concurrency import Demand
from apiserver_stub.flow_control.seat_requests import EXPECTED, Queue, SeatRequest, WorkEstimate

_TURNS = 8
_STATES = 4096  # the maximum number of recorded states
State = tuple[int, int, int, int]
_ALONE: State = (1, 1, 0, 0)
_finish_r, _waiting_work = attrgetter("finish_r"), attrgetter("work")


class Rejection(Enum):
    """Why a request was rejected; the values are metric labels."""

    QUEUE_FULL = "queue-full"
    CONCURRENCY_LIMIT = "concurrency-limit"
    TIME_OUT = "time-out"
    CANCELLED = "cancelled"


class QueueSet:
    """The queues and seats of a priority level.

    It has -1 queues if requests never wait, and 0 if requests without free seats are rejected. `wake` is called with
    each waiting request that is dispatched. A turn is one dispatch from a queue until `renew_turns`, which
    `out_of_turns` must schedule: a server with one thread can only process a few requests at a time, and then chooses
    again.

    The history consists of the seconds spent in each state: seats in use, requests executing, requests and seats
    waiting.
    """

    __slots__ = (
        "_active", "_alone", "_at", "_demand", "_desired", "_highest", "_length_limit", "_measured_from",
        "_out_of_turns", "_robin", "_spent", "_squares", "_turns_each", "_wake", "backlog", "executing", "limit",
        "queues", "r", "seats", "seats_waiting", "turns", "waiting", "without_room",
    )  # fmt: skip

    def __init__(
        self,
        wake: Callable[[SeatRequest], None],
        out_of_turns: "Callable[[QueueSet], None]",
        now: float,
        turns: int = _TURNS,
    ) -> None:
        self.limit = 0
        self.queues: list[Queue] = []
        self.backlog: dict[Queue, None] = {}
        self.executing: dict[SeatRequest, None] = {}
        self.waiting = 0  # requests
        self.seats = 0  # in use, including those held after the response
        self.seats_waiting = 0
        self.r = 0.0
        self.turns = self._turns_each = turns
        self.without_room: dict[str, int] = {}  # attempts to execute the next request, by its schema
        self._wake = wake
        self._out_of_turns = out_of_turns
        self._desired = 0
        self._length_limit = 0
        self._active = 0
        self._robin = 0
        self._at = self._measured_from = now
        self._spent: dict[State, float] = {}
        self._alone = 0.0  # seconds with one seat in use and no waiting requests
        self._demand = self._squares = 0.0
        self._highest = 0

    @property
    def is_idle(self) -> bool:
        """Return whether no request is waiting or executing."""
        return not self.waiting and not self.executing

    @property
    def is_queuing(self) -> bool:
        """Return whether requests may wait."""
        return self._desired > 0

    def configure(self, queues: int, length_limit: int) -> None:
        """Set the number of queues and their length limit; excess queues are drained first."""
        self._desired, self._length_limit = queues, length_limit
        self.queues.extend(map(Queue, range(len(self.queues), queues)))
        self._shrink()

    def set_limit(self, limit: int, now: float) -> None:
        """Set the number of seats."""
        self.advance(now)
        self.limit = limit
        self._dispatch(now)

    def start(self, request: SeatRequest, hand: tuple[Queue, ...], now: float) -> Rejection | None:
        """Execute a request, or queue it in one of the queues of its hand. Return the reason if neither is possible."""
        if self.seats or self.waiting:
            self.advance(now)
        else:
            self._at = now
        request.arrived = now
        if self._desired > 0:
            if self.waiting or self.turns <= 0 or self.seats + request.seats > self.limit:
                return self._start_queuing(request, hand, now)
            self._robin += 1
            queue = hand[self._robin % len(hand)]
            if not queue.executing:
                self._activate(queue)
            self._take_turn(queue, request)
        elif not self._desired and not self._fits(request.seats):
            return Rejection.CONCURRENCY_LIMIT
        # A copy of `_execute` for the most frequent path.
        request.executing, request.started = True, now
        self.executing[request] = None
        self.seats += request.seats
        if self.seats > self._highest:
            self._highest = self.seats
        return None

    def leave(self, request: SeatRequest, now: float) -> bool:
        """Remove a waiting request from its queue; return whether it was waiting."""
        if not request.waiting:
            return False
        self.advance(now)
        queue = request.queue
        assert queue is not None
        self._remove(queue, request)
        if queue.waiting:
            self._bound(queue)
        elif not queue.executing:
            self._active -= 1
            self._shrink()
        self._dispatch(now)  # a request with fewer seats may be next
        return True

    def finish(self, request: SeatRequest, now: float) -> float:
        """Record the end of a request; return the seconds after which its seats must be freed.

        If the result is 0, they are already free.
        """
        if self.seats == 1 and not self.waiting:  # as `advance` does
            elapsed, self._at = now - self._at, now
            self._alone += elapsed
            self.r += elapsed
        else:
            self.advance(now)
        request.executing = False
        del self.executing[request]
        queue = request.queue
        if queue is not None:
            queue.executing -= 1
            if queue.waiting or queue.executing:
                queue.next_r -= request.estimate.initial * (EXPECTED - (now - request.started))
                if queue.waiting:
                    self._bound(queue)
            else:
                self._active -= 1
        latency = request.estimate.latency
        if latency <= 0:
            self.seats -= request.seats
        if self.waiting:  # a request with fewer seats may be next, even if no seat was freed
            self._dispatch(now)
        if latency <= 0 and len(self.queues) > self._desired >= 0:
            self._shrink()
        return latency

    def free(self, request: SeatRequest, now: float) -> None:
        """Free the seats that a finished request still holds."""
        self.advance(now)
        self.seats -= request.seats
        self._dispatch(now)
        self._shrink()

    def renew_turns(self, clock: Callable[[], float]) -> None:
        """Renew the turns, and dispatch waiting requests."""
        self.turns = self._turns_each
        if self.waiting:
            now = clock()
            self.advance(now)
            self._dispatch(now)

    def advance(self, now: float) -> None:
        """Add the time since the last call to the current state."""
        elapsed = now - self._at
        self._at = now
        seats = self.seats
        if seats == 1 and not self.waiting:
            self._alone += elapsed
            self.r += elapsed
        elif seats or self.waiting:
            state = seats, len(self.executing), self.waiting, self.seats_waiting
            spent = self._spent
            if state in spent:
                spent[state] += elapsed
            elif len(spent) < _STATES:
                spent[state] = elapsed
            if self._active:
                self.r += seats * elapsed / self._active

    def take_spent(self, now: float) -> Mapping[State, float]:
        """Return the seconds spent in each state since the last call, except the idle state."""
        self.advance(now)
        spent, self._spent = {**self._spent, _ALONE: self._alone}, {}
        self._alone = 0.0
        for (seats, _, _, awaited), seconds in spent.items():
            self._demand += (seats + awaited) * seconds
            self._squares += (seats + awaited) ** 2 * seconds
        return spent

    def measure(self, now: float) -> Demand:
        """Return the demand for seats since the last measurement."""
        self.take_spent(now)
        period = now - self._measured_from
        average = self._demand / period if period > 0 else 0.0
        variance = self._squares / period - average * average if period > 0 else 0.0
        found = Demand(period, average, max(variance, 0.0) ** 0.5, self._highest)
        self._measured_from, self._demand, self._squares = now, 0.0, 0.0
        self._highest = self.seats + self.seats_waiting
        return found

    def requests(self) -> Iterator[SeatRequest]:
        """Yield requests in queue order: waiting, then executing ones per queue; last those without a queue."""
        executing = sorted(self.executing, key=lambda request: -1 if request.queue is None else request.queue.index)
        for queue in self.queues:
            yield from queue.waiting
            yield from (request for request in executing if request.queue is queue)
        yield from (request for request in executing if request.queue is None)

    def _start_queuing(self, request: SeatRequest, hand: tuple[Queue, ...], now: float) -> Rejection | None:
        self._robin += 1
        queue = self._shortest(hand)
        if len(queue.waiting) >= self._length_limit:
            return Rejection.QUEUE_FULL
        self._enqueue(queue, request)
        self._dispatch(now)
        return None

    def _activate(self, queue: Queue) -> None:
        """Activate a queue that had no requests."""
        queue.next_r = self.r
        self._active += 1

    def _shortest(self, hand: tuple[Queue, ...]) -> Queue:
        """Return the queue with the least waiting work; ties are resolved by rotation."""
        first = self._robin % len(hand)
        return min(hand[first:] + hand[:first], key=_waiting_work)

    def _enqueue(self, queue: Queue, request: SeatRequest) -> None:
        if not queue.executing and not queue.waiting:
            self._activate(queue)
        request.queue, request.arrived_r = queue, self.r
        request.queued = request.waiting = True
        queue.waiting[request] = None
        queue.work += request.work
        self.backlog[queue] = None
        self.waiting += 1
        self.seats_waiting += request.seats
        self._highest = max(self._highest, self.seats + self.seats_waiting)
        self._bound(queue)

    def _remove(self, queue: Queue, request: SeatRequest) -> None:
        request.waiting = False
        del queue.waiting[request]
        queue.work = queue.work - request.work if queue.waiting else 0.0
        if not queue.waiting:
            del self.backlog[queue]
        self.waiting -= 1
        self.seats_waiting -= request.seats

    def _dispatch(self, now: float) -> None:
        """Dispatch waiting requests while there are seats and turns."""
        while self.waiting and self.turns > 0 and self.seats < self.limit:
            queue = self._next()
            request = queue.head
            if not self._fits(request.seats):
                self.without_room[request.schema] = self.without_room.get(request.schema, 0) + 1
                return  # so that narrower ones do not starve it
            self._remove(queue, request)
            self._narrow(request)
            self._take_turn(queue, request)
            self._execute(request, now)
            if queue.waiting:
                self._bound(queue)
                del self.backlog[queue]
                self.backlog[queue] = None  # after requests of equal rank
            self._wake(request)

    def _next(self) -> Queue:
        """Return the queue whose first request would finish first; among equals the least recently served one."""
        return min(self.backlog, key=_finish_r)

    def _fits(self, seats: int) -> bool:
        """Return whether there are enough seats; a request larger than the limit is executed alone."""
        if self._desired < 0:
            return True
        return not self.executing if seats > self.limit else self.seats + seats <= self.limit

    def _narrow(self, request: SeatRequest) -> None:
        """Reduce the final seats of a request to the limit, and extend its latency accordingly."""
        estimate = request.estimate
        if 0 < self.limit < estimate.final:
            latency = estimate.final * estimate.latency / self.limit
            request.estimate = WorkEstimate(estimate.initial, self.limit, latency)
            request.seats = request.estimate.seats

    def _take_turn(self, queue: Queue, request: SeatRequest) -> None:
        """Count a dispatched request in its queue, and use up a turn."""
        queue.executing += 1
        queue.next_r += request.work
        self.turns -= 1
        if not self.turns:
            self._out_of_turns(self)
        request.queue = queue

    def _execute(self, request: SeatRequest, now: float) -> None:
        request.executing, request.started = True, now
        self.executing[request] = None
        self.seats += request.seats
        if self.seats + self.seats_waiting > self._highest:
            self._highest = self.seats + self.seats_waiting

    def _bound(self, queue: Queue) -> None:
        """Prevent a waiting queue from saving up time: no request is dispatched, in virtual time, before it arrived."""
        head = queue.head
        if queue.next_r < head.arrived_r:
            queue.next_r = head.arrived_r
        queue.finish_r = queue.next_r + head.work

    def _shrink(self) -> None:
        """Drop excess queues without requests at the end."""
        while len(self.queues) > max(self._desired, 0) and _is_unused(self.queues[-1]):
            self.queues.pop()


def _is_unused(queue: Queue) -> bool:
    return not (queue.executing or queue.waiting)
