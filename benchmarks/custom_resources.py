"""Custom resources against a built-in kind of the same size, and what their definitions cost."""

import asyncio
import contextlib
import itertools
import json
import ssl
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.api import Measure, Watcher, in_turn
from benchmarks.harness import TOKEN, Result, api_server, connect, fetch, pod, process
from benchmarks.load import Connection, per_second, request

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
GROUP = "bench.example.com"
PODS = "/api/v1/namespaces/default/pods"
THINGS = f"/apis/{GROUP}/v1/namespaces/default/things"
LISTED, MADE, WATCHERS = 2000, 1000, 50
NEAR = 1 / 1.5
MANY, LONGEST, LARGEST = 500, 5.0, 100.0
FIRST = 0.1
PORT = 16446


class Server(NamedTuple):
    """A server under test."""

    port: int
    tls: ssl.SSLContext
    process: int
    connection: Connection


async def run() -> list[Result]:
    """Create, get, list and watch; then the start of a server with many definitions, and the first request of one."""
    with tempfile.TemporaryDirectory() as name:
        async with _served_from(Path(name) / "objects") as server:
            await _define(server, definition("things", "Thing", _schema()))
            for number in range(LISTED):
                await _send(server, "POST", PODS, pod(f"listed-{number}"))
                await _send(server, "POST", THINGS, thing(f"listed-{number}"))
            found = [await one(server) for one in (_get, _list, _create, _watch)]
        return [*found, *await _many(Path(name))]


@contextlib.asynccontextmanager
async def _served_from(folder: Path) -> AsyncIterator[Server]:
    """A server of what is in a folder, as soon as it answers."""
    tls = ssl.create_default_context()
    tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    await asyncio.to_thread(folder.mkdir, exist_ok=True)
    with process(*api_server(folder, PORT), log=folder / "log") as child:
        connection = await connect(PORT, tls)
        yield Server(PORT, tls, child.pid, connection)
        connection.close()


def definition(plural: str, kind: str, schema: Any) -> Any:
    """A definition of one version."""
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"plural": plural, "singular": kind.lower(), "kind": kind, "listKind": f"{kind}List"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {"group": GROUP, "scope": "Namespaced", "names": names, "versions": [version]},
    }  # fmt: skip


def thing(name: str) -> Any:
    """An object of 60 fields and 3 KB."""
    groups = {
        f"part{part}": {
            "name": f"part-{part}", "size": part, "mode": "fast", "enabled": True, "ratio": 0.5,
            "labels": {f"label-{i}": f"value-{i}" for i in range(4)},
            "ports": [{"name": "http", "port": 80, "note": "x" * 60}, {"name": "https", "port": 443, "note": "y" * 60}],
            "limit": 10, "note": "z" * 40,
        }
        for part in range(6)
    }  # fmt: skip
    return {"apiVersion": f"{GROUP}/v1", "kind": "Thing", "metadata": {"name": name}, "spec": {"replicas": 3, **groups}}


def _schema() -> Any:
    """60 fields and five rules."""
    port = {"type": "object", "required": ["name"], "properties": {
        "name": {"type": "string", "maxLength": 15}, "port": {"type": "integer", "minimum": 1, "maximum": 65535},
        "note": {"type": "string"},
    }}  # fmt: skip
    part = {"type": "object", "required": ["name"], "properties": {
        "name": {"type": "string", "maxLength": 63, "pattern": "^[a-z0-9-]+$"}, "size": {"type": "integer"},
        "mode": {"type": "string", "enum": ["fast", "slow"], "default": "slow"}, "enabled": {"type": "boolean"},
        "ratio": {"type": "number", "minimum": 0}, "limit": {"type": "integer", "format": "int32"},
        "labels": {"type": "object", "maxProperties": 20, "additionalProperties": {"type": "string", "maxLength": 63}},
        "ports": {"type": "array", "maxItems": 10, "items": port, "x-kubernetes-list-type": "map",
                  "x-kubernetes-list-map-keys": ["name"]},
        "note": {"type": "string"},
    }}  # fmt: skip
    rules = [
        {"rule": "self.replicas >= 0"},
        {"rule": "!has(self.part0) || self.part0.size <= self.part0.limit", "message": "larger than its limit"},
        {"rule": "!has(self.part1) || self.part1.ports.all(p, p.port > 0)"},
        {"rule": "!has(self.part2) || self.part2.name.startsWith('part')"},
        {"rule": "self.replicas >= oldSelf.replicas", "message": "never fewer"},
    ]
    spec = {"type": "object", "properties": {
        "replicas": {"type": "integer", "format": "int32"}, **{f"part{number}": part for number in range(6)},
    }, "x-kubernetes-validations": rules}  # fmt: skip
    return {"type": "object", "properties": {"spec": spec}}


def _large(number: int) -> Any:
    """A schema of 20 KB like no other."""
    field = {"type": "string", "maxLength": 64, "description": f"What it is for, as told by number {number}. " * 3}
    fields = {f"field{at}": field for at in range(100)}
    return {"type": "object", "properties": {"spec": {"type": "object", "properties": fields}}}


async def _get(server: Server) -> Result:
    def measure(path: str) -> Measure:
        line = request("GET", f"{path}/listed-7", TOKEN)
        return lambda: per_second(server.port, server.tls, lambda: itertools.repeat(line), connections=16, count=4000)

    return await _compared("GET", measure(THINGS), measure(PODS))


async def _list(server: Server) -> Result:
    def measure(path: str) -> Measure:
        line = request("GET", f"{path}?resourceVersion=0", TOKEN)
        return lambda: per_second(server.port, server.tls, lambda: itertools.repeat(line), connections=1, count=20)

    return await _compared(f"LIST of {LISTED:,}", measure(THINGS), measure(PODS))


async def _create(server: Server) -> Result:
    return await _compared("create, 64 writers", *_creations(server))


async def _watch(server: Server) -> Result:
    """Creation while many watch: a round ends when each of them has seen all."""
    watching = {path: await _watchers(server, path) for path in (THINGS, PODS)}

    def seen(path: str, made: Measure) -> Measure:
        async def once() -> float:
            began = time.perf_counter()
            for watcher in watching[path]:
                watcher.expect(MADE)
            await made()
            await asyncio.gather(*(watcher.reached.wait() for watcher in watching[path]))
            return MADE / (time.perf_counter() - began)

        return once

    things, pods = _creations(server)
    found = await _compared(f"create with {WATCHERS} watchers", seen(THINGS, things), seen(PODS, pods))
    for watcher in itertools.chain(*watching.values()):
        watcher.close()
    return found


async def _watchers(server: Server, path: str) -> list[Watcher]:
    listed = json.loads(await fetch(server.connection, f"{path}?limit=1"))
    line = request("GET", f"{path}?watch=1&resourceVersion={listed['metadata']['resourceVersion']}", TOKEN)
    loop, found = asyncio.get_running_loop(), []
    for _ in range(WATCHERS):
        _, watcher = await loop.create_connection(
            Watcher, "127.0.0.1", server.port, ssl=server.tls, server_hostname="127.0.0.1"
        )
        watcher.send(line)
        found.append(watcher)
    return found


_numbers = itertools.count()


def _creations(server: Server) -> tuple[Measure, Measure]:
    def measure(path: str, make: Callable[[str], Any]) -> Measure:
        async def once() -> float:
            prepared = [
                request("POST", path, TOKEN, json.dumps(make(f"made-{next(_numbers)}")).encode()) for _ in range(MADE)
            ]
            return await per_second(server.port, server.tls, lambda: iter(prepared), connections=64, count=MADE)

        return once

    return measure(THINGS, thing), measure(PODS, pod)


async def _compared(title: str, ours: Measure, built_in: Measure) -> Result:
    mine, top, ratio = await in_turn(ours, built_in)
    return Result(f"custom: {title}", f"{mine:,.0f}/s", f"{top:,.0f}/s", ratio, NEAR)


async def _many(folder: Path) -> list[Result]:
    """The start of a server with many definitions, against one without: until all are served, and its memory."""
    bodies = [definition(f"many{n}s", f"Many{n}", _large(n)) for n in range(MANY)]
    async with _served_from(folder / "many") as server:
        for body in bodies:
            await _send(server, "POST", DEFINITIONS, body)
        await _served(server, f"many{MANY - 1}s")
    alone, memory_alone = await _started(folder / "none", "")
    took, memory = await _started(folder / "many", f"many{MANY - 1}s")
    async with _served_from(folder / "none") as server:
        first = await _first(server)
    title, more = f"{MANY} definitions of {len(json.dumps(bodies[0])) // 1024} KB", memory - memory_alone
    return [
        Result(
            f"{title} loaded", f"{took - alone:.2f} s", f"{LONGEST:.0f} s", (took - alone) / LONGEST, 1, at_most=True
        ),
        Result("  their memory", f"{more:.0f} MB", f"{LARGEST:.0f} MB", more / LARGEST, 1, at_most=True),
        first,
    ]


async def _started(folder: Path, plural: str) -> tuple[float, float]:
    """Seconds until a server serves a kind, if any, and its memory then."""
    began = time.perf_counter()
    async with _served_from(folder) as server:
        if plural:
            await _served(server, plural)
        return time.perf_counter() - began, _memory(server)


async def _first(server: Server) -> Result:
    """The first object of a kind, whose schema nobody has looked at yet."""
    await _define(server, definition("firsts", "First", _schema()))
    body = {**thing("first"), "kind": "First"}
    began = time.perf_counter()
    await _send(server, "POST", THINGS.replace("things", "firsts"), body)
    took = time.perf_counter() - began
    return Result(
        "first create of a custom resource", f"{took * 1000:.0f} ms", f"{FIRST * 1000:.0f} ms", took / FIRST, 1,
        at_most=True,
    )  # fmt: skip


async def _define(server: Server, body: Any) -> None:
    await _send(server, "POST", DEFINITIONS, body)
    await _served(server, body["spec"]["names"]["plural"])


async def _served(server: Server, plural: str) -> None:
    line = request("GET", f"/apis/{GROUP}/v1/{plural}?limit=1", TOKEN)
    for _ in range(2000):
        if (await server.connection.ask(line))[0] == 200:
            return
        await asyncio.sleep(0.02)
    raise RuntimeError(f"{plural} are not served")


async def _send(server: Server, method: str, path: str, body: Any) -> None:
    status, _, _ = await server.connection.ask(request(method, path, TOKEN, json.dumps(body).encode()))
    if status >= 300:
        raise RuntimeError(f"{method} {path} answered {status}")


def _memory(server: Server) -> float:
    """The resident memory of the server, in MB."""
    lines = Path(f"/proc/{server.process}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024
