"""Costs of sending objects in protobuf, the default of the manager, against sending them as JSON: CPU on one core.

The ceiling is JSON in the same process: protobuf is there for servers that read it faster, and here both sides are
Python. "client" is a client that somebody answers at once, "both" a client and an API server on a store in memory.
"""

import json
import statistics
import time
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from benchmarks.harness import Result, pod
from controller_manager.common.api.core import ENDPOINTS, PODS, Endpoints, Pod
from controller_manager.common.api.model import Object
from controller_manager.common.api.wire import Request, Response
from controller_manager.common.transport.authenticated import InProcessTransport
from controller_manager.common.transport.transport import Handle
from controller_manager.framework import Client
from controller_manager.framework.client.requests import JSON, PROTOBUF, RequestEncoder
from controller_manager.testing import Cluster
from controller_manager.testing.cluster import ADMIN

COUNT, ROUNDS = 300, 5
ADDRESSES = 20

Make = Callable[[str], Object]
Write = Callable[[Client, Any], Awaitable[None]]


async def run() -> list[Result]:
    """Creations of pods, and creations with an update of endpoints."""
    steps: tuple[tuple[str, Make, Write], ...] = (
        ("3 KB pod, create", _pod, _create),
        ("endpoints, create + update", _endpoints, _create_and_update),
    )
    found = []
    for title, make, write in steps:
        found.append(_result(f"client: {title}", await _in_turn(_answer_with(make("answer")), make, write), 0.2))
        async with Cluster() as cluster:
            found.append(_result(f"both: {title}", await _in_turn(cluster.transport(ADMIN).send, make, write), 0.4))
    return found


async def _in_turn(handle: Handle, make: Make, write: Write) -> list[tuple[float, float]]:
    """Microseconds of CPU of a write as JSON and in protobuf, round by round."""
    clients = [Client(InProcessTransport(handle), bodies=RequestEncoder(media)) for media in (JSON, PROTOBUF)]
    rounds = []
    for number in range(ROUNDS + 1):
        as_json, in_protobuf = [
            await _cpu(client, write, [make(f"{number}-{at}-{count}") for count in range(COUNT)])
            for at, client in enumerate(clients)
        ]
        rounds.append((as_json, in_protobuf))
    return rounds[1:]  # the first one makes what is kept


async def _cpu(client: Client, write: Write, objects: list[Object]) -> float:
    began = time.process_time()
    for obj in objects:
        await write(client, obj)
    return (time.process_time() - began) / len(objects) * 1e6


async def _create(client: Client, made: Pod) -> None:
    await client.create(PODS, made)


async def _create_and_update(client: Client, made: Endpoints) -> None:
    kept = await client.create(ENDPOINTS, made)
    (subset,) = kept.subsets
    changed = msgspec.structs.replace(subset, addresses=subset.addresses[1:])
    await client.update(ENDPOINTS, msgspec.structs.replace(kept, subsets=(changed,)))


def _pod(name: str) -> Pod:
    return Pod.decode(json.dumps(pod(name)).encode())


def _endpoints(name: str) -> Endpoints:
    target = {"kind": "Pod", "namespace": "default", "uid": "0b6f8a52-5f0f-4f7e-9df0-000000000000"}
    addresses = [
        {"ip": f"10.0.0.{at + 1}", "nodeName": "node-1", "targetRef": {**target, "name": f"web-{at}"}}
        for at in range(ADDRESSES)
    ]
    subset = {"addresses": addresses, "ports": [{"name": "http", "port": 80, "protocol": "TCP"}]}
    tree = {"apiVersion": "v1", "kind": "Endpoints", "metadata": {"name": name, "namespace": "default"}}
    return Endpoints.decode(json.dumps({**tree, "subsets": [subset]}).encode())


def _answer_with(obj: Object) -> Handle:
    """Answers every write with the same object."""

    async def answer(_: Request) -> Response:
        return Response(200, {}, obj.raw)

    return answer


def _result(title: str, rounds: list[tuple[float, float]], aim: float) -> Result:
    as_json, in_protobuf = (statistics.median(figures) for figures in zip(*rounds, strict=True))
    ratio = statistics.median(bare / ours for bare, ours in rounds)
    return Result(title, f"{in_protobuf:.0f} µs", f"{as_json:.0f} µs as JSON", ratio, aim)
