"""Virtual nodes through the HTTP API: 5,000 nodes come, 10,000 pods are made and deleted, each within half of the time
that kwok allows itself for it; and 1,000 nodes with 10,000 pods within one process, as tests have them.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec

from benchmarks.harness import Result
from benchmarks.memory import memory_of
from benchmarks.processes import Act, Api, Manager, api_at, create, delete, manager_of
from controller_manager.common.api.apps import REPLICA_SETS, ReplicaSet
from controller_manager.testing import Cluster
from controller_manager.testing import run as run_virtually

NODES, PODS = "/api/v1/nodes", "/api/v1/namespaces/default/pods"
NODE_COUNT, POD_COUNT = 5_000, 10_000
GATE = 30.0  # seconds
CPU_GATE = 4.0  # milliseconds of the manager for all of the life of a pod
MOST = 300.0  # MiB of a process with a server, a manager, and nodes with pods
_POOL = "virtual-node.x-k8s.io/pool"
_CONNECTIONS = 32


async def run() -> list[Result]:
    """The gates, one after the other in one cluster, then the memory of a cluster in a process."""
    with tempfile.TemporaryDirectory() as name:
        async with api_at(Path(name)) as api:
            # Stages take no time, as those that kwok is measured with.
            flags = ("--virtual-node-instant", "--virtual-node-bind-address=")
            controllers = "--controllers=virtual-node-controller,node-lifecycle-controller"
            async with manager_of(api, controllers, *flags) as manager:
                found = await _gates(api, manager)
    command = (sys.executable, "-m", "benchmarks.nodes")
    held = float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    title, most = "1,000 nodes, 10,000 pods, in tests", f"{MOST:.0f} MB"
    return [*found, Result(title, f"{held:.0f} MB", most, held / MOST, 1.0, at_most=True)]


async def _gates(api: Api, manager: Manager) -> list[Result]:
    async def nodes() -> None:
        await api.send(map(_creation_of_node, range(NODE_COUNT)), connections=_CONNECTIONS)
        await api.until_count("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases", NODE_COUNT)

    async def pods() -> None:
        await api.send(map(_creation_of_pod, range(POD_COUNT)), connections=_CONNECTIONS)

        async def all_run() -> bool:
            return not (await api.read(f"{PODS}?fieldSelector=status.phase!=Running&limit=1"))["items"]

        await api.until(all_run, every=0.5)

    async def end() -> None:
        await api.send((delete(f"{PODS}/pod-{n}") for n in range(POD_COUNT)), connections=_CONNECTIONS)
        await api.until_count(PODS, 0)

    lines, lives = [], 0.0
    acts: tuple[tuple[str, int, Act], ...] = (
        ("5,000 nodes come", NODE_COUNT, nodes),
        ("10,000 pods run", POD_COUNT, pods),
        ("10,000 pods are deleted", POD_COUNT, end),
    )
    for title, count, act in acts:
        work = await manager.measure(count, act)
        seconds = work.seconds
        lines.append(Result(title, f"{seconds:.1f} s", f"{GATE:.0f} s", seconds / GATE, 1.0, at_most=True))
        lives += work.cpu if count == POD_COUNT else 0.0
    each = lives / POD_COUNT * 1000
    title = "  CPU of the manager, life of a pod"
    return [*lines, Result(title, f"{each:.2f} ms", f"{CPU_GATE:g} ms", each / CPU_GATE, 1.0, at_most=True)]


def _creation_of_node(number: int) -> bytes:
    name = f"node-{number}"
    labels = {"kubernetes.io/hostname": name, _POOL: "benchmark"}
    return create(NODES, {"metadata": {"name": name, "labels": labels}})


def _creation_of_pod(number: int) -> bytes:
    container = {"name": "main", "image": "registry.example/app:1"}
    spec = {"containers": [container], "nodeName": f"node-{number % NODE_COUNT}"}
    return create(PODS, {"metadata": {"name": f"pod-{number}", "labels": {"app": "web"}}, "spec": spec})


async def _in_one_process() -> None:
    """Print the MiB that this process came to hold, with all controllers and 10,000 pods of replica sets."""
    async with Cluster() as cluster:
        await cluster.add_nodes(1000, flags=("--controllers=*,scheduler,virtual-node-controller",))
        for number in range(10):
            await cluster.client.create(REPLICA_SETS, _replica_set(f"app-{number}", 1000))
        await cluster.settle()
        row = cluster.api.store.get(REPLICA_SETS.name, "default/app-9")
        if row is None or ReplicaSet.decode(row.data).status.ready_replicas != 1000:
            raise RuntimeError("the pods do not run")
        sys.stdout.write(f"{memory_of(os.getpid())[1]}\n")


def _replica_set(name: str, replicas: int) -> ReplicaSet:
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": "app:1"}]}}
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
    tree = {"metadata": {"name": name, "namespace": "default"}, "spec": spec}
    return ReplicaSet.decode(msgspec.json.encode(tree))


if __name__ == "__main__":
    run_virtually(_in_one_process())
