"""Builders of nodes for a daemon set, and readers of its pods and revisions."""

from typing import Any

import msgspec

from controller_manager.common.api.apps import CONTROLLER_REVISIONS, DAEMON_SETS, ControllerRevision, DaemonSet
from controller_manager.common.api.core import NODES, Node
from controller_manager.common.api.model import ObjectMeta
from controller_manager.common.api.resource import Key
from controller_manager.framework.controller.history import in_order
from controller_manager.testing import Cluster
from controllers.daemon_set.placement import node_of
from tests.scenarios.workloads import owned, template

FLAGS = ("--leader-elect=false", "--controllers=daemonset")
WEB = Key("default", "web")
OLD, NEW = "example.org/app:1", "example.org/app:2"


async def join(cluster: Cluster, *names: str, **labels: str) -> None:
    """Create ready nodes."""
    for name in names:
        await cluster.client.create(NODES, Node(metadata=ObjectMeta(name=name, labels=labels)))
        await taint(cluster, name)


async def taint(cluster: Cluster, node: str, *taints: tuple[str, str]) -> None:
    wanted = [{"key": key, "effect": effect} for key, effect in taints]
    await cluster.client.patch(NODES, Key("", node), {"spec": {"taints": wanted or None}})


async def relabel(cluster: Cluster, node: str, **labels: str | None) -> None:
    await cluster.client.patch(NODES, Key("", node), {"metadata": {"labels": labels}})


async def get(cluster: Cluster) -> DaemonSet:
    return await cluster.client.get(DAEMON_SETS, WEB)


async def change(cluster: Cluster, **spec: Any) -> None:
    await cluster.client.patch(DAEMON_SETS, WEB, {"spec": spec})


async def use(cluster: Cluster, image: str) -> None:
    await change(cluster, template=template(image, app="web"))


async def placed(cluster: Cluster, owner: str = "web") -> list[str]:
    """Return the node of each pod of a daemon set, without pods that are being deleted."""
    return sorted(map(node_of, await owned(cluster, owner)))


async def images(cluster: Cluster) -> list[str]:
    return sorted(msgspec.json.decode(pod.raw)["spec"]["containers"][0]["image"][-1] for pod in await owned(cluster))


async def revisions(cluster: Cluster) -> list[ControllerRevision]:
    return in_order((await cluster.client.list(CONTROLLER_REVISIONS, "default")).items)


async def numbers(cluster: Cluster) -> tuple[int, ...]:
    """Return the status numbers: desired, current, updated, ready, available and misscheduled."""
    found = await get(cluster)
    status = found.status
    assert status.observed_generation == found.metadata.generation
    assert status.number_unavailable == status.desired_number_scheduled - status.number_available
    return (
        status.desired_number_scheduled,
        status.current_number_scheduled,
        status.updated_number_scheduled,
        status.number_ready,
        status.number_available,
        status.number_misscheduled,
    )
