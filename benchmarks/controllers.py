"""Controllers at work through the HTTP API: objects a second and CPU each, against the same calls by a bare client.

Endpoints are measured three times: when a manager starts with all there is (its own start included), when services
come to pods that are there, and when pods become ready whose services are there. What the manager follows beside the
endpoints is made by the bare client at full speed, and counts.

Dependents are collected after their owner was deleted; the ceiling looks at each once and deletes it, as the collector
must, and needs nothing to find them.
"""

import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.harness import TOKEN, Result, pod
from benchmarks.load import request
from benchmarks.processes import Api, api_at, create, delete, manager_of, patch
from controller_manager.app.catalog import installed

NAMESPACES = "/api/v1/namespaces"
NAMESPACE = f"{NAMESPACES}/many"
SERVICES, PODS, ENDPOINTS = f"{NAMESPACE}/services", f"{NAMESPACE}/pods", f"{NAMESPACE}/endpoints"
SLICES = "/apis/discovery.k8s.io/v1/namespaces/many/endpointslices"
SERVICE_COUNT, PODS_EACH, NODE_COUNT = 300, 10, 100
GO_SERVICE_MS = 6.0
AIMS = {"services come": 0.3, "pods become ready": 0.3, "at the start": 0.05}  # the last with the start of a process
DEPENDENTS = (3000, 6000)
GO_DEPENDENT_MS = 0.43
WRITTEN = {"endpoints-controller": ENDPOINTS, "endpointslice-controller": SLICES}


async def run() -> list[Result]:
    """Endpoints, endpoint slices and dependents, each with an API server of its own."""
    there = {spec.name for spec in installed()}
    measures = [partial(of_services, controller=name, collection=WRITTEN[name]) for name in WRITTEN if name in there]
    measures += [partial(of_dependents, count=count) for count in DEPENDENTS]
    found: list[Result] = []
    for measure in measures:
        with tempfile.TemporaryDirectory() as name:
            async with api_at(Path(name), "--service-cluster-ip-range=10.0.0.0/16") as api:
                found += await measure(api)
    return found


async def of_dependents(api: Api, count: int) -> list[Result]:
    """So many objects of one owner, collected in the background."""
    collection = f"{NAMESPACE}/configmaps"
    await api.send([create(NAMESPACES, {"metadata": {"name": "many"}})])
    await _make_dependents(api, collection, count)
    async with manager_of(api, "--controllers=garbage-collector-controller") as manager:

        async def collected() -> None:
            await api.send([delete(f"{collection}/owner", propagationPolicy="Background")])
            await api.until_count(collection, 0)

        work = await manager.measure(count, collected)
    await _make_dependents(api, collection, count)
    names = [f"{collection}/dependent-{number}" for number in range(count)]
    asked = await api.send(calls for name in names for calls in (request("GET", name, TOKEN), delete(name)))
    return work.results(f"{count:,} dependents collected", asked / 2, aim=0.3, cpu_ms=GO_DEPENDENT_MS)


async def _make_dependents(api: Api, collection: str, count: int) -> None:
    await api.send([create(collection, {"metadata": {"name": "owner"}})])
    owner = (await api.read(f"{collection}/owner"))["metadata"]
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["uid"]}
    await api.send(
        create(collection, {"metadata": {"name": f"dependent-{number}", "ownerReferences": [reference]}})
        for number in range(count)
    )


async def of_services(api: Api, controller: str, collection: str) -> list[Result]:
    """300 services of 10 pods each, until all addresses are there."""
    await api.send([create(NAMESPACES, {"metadata": {"name": "many"}})])
    await api.send(create("/api/v1/nodes", {"metadata": {"name": f"node-{number}"}}) for number in range(NODE_COUNT))
    await api.send(create(PODS, _pod(number)) for number in _pods())
    await api.send(_become(number, ready=True) for number in _pods())
    found = []
    async with manager_of(api, f"--controllers={controller}") as manager:

        async def services_come() -> None:
            await api.send(create(SERVICES, _service(number)) for number in range(SERVICE_COUNT))
            await _complete(api, collection)

        async def pods_become_ready() -> None:
            await api.send(_become(number, ready=True) for number in _pods())
            await _complete(api, collection)

        found.append(("services come", await manager.measure(SERVICE_COUNT, services_come)))
        await api.send(_become(number, ready=False) for number in _pods())
        await _complete(api, collection, ready=0)
        found.append(("pods become ready", await manager.measure(SERVICE_COUNT, pods_become_ready)))
    made = (await api.read(collection))["items"]
    await _delete(api, collection)
    async with manager_of(api, f"--controllers={controller}", ready=False) as manager:
        work = await manager.measure_from_start(SERVICE_COUNT, lambda: _complete(api, collection))
        found.append(("at the start", work))
    await _delete(api, collection)
    await _delete(api, SERVICES)
    seconds = await _bare(api, collection, made)
    title = collection.rpartition("/")[2]
    return [
        line
        for when, work in found
        for line in work.results(
            f"{title}, {when}", SERVICE_COUNT / seconds[when], aim=AIMS[when], cpu_ms=GO_SERVICE_MS
        )
    ]


async def _bare(api: Api, collection: str, made: list[dict[str, Any]]) -> dict[str, float]:
    """Seconds that a bare client needs for the calls of each case: what is followed, and one write for each service."""
    services = [create(SERVICES, _service(number)) for number in range(SERVICE_COUNT)]
    statuses = [_become(number, ready=True) for number in _pods()]
    followed = {"services come": services, "pods become ready": statuses}
    seconds = {when: len(calls) / await api.send(calls) for when, calls in followed.items()}
    writing = len(made) / await api.send((create(collection, _anew(tree)) for tree in made), connections=5)
    return {"at the start": writing, **{when: one + writing for when, one in seconds.items()}}


async def _delete(api: Api, collection: str) -> None:
    found = (await api.read(collection))["items"]
    await api.send(delete(f"{collection}/{tree['metadata']['name']}") for tree in found)


async def _complete(api: Api, collection: str, ready: int = SERVICE_COUNT * PODS_EACH) -> None:
    """Until so many addresses are ready."""

    async def holds() -> bool:
        return sum(map(_addresses, (await api.read(collection))["items"])) == ready

    await api.until(holds)


def _addresses(tree: dict[str, Any]) -> int:
    """The ready addresses of an Endpoints or of an EndpointSlice."""
    listed = sum(len(subset.get("addresses", ())) for subset in tree.get("subsets") or ())
    return listed + sum(bool(one["conditions"].get("ready")) for one in tree.get("endpoints") or ())


def _anew(tree: dict[str, Any]) -> dict[str, Any]:
    """An object to be created as another one was."""
    kept = {
        name: tree["metadata"][name]
        for name in ("name", "namespace", "labels", "annotations")
        if name in tree["metadata"]
    }
    return {**tree, "metadata": kept}


def _pods() -> range:
    return range(SERVICE_COUNT * PODS_EACH)


def _pod(number: int) -> dict[str, Any]:
    tree = pod(f"pod-{number}")
    tree["metadata"]["namespace"] = "many"
    tree["metadata"]["labels"]["app"] = f"app-{number // PODS_EACH}"
    tree["spec"]["nodeName"] = f"node-{number % NODE_COUNT}"
    return tree


def _service(number: int) -> dict[str, Any]:
    ports = [{"name": "http", "port": 80, "targetPort": 8080}]
    return {"metadata": {"name": f"web-{number}"}, "spec": {"selector": {"app": f"app-{number}"}, "ports": ports}}


def _become(number: int, *, ready: bool) -> bytes:
    """A request that makes a running pod ready or not."""
    condition = {"type": "Ready", "status": str(ready), "lastTransitionTime": "2026-01-02T03:04:05Z"}
    address = f"10.{number // 65536}.{number // 256 % 256}.{number % 256}"
    status = {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}], "conditions": [condition]}
    return patch(f"{PODS}/pod-{number}/status", {"status": status})
