"""The memory of a manager that runs all its controllers, on a cluster of 5,000 nodes and 50,000 pods."""

import asyncio
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.harness import Result, pod
from benchmarks.processes import Api, api_at, create, manager_of

NODES, PODS = 5_000, 50_000
MOST = 512.0  # MiB
_POD_BYTES = 2048
_CONNECTIONS = 64
_SETTLING = 5.0  # seconds


async def run() -> list[Result]:
    """What the process holds once it has worked off all that it read at its start, and the most that it ever held."""
    with tempfile.TemporaryDirectory() as name:
        async with api_at(Path(name)) as api:
            await _fill(api)
            async with manager_of(api, "--controllers=*") as manager:
                await asyncio.sleep(_SETTLING)
                held, most = memory_of(manager.pid)
    lines = (("memory of the manager, 50,000 pods", held), ("  at most", most))
    return [Result(title, f"{size:.0f} MB", f"{MOST:.0f} MB", size / MOST, 1.0, at_most=True) for title, size in lines]


async def _fill(api: Api) -> None:
    """Make the nodes, and pods that run on them."""
    await api.send((create("/api/v1/nodes", _node(number)) for number in range(NODES)), connections=_CONNECTIONS)
    pods = (create("/api/v1/namespaces/default/pods", _pod(number)) for number in range(PODS))
    await api.send(pods, connections=_CONNECTIONS)


def _node(number: int) -> dict[str, Any]:
    name = f"node-{number}"
    labels = {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": f"zone-{number % 3}"}
    conditions = [{"type": "Ready", "status": "True", "reason": "KubeletReady", "lastHeartbeatTime": None}]
    capacity = {"cpu": "8", "memory": "32Gi", "pods": "110"}
    status = {"capacity": capacity, "allocatable": capacity, "conditions": conditions}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}, "status": status}


def _pod(number: int) -> dict[str, Any]:
    tree = pod(f"pod-{number}", _POD_BYTES)
    tree["spec"]["nodeName"] = f"node-{number % NODES}"
    return tree


def memory_of(pid: int) -> tuple[float, float]:
    """Return the MiB that a process has in memory, and the most that it ever had."""
    lines = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    now, most = (int(lines[name].split()[0]) / 1024 for name in ("VmRSS", "VmHWM"))
    return now, most
