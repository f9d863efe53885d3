"""Namespaces deleted through the HTTP API with all that is in them: objects a second, and CPU of the manager each.

The ceiling is a bare client that knows what is in each namespace: it deletes the content of four resources, and then
removes the finalizer. It looks neither for anything else nor whether anything is left, as the controller must, and
does not wait a second for what other API servers may still let in.
"""

import json
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.harness import TOKEN, Result, pod
from benchmarks.load import request
from benchmarks.processes import Api, Work, api_at, create, delete, manager_of

NAMESPACES = "/api/v1/namespaces"
COUNT = 40
CONTENT = {"pods": 10, "configmaps": 10, "secrets": 5}
OBJECTS = COUNT * sum(CONTENT.values())
LONGEST = 2.0
GO_SPEED = 107.0


async def run() -> list[Result]:
    """40 namespaces of 25 objects each, until none of them is there."""
    with tempfile.TemporaryDirectory() as name:
        async with api_at(Path(name)) as api:
            before = await api.count(NAMESPACES)
            await _fill(api)
            async with manager_of(api, "--controllers=namespace") as manager:

                async def act() -> None:
                    await api.send(delete(f"{NAMESPACES}/{name}") for name in _names())
                    await api.until_count(NAMESPACES, before)

                work = await manager.measure(OBJECTS, act)
            await _fill(api)
            top = await _bare(api)
    speed, each, bare = work.objects / work.seconds, work.cpu / work.objects * 1000, top.cpu / top.objects * 1000
    title = f"{COUNT} namespaces of {OBJECTS // COUNT} objects"
    top_speed, go = top.objects / top.seconds, f"Go {OBJECTS / GO_SPEED:.1f} s"
    return [
        Result(f"{title} deleted", f"{speed:,.0f}/s", f"{top_speed:,.0f}/s", speed / top_speed, 0.1),
        Result("  until all are gone", f"{work.seconds:.2f} s", go, work.seconds / LONGEST, 1, at_most=True),
        Result("  CPU of the manager, each", f"{each:.2f} ms", f"{bare:.2f} ms", each / bare, 10, at_most=True),
    ]


async def _fill(api: Api) -> None:
    await api.send(create(NAMESPACES, {"metadata": {"name": name}}) for name in _names())
    await api.send(
        create(f"{NAMESPACES}/{name}/{plural}", _object(plural, number, name))
        for name in _names()
        for plural, count in CONTENT.items()
        for number in range(count)
    )


async def _bare(api: Api) -> Work:
    """The same done by somebody who need not look for it."""
    began, cpu = time.monotonic(), time.process_time()
    await api.send(delete(f"{NAMESPACES}/{name}") for name in _names())
    for plural in CONTENT:
        await api.send(delete(f"{NAMESPACES}/{name}/{plural}") for name in _names())
    await api.send(
        _finalize(tree) for tree in (await api.read(NAMESPACES))["items"] if "deletionTimestamp" in tree["metadata"]
    )
    return Work(OBJECTS, time.monotonic() - began, time.process_time() - cpu)


def _finalize(tree: dict[str, Any]) -> bytes:
    path = f"{NAMESPACES}/{tree['metadata']['name']}/finalize"
    return request("PUT", path, TOKEN, json.dumps({**tree, "spec": {"finalizers": []}}).encode())


def _names() -> Iterator[str]:
    return (f"space-{number}" for number in range(COUNT))


def _object(plural: str, number: int, namespace: str) -> dict[str, Any]:
    if plural == "pods":
        tree = pod(f"it-{number}")
        tree["metadata"]["namespace"] = namespace
        return tree
    return {"metadata": {"name": f"it-{number}"}, "data": {"key": "dmFsdWU="}}
