"""What each kind of store does: reads, writes, watches, memory, the start after a sudden end, and compaction.

`python -m benchmarks.stores 75000 150000` measures with so many pods; what one costs must not grow with their number.
`BENCHMARK_TOKEN=TOKEN python -m benchmarks.stores --beside=PORT` measures another API server on this machine first, one
that has no pods in its namespace `default` and lets the bearer of the token do everything, and compares with that.
"""

import argparse
import asyncio
import contextlib
import itertools
import os
import shutil
import signal
import ssl
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import uvloop

from apiserver_stub.storage.embedded import EmbeddedStorage
from apiserver_stub.storage.etcd import EtcdRules, EtcdServers, EtcdStorage
from apiserver_stub.storage.interface import Storage, Write
from apiserver_stub.storage.memory import MemoryStorage
from apiserver_stub.storage.sqlite import SqliteBackend
from benchmarks.api import Watcher, creation
from benchmarks.harness import TOKEN, Result, api_server, connect, process
from benchmarks.load import request
from benchmarks.processes import Api

SIZES = (2_000, 4_000)
STORES = ("memory", "sqlite", "workers", "etcd")
_PORT, _ETCD_PORT = 16480, 16490
_PODS = "/api/v1/namespaces/default/pods"
_WRITERS, _READERS, _READS = 32, 16, 3_000
_WATCHERS, _EVENTS = 50, 100
_LISTED = 10_000  # pods that are listed again and again, at least
_TOGETHER = 100  # rows of a transaction
_OTHERS = {"create": 1_480.0, "GET": 2_400.0, "LIST": 120.0, "events": 46_000.0}  # kube-apiserver with etcd, two cores
_UNITS = {"create": "/s", "GET": "/s", "LIST": " MB/s", "events": "/s"}
_MEMORY = 8.3  # KB that a pod may take: 250 MB for 30,000
_START, _START_EACH = 1.5, 3.5 / 150_000  # seconds until ready, and for each pod
_SETTLED = 3.0  # seconds until a server that was started has given back what it took
_COMPACTION = 20.0  # ms for 1,000 records
_GROWTH = 1.25  # by how much what one costs may grow with twice as many


@dataclass
class Figures:
    """Speeds by what was done; the memory in KB, also after another start, and its seconds; with so many pods."""

    pods: int
    speeds: dict[str, float] = field(default_factory=dict)
    memory: float = 0.0
    memory_again: float = 0.0
    ready: float = 0.0
    compaction: float = 0.0

    def costs(self) -> dict[str, float]:
        """Return what one costs, of what should not grow with their number."""
        found = {what: 1 / speed for what, speed in self.speeds.items()}
        return {**found, "compaction": self.compaction}


async def run(sizes: Sequence[int] = SIZES, beside: int = 0) -> list[Result]:
    """All stores, one after the other, and before them the server at the port `beside`, if there is one."""
    others = await _speeds_of(beside, sizes[-1]) if beside else _OTHERS
    found = []
    for store in STORES:
        if store == "etcd" and shutil.which("etcd") is None:
            continue
        found += _results(store, [figures async for figures in _measured(store, sizes)], others)
    return found


def _results(store: str, found: Sequence[Figures], others: Mapping[str, float]) -> list[Result]:
    first, last = found[0], found[-1]
    at = f"{store}, {last.pods:,} pods"
    results = [
        Result(f"{at}: {what}", f"{speed:,.0f}{_UNITS[what]}", f"{top:,.0f}{_UNITS[what]}", speed / top, 1.0)
        for what, speed in last.speeds.items()
        for top in (others[what],)
    ]
    each = (last.memory - first.memory) / (last.pods - first.pods)
    results.append(_most("  memory of a pod", f"{each:.1f} KB", f"{_MEMORY} KB", each / _MEMORY))
    if store != "memory":  # which has nothing then
        each = (last.memory_again - first.memory_again) / (last.pods - first.pods)
        results.append(_most("  and when started anew", f"{each:.1f} KB", f"{_MEMORY} KB", each / _MEMORY))
        allowed = _START + _START_EACH * last.pods
        results.append(_most("  ready after kill -9", f"{last.ready:.1f} s", f"{allowed:.1f} s", last.ready / allowed))
    if last.compaction:
        figure = f"{last.compaction:.1f} ms"
        results.append(_most("  compaction of 1,000", figure, f"{_COMPACTION} ms", last.compaction / _COMPACTION))
    growth, what = max((last.costs()[what] / cost, what) for what, cost in first.costs().items() if cost)
    results.append(_most(f"  growth of costs, of {what}", f"x {growth:.2f}", f"x {_GROWTH}", growth / _GROWTH))
    return results


def _most(title: str, figure: str, ceiling: str, ratio: float) -> Result:
    return Result(title, figure, ceiling, ratio, 1.0, at_most=True)


async def _measured(store: str, sizes: Sequence[int]) -> AsyncIterator[Figures]:
    """Yield the figures of one store as it grows."""
    with tempfile.TemporaryDirectory() as name:
        folder, made = Path(name), 0
        with _etcd(folder) if store == "etcd" else contextlib.nullcontext(""):
            for size in sizes:
                figures = Figures(size, compaction=await _compaction(store, folder / f"rows{size}", size))
                async with _server(store, folder) as (api, _):
                    if store == "memory":
                        made = 0
                    await _create(api, figures, made)
                    made = size
                    await _read(api, figures)
                    figures.memory = _resident(api.pid)
                    os.kill(api.pid, signal.SIGKILL)
                if store != "memory":
                    async with _server(store, folder) as (again, figures.ready):
                        await asyncio.sleep(_SETTLED)
                        figures.memory_again = _resident(again.pid)
                yield figures


async def _speeds_of(port: int, pods: int) -> Mapping[str, float]:
    """Return what a server that runs already does with so many pods."""
    tls = ssl.create_default_context()
    tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    api, figures = Api(Path(), port, tls, 0), Figures(pods)
    await _create(api, figures, 0)
    await _read(api, figures)
    return figures.speeds


async def _create(api: Api, figures: Figures, made: int) -> None:
    """Create the pods that are lacking."""
    figures.speeds["create"] = await api.send(
        (creation(_PODS, f"pod-{number}") for number in range(made, figures.pods)), connections=_WRITERS
    )


async def _read(api: Api, figures: Figures) -> None:
    lines = [request("GET", f"{_PODS}/pod-{number}", TOKEN) for number in range(min(500, figures.pods))]
    some = itertools.islice(itertools.cycle(lines), _READS)
    figures.speeds["GET"] = await api.send(some, connections=_READERS)
    connection = await connect(api.port, api.tls)
    size, began = 0, time.monotonic()
    for _ in range(max(2, _LISTED // figures.pods)):
        _, count, _ = await connection.ask(request("GET", _PODS, TOKEN))
        size += count
    figures.speeds["LIST"] = size / (time.monotonic() - began) / 1e6
    connection.close()
    figures.speeds["events"] = await _events(api, figures.pods)


async def _events(api: Api, number: int) -> float:
    """Return how many events are told a second, of creations that others make; they are deleted again."""
    loop = asyncio.get_running_loop()
    version = (await api.read(f"{_PODS}?limit=1"))["metadata"]["resourceVersion"]
    watchers: list[Watcher] = []
    for _ in range(_WATCHERS):
        _, one = await loop.create_connection(Watcher, "127.0.0.1", api.port, ssl=api.tls, server_hostname="127.0.0.1")
        one.send(request("GET", f"{_PODS}?watch=1&resourceVersion={version}", TOKEN))
        one.expect(_EVENTS)
        watchers.append(one)
    await asyncio.sleep(0.5)
    names = [f"seen-{number}-{one}" for one in range(_EVENTS)]
    began = loop.time()
    await api.send((creation(_PODS, name) for name in names), connections=_WRITERS)
    for one in watchers:
        await one.reached.wait()
    found = _EVENTS * _WATCHERS / (loop.time() - began)
    for one in watchers:
        one.close()
    await api.send(request("DELETE", f"{_PODS}/{name}?gracePeriodSeconds=0", TOKEN) for name in names)
    return found


async def _compaction(store: str, folder: Path, pods: int) -> float:
    """Return the milliseconds that it takes to forget 1,000 superseded rows, of as many as there are pods."""
    if store == "workers":
        return 0.0  # the owner does what a single process does
    storage = _storage(store, folder, f"/rows-{pods}")
    await storage.open()
    data = b'{"metadata":{"resourceVersion":"","name":"a"},"text":"%b"}' % (b"x" * 3000)
    revision = 0
    known = [0] * pods
    for _ in range(2):
        for at in range(0, pods, _TOGETHER):
            numbers = range(at, min(pods, at + _TOGETHER))
            revision = await storage.txn([Write("pods", f"default/p{one}", known[one], data) for one in numbers])
            before = revision - len(numbers) + 1 if store != "etcd" else revision
            for place, one in enumerate(numbers):
                known[one] = before + (place if store != "etcd" else 0)
    began = time.perf_counter()
    await storage.compact(revision)
    took = time.perf_counter() - began
    await storage.close()
    return took / pods * 1e6


def _storage(store: str, folder: Path, prefix: str) -> Storage:
    if store == "etcd":
        return EtcdStorage(EtcdServers([f"http://127.0.0.1:{_ETCD_PORT}"]), EtcdRules(prefix, compaction=1e-9))
    return MemoryStorage() if store == "memory" else EmbeddedStorage(SqliteBackend(folder / "rows.db"))


@contextlib.asynccontextmanager
async def _server(store: str, folder: Path) -> AsyncIterator[tuple[Api, float]]:
    """A server on what is there already, and the seconds until it was ready."""
    flags = {
        "memory": ("--storage-backend=memory",),
        "sqlite": (),
        "workers": ("--workers=2",),
        "etcd": ("--storage-backend=etcd", f"--etcd-servers=http://127.0.0.1:{_ETCD_PORT}"),
    }[store]
    tls = ssl.create_default_context()
    tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    began = time.monotonic()
    with process(*api_server(folder, _PORT, *flags), log=folder / "server.log") as child:
        api = Api(folder, _PORT, tls, child.pid)
        await _ready(api)
        yield api, time.monotonic() - began


async def _ready(api: Api) -> None:
    until = time.monotonic() + 120
    while True:
        try:
            connection = await connect(api.port, api.tls)
            status, _, _ = await connection.ask(request("GET", "/readyz", TOKEN))
            connection.close()
        except OSError:
            status = 0
        if status == 200:
            return
        if time.monotonic() > until:
            raise RuntimeError("the server is not ready in time")
        await asyncio.sleep(0.02)


@contextlib.contextmanager
def _etcd(folder: Path) -> Iterator[None]:
    client, peer = (f"http://127.0.0.1:{_ETCD_PORT + number}" for number in (0, 1))
    urls = ("--listen-client-urls", client, "--advertise-client-urls", client, "--listen-peer-urls", peer)
    peers = ("--initial-advertise-peer-urls", peer, "--initial-cluster", f"default={peer}")
    more = ("--data-dir", str(folder / "etcd"), "--quota-backend-bytes", str(8 << 30))
    with process("etcd", *urls, *peers, *more, log=folder / "etcd.log"):
        yield


def _resident(pid: int) -> float:
    """Return the KB that a process and its children have in memory, what they share counted once."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    found = 0
    for one in (str(pid), *children):
        lines = dict(line.split(":", 1) for line in Path(f"/proc/{one}/smaps_rollup").read_text().splitlines()[1:])
        found += int(lines["Pss"].split()[0])
    return float(found)


def main() -> None:
    """Print the figures for as many pods as the arguments say, the smaller number first."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pods", type=int, nargs="*", default=SIZES, help="how many, the smaller number first")
    parser.add_argument("--beside", type=int, default=0, metavar="PORT", help="of another API server on 127.0.0.1")
    words = parser.parse_args()
    if len(words.pods) < 2 or words.pods[0] >= words.pods[-1]:
        parser.error("name two numbers of pods, the smaller first: what one pod costs is their difference")
    for result in asyncio.Runner(loop_factory=uvloop.new_event_loop).run(run(words.pods, words.beside)):
        print(result, flush=True)


if __name__ == "__main__":
    main()
