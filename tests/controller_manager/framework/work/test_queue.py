"""The work queue, in examples and compared with a simple model."""

from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from controller_manager.common.base.bucket import TokenBucket
from controller_manager.framework.work.queue import CAUSES_KEPT, NORMAL_IN_A_ROW, Exponential, Priority, WorkQueue


def taken(queue: WorkQueue[str], now: float = 0.0) -> list[str]:
    keys = []
    while (entry := queue.take(now)) is not None:
        keys.append(entry.key)
    return keys


def test_key_is_ready_once_when_added_repeatedly() -> None:
    queue: WorkQueue[str] = WorkQueue()
    for _ in range(3):
        queue.add("a", 0.0)
    queue.add("b", 0.0)
    assert len(queue) == 2
    assert taken(queue) == ["a", "b"]
    assert queue.adds == 2


def test_key_added_while_running_returns_when_done() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add("a", 0.0)
    assert taken(queue) == ["a"]
    queue.add("a", 1.0, "pod changed")
    queue.add("a", 2.0, "service changed")
    assert taken(queue, 3.0) == []
    queue.done("a")
    entry = queue.take(5.0)
    assert entry is not None
    assert entry.causes == ("pod changed", "service changed")
    assert entry.waited == 4.0
    queue.done("a")
    assert queue.take(6.0) is None


def test_normal_add_upgrades_low_priority() -> None:
    queue: WorkQueue[str] = WorkQueue()
    for key in "abc":
        queue.add(key, 0.0, priority=Priority.LOW)
    queue.add("z", 0.0)
    queue.add("b", 0.0)
    queue.add("z", 0.0, priority=Priority.LOW)
    assert taken(queue) == ["z", "b", "a", "c"]


def test_low_priority_is_not_starved() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add("low", 0.0, priority=Priority.LOW)
    for number in range(100):
        queue.add(f"n{number}", 0.0)
    assert taken(queue).index("low") == NORMAL_IN_A_ROW


def test_earliest_delay_wins() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add_after("a", 0.0, 10.0, "late")
    queue.add_after("a", 0.0, 3.0, "early")
    queue.add_after("a", 0.0, 7.0, "middle")
    assert queue.next_deadline() == 3.0
    assert queue.take(2.9) is None
    entry = queue.take(3.5)
    assert entry is not None
    assert entry.waited == 0.5
    assert entry.causes == ("late", "early", "middle")
    assert queue.next_deadline() is None


def test_retries_back_off_per_key_and_keep_priority() -> None:
    queue: WorkQueue[str] = WorkQueue(Exponential(1.0, 100.0))
    now = 0.0
    queue.add("a", now, priority=Priority.LOW)
    waits = []
    for _ in range(3):
        entry = queue.take(now)
        assert entry is not None
        assert entry.priority is Priority.LOW
        waits.append(queue.retry("a", now))
        queue.done("a")
        now += waits[-1]
    assert waits == [1.0, 2.0, 4.0]
    assert queue.retry("b", now) == 1.0
    queue.forget("a")
    assert queue.retry("a", now) == 1.0
    assert queue.retries == 5


def test_retries_of_all_keys_share_one_bucket() -> None:
    queue: WorkQueue[int] = WorkQueue(Exponential(0.001), TokenBucket(rate=10, burst=2))
    assert [queue.retry(key, 0.0) for key in range(4)] == pytest.approx([0.001, 0.001, 0.1, 0.2])


def test_causes_are_bounded_with_count() -> None:
    queue: WorkQueue[str] = WorkQueue()
    for number in range(CAUSES_KEPT + 5):
        queue.add("a", 0.0, f"pod {number} changed")
    entry = queue.take(0.0)
    assert entry is not None
    assert entry.causes[CAUSES_KEPT:] == ("and 5 more",)


def test_closed_queue_accepts_and_returns_no_keys() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add("running", 0.0)
    queue.take(0.0)
    queue.add("ready", 0.0)
    queue.add_after("later", 0.0, 1.0)
    queue.close()
    queue.add("late", 0.0)
    queue.done("running")
    assert queue.take(5.0) is None
    assert taken(queue, 5.0) == []


def test_superseded_delays_do_not_accumulate() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add_after("b", 0.0, 2000.0)  # due earlier, so that superseded entries stay in the heap
    for round_ in range(1000):
        queue.add_after("a", round_, 3600.0)
        queue.add_after("a", round_, 0.5)
        queue.take(round_ + 0.6)
        queue.done("a")
    assert len(queue._heap) < 100


@dataclass
class Model:
    """A simple model of the queue: sets, and a list of ready keys with times."""

    ready: dict[str, Priority] = field(default_factory=dict)
    running: dict[str, Priority] = field(default_factory=dict)
    again: dict[str, Priority] = field(default_factory=dict)
    later: dict[str, tuple[float, Priority]] = field(default_factory=dict)

    def add(self, key: str, priority: Priority) -> None:
        place = self.again if key in self.running else self.ready
        before = place.get(key)
        if before is not None and priority > before:
            del place[key]  # an upgraded key goes to the end of the other queue
        if before is None or priority > before:
            place[key] = priority

    def promise(self, key: str, due: float, priority: Priority) -> None:
        before = self.later.get(key, (due + 1.0, priority))
        if due < before[0]:
            self.later.pop(key, None)  # a new delay; of equal due times, the older key is first
        self.later[key] = (min(due, before[0]), max(priority, before[1]))

    def admit(self, now: float) -> None:
        for key, (due, priority) in sorted(self.later.items(), key=lambda item: item[1][0]):
            if due <= now:
                del self.later[key]
                self.add(key, priority)


KEYS = st.sampled_from("abcdef")
PRIORITIES = st.sampled_from(Priority)


class QueueMachine(RuleBasedStateMachine):
    """Any sequence of calls keeps queue and model equal."""

    def __init__(self) -> None:
        super().__init__()
        self.queue: WorkQueue[str] = WorkQueue()
        self.model = Model()
        self.now = 0.0
        self.seconds = 0

    @rule(key=KEYS, priority=PRIORITIES)
    def add(self, key: str, priority: Priority) -> None:
        self.queue.add(key, self.now, "cause", priority)
        self.model.add(key, priority)

    @rule(key=KEYS, seconds=st.integers(1, 5), priority=PRIORITIES)
    def add_after(self, key: str, seconds: int, priority: Priority) -> None:
        # A unique fraction makes due times different, so that the model knows the order.
        self.seconds += 1
        due = self.now + seconds + self.seconds * 1e-6
        self.queue.add_after(key, self.now, due - self.now, "later", priority)
        self.model.promise(key, due, priority)

    @rule(seconds=st.integers(1, 4))
    def wait(self, seconds: int) -> None:
        self.now += seconds

    @rule()
    def take(self) -> None:
        self.model.admit(self.now)
        entry = self.queue.take(self.now)
        if entry is None:
            assert not self.model.ready
            return
        assert entry.key not in self.model.running
        lane = [key for key, priority in self.model.ready.items() if priority is entry.priority]
        assert entry.key == lane[0], "first come, first served within a priority"
        del self.model.ready[entry.key]
        self.model.running[entry.key] = entry.priority

    @precondition(lambda self: self.model.running)
    @rule(data=st.data(), fails=st.booleans())
    def finish(self, data: st.DataObject, fails: bool) -> None:
        key = data.draw(st.sampled_from(sorted(self.model.running)))
        if fails:
            seconds = self.queue.retry(key, self.now)
            self.model.promise(key, self.now + seconds, self.model.running[key])
        else:
            self.queue.forget(key)
        self.queue.done(key)
        del self.model.running[key]
        if key in self.model.again:
            self.model.add(key, self.model.again.pop(key))

    @invariant()
    def same_size(self) -> None:
        assert len(self.queue) == len(self.model.ready)

    def teardown(self) -> None:
        # No add is lost: every key is taken in the end.
        for key in sorted(self.model.running):
            self.queue.done(key)
        expected = set(self.model.ready) | set(self.model.again) | set(self.model.later)
        assert set(taken(self.queue, self.now + 100)) == expected


QueueMachine.TestCase.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
TestQueueMachine = QueueMachine.TestCase


@pytest.mark.parametrize(
    ("failures", "seconds"), [(1, 0.005), (2, 0.01), (5, 0.08), (18, 655.36), (19, 1000), (10_000, 1000)]
)
def test_backoff_doubles_up_to_the_bound(failures: int, seconds: float) -> None:
    assert Exponential().delay(failures) == pytest.approx(seconds)
