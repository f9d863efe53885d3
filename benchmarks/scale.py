"""A large cluster on one server: its start, its memory, and what requests take beside a steady hundred writes a second.

The objects are written below the server, before it starts (`population.py`); the rest goes through its API. Times are
measured from when a request was due, so that what is late because others were is late as well. The load is a process of
its own, and shares the cores with the server.
"""

import asyncio
import itertools
import json
import os
import random
import ssl
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import uvloop

from benchmarks.harness import TOKEN, Result, api_server, connect, process
from benchmarks.load import Connection, request
from benchmarks.memory import memory_of
from benchmarks.population import Population, pod_name, populate
from benchmarks.processes import cpu_of, create, delete, patch

SMALL = Population(nodes=500, pods=15_000, services=1_000, namespaces=1_000)
FULL = Population(nodes=5_000, pods=150_000, services=10_000, namespaces=10_000)
_PORT = 16460
_FLAGS = ("--authorization-mode=Node,RBAC", "--max-requests-inflight=1000", "--max-mutating-requests-inflight=1000")
_RATES = {"mutations": 100, "reads": 50}  # a second
_PODS_BYTES = 5.1e3  # for each object, beside those of an empty server
_EMPTY = 100.0  # MB
_START = 25e-6  # seconds for each object, beside those of an empty server
_SENT = b'"example.org/sent":"'
_LONGEST = 120.0  # seconds until a server is ready
_LIVING = 20  # pods that are made before the first of them is deleted
_numbers = itertools.count()


@dataclass
class Times:
    """The seconds that requests took, by what they were."""

    found: dict[str, list[float]] = field(default_factory=dict)

    def note(self, what: str, seconds: float) -> None:
        self.found.setdefault(what, []).append(seconds)

    def result(self, title: str, what: str, most: float) -> Result:
        """The 99th percentile against its aim; with few of them the longest."""
        taken = self.found[what]
        p99 = statistics.quantiles(taken, n=100)[98] if len(taken) >= 100 else max(taken)
        return Result(title, f"{p99 * 1e3:,.1f} ms", f"{most * 1e3:,.0f} ms", p99 / most, 1, at_most=True)


@dataclass(frozen=True)
class Started:
    """A server that is ready, and what that took."""

    pid: int
    seconds: float
    cpu: float
    kill: Callable[[], None]


async def run(population: Population = SMALL, seconds: float = 10.0) -> list[Result]:
    """A cluster of that size, and the start and memory of one a quarter as large."""
    with tempfile.TemporaryDirectory() as name:
        empty, empty_memory = await _start_only(Path(name) / "empty", None)
        part = _quarter(population)
        quarter, quarter_memory = await _start_only(Path(name) / "quarter", part)
        folder = Path(name) / "whole"
        began = time.monotonic()
        await _populate(folder, population)
        seeding = population.objects / (time.monotonic() - began)
        times = Times()
        async with _server(folder) as whole:
            memory = await _settled_memory(whole.pid)
            await _load(population, seconds, times)
            loaded, _ = memory_of(whole.pid)
            whole.kill()
        async with _server(folder) as again:
            killed = again.seconds
    objects, its_part = population.objects, part.objects
    title = f"{objects:,} objects"
    most = _EMPTY + objects * _PODS_BYTES / 1e6
    start = 1.0 + objects * _START
    times_more = objects / its_part
    cpu = empty + max(quarter - empty, 0) * times_more
    linear = empty_memory + (quarter_memory - empty_memory) * times_more
    return [
        Result(f"{title} written", f"{seeding:,.0f}/s", "5,000/s", seeding / 5000, 1),
        Result("  start, to ready", f"{whole.seconds:.2f} s", f"{start:.2f} s", whole.seconds / start, 1, at_most=True),
        Result("  after kill -9 under load", f"{killed:.2f} s", f"{start:.2f} s", killed / start, 1.2, at_most=True),
        Result("  CPU of the start", f"{whole.cpu:.2f} s", f"linear {cpu:.2f} s", whole.cpu / cpu, 1.25, at_most=True),
        Result("  memory", f"{memory:,.0f} MB", f"{most:,.0f} MB", memory / most, 1, at_most=True),
        Result(
            "  memory, from a quarter", f"{memory:,.0f} MB", f"{linear:,.0f} MB", memory / linear, 1.25, at_most=True
        ),
        Result(
            "  memory after the load", f"{loaded:,.0f} MB", f"{1.3 * most:,.0f} MB", loaded / most, 1.3, at_most=True
        ),
        times.result("  mutations beside 100/s, p99", "mutations", 1.0),
        times.result("  reads of one, p99", "reads", 0.05),
        times.result("  lists of a node or namespace", "lists", 5.0),
        times.result("  lists of all, the longest", "large lists", 5.0),
        times.result("  events told after, p99", "events", 0.25),
    ]


async def run_full() -> list[Result]:
    """The size that Kubernetes is tested up to."""
    return await run(FULL, seconds=60.0)


def _quarter(population: Population) -> Population:
    sizes = (population.nodes, population.pods, population.services, population.namespaces)
    return Population(*(size // 4 for size in sizes))


async def _populate(folder: Path, population: Population) -> None:
    folder.joinpath("data").mkdir(parents=True)
    await populate(folder / "data", population.writes())


async def _start_only(folder: Path, population: Population | None) -> tuple[float, float]:
    """Return CPU seconds of a start, and MiB then."""
    if population is None:
        folder.mkdir()  # noqa: ASYNC240 - nothing else goes on
        async with _server(folder):  # certificates and default policy are made once
            pass
    else:
        await _populate(folder, population)
    async with _server(folder) as started:
        return started.cpu, await _settled_memory(started.pid)


@asynccontextmanager
async def _server(folder: Path) -> AsyncIterator[Started]:
    """Start a server; it is ended with the block."""
    began = time.monotonic()
    with process(*api_server(folder, _PORT, *_FLAGS), log=folder / "server.log") as child:
        await _ready(folder)
        yield Started(child.pid, time.monotonic() - began, cpu_of(child.pid), child.kill)


async def _ready(folder: Path) -> None:
    connection = await connect(_PORT, _tls(), _LONGEST)
    deadline = time.monotonic() + _LONGEST
    while (await connection.ask(request("GET", "/readyz", TOKEN)))[0] != 200:
        if time.monotonic() > deadline:
            raise RuntimeError(folder.joinpath("server.log").read_text()[-2000:])
        await asyncio.sleep(0.01)
    connection.close()


async def _settled_memory(pid: int) -> float:
    """Return the MiB of a process once it has nothing to do."""
    idle = 0
    while idle < 3:
        before = cpu_of(pid)
        await asyncio.sleep(0.5)
        idle = idle + 1 if cpu_of(pid) - before <= 0.02 else 0
    return memory_of(pid)[0]


class _Watcher(Connection):
    """A watch that notes how long after their requests changes are told."""

    def __init__(self, times: Times) -> None:
        super().__init__()
        self._times = times
        self._rest = b""

    def data_received(self, data: bytes) -> None:
        now = time.monotonic()
        data = self._rest + data
        *parts, self._rest = data.split(_SENT)
        for part in parts[1:] if parts else ():
            self._note(part, now)
        if parts and b'"' in self._rest[:40]:
            self._note(self._rest, now)
            self._rest = b""
        self._rest = self._rest[-64:]

    def _note(self, part: bytes, now: float) -> None:
        self._times.note("events", now - float(part[: part.index(b'"')]))

    def send(self, line: bytes) -> None:
        self._transport.write(line)


async def _load(population: Population, seconds: float, times: Times) -> None:
    """Change, read, list and watch for so many seconds."""
    loop = asyncio.get_running_loop()
    _, watcher = await loop.create_connection(lambda: _Watcher(times), "127.0.0.1", _PORT, ssl=_tls())
    watcher.send(request("GET", f"/api/v1/pods?watch=1&resourceVersion={await _version()}", TOKEN))
    async with asyncio.TaskGroup() as group:
        group.create_task(_paced("mutations", _mutations(population), seconds, times))
        group.create_task(_paced("reads", _reads(population), seconds, times))
        group.create_task(_in_turn("lists", _lists(population), seconds, times))
        group.create_task(_listed_beside(seconds, times))
    watcher.close()


async def _listed_beside(seconds: float, times: Times) -> None:
    """Have another process read large lists, which takes some time here as well."""
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "benchmarks.scale", str(seconds), stdout=asyncio.subprocess.PIPE
    )
    told, _ = await child.communicate()
    for taken in json.loads(told):
        times.note("large lists", taken)


async def _list_all(seconds: float) -> None:
    """Print the seconds that each large list took."""
    os.nice(10)
    times = Times()
    await _in_turn("large lists", _large_lists(), seconds, times)
    print(json.dumps(times.found["large lists"]))


async def _paced(what: str, requests: Iterator[bytes], seconds: float, times: Times) -> None:
    """Send so many requests a second, whether those before are answered or not."""
    free: asyncio.Queue[Connection] = asyncio.Queue()
    for _ in range(16):
        free.put_nowait(await Connection.open(_PORT, _tls()))
    rate = _RATES[what]

    async def send(line: bytes, due: float) -> None:
        connection = await free.get()
        status, _, _ = await connection.ask(line)
        free.put_nowait(connection)
        times.note(what, time.monotonic() - due)
        if status >= 300:
            raise RuntimeError(f"the server answered {status} to {line[:200]!r}")

    began = time.monotonic()
    async with asyncio.TaskGroup() as group:
        for number in range(int(rate * seconds)):
            due = began + number / rate
            await asyncio.sleep(max(due - time.monotonic(), 0))
            group.create_task(send(next(requests), due))


async def _in_turn(what: str, paths: Iterator[str], seconds: float, times: Times) -> None:
    """List one after the other, with a pause as long as a second between."""
    connection, end = await Connection.open(_PORT, _tls()), time.monotonic() + seconds
    while time.monotonic() < end:
        began = time.monotonic()
        status, _, _ = await connection.ask(request("GET", next(paths), TOKEN))
        if status != 200:
            raise RuntimeError(f"a list was answered {status}")
        times.note(what, time.monotonic() - began)
        await asyncio.sleep(0.2)
    connection.close()


def _mutations(population: Population) -> Iterator[bytes]:
    """Yield reports of kubelets on pods, renewals of leases, and pods that come and go."""
    drawn = random.Random(7)
    for number in itertools.count():
        for _ in range(4):
            yield _report(population, drawn.randrange(population.pods))
            yield _renewal(drawn.randrange(population.nodes))
        yield _creation(population.pod(drawn.randrange(population.pods)), f"made-{number}")
        if number >= _LIVING:
            yield delete(f"/api/v1/namespaces/ns-0/pods/made-{number - _LIVING}", gracePeriodSeconds=0)


def _report(population: Population, number: int) -> bytes:
    sent = {"annotations": {"example.org/sent": str(time.monotonic())}}
    namespace = population.namespace_of_pod(number)
    path = f"/api/v1/namespaces/{namespace}/pods/{pod_name(number)}/status"
    return patch(path, {"metadata": sent, "status": {"message": f"{next(_numbers)}"}})


def _renewal(number: int) -> bytes:
    path = f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/node-{number}"
    return patch(path, {"spec": {"leaseTransitions": next(_numbers)}})


def _creation(running: bytes, name: str) -> bytes:
    tree = json.loads(running)
    metadata = {"name": name, "labels": tree["metadata"]["labels"]}
    spec = {**tree["spec"], "serviceAccountName": "", "serviceAccount": ""}
    return create("/api/v1/namespaces/ns-0/pods", {"metadata": metadata, "spec": spec})


def _reads(population: Population) -> Iterator[bytes]:
    drawn = random.Random(8)
    while True:
        number = drawn.randrange(population.pods)
        path = f"/api/v1/namespaces/{population.namespace_of_pod(number)}/pods/{pod_name(number)}"
        yield request("GET", path, TOKEN)
        yield request("GET", f"/api/v1/nodes/node-{drawn.randrange(population.nodes)}", TOKEN)


def _lists(population: Population) -> Iterator[str]:
    """Yield what kubelets, controllers and people list."""
    drawn = random.Random(9)
    while True:
        namespace = f"ns-{drawn.randrange(population.namespaces)}"
        yield f"/api/v1/pods?fieldSelector=spec.nodeName%3Dnode-{drawn.randrange(population.nodes)}"
        yield f"/api/v1/namespaces/{namespace}/pods"
        yield f"/api/v1/namespaces/{namespace}/services"
        yield "/api/v1/pods?limit=500"
        yield f"/api/v1/pods?labelSelector=app%3Dapp-{drawn.randrange(population.pods // 30)}"


def _large_lists() -> Iterator[str]:
    return itertools.cycle(
        ("/api/v1/namespaces", "/api/v1/nodes", "/api/v1/services", "/api/v1/pods?resourceVersion=0")
    )


async def _version() -> str:
    connection = await Connection.open(_PORT, _tls())
    connection.keep = True
    _, _, body = await connection.ask(request("GET", "/api/v1/pods?limit=1", TOKEN))
    connection.close()
    return str(json.loads(body)["metadata"]["resourceVersion"])


def _tls() -> ssl.SSLContext:
    tls = ssl.create_default_context()
    tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    return tls


if __name__ == "__main__":
    uvloop.run(_list_all(float(sys.argv[1])))
