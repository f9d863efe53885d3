"""A scaled workload, and what its autoscaler reports."""

from typing import Any

from controller_manager.common.api.autoscaling import HORIZONTAL_POD_AUTOSCALERS, HorizontalPodAutoscaler
from controller_manager.common.api.core import EVENTS
from controller_manager.common.api.resource import Key
from controller_manager.testing import Cluster, Replica
from controller_manager.testing.metering import Meter, Workload

HPAS = HORIZONTAL_POD_AUTOSCALERS


WEB = Key("default", "web")


ONLY = ("--leader-elect=false", "--controllers=horizontalpodautoscaling")


QUEUE = "namespaces/default/queue_length"


def external(target: dict[str, Any]) -> dict[str, Any]:
    return {"type": "External", "external": {"metric": {"name": "queue_length"}, "target": target}}


def shop(cluster: Cluster, **options: Any) -> tuple[Meter, Workload]:
    meter = Meter(cluster)
    return meter, Workload(cluster, meter, "web", **options)


async def manage(cluster: Cluster, *flags: str, **options: Any) -> Replica:
    replica = await cluster.manage(*ONLY, *flags, **options)
    await cluster.settle()
    return replica


async def look(cluster: Cluster, key: Key = WEB) -> HorizontalPodAutoscaler:
    return await cluster.client.get(HPAS, key)


async def conditions_of(cluster: Cluster, key: Key = WEB) -> dict[str, tuple[str, str]]:
    """Return status and reason of each condition by its type."""
    found = await look(cluster, key)
    return {one.type: (one.status, one.reason) for one in found.status.conditions}


async def events(cluster: Cluster) -> list[tuple[str, str]]:
    found = (await cluster.client.list(EVENTS)).items
    return [(e.reason, e.message) for e in found if e.source.component == "horizontal-pod-autoscaler"]
