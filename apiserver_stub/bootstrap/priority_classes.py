"""The priority classes of pods that a cluster cannot do without."""

from apiserver_stub.bootstrap.cluster import ClusterInfo
from apiserver_stub.bootstrap.objects import Objects
from controller_manager.api.platform import GROUP_DOMAIN
from controller_manager.base.tasks import all_of

_API = f"scheduling.{GROUP_DOMAIN}/v1"
_SYSTEM = {
    "system-node-critical": (2_000_001_000, "For pods that their node cannot do without, where they are."),
    "system-cluster-critical": (2_000_000_000, "For pods that the cluster cannot do without, wherever they run."),
}


async def ensure_priority_classes(objects: Objects, _: ClusterInfo) -> None:
    """Both; one that is there stays as it is."""
    wanted = (
        {
            "kind": "PriorityClass",
            "apiVersion": _API,
            "metadata": {"name": name},
            "value": value,
            "description": description,
            "preemptionPolicy": "PreemptLowerPriority",
        }
        for name, (value, description) in _SYSTEM.items()
    )
    await all_of(*(objects.ensure_revised(f"/apis/{_API}/priorityclasses", each, lambda _: None) for each in wanted))
