"""An informer's first sync of 50,000 pods, in CPU seconds, and what it holds per pod; the ceiling only decodes them."""

import asyncio
import gc
import json
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator

import msgspec

from benchmarks.harness import Result, pod
from controller_manager.common.api.core import PODS, Pod
from controller_manager.common.api.wire import Request, Response
from controller_manager.common.base.runtime import Runtime, collect_garbage_seldom
from controller_manager.common.base.tasks import Tasks
from controller_manager.common.transport.authenticated import InProcessTransport
from controller_manager.framework import Client
from controller_manager.framework.cache.informers import Informers

COUNT = 50_000
PAGE = 500
ROUNDS = 5
REVISION = "1000000"


class _Listing(msgspec.Struct):
    items: list[Pod]


def run() -> list[Result]:
    """Each part in a process of its own, so that neither inherits the other's memory."""
    rounds = [(*map(float, _child("sync").split()), float(_child("decode"))) for _ in range(ROUNDS)]
    sync, memory, decode = (statistics.median(figures) for figures in zip(*rounds, strict=True))
    ratio = statistics.median(bare / ours for ours, _, bare in rounds)
    return [
        Result(f"informer first sync, {COUNT:,} pods", f"{sync:.2f} s", f"{decode:.2f} s", ratio, 0.5),
        Result("informer memory per pod", f"{memory / 1024:.1f} KB", "4.4 KB of JSON", memory / 1024, 8, at_most=True),
    ]


def _child(part: str) -> str:
    command = (sys.executable, "-m", "benchmarks.informer", part)
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def pages() -> list[bytes]:
    """The answers of a chunked list."""
    tree = pod("pod", 2048)
    tree["metadata"] |= {"uid": "0b6f8a52-5f0f-4f7e-9df0-000000000000", "resourceVersion": REVISION}
    tree["spec"]["nodeName"] = "node-17"
    tree["spec"]["tolerations"] = [
        {"key": f"node.kubernetes.io/{word}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
        for word in ("not-ready", "unreachable")
    ]
    since = {"status": "True", "lastTransitionTime": "2026-01-02T03:04:05Z"}
    tree["status"] = {
        "phase": "Running",
        "podIP": "10.1.2.3",
        "podIPs": [{"ip": "10.1.2.3"}],
        "startTime": "2026-01-02T03:04:05Z",
        "conditions": [{"type": t, **since} for t in ("Initialized", "Ready", "ContainersReady", "PodScheduled")],
    }
    record = {"manager": "kubelet", "operation": "Update", "apiVersion": "v1", "time": "2026-01-02T03:04:05Z"}
    tree["metadata"]["managedFields"] = [{**record, "fieldsType": "FieldsV1", "fieldsV1": _fields(tree)}]
    template = json.dumps(tree, separators=(",", ":")).replace('"name":"pod"', '"name":"NAME"')
    found = []
    for start in range(0, COUNT, PAGE):
        items = ",".join(template.replace("NAME", f"pod-{n}") for n in range(start, start + PAGE))
        token = f'"continue":"{start + PAGE}",' if start + PAGE < COUNT else ""
        found.append(f'{{"metadata":{{{token}"resourceVersion":"{REVISION}"}},"items":[{items}]}}'.encode())
    return found


def _fields(value: object) -> dict[str, object]:
    """All fields of a value, as a record of owners has them."""
    if isinstance(value, dict):
        return {".": {}, **{f"f:{name}": _fields(inner) for name, inner in value.items()}}
    if isinstance(value, list):
        key = next(iter(value[0]))
        return {".": {}, **{f"k:{json.dumps({key: item[key]})}": _fields(item) for item in value}}
    return {}


async def _sync() -> None:
    answers = pages()

    async def handle(request: Request) -> Response:
        query = dict(request.query)
        if "watch" in query:
            if "sendInitialEvents" in query:
                return Response(400, {}, b"")
            return Response(200, {}, _silence())
        return Response(200, {}, answers[int(query.get("continue", "0")) // PAGE])

    collect_garbage_seldom()
    before = _resident()
    began = time.process_time()
    informers = Informers(Client(InProcessTransport(handle)), Runtime("benchmark"))
    async with Tasks() as tasks:
        tasks.start(informers.run(), name="informers")
        informer = informers.get(PODS)
        await informer.synced()
        elapsed = time.process_time() - began
        assert len(informer.list()) == COUNT
        gc.collect()
        print(elapsed, (_resident() - before) / COUNT)


async def _silence() -> AsyncIterator[bytes]:
    await asyncio.Event().wait()
    yield b""


def _decode() -> None:
    answers = pages()
    decoder = msgspec.json.Decoder(_Listing)
    began = time.process_time()
    kept = [decoder.decode(answer) for answer in answers]
    elapsed = time.process_time() - began
    assert sum(len(page.items) for page in kept) == COUNT
    print(elapsed)


def _resident() -> int:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * 4096


if __name__ == "__main__":
    if sys.argv[1] == "sync":
        asyncio.run(_sync())
    else:
        _decode()
