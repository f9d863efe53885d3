"""Metric families and their series, which are bounded."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from controller_manager.common.base import metrics
from controller_manager.common.base.metrics import Counters, Distribution, Family, Gauges, Histograms, bound_text

ASKED = Family("asked_total", "Questions.", "counter", ("who", "what"))
OPEN = Family("open_doors", "Doors.", "gauge", ("floor",))
TOOK = Family("took_seconds", "Time.", "histogram", ("who",), (0.5, 1.0, 10.0))


def test_counters_add_up_by_labels() -> None:
    registry = CollectorRegistry()
    asked = Counters(ASKED, registry)
    asked.add("eve", "why")
    asked.add("eve", "why", by=2.5)
    asked.add("bob", "why")
    assert registry.get_sample_value("asked_total", {"who": "eve", "what": "why"}) == 3.5
    assert registry.get_sample_value("asked_total", {"who": "bob", "what": "why"}) == 1


def test_gauges_keep_the_last_value() -> None:
    registry = CollectorRegistry()
    doors = Gauges(OPEN, registry)
    doors.set(3, "first")
    doors.set(1, "first")
    assert registry.get_sample_value("open_doors", {"floor": "first"}) == 1


@given(st.lists(st.floats(min_value=0, max_value=100), max_size=30))
def test_histogram_counts_value_in_every_larger_bucket(values: list[float]) -> None:
    registry = CollectorRegistry()
    took = Histograms(TOOK, registry)
    for value in values:
        took.observe(value, "eve")
    for bound in (0.5, 1.0, 10.0) if values else ():
        labels = {"who": "eve", "le": bound_text(bound)}
        assert registry.get_sample_value("took_seconds_bucket", labels) == sum(value <= bound for value in values)
    if values:
        assert registry.get_sample_value("took_seconds_bucket", {"who": "eve", "le": "+Inf"}) == len(values)
        assert registry.get_sample_value("took_seconds_count", {"who": "eve"}) == len(values)
        assert registry.get_sample_value("took_seconds_sum", {"who": "eve"}) == pytest.approx(sum(values))


def test_distributions_merge() -> None:
    first, second = Distribution((1.0,)), Distribution((1.0,))
    first.observe(0.5)
    second.observe(0.5)
    second.observe(2.0)
    first.merge(second)
    assert (first.counts, first.sum) == ([2, 1], 3.0)


def test_counter_without_labels_starts_at_0() -> None:
    registry = CollectorRegistry()
    Counters(Family("fires_total", "Fires.", "counter"), registry)
    assert registry.get_sample_value("fires_total") == 0


@pytest.mark.parametrize("labels", [(), ("who",)])
def test_histogram_without_observations_has_no_series(labels: tuple[str, ...]) -> None:
    registry = CollectorRegistry()
    heat = Histograms(Family("heat", "Heat.", "histogram", labels, (1.0,)), registry)
    kept = heat.of(*labels)
    assert [sample for family in registry.collect() for sample in family.samples] == []
    kept.observe(0.5)
    assert [sample.value for family in registry.collect() for sample in family.samples] == [1, 1, 0.5, 1]


def test_series_beyond_limit_become_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "MOST_SERIES", 3)
    registry = CollectorRegistry()
    asked, took = Counters(ASKED, registry), Histograms(TOOK, registry)
    for number in range(10):
        asked.add(str(number), "why")
        took.observe(1.0, str(number))
    asked.add("0", "why")
    assert registry.get_sample_value("asked_total", {"who": "0", "what": "why"}) == 2
    assert registry.get_sample_value("asked_total", {"who": "unexpected", "what": "unexpected"}) == 7
    assert registry.get_sample_value("took_seconds_count", {"who": "unexpected"}) == 7
    (family, _) = registry.collect()
    assert len(list(family.samples)) == 4


@pytest.mark.parametrize(
    ("bound", "text"),
    [(1.0, "1"), (0.5, "0.5"), (1e-8, "1e-08"), (1048576.0, "1.048576e+06"), (7776000.0, "7.776e+06"), (10.0, "10")],
)
def test_bound_text_equals_go(bound: float, text: str) -> None:
    assert bound_text(bound) == text


def test_help_contains_stability_and_deprecation() -> None:
    registry = CollectorRegistry()
    Counters(Family("old_total", "Old.", "counter", stability="BETA", deprecated="1.35"), registry)
    (found,) = text_string_to_metric_families(generate_latest(registry).decode())
    assert found.documentation == "[BETA] (Deprecated since 1.35.0) Old."


def test_counter_handle_updates_its_series() -> None:
    registry = CollectorRegistry()
    asked = Counters(ASKED, registry)
    kept = asked.of("eve", "why")
    assert [sample for family in registry.collect() for sample in family.samples] == []
    kept.value += 1
    asked.add("eve", "why")
    assert registry.get_sample_value("asked_total", {"who": "eve", "what": "why"}) == 2


def test_series_with_zero_increment_is_shown() -> None:
    registry = CollectorRegistry()
    Counters(ASKED, registry).add("eve", "why", by=0.0)
    assert registry.get_sample_value("asked_total", {"who": "eve", "what": "why"}) == 0
