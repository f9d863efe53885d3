"""The metrics of flow control equal those of kube-apiserver."""

import json
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from apiserver_stub.flow_control.priority_and_fairness import PriorityAndFairness
from controller_manager.common.base.metrics import Shown, bound_text

# Metrics of a kube-apiserver 1.36: name, type, stability, labels and buckets, if they had samples.
RECORDED = [
    json.loads(line) for line in (Path(__file__).parent / "data/metric_families.jsonl").read_text().splitlines()
]
# Used fraction of the limits of reading and writing requests; apiserver_current_inflight_requests has the same data.
NOT_COLLECTED = {"apiserver_flowcontrol_read_vs_write_current_requests"}


@pytest.mark.virtual
async def test_metrics_have_upstream_names_labels_and_buckets() -> None:
    control = PriorityAndFairness(600, lambda _: None, 60.0, CollectorRegistry())
    families = {shown.family.name: shown.family for shown in control.metrics.describe() if isinstance(shown, Shown)}
    assert {name for name, *_ in RECORDED} - families.keys() == NOT_COLLECTED
    for name, type_, stability, labels, buckets in RECORDED:
        if name in NOT_COLLECTED:
            continue
        family = families[name]
        assert (family.type, family.stability) == (type_, stability), name
        assert not labels or sorted(family.labels) == labels, name
        assert not buckets or list(map(bound_text, family.buckets)) == buckets, name


@pytest.mark.virtual
async def test_every_declared_metric_is_collected() -> None:
    control = PriorityAndFairness(600, lambda _: None, 60.0, CollectorRegistry())
    collected = {shown.family.name for shown in control.metrics.collect() if isinstance(shown, Shown)}
    assert collected == {shown.family.name for shown in control.metrics.describe() if isinstance(shown, Shown)}
