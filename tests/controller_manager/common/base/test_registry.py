"""The metric registry applies its rules and counts hidden families."""

from collections.abc import Iterable

import pytest
from msgspec.structs import replace
from prometheus_client import Counter
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from controller_manager.common.base.metric_rules import MetricRules
from controller_manager.common.base.metrics import Counters, Family
from controller_manager.common.base.registry import Registry

GREETED = Family("greeted_total", "Greetings.", "counter", ("language",))

ASKED = Family("asked_total", "Questions.", "counter", ("who",))
OLD = Family("old_total", "Questions.", "counter", deprecated="1.35")


def names(registry: Registry) -> set[str]:
    return {sample.name for metric in registry.collect() for sample in metric.samples}


def registry_with(rules: MetricRules) -> Registry:
    registry = Registry()
    registry.rules = rules
    return registry


class Slow(Collector):
    """Records whether it was collected."""

    asked = False

    def describe(self) -> Iterable[Metric]:
        return [GaugeMetricFamily("slow", "Slow.")]

    def collect(self) -> Iterable[Metric]:
        self.asked = True
        return [GaugeMetricFamily("slow", "Slow.", value=1)]


def test_disabled_family_is_not_shown_or_stored() -> None:
    registry = registry_with(MetricRules(disabled=frozenset({"asked_total"})))
    asked = Counters(ASKED, registry)
    asked.add("eve")
    assert "asked_total" not in names(registry)
    assert not [sample for metric in asked.collect() for sample in metric.samples]
    assert registry.get_sample_value("disabled_metrics_total") == 1


def test_disabled_collector_is_not_collected() -> None:
    registry, slow = registry_with(MetricRules(disabled=frozenset({"slow"}))), Slow()
    registry.register(slow)
    assert "slow" not in names(registry)
    assert not slow.asked


def test_prometheus_client_families_are_disabled_by_query_name() -> None:
    registry = registry_with(MetricRules(disabled=frozenset({"foreign_total"})))
    Counter("foreign", "Not ours.", registry=registry).inc()
    assert "foreign_total" not in names(registry)


def test_hidden_families_are_counted_and_shown_on_demand() -> None:
    registry = registry_with(MetricRules(version="1.36"))
    Counters(OLD, registry)
    assert "old_total" not in names(registry)
    assert registry.get_sample_value("hidden_metrics_total") == 1
    registry.rules = MetricRules(version="1.36", show_hidden=True)
    assert "old_total" in names(registry)
    assert registry.get_sample_value("hidden_metrics_total") == 0


def test_disabled_family_is_not_shown_with_show_hidden() -> None:
    registry = registry_with(MetricRules(version="1.36", show_hidden=True, disabled=frozenset({"old_total"})))
    Counters(OLD, registry)
    assert "old_total" not in names(registry)


def test_allowed_labels_apply_to_all_families() -> None:
    allowed = {name: {"who": frozenset({"eve"})} for name in ("asked_total", "foreign_total")}
    registry = registry_with(MetricRules(allowed=allowed))
    asked, foreign = Counters(ASKED, registry), Counter("foreign", "Not ours.", ["who"], registry=registry)
    for who in ("eve", "bob", "joe"):
        asked.add(who)
        foreign.labels(who).inc()
    for name in ("asked_total", "foreign_total"):
        assert registry.get_sample_value(name, {"who": "eve"}) == 1
        assert registry.get_sample_value(name, {"who": "unexpected"}) == 2
        assert registry.get_sample_value(name, {"who": "bob"}) is None
    before = registry.get_sample_value("cardinality_enforcement_unexpected_categorizations_total")
    after = registry.get_sample_value("cardinality_enforcement_unexpected_categorizations_total")
    assert before is not None
    assert after == before + 4


def test_registered_metrics_total_by_stability_and_deprecation() -> None:
    registry = registry_with(MetricRules(version="1.36", show_hidden=True))
    Counters(OLD, registry)
    Counters(ASKED, registry)
    labels = {"stability_level": "ALPHA", "deprecated_version": "1.35.0"}
    assert registry.get_sample_value("registered_metrics_total", labels) == 1
    assert registry.get_sample_value("registered_metrics_total", {**labels, "deprecated_version": ""}) == 2


def test_registering_same_family_again_replaces_it() -> None:
    registry = Registry()
    Counters(GREETED, registry).add("en")
    again = Counters(GREETED, registry)
    again.add("fr")
    (shown,) = (metric for metric in registry.collect() if metric.name == "greeted")
    assert [sample.labels for sample in shown.samples] == [{"language": "fr"}]
    with pytest.raises(ValueError, match="greeted"):
        Counters(replace(GREETED, help="Something else."), registry)
