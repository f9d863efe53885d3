"""Metric families of a running manager equal the upstream ones: names, types, labels and buckets."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.core import Metric

from apiserver_stub.common.flags import FLAGS as SERVER_FLAGS
from apiserver_stub.process.build import build
from controller_manager.app.catalog import installed
from controller_manager.app.manager import Manager
from controller_manager.app.program import flag_set
from controller_manager.common.base.metrics import Shown, bound_text, qualified
from controller_manager.common.base.runtime import Runtime
from controller_manager.common.transport.authenticated import InProcessTransport
from controller_manager.common.transport.metrics import TransportMetrics
from controller_manager.testing import FaultyNetwork
from controller_manager.testing.cluster import ADMIN

pytestmark = pytest.mark.virtual

FACTS = Path(__file__).with_name("metric_families.jsonl")
FLAGS = ("--secure-port=0", "--authentication-kubeconfig=any", "--authorization-kubeconfig=any")
# Prefixes of families of controllers that do not exist yet.
AWAITED = ("apiextensions_apiserver_",)


async def families() -> dict[str, dict[str, Any]]:
    """Return every metric family of a manager that has worked, in the form of the facts."""
    api = build(SERVER_FLAGS.parse(["--storage-backend=memory"]), Runtime("api"))
    await api.start()
    specs, runtime = installed(), Runtime("manager")
    network = FaultyNetwork(lambda obtain: InProcessTransport(api.handle, certificate=ADMIN, obtain=obtain))
    TransportMetrics(runtime.registry)
    manager = Manager(flag_set(specs).parse(FLAGS), specs, network, runtime)
    async with asyncio.TaskGroup() as group:
        life = group.create_task(manager.run())
        await asyncio.sleep(60)
        found = [_fact(metric) for metric in runtime.registry.collect()]
        manager.stop("seen enough")
        await life
    await api.stop()
    return {one["name"]: one for one in found}


async def test_metric_families_equal_upstream() -> None:
    ours = await families()
    for line in FACTS.read_text().splitlines():
        fact = json.loads(line)
        if fact["name"].startswith(AWAITED):
            assert fact["name"] not in ours, f"{fact['name']} is no longer awaited"
        else:
            assert ours.get(fact["name"]) == fact


def _fact(metric: Metric) -> dict[str, Any]:
    """Return name, type, labels and buckets, as declared or as in the samples."""
    samples = list(metric.samples)
    if isinstance(metric, Shown):
        labels, buckets = set(metric.family.labels), [bound_text(bound) for bound in metric.family.buckets]
    else:
        labels = {name for sample in samples for name in sample.labels} - {"le"}
        buckets = list(dict.fromkeys(sample.labels["le"] for sample in samples if "le" in sample.labels))[:-1]
    found: dict[str, Any] = {"name": qualified(metric), "type": metric.type, "labels": sorted(labels)}
    if metric.type == "histogram":
        found["buckets"] = [*buckets, "+Inf"]
    return found
