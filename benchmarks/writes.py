"""Writes that do more than keep a body, against the bare server that commits the same bytes in groups."""

import itertools
import json
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.api import PODS, Measure, in_turn
from benchmarks.harness import TOKEN, Pair, Result, pair, pod
from benchmarks.load import per_second, request

SERVICES = "/api/v1/namespaces/default/services"
APPLY = (b"Content-Type: application/json", b"Content-Type: application/apply-patch+yaml")
WRITERS, COUNT = 64, 1000
POOL = 200  # objects that are applied in turn

Requests = Callable[[], Iterator[bytes]]


async def run() -> list[Result]:
    """Server-side apply, and creation through admission."""
    with tempfile.TemporaryDirectory() as name:
        async with pair(Path(name), "--service-cluster-ip-range=10.0.0.0/16") as both:
            return [await apply(both), await admission(both)]


async def apply(both: Pair) -> Result:
    """Server-side apply of a 3 KB object that is there, with one field changed each time."""
    number = itertools.count()

    def applications() -> Iterator[bytes]:
        for _ in range(COUNT + WRITERS):
            at = next(number)
            tree = pod(f"applied-{at % POOL}")
            tree["metadata"]["labels"]["round"] = str(at // POOL)
            path = f"{PODS}/applied-{at % POOL}?fieldManager=benchmark"
            yield request("PATCH", path, TOKEN, json.dumps(tree).encode()).replace(*APPLY)

    def bodies() -> Iterator[bytes]:
        return itertools.repeat(request("POST", "/create", TOKEN, json.dumps(pod("applied")).encode()))

    return await _measured(both, "server-side apply, 64 writers", applications, bodies)


async def admission(both: Pair) -> Result:
    """Creation of services, each with an address and the object that says so: two bodies for the bare server."""
    number = itertools.count()

    def services() -> Iterator[bytes]:
        for _ in range(COUNT + WRITERS):
            yield request("POST", SERVICES, TOKEN, service(f"made-{next(number)}"))

    def bodies() -> Iterator[bytes]:
        return itertools.repeat(request("POST", "/create", TOKEN, service("made")))

    return await _measured(both, "create with admission, 64 writers", services, bodies, 2)


def service(name: str) -> bytes:
    """A service as people write it."""
    spec = {"selector": {"app": "web"}, "ports": [{"name": "http", "port": 80, "targetPort": 8080}]}
    return json.dumps({"metadata": {"name": name, "labels": {"app": "web"}}, "spec": spec}).encode()


async def _measured(both: Pair, title: str, ours: Requests, bare: Requests, commits: int = 1) -> Result:
    """Requests a second of both; one of ours makes so many `commits`, for each of which the bare server has its own."""

    def measure(port: int, make: Requests, each: int = 1) -> Measure:
        async def once() -> float:
            prepared = list(itertools.islice(make(), COUNT + WRITERS))
            return await per_second(port, both.tls, lambda: iter(prepared), connections=WRITERS, count=COUNT) / each

        return once

    mine, top, ratio = await in_turn(measure(both.port, ours), measure(both.ceiling_port, bare, commits))
    return Result(title, f"{mine:,.0f}/s", f"{top:,.0f}/s", ratio, 0.2)
