"""Metrics of several workers are added up; sums never decrease."""

import asyncio
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from apiserver_stub.process.workers.control import FamilyReport
from apiserver_stub.process.workers.metric_sums import MetricSums, report, shown
from controller_manager.common.base.metrics import Counters, Family, Gauges, Histograms
from controller_manager.common.serving.exposition import PLAIN, pieces


def family(name: str, kind: str, values: Mapping[str, float]) -> FamilyReport:
    samples = [(name, {"code": code}, value) for code, value in values.items()]
    return FamilyReport(name, name, "Help.", kind, samples)


def values(sums: MetricSums) -> dict[tuple[str, str], float]:
    return {(name, labels["code"]): value for found in sums.families() for name, labels, value in found.samples}


@pytest.mark.parametrize(
    ("name", "kind", "shown"),
    [
        ("requests_total", "counter", 5),
        ("durations", "histogram", 5),
        ("inflight", "gauge", 5),
        ("apiserver_storage_objects", "gauge", 3),
        ("registered_metrics_total", "counter", 3),
        ("fetch_last_timestamp_seconds", "gauge", 3),
        ("process_start_time_seconds", "gauge", 2),
        ("kubernetes_healthcheck", "gauge", 2),
    ],
)
def test_values_of_workers_are_combined_by_metric_type(name: str, kind: str, shown: float) -> None:
    sums = MetricSums()
    sums.reported("one", [family(name, kind, {"a": 2, "b": 7})])
    sums.reported("other", [family(name, kind, {"a": 3})])
    assert values(sums) == {(name, "a"): shown, (name, "b"): 7}


def test_counters_outlive_a_worker_but_gauges_do_not() -> None:
    sums = MetricSums()
    sums.reported("one", [family("requests_total", "counter", {"a": 2}), family("inflight", "gauge", {"a": 4})])
    sums.reported("other", [family("requests_total", "counter", {"a": 3}), family("inflight", "gauge", {"a": 1})])
    sums.gone("one")
    assert values(sums) == {("requests_total", "a"): 5, ("inflight", "a"): 1}
    sums.reported("one", [family("requests_total", "counter", {"a": 1})])
    assert values(sums) == {("requests_total", "a"): 6, ("inflight", "a"): 1}


@given(
    steps=st.lists(
        st.tuples(st.sampled_from(["one", "two", "three"]), st.one_of(st.none(), st.integers(0, 9))), max_size=30
    )
)
def test_counter_sums_never_decrease(steps: list[tuple[str, int | None]]) -> None:
    """Workers count, report, or die."""
    sums, counted, before = MetricSums(), {"one": 0, "two": 0, "three": 0}, 0.0
    for process, more in steps:
        if more is None:
            counted[process] = 0
            sums.gone(process)
        else:
            counted[process] += more
            sums.reported(process, [family("requests_total", "counter", {"a": counted[process]})])
        now = values(sums).get(("requests_total", "a"), 0.0)
        assert now >= before
        before = now


def test_page_of_one_worker_equals_its_registry() -> None:
    registry = CollectorRegistry()
    Counters(Family("requests_total", "How many.", "counter", ("code",)), registry).add("200", by=3)
    Counters(Family("odd_name", "A counter that is not called so.", "counter", ("code",)), registry).add("x")
    Gauges(Family("held", "How much.", "gauge"), registry).set(1.5)
    Histograms(Family("seconds", "How long.", "histogram", ("verb",), (0.1, 1.0)), registry).observe(0.5, "GET")
    sums = MetricSums()
    sums.reported("one", asyncio.run(report(registry)))
    assert "".join(pieces(shown(sums.families()), PLAIN)) == "".join(pieces(registry.collect(), PLAIN))
