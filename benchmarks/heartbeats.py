"""Heartbeats of nodes followed through the HTTP API: how many a second, and CPU of the manager each.

Every node renews its lease many times over, as fast as the API server answers; the manager, which has met all of them,
watches, and looks at all nodes every five seconds meanwhile. The ceiling are the same renewals while nobody watches.
What a renewal costs the manager is compared with what it costs the bare client that makes it.
"""

import asyncio
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.harness import Result
from benchmarks.processes import Api, api_at, create, manager_of, patch

NODES = "/api/v1/nodes"
EVENTS = "/api/v1/events"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
COUNT, ROUNDS = 1000, 15
# Seconds in which the manager hears of the last ones.
LATE = 1.0


async def run() -> list[Result]:
    """1,000 nodes, each heard fifteen times."""
    with tempfile.TemporaryDirectory() as name:
        async with api_at(Path(name)) as api:
            await api.send(create(NODES, _node(number)) for number in range(COUNT))
            await api.send(create(LEASES, _lease(number)) for number in range(COUNT))
            began = time.process_time()
            ceiling = await api.send(_renewals(1))
            own = (time.process_time() - began) / (COUNT * ROUNDS) * 1000
            async with manager_of(api, "--controllers=node-lifecycle-controller") as manager:
                await api.until_count(EVENTS, COUNT)
                before = manager.cpu()
                speed = await api.send(_renewals(2))
                await asyncio.sleep(LATE)
                each = (manager.cpu() - before) / (COUNT * ROUNDS) * 1000
            await _nobody_is_tainted(api)
    return [
        Result(f"heartbeats of {COUNT:,} nodes followed", f"{speed:,.0f}/s", f"{ceiling:,.0f}/s", speed / ceiling, 0.5),
        Result("  CPU of the manager, each", f"{each:.3f} ms", f"{own:.3f} ms", each / own, 1.5, at_most=True),
    ]


async def _nobody_is_tainted(api: Api) -> None:
    tainted = [tree for tree in (await api.read(NODES))["items"] if tree["spec"].get("taints")]
    if tainted:
        raise RuntimeError(f"{len(tainted)} nodes that renewed all the time are tainted")


def _renewals(minute: int) -> Iterator[bytes]:
    for second in range(ROUNDS):
        change = {"spec": {"renewTime": f"2026-01-01T00:{minute:02}:{second:02}.000000Z"}}
        yield from (patch(f"{LEASES}/node-{number}", change) for number in range(COUNT))


def _node(number: int) -> dict[str, Any]:
    says = ("MemoryPressure", "DiskPressure", "PIDPressure", "Ready")
    conditions = [{"type": kind, "status": str(kind == "Ready"), "reason": "AgentSays"} for kind in says]
    labels = {"topology.kubernetes.io/zone": f"zone-{number % 3}", "kubernetes.io/os": "linux"}
    return {"metadata": {"name": f"node-{number}", "labels": labels}, "status": {"conditions": conditions}}


def _lease(number: int) -> dict[str, Any]:
    spec = {"holderIdentity": f"node-{number}", "leaseDurationSeconds": 40, "renewTime": "2026-01-01T00:00:00.000000Z"}
    return {"metadata": {"name": f"node-{number}", "namespace": "kube-node-lease"}, "spec": spec}
