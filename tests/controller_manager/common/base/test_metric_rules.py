"""Rules that hide metrics or limit label values."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.samples import Sample

from controller_manager.common.base.metric_rules import MetricRules, Stability
from controller_manager.common.base.registry import constrained

NAMES = st.sampled_from(["a", "b", "c"])


@pytest.mark.parametrize(
    ("stability", "deprecated", "hidden"),
    [
        ("ALPHA", "", False),
        ("ALPHA", "1.37", False),
        ("ALPHA", "1.36", True),
        ("ALPHA", "1.35", True),
        ("BETA", "1.36", False),
        ("BETA", "1.35", True),
        ("STABLE", "1.34", False),
        ("STABLE", "1.33", True),
        ("STABLE", "0.99", True),
    ],
)
def test_deprecated_family_is_hidden_after_grace_releases(stability: Stability, deprecated: str, hidden: bool) -> None:
    assert MetricRules(version="1.36").hides(stability, deprecated) is hidden
    assert not MetricRules(version="1.36", show_hidden=True).hides(stability, deprecated)


def test_series_with_replaced_labels_are_summed() -> None:
    samples = [Sample("asked_total", {"who": who, "why": "x"}, value) for who, value in (("a", 1), ("b", 2), ("c", 4))]
    found, replaced = constrained(samples, {"who": frozenset({"a"})})
    assert {(one.labels["who"], one.value) for one in found} == {("a", 1), ("unexpected", 6)}
    assert replaced == 2


def test_histogram_buckets_stay_separate() -> None:
    samples = [
        Sample(name, {"who": who, **labels}, 1.0)
        for who in ("a", "b")
        for name, labels in [("t_bucket", {"le": "1"}), ("t_bucket", {"le": "+Inf"}), ("t_sum", {}), ("t_count", {})]
    ]
    found, replaced = constrained(samples, {"who": frozenset(), "le": frozenset()})
    assert [(one.name, one.labels.get("le"), one.value) for one in found] == [
        ("t_bucket", "1", 2),
        ("t_bucket", "+Inf", 2),
        ("t_sum", None, 2),
        ("t_count", None, 2),
    ]
    assert replaced == 4  # sum and count of two series


@given(st.lists(st.tuples(NAMES, NAMES, st.integers(0, 9))), st.sets(NAMES))
def test_constrained_series_keep_sum_and_allowed_values(rows: list[tuple[str, str, int]], allowed: set[str]) -> None:
    samples = [Sample("n_total", {"x": x, "y": y}, value) for x, y, value in rows]
    found, replaced = constrained(samples, {"x": frozenset(allowed)})
    assert sum(one.value for one in found) == sum(value for _, _, value in rows)
    assert {one.labels["x"] for one in found} <= allowed | {"unexpected"}
    assert replaced == sum(x not in allowed for x, _, _ in rows)
    assert len({tuple(one.labels.items()) for one in found}) == len(found)
