"""The control loop: outcomes, concurrency, stopping."""

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from prometheus_client import CollectorRegistry

from controller_manager.common.api import errors
from controller_manager.common.base.log import get_logger
from controller_manager.common.base.tasks import Tasks
from controller_manager.framework import Priority, Requeue, TerminalError
from controller_manager.framework.work.loop import ControlLoop
from controller_manager.framework.work.metrics import WorkMetrics
from controller_manager.framework.work.spinning import Spinning

pytestmark = pytest.mark.virtual


class Bench:
    """A control loop, its runs with their times, and its metrics."""

    def __init__(
        self,
        *outcomes: object,
        workers: int = 1,
        takes: float = 0.0,
        retry_delays: tuple[float, float] = (0.005, 1000.0),
    ) -> None:
        self.registry = CollectorRegistry()
        self.runs: list[tuple[str, float]] = []
        self.now_running: set[str] = set()
        self.most_at_once = 0
        self.outcomes = list(outcomes)
        self.takes = takes
        self.loop: ControlLoop[str] = ControlLoop(
            "test",
            self.handle,
            WorkMetrics(self.registry),
            get_logger("test"),
            workers=workers,
            retry_delays=retry_delays,
        )

    async def handle(self, key: str) -> Requeue | None:
        assert key not in self.now_running
        self.now_running.add(key)
        self.most_at_once = max(self.most_at_once, len(self.now_running))
        self.runs.append((key, round(asyncio.get_running_loop().time(), 3)))
        try:
            await asyncio.sleep(self.takes)
        finally:
            self.now_running.remove(key)
        outcome = self.outcomes.pop(0) if self.outcomes else None
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def sample(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(name, {"name": "test", **labels})


@asynccontextmanager
async def running(bench: Bench) -> AsyncIterator[Bench]:
    async with Tasks() as tasks:
        tasks.start(bench.loop.run(), name="loop")
        yield bench


async def test_added_keys_are_processed_once() -> None:
    async with running(Bench()) as bench:
        bench.loop.add("a", "created")
        await asyncio.sleep(10)
        bench.loop.add("b")
        await asyncio.sleep(10)
    assert bench.runs == [("a", 0.0), ("b", 10.0)]
    assert bench.sample("reconcile_total", outcome="done") == 2
    assert bench.sample("workqueue_adds_total") == 2
    assert bench.sample("workqueue_queue_duration_seconds_count") == 2
    assert bench.sample("workqueue_work_duration_seconds_count") == 2


async def test_requeue_runs_again_after_its_delay() -> None:
    async with running(Bench(Requeue(30))) as bench:
        bench.loop.add("a")
        await asyncio.sleep(100)
    assert bench.runs == [("a", 0.0), ("a", 30.0)]


async def test_requeue_without_delay_backs_off_and_is_logged(capsys: pytest.CaptureFixture[str]) -> None:
    async with running(Bench(*[Requeue(0)] * 6, Requeue(float("nan")), None, Requeue(0.001))) as bench:
        bench.loop.add("a", "pods a created")
        await asyncio.sleep(0.2)
        (spinning,) = bench.loop.state().spinning
        assert spinning == Spinning("a", 6, ("pods a created",))
        await asyncio.sleep(10)
        assert bench.loop.state().spinning == ()
        bench.loop.add("a")
        await asyncio.sleep(10)
    assert [round(at, 3) for _, at in bench.runs] == [0, 0.005, 0.015, 0.035, 0.075, 0.155, 0.315, 0.635, 10.2, 10.205]
    assert capsys.readouterr().err.count("reconcile asks to run again at once") == 1
    assert bench.sample("workqueue_retries_total") == 0


async def test_short_requeues_wait_at_most_the_longest_retry_delay() -> None:
    async with running(Bench(*[Requeue(0)] * 5, retry_delays=(0.02, 0.02))) as bench:
        bench.loop.add("a")
        await asyncio.sleep(10)
    assert [round(at, 3) for _, at in bench.runs] == [0, 0.005, 0.015, 0.035, 0.055, 0.075]


async def test_short_requeue_backoff_resets_on_other_outcome() -> None:
    async with running(Bench(Requeue(0), Requeue(0), Requeue(1), Requeue(0), ValueError("x"), Requeue(0))) as bench:
        bench.loop.add("a")
        await asyncio.sleep(10)
    assert [round(at, 3) for _, at in bench.runs] == [0, 0.005, 0.015, 1.015, 1.02, 1.025, 1.03]


async def test_other_return_value_is_an_error() -> None:
    async with running(Bench(True)) as bench:
        bench.loop.add("a")
        await asyncio.sleep(0.001)
        (failing,) = bench.loop.state().failing
    assert failing.error == "TypeError: reconcile returned True; return None or Requeue(seconds)"
    assert failing.defect


async def test_repeated_conflicts_are_a_failure() -> None:
    async with running(Bench(*[errors.Conflict("changed")] * 10)) as bench:
        bench.loop.add("a")
        await asyncio.sleep(0.5)
        assert not bench.loop.state().failing
        await asyncio.sleep(2.1)
        (failing,) = bench.loop.state().failing
        assert (failing.error, failing.failures) == ("Conflict: changed", 3)
        await asyncio.sleep(10)
        assert not bench.loop.state().failing


async def test_failure_contains_file_and_line() -> None:
    bench = Bench(ValueError("boom"))
    async with running(bench):
        bench.loop.add("a")
        await asyncio.sleep(0.001)
        (failing,) = bench.loop.state().failing
    assert re.fullmatch(rf"{re.escape(__file__)}:\d+ in Bench\.handle", failing.where)


async def test_errors_back_off_and_are_counted() -> None:
    async with running(Bench(ValueError("boom"), errors.InternalError("down"), RuntimeError("x"))) as bench:
        bench.loop.add("a")
        await asyncio.sleep(10)
        assert bench.loop.state().last_error == "a: RuntimeError: x"
    assert bench.runs == [("a", 0.0), ("a", 0.005), ("a", 0.015), ("a", 0.035)]
    assert bench.sample("reconcile_total", outcome="error") == 3
    assert bench.sample("workqueue_retries_total") == 3


async def test_cancellation_inside_work_is_retried() -> None:
    bench = Bench(takes=0.5)
    first = asyncio.Event()

    async def waits_for_a_cancelled_task(key: str) -> Requeue | None:
        if not first.is_set():
            first.set()
            async with Tasks() as tasks:
                other = tasks.start(asyncio.sleep(60), name="other")
                other.cancel()
                await other
        return await bench.handle(key)

    bench.loop = ControlLoop("test", waits_for_a_cancelled_task, WorkMetrics(CollectorRegistry()), get_logger("test"))
    async with running(bench):
        bench.loop.add("a")
        await asyncio.sleep(10)
        assert "cancelled" in bench.loop.state().last_error
    assert bench.runs == [("a", 0.005)]


async def test_ended_loop_schedules_no_callbacks() -> None:
    metrics = WorkMetrics(CollectorRegistry())
    bench = Bench()
    bench.loop = ControlLoop("test", bench.handle, metrics, get_logger("test"), when_seen=lambda *_: None)
    async with running(bench):
        bench.loop.add("a")
        await asyncio.sleep(1)
    await asyncio.sleep(60)
    assert metrics.unsettled["test"] == 0


async def test_single_conflict_is_retried_without_error() -> None:
    async with running(Bench(errors.Conflict("changed"))) as bench:
        bench.loop.add("a")
        await asyncio.sleep(10)
        assert bench.loop.state().last_error == ""
    assert len(bench.runs) == 2
    assert bench.sample("reconcile_total", outcome="conflict") == 1
    assert bench.sample("reconcile_total", outcome="error") == 0


async def test_terminal_error_waits_for_a_change() -> None:
    async with running(Bench(TerminalError("no such port"))) as bench:
        bench.loop.add("a")
        await asyncio.sleep(5000)
        assert len(bench.runs) == 1
        bench.loop.add("a")
        await asyncio.sleep(1)
    assert len(bench.runs) == 2


async def test_workers_run_concurrently_but_never_on_one_key() -> None:
    async with running(Bench(workers=3, takes=1.0)) as bench:
        for key in "abcde":
            bench.loop.add(key)
        await asyncio.sleep(0.5)
        bench.loop.add("a")
        state = bench.loop.state()
        await asyncio.sleep(20)
    assert state.ready == 2
    assert [run.key for run in state.running] == ["a", "b", "c"]
    assert state.running[0].seconds == pytest.approx(0.5)
    assert bench.most_at_once == 3
    assert bench.runs == [("a", 0.0), ("b", 0.0), ("c", 0.0), ("d", 1.0), ("e", 1.0), ("a", 1.0)]


async def test_low_priority_keys_do_not_delay_a_change() -> None:
    async with running(Bench(takes=1.0)) as bench:
        for number in range(100):
            bench.loop.add(f"old{number}", "listed", Priority.LOW)
        await asyncio.sleep(0.5)
        bench.loop.add("new")
        await asyncio.sleep(2)
    assert bench.runs[1] == ("new", 1.0)


async def test_stop_finishes_running_keys() -> None:
    bench = Bench(workers=2, takes=3.0)
    async with Tasks() as tasks:
        run = tasks.start(bench.loop.run(grace=5), name="loop")
        for key in "abc":
            bench.loop.add(key)
        await asyncio.sleep(1)
        bench.loop.stop()
        await run
        assert asyncio.get_running_loop().time() == 3.0
    assert [key for key, _ in bench.runs] == ["a", "b"]
    assert bench.sample("reconcile_total", outcome="done") == 2


async def test_stop_waits_no_longer_than_grace() -> None:
    bench = Bench(takes=1000.0)
    async with Tasks() as tasks:
        run = tasks.start(bench.loop.run(grace=5), name="loop")
        bench.loop.add("a")
        await asyncio.sleep(1)
        bench.loop.stop()
        await run
        assert asyncio.get_running_loop().time() == 6.0
    assert bench.now_running == set()


async def test_key_waits_until_its_writes_are_seen() -> None:
    held: list[Callable[[], None]] = []
    runs: list[float] = []

    async def handle(key: str) -> None:
        runs.append(asyncio.get_running_loop().time())

    loop: ControlLoop[str] = ControlLoop(
        "test",
        handle,
        WorkMetrics(CollectorRegistry()),
        get_logger("test"),
        when_seen=lambda key, done: held.append(done),
    )
    async with Tasks() as tasks:
        tasks.start(loop.run(), name="loop")
        loop.add("a")
        await asyncio.sleep(1)
        loop.add("a")
        await asyncio.sleep(4)
        assert runs == [0.0]
        held.pop()()
        await asyncio.sleep(1)
    assert runs == [0.0, 5.0]


async def test_unseen_writes_hold_key_for_bounded_time() -> None:
    held: list[Callable[[], None]] = []
    runs: list[float] = []

    async def handle(key: str) -> None:
        runs.append(asyncio.get_running_loop().time())

    registry = CollectorRegistry()
    loop: ControlLoop[str] = ControlLoop(
        "test", handle, WorkMetrics(registry), get_logger("test"), when_seen=lambda key, done: held.append(done)
    )
    async with Tasks() as tasks:
        tasks.start(loop.run(), name="loop")
        loop.add("a")
        await asyncio.sleep(1)
        loop.add("a")
        await asyncio.sleep(10)
        assert runs == [0.0, 10.0]
        loop.add("a")
        held[0]()
        await asyncio.sleep(5)
        assert runs == [0.0, 10.0], "what settles too late does not free the next run"
        held[1]()
        await asyncio.sleep(1)
        assert runs == [0.0, 10.0, 16.0]
    assert registry.get_sample_value("reconcile_unsettled_total", {"name": "test"}) == 1


async def test_late_seen_writes_run_key_once_more() -> None:
    held: list[Callable[[], None]] = []
    runs: list[float] = []

    async def handle(key: str) -> None:
        runs.append(asyncio.get_running_loop().time())

    loop: ControlLoop[str] = ControlLoop(
        "test", handle, WorkMetrics(None), get_logger("test"), when_seen=lambda key, done: held.append(done)
    )
    async with Tasks() as tasks:
        tasks.start(loop.run(), name="loop")
        loop.add("a")
        await asyncio.sleep(30)
        assert runs == [0.0]
        held[0]()
        await asyncio.sleep(1)
        assert runs == [0.0, 30.0]
        held[1]()
        await asyncio.sleep(30)
    assert runs == [0.0, 30.0]


async def test_key_can_be_added_with_delay() -> None:
    async with running(Bench()) as bench:
        bench.loop.add("a", after=3.0)
        await asyncio.sleep(1)
        bench.loop.add("a", after=3.0)
        await asyncio.sleep(10)
    assert bench.runs == [("a", 3.0)]


async def test_due_key_waits_for_free_worker() -> None:
    async with running(Bench(takes=10.0)) as bench:
        bench.loop.add("a")
        bench.loop.add("b", after=1.0)
        await asyncio.sleep(15)  # time would stand still if the loop were polling
        assert bench.runs == [("a", 0.0), ("b", 10.0)]


async def test_metrics_show_unfinished_work() -> None:
    async with running(Bench(workers=2, takes=10.0)) as bench:
        bench.loop.add("a")
        await asyncio.sleep(2)
        bench.loop.add("b")
        bench.loop.add("c")
        await asyncio.sleep(1)
        assert bench.sample("workqueue_unfinished_work_seconds") == pytest.approx(4)
        assert bench.sample("workqueue_longest_running_processor_seconds") == pytest.approx(3)
        assert bench.sample("workqueue_depth") == 1


async def test_failure_log_has_error_type(capsys: pytest.CaptureFixture[str]) -> None:
    async with running(Bench(KeyError("html"))) as bench:
        bench.loop.add("a", "created")
        await asyncio.sleep(1)
        assert bench.loop.state().last_error == "a: KeyError: 'html'"
    assert "KeyError: 'html'" in capsys.readouterr().err.partition("\n")[0]
