"""Workloads through the HTTP API: pods a second of replica sets, up and down, of deployments that are rolled out, and
of stateful sets whose pods come in order.

The ceiling is a bare client that creates and deletes as many pods. The pods are bound to no node, so that they go at
once, and are never ready: a rollout takes all pods of a deployment at a time. Those of stateful sets are said to be
ready as soon as they are there, and the ceiling is a client that makes the calls of the manager and of the kubelet, for
one pod of each set at a time.
"""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.harness import Result
from benchmarks.processes import Api, api_at, create, delete, manager_of, patch

NAMESPACES = "/api/v1/namespaces"
NAMESPACE = f"{NAMESPACES}/many"
PODS = f"{NAMESPACE}/pods"
SETS = "/apis/apps/v1/namespaces/many/replicasets"
DEPLOYMENTS = "/apis/apps/v1/namespaces/many/deployments"
SET_COUNT, PODS_EACH = 50, 40
PODS_TOTAL = SET_COUNT * PODS_EACH
STATEFUL = "/apis/apps/v1/namespaces/many/statefulsets"
EVENTS = f"{NAMESPACE}/events"
DEPLOYMENT_COUNT, REPLICAS = 300, 10
STATEFUL_COUNT, IN_ORDER = 100, 5
# Pods a second of the original, with its own API server on two cores; the lower figure of its range.
GO_UP, GO_DOWN = 1065.0, 584.0


async def run() -> list[Result]:
    """Replica sets up and down, a rollout, and stateful sets in order, each with an API server of its own."""
    found: list[Result] = []
    for measure in (of_replica_sets, of_rollouts, of_stateful_sets):
        with tempfile.TemporaryDirectory() as name:
            async with api_at(Path(name)) as api:
                await api.send([create(NAMESPACES, {"metadata": {"name": "many"}})])
                found += await measure(api)
    return found


async def of_replica_sets(api: Api) -> list[Result]:
    """2,000 pods of 50 replica sets come, and go."""
    async with manager_of(api, "--controllers=replicaset-controller") as manager:

        async def come() -> None:
            await api.send(create(SETS, _replica_set(number)) for number in range(SET_COUNT))
            await api.until_count(PODS, PODS_TOTAL)

        async def go() -> None:
            await api.send(patch(f"{SETS}/set-{number}", {"spec": {"replicas": 0}}) for number in range(SET_COUNT))
            await api.until_count(PODS, 0)

        up = await manager.measure(PODS_TOTAL, come)
        down = await manager.measure(PODS_TOTAL, go)
    top_up = await api.send(create(PODS, _pod(number)) for number in range(PODS_TOTAL))
    top_down = await api.send(delete(f"{PODS}/pod-{number}") for number in range(PODS_TOTAL))
    lines = [
        *up.results("pods of replica sets, up", top_up, aim=0.5, cpu_ms=1.0),
        *down.results("pods of replica sets, down", top_down, aim=0.5, cpu_ms=1.0),
    ]
    pairs = (("  up, of the original", up, GO_UP), ("  down, of the original", down, GO_DOWN))
    for title, work, theirs in pairs:
        speed = work.objects / work.seconds
        lines.append(Result(title, f"{speed:,.0f}/s", f"Go {theirs:,.0f}/s", speed / theirs, 1.0))
    return lines


async def of_rollouts(api: Api) -> list[Result]:
    """300 deployments of 10 pods get another template, until all pods are of that."""
    made = [_deployment(number) for number in range(DEPLOYMENT_COUNT)]
    async with manager_of(api, "--controllers=replicaset-controller,deployment-controller") as manager:
        await api.send(create(DEPLOYMENTS, tree) for tree in made)
        await _rolled_out(api, 1)

        async def roll() -> None:
            other = {"spec": {"containers": [_container(2)]}}
            await api.send(patch(f"{DEPLOYMENTS}/{_name(tree)}", {"spec": {"template": other}}) for tree in made)
            await _rolled_out(api, 2)

        work = await manager.measure(DEPLOYMENT_COUNT * REPLICAS, roll)
    numbers = range(DEPLOYMENT_COUNT * REPLICAS)
    up = await api.send(create(PODS, _pod(number)) for number in numbers)
    down = await api.send(delete(f"{PODS}/pod-{number}") for number in numbers)
    top = 1 / (1 / up + 1 / down)
    return work.results("pods of 300 deployments, rolled over", top, aim=0.3, cpu_ms=3.0, of="aim")


async def of_stateful_sets(api: Api) -> list[Result]:
    """100 stateful sets of 5 pods come up, one pod after the other."""

    async def are_ready() -> bool:
        waiting = (await api.read(f"{PODS}?fieldSelector=status.phase=Pending"))["items"]
        if waiting:
            await api.send(_make_ready(_name(one)) for one in waiting)
        sets = (await api.read(STATEFUL))["items"]
        ready = sum(int(one["status"].get("readyReplicas", 0)) for one in sets)
        return ready == STATEFUL_COUNT * IN_ORDER

    async def act() -> None:
        await api.send(create(STATEFUL, _stateful_set(f"web-{number}")) for number in range(STATEFUL_COUNT))
        await api.until(are_ready, every=0.02)

    flags = ("--controllers=statefulset-controller", "--concurrent-statefulset-syncs=16")
    async with manager_of(api, *flags) as manager:
        work = await manager.measure(STATEFUL_COUNT * IN_ORDER, act)
    seconds = STATEFUL_COUNT / await api.send(
        create(STATEFUL, _stateful_set(f"bare-{number}", replicas=0)) for number in range(STATEFUL_COUNT)
    )
    for place in range(IN_ORDER):
        rounds = zip(*(_calls_of_pod(f"bare-{number}", place) for number in range(STATEFUL_COUNT)), strict=True)
        seconds += sum([STATEFUL_COUNT / await api.send(calls) for calls in rounds])
    top = STATEFUL_COUNT * IN_ORDER / seconds
    return work.results("pods of 100 stateful sets, in order", top, aim=0.3, cpu_ms=4.0, of="aim")


def _calls_of_pod(name: str, place: int) -> Iterator[bytes]:
    """What the manager and the kubelet call for one pod of a stateful set."""
    pod = {**_pod(0), "metadata": {"name": f"{name}-{place}", "labels": {"app": name}}}
    yield create(PODS, pod)
    about = {"kind": "StatefulSet", "namespace": "many", "name": name}
    meta = {"name": f"{name}-{place}.created"}
    yield create(EVENTS, {"metadata": meta, "involvedObject": about, "reason": "Told", "message": "it was done"})
    yield patch(f"{STATEFUL}/{name}/status", {"status": {"replicas": place + 1}})
    yield _make_ready(f"{name}-{place}")


def _make_ready(name: str) -> bytes:
    ready = {"type": "Ready", "status": "True"}
    return patch(f"{PODS}/{name}/status", {"status": {"phase": "Running", "conditions": [ready]}})


async def _rolled_out(api: Api, generation: int) -> None:
    """Until each deployment has all its pods of the template of that generation."""

    async def holds() -> bool:
        found = (one.get("status", {}) for one in (await api.read(DEPLOYMENTS))["items"])
        return all(
            (status.get("observedGeneration"), status.get("updatedReplicas"), status.get("replicas"))
            == (generation, REPLICAS, REPLICAS)
            for status in found
        )

    await api.until(holds, every=0.5)


def _name(tree: dict[str, Any]) -> str:
    return str(tree["metadata"]["name"])


def _container(version: int) -> dict[str, Any]:
    environment = [{"name": f"SETTING_{number}", "value": f"value-{number}"} for number in range(12)]
    return {"name": "main", "image": f"registry.example/app:{version}", "env": environment}


def _workload(kind: str, name: str, replicas: int, **more: Any) -> dict[str, Any]:
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [_container(1)]}}
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template, **more}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name}, "spec": spec}


def _replica_set(number: int) -> dict[str, Any]:
    return _workload("ReplicaSet", f"set-{number}", PODS_EACH)


def _stateful_set(name: str, replicas: int = IN_ORDER) -> dict[str, Any]:
    return _workload("StatefulSet", name, replicas, serviceName="web")


def _deployment(number: int) -> dict[str, Any]:
    """A deployment of which nothing need be available, since no pod here ever is."""
    rolling = {"maxSurge": 0, "maxUnavailable": "100%"}
    strategy = {"type": "RollingUpdate", "rollingUpdate": rolling}
    return _workload("Deployment", f"web-{number}", REPLICAS, strategy=strategy)


def _pod(number: int) -> dict[str, Any]:
    meta = {"name": f"pod-{number}", "labels": {"app": "web"}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {"containers": [_container(1)]}}
