"""Fair queuing: which requests wait or run, and in which order."""

from collections.abc import Sequence

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from apiserver_stub.flow_control.queue_set import QueueSet, Rejection
from apiserver_stub.flow_control.seat_requests import Queue, SeatRequest, WorkEstimate, work_of


class Level:
    """A queue set with a clock that records the woken requests; its turns are unlimited by default."""

    def __init__(self, limit: int, queues: int = 8, length: int = 50, turns: int = 1 << 30) -> None:
        self.now = 0.0
        self.woken: list[SeatRequest] = []
        self.renewals = 0
        self.set = QueueSet(self.woken.append, self._out_of_turns, 0.0, turns)
        self.set.configure(queues, length)
        self.set.set_limit(limit, 0.0)

    def _out_of_turns(self, _: QueueSet) -> None:
        self.renewals += 1

    def start(self, *hand: int, estimate: WorkEstimate | None = None) -> tuple[SeatRequest, Rejection | None]:
        found = estimate or WorkEstimate()
        request = SeatRequest(estimate=found, seats=found.seats, work=work_of(found))
        return request, self.set.start(request, tuple(self.set.queues[card] for card in hand), self.now)

    def finish(self, request: SeatRequest) -> float:
        return self.set.finish(request, self.now)

    def state(self) -> tuple[int, int, int]:
        return len(self.set.executing), self.set.waiting, self.set.seats


def test_requests_without_free_seats_wait_in_order() -> None:
    level = Level(limit=2)
    (a, _), (b, _), (c, _), (d, _) = (level.start(0) for _ in range(4))
    assert [each.executing for each in (a, b, c, d)] == [True, True, False, False]
    level.finish(b)
    assert level.woken == [c]
    level.finish(c)
    assert (level.woken, level.state()) == ([c, d], (2, 0, 2))


def test_full_queue_rejects_requests() -> None:
    level = Level(limit=1, queues=2, length=2)
    assert [level.start(0)[1] for _ in range(4)] == [None, None, None, Rejection.QUEUE_FULL]
    assert level.start(1)[1] is None
    assert level.state() == (1, 3, 1)


def test_without_queues_requests_without_seats_are_rejected() -> None:
    level = Level(limit=2, queues=0)
    assert [level.start()[1] for _ in range(3)] == [None, None, Rejection.CONCURRENCY_LIMIT]


def test_without_seats_requests_are_executed_one_at_a_time() -> None:
    level = Level(limit=0, queues=0)
    (first, nothing), (_, rejection) = level.start(), level.start()
    assert (nothing, rejection) == (None, Rejection.CONCURRENCY_LIMIT)
    level.finish(first)
    assert level.start()[1] is None


def test_exempt_requests_never_wait() -> None:
    level = Level(limit=0, queues=-1)
    assert {level.start()[1] for _ in range(100)} == {None}
    assert level.state() == (100, 0, 100)


def test_shortest_queue_of_hand_is_chosen() -> None:
    level = Level(limit=1)
    level.start(0)
    for _ in range(9):
        level.start(1, 2, 3)
    assert [len(queue.waiting) for queue in level.set.queues[:4]] == [0, 3, 3, 3]
    level.start(0, 1)
    assert len(level.set.queues[0].waiting) == 1


def test_wide_request_waits_for_seats_without_starving() -> None:
    level = Level(limit=3)
    narrow = [level.start(0)[0] for _ in range(3)]
    wide, _ = level.start(1, estimate=WorkEstimate(3))
    for _ in range(3):
        level.now += 1
        level.finish(narrow.pop(0))
        narrow.extend(request for request in level.woken if request is not wide and request not in narrow)
        level.start(2)
    assert wide.executing or level.set.seats + wide.seats > 3
    while not wide.executing:
        level.finish(next(iter(level.set.executing)))
    assert level.set.without_room[""] > 0


def test_request_wider_than_level_runs_alone() -> None:
    level = Level(limit=2)
    first, _ = level.start(0)
    wide, _ = level.start(1, estimate=WorkEstimate(5))
    assert wide.waiting
    level.finish(first)
    assert wide.executing
    other, _ = level.start(2)
    assert other.waiting


def test_write_keeps_extra_seats_after_response() -> None:
    level = Level(limit=4)
    write, _ = level.start(0, estimate=WorkEstimate(1, 4, 0.005))
    waiting, _ = level.start(1)
    assert level.finish(write) == 0.005
    assert (level.state(), waiting.executing) == ((0, 1, 4), False)
    level.now += 0.005
    level.set.free(write, level.now)
    assert (level.state(), waiting.executing) == ((1, 0, 1), True)


def test_extra_seats_are_limited_and_held_longer_instead() -> None:
    level = Level(limit=1)
    level.start(0)
    write, _ = level.start(1, estimate=WorkEstimate(1, 10, 0.005))
    level.set.set_limit(4, 0.0)
    level.set.executing.clear()
    level.set.seats = 0
    level.set.renew_turns(lambda: 0.0)
    assert write.executing
    assert (write.seats, write.estimate) == (4, WorkEstimate(1, 4, 0.0125))


def test_canceled_request_frees_queue_slot() -> None:
    level = Level(limit=1, length=1)
    level.start(0)
    waiting, _ = level.start(0)
    assert level.start(0)[1] is Rejection.QUEUE_FULL
    assert level.set.leave(waiting, 1.0)
    assert not level.set.leave(waiting, 1.0)
    assert level.state() == (1, 0, 1)
    assert level.start(0)[1] is None


def test_raised_limit_takes_effect_immediately() -> None:
    level = Level(limit=1)
    for _ in range(4):
        level.start(0)
    level.set.set_limit(3, 0.0)
    assert level.state() == (3, 1, 3)
    level.set.set_limit(1, 0.0)
    assert level.state() == (3, 1, 3), "no executing request is ended"


def test_excess_queues_drain_before_removal() -> None:
    level = Level(limit=1, queues=4)
    first, _ = level.start(0)
    last, _ = level.start(3)
    level.set.configure(2, 50)
    assert len(level.set.queues) == 4
    level.finish(first)
    level.finish(last)
    assert len(level.set.queues) == 2
    assert level.set.is_idle


def test_turns_limit_requests_started_at_once() -> None:
    level = Level(limit=100, turns=2)
    requests = [level.start(0)[0] for _ in range(5)]
    assert [each.executing for each in requests] == [True, True, False, False, False]
    assert level.renewals == 1
    level.finish(requests[0])
    assert not requests[2].executing, "seats are free, but no request may start in this turn"
    level.set.renew_turns(lambda: 1.0)
    assert [each.executing for each in requests[2:]] == [True, True, False]
    level.set.renew_turns(lambda: 2.0)
    assert level.woken == requests[2:]


@pytest.mark.parametrize("seconds", [(0.1, 0.1), (0.01, 0.5), (1.0, 0.1)])
@pytest.mark.parametrize("widths", [(1, 1), (1, 3)])
def test_two_busy_flows_get_equal_seat_seconds(seconds: Sequence[float], widths: Sequence[int]) -> None:
    level, work, ends = Level(limit=6), [0.0, 0.0], list[tuple[float, int, SeatRequest]]()
    requests: dict[SeatRequest, int] = {}

    def fill() -> None:
        for flow in (0, 1):
            while len(level.set.queues[flow].waiting) < 20:
                request, _ = level.start(flow, estimate=WorkEstimate(widths[flow]))
                requests[request] = flow

    fill()
    known: set[SeatRequest] = set()
    while level.now < 60:
        for request in level.set.executing.keys() - known:
            known.add(request)
            ends.append((level.now + seconds[requests[request]], id(request), request))
        ends.sort()
        level.now, _, request = ends.pop(0)
        flow = requests[request]
        work[flow] += widths[flow] * seconds[flow]
        level.finish(request)
        fill()
    assert work[0] == pytest.approx(work[1], rel=0.1)
    assert sum(work) > 60 * 6 * 0.7, "seats are used"


def test_new_flow_is_served_fairly_beside_a_flood() -> None:
    level = Level(limit=1)
    running, _ = level.start(0)
    for _ in range(40):
        level.start(0)
    for _ in range(10):
        level.now += 0.1
        level.finish(running)
        running = level.woken[-1]
    late, _ = level.start(1)
    level.now += 0.1
    level.finish(running)
    assert late.executing, "it has had nothing yet"
    for _ in range(5):
        level.start(1)
    order = []
    running = late
    for _ in range(10):
        level.now += 0.1
        level.finish(running)
        running = level.woken[-1]
        assert running.queue is not None
        order.append(running.queue.index)
    assert 4 <= order.count(0) <= 6, "from then on they take turns"


def test_narrow_request_may_start_before_wide_one() -> None:
    level = Level(limit=4)
    keeps, _ = level.start(0, estimate=WorkEstimate(1, 3, 0.01))
    other, _ = level.start(1)
    level.now = 1.0
    level.start(0, estimate=WorkEstimate(2))
    narrow, _ = level.start(1)
    level.finish(other)
    assert level.woken == [], "the wide one is next"
    assert level.finish(keeps) > 0
    assert (level.woken, level.set.seats) == ([narrow], 4)


def test_demand_is_averaged_over_time() -> None:
    level = Level(limit=2)
    requests = [level.start(0)[0] for _ in range(4)]
    level.now = 5.0
    for request in requests[:2]:
        level.finish(request)
    level.now = 10.0
    demand = level.set.measure(10.0)
    assert (demand.seconds, demand.average, demand.deviation, demand.highest) == (10.0, 3.0, 1.0, 4)
    assert level.set.measure(20.0).highest == 2


WIDTHS = st.sampled_from([WorkEstimate(1), WorkEstimate(2), WorkEstimate(1, 3, 0.01), WorkEstimate(7)])


class QueueSetMachine(RuleBasedStateMachine):
    """No request is lost, no seat is used twice, and no usable seat is idle."""

    def __init__(self) -> None:
        super().__init__()
        self.level = Level(limit=4, queues=4, length=3)
        self.all: dict[SeatRequest, None] = {}
        self.lingering: list[SeatRequest] = []

    @rule(hand=st.permutations(range(4)), estimate=WIDTHS)
    def start(self, hand: list[int], estimate: WorkEstimate) -> None:
        full = any(len(self.level.set.queues[card].waiting) == 3 for card in hand[:2])
        request, rejection = self.level.start(*hand[:2], estimate=estimate)
        if rejection is None:
            self.all[request] = None
            assert request.waiting or request.executing
        else:
            assert full
            assert not request.waiting
            assert not request.executing

    @precondition(lambda self: self.level.set.executing)
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        request = data.draw(st.sampled_from(list(self.level.set.executing)))
        if self.level.finish(request):
            self.lingering.append(request)
        del self.all[request]

    @precondition(lambda self: self.lingering)
    @rule()
    def free(self) -> None:
        self.level.set.free(self.lingering.pop(0), self.level.now)

    @precondition(lambda self: self.level.set.waiting)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        request = data.draw(st.sampled_from([each for each in self.all if each.waiting]))
        assert self.level.set.leave(request, self.level.now)
        del self.all[request]

    @rule(seconds=st.floats(0, 2))
    def wait(self, seconds: float) -> None:
        self.level.now += seconds

    @rule(limit=st.integers(0, 6))
    def limit(self, limit: int) -> None:
        self.level.set.set_limit(limit, self.level.now)

    @invariant()
    def no_request_is_lost(self) -> None:
        queues, found = self.level.set.queues, self.level.set
        assert set(self.all) == set(found.requests())
        assert found.waiting == sum(len(queue.waiting) for queue in queues)
        assert found.seats_waiting == sum(each.seats for each in self.all if each.waiting)
        held = [*found.executing, *self.lingering]
        assert found.seats == sum(each.seats for each in held)
        assert all(queue.executing == sum(each.queue is queue for each in found.executing) for queue in queues)
        assert all(len(queue.waiting) <= 3 for queue in queues)

    @invariant()
    def seats_are_used(self) -> None:
        found = self.level.set
        if found.waiting and found.seats < found.limit:
            head = _next(found)
            assert found.seats + head.seats > found.limit, "only who is next and too wide leaves seats free"

    @invariant()
    def virtual_time_is_sane(self) -> None:
        found = self.level.set
        active = [queue for queue in found.queues if queue.waiting or queue.executing]
        assert found._active == len(active)  # the divisor of R(t)
        assert all(queue.next_r >= queue.head.arrived_r for queue in active if queue.waiting)
        assert set(found.backlog) == {queue for queue in found.queues if queue.waiting}


def _next(found: QueueSet) -> SeatRequest:
    def finish(queue: Queue) -> float:
        return queue.next_r + queue.head.work

    return min(found.backlog, key=finish).head


QueueSetMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=60, deadline=None)
TestQueueSetMachine = QueueSetMachine.TestCase


def test_seats_exceed_limit_only_for_a_single_request() -> None:
    level = Level(limit=3)
    for index in range(200):
        level.now += 0.01
        level.start(index % 8, estimate=WorkEstimate(1 + index % 5))
        assert level.set.seats <= 3 or len(level.set.executing) == 1
        if index % 3 == 0 and level.set.executing:
            level.finish(next(iter(level.set.executing)))
