"""Labels of the metrics of match conditions, equal to those of kube-apiserver 1.36."""

import pytest
from prometheus_client import CollectorRegistry

from apiserver_stub.admission.metrics import ConditionMetrics


@pytest.mark.parametrize(
    ("phase", "excluding"), [("admit", "admit"), ("validating", "validate"), ("validate", "validate")]
)
def test_exclusions_are_counted_by_phase(phase: str, excluding: str) -> None:
    registry = CollectorRegistry()
    ConditionMetrics(registry).evaluated("webhook", "w", phase, "CREATE", 0.001, failed=True, excluded=True)
    labels = {"kind": "webhook", "name": "w", "operation": "CREATE"}
    prefix = "apiserver_admission_match_condition"
    assert registry.get_sample_value(f"{prefix}_exclusions_total", {**labels, "type": excluding}) == 1
    for name in ("evaluation_seconds_count", "evaluation_errors_total"):
        assert registry.get_sample_value(f"{prefix}_{name}", {**labels, "type": phase}) == 1
