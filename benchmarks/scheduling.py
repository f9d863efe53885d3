"""Scheduling through the HTTP API: pods of one workload are created, and each comes to one of 1,000 or 5,000 nodes.

The ceiling is a bare client that makes the same calls: the pod is created, bound, and an event tells of it.
"""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.harness import Result
from benchmarks.processes import Api, api_at, create, manager_of, patch

NAMESPACES = "/api/v1/namespaces"
NAMESPACE = f"{NAMESPACES}/many"
PODS, EVENTS = f"{NAMESPACE}/pods", f"{NAMESPACE}/events"
NODES = "/api/v1/nodes"
SIZES = (1000, 5000)
COUNT = 2000


async def run() -> list[Result]:
    """Each size with an API server of its own."""
    found: list[Result] = []
    for nodes in SIZES:
        with tempfile.TemporaryDirectory() as name:
            async with api_at(Path(name)) as api:
                await api.send([create(NAMESPACES, {"metadata": {"name": "many"}})])
                found += await of_nodes(api, nodes)
    return found


async def of_nodes(api: Api, nodes: int) -> list[Result]:
    """2,000 pods are created and bound."""
    await api.send(create(NODES, _node(number)) for number in range(nodes))
    await api.send(patch(f"{NODES}/node-{number}", {"spec": {"taints": []}}) for number in range(nodes))

    async def scheduled() -> bool:
        return not (await api.read(f"{PODS}?fieldSelector=spec.nodeName=&limit=1"))["items"]

    async def act() -> None:
        await api.send(create(PODS, _pod(f"pod-{number}")) for number in range(COUNT))
        await api.until(scheduled)

    async with manager_of(api, "--controllers=scheduler") as manager:
        work = await manager.measure(COUNT, act)
    top = await _by_a_bare_client(api)
    title = f"pods scheduled, {nodes:,} nodes"
    # 300 pods a second are what kube-scheduler is held to at 5,000 nodes, by several cores.
    return work.results(title, top, aim=0.3, cpu_ms=1000 / 300, of="a floor of")


async def _by_a_bare_client(api: Api) -> float:
    """Return how many pods a second get all their calls."""
    rounds = zip(*map(_calls_of_pod, range(COUNT)), strict=True)
    return COUNT / sum([COUNT / await api.send(calls) for calls in rounds])


def _calls_of_pod(number: int) -> Iterator[bytes]:
    name = f"bare-{number}"
    yield create(PODS, _pod(name))
    target = {"apiVersion": "v1", "kind": "Node", "name": f"node-{number % 1000}"}
    yield create(f"{PODS}/{name}/binding", {"metadata": {"name": name}, "target": target})
    about = {"kind": "Pod", "namespace": "many", "name": name}
    event = {"metadata": {"name": name}, "involvedObject": about, "reason": "Scheduled", "message": "it was bound"}
    yield create(EVENTS, event)


def _node(number: int) -> dict[str, Any]:
    name = f"node-{number}"
    labels = {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": f"zone-{number % 3}"}
    allocatable = {"cpu": "8", "memory": "32Gi", "pods": "110"}
    return {"metadata": {"name": name, "labels": labels}, "status": {"allocatable": allocatable}}


def _pod(name: str) -> dict[str, Any]:
    resources = {"requests": {"cpu": "100m", "memory": "128Mi"}}
    container = {"name": "main", "image": "registry.example/app:1", "resources": resources}
    spread = {
        "topologyKey": "topology.kubernetes.io/zone",
        "maxSkew": 1,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
    }
    spec = {"containers": [container], "topologySpreadConstraints": [spread]}
    return {"metadata": {"name": name, "labels": {"app": "web"}}, "spec": spec}
