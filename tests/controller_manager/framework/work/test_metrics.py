"""Metrics of control loops: queue metrics as in client-go, controller metrics as in controller-runtime."""

import asyncio

import pytest

from controller_manager.common.api import errors
from controller_manager.common.base.log import get_logger
from controller_manager.common.base.metric_rules import MetricRules
from controller_manager.common.base.registry import Registry
from controller_manager.common.base.tasks import Tasks
from controller_manager.framework import Requeue, TerminalError
from controller_manager.framework.work.loop import ControlLoop
from controller_manager.framework.work.metrics import WorkMetrics

pytestmark = pytest.mark.virtual


class Bench:
    """A control loop whose keys name their outcomes."""

    def __init__(self) -> None:
        self.registry = Registry()
        self.registry.rules = MetricRules(version="1.36")
        self.loop: ControlLoop[str] = ControlLoop(
            "test-controller", self.handle, WorkMetrics(self.registry), get_logger("test"), workers=3, queue="test"
        )
        self.seen: set[str] = set()

    async def handle(self, key: str) -> Requeue | None:
        if key in self.seen:
            return None
        self.seen.add(key)
        if key == "later":
            return Requeue(1.0)
        raising = {"gone": TerminalError("it is gone"), "conflict": errors.Conflict("changed"), "bad": ValueError("no")}
        if key in raising:
            raise raising[key]
        return None

    async def work_on(self, *keys: str) -> None:
        async with Tasks() as tasks:
            tasks.start(self.loop.run(), name="loop")
            for key in keys:
                self.loop.add(key)
            await asyncio.sleep(10)

    def of_queue(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(name, {"name": "test", **labels})

    def of_controller(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(f"controller_runtime_{name}", {"controller": "test-controller", **labels})


async def test_queue_metrics_have_client_go_names() -> None:
    bench = Bench()
    await bench.work_on("a", "bad")
    assert bench.of_queue("workqueue_adds_total") == 3
    assert bench.of_queue("workqueue_retries_total") == 1
    assert bench.of_queue("workqueue_depth") == 0
    assert bench.of_queue("workqueue_work_duration_seconds_count") == 3
    assert bench.of_queue("workqueue_queue_duration_seconds_bucket", le="+Inf") == 3


@pytest.mark.parametrize(
    ("key", "result", "errors_total", "given_up"),
    [
        ("done", "success", 0, 0),
        ("later", "requeue_after", 0, 0),
        ("conflict", "requeue", 0, 0),
        ("bad", "error", 1, 0),
        ("gone", "error", 1, 1),
    ],
)
async def test_outcome_metrics_have_controller_runtime_names(
    key: str, result: str, errors_total: int, given_up: int
) -> None:
    bench = Bench()
    await bench.work_on(key)
    assert bench.of_controller("reconcile_total", result=result) == 1
    assert bench.of_controller("reconcile_errors_total") == errors_total
    assert bench.of_controller("terminal_reconcile_errors_total") == given_up
    assert bench.of_controller("max_concurrent_reconciles") == 3
    assert bench.of_controller("active_workers") == 0


async def test_counters_start_at_zero() -> None:
    bench = Bench()
    for result in ("success", "error"):
        assert bench.of_controller("reconcile_total", result=result) == 0
    for result in ("requeue_after", "requeue"):
        assert bench.of_controller("reconcile_total", result=result) is None
    unsettled = bench.registry.get_sample_value("controller_unsettled_writes_total", {"controller": "test-controller"})
    assert unsettled is None
    assert bench.of_controller("reconcile_errors_total") == 0
    assert bench.of_controller("terminal_reconcile_errors_total") == 0


async def test_failing_keys_metric_excludes_terminal_errors() -> None:
    bench = Bench()
    labels = {"controller": "test-controller"}
    assert bench.registry.get_sample_value("controller_failing_keys", labels) is None
    async with Tasks() as tasks:
        tasks.start(bench.loop.run(), name="loop")
        for key in ("bad", "gone", "done"):
            bench.loop.add(key)
        await asyncio.sleep(0.001)
        assert bench.registry.get_sample_value("controller_failing_keys", labels) == 1
        await asyncio.sleep(10)
        assert bench.registry.get_sample_value("controller_failing_keys", labels) is None


async def test_former_metric_names_are_hidden() -> None:
    bench = Bench()
    await bench.work_on("done")
    labels = {"name": "test-controller", "outcome": "done"}
    assert bench.registry.get_sample_value("reconcile_total", labels) is None
    bench.registry.rules = MetricRules(version="1.36", show_hidden=True)
    assert bench.registry.get_sample_value("reconcile_total", labels) == 1
