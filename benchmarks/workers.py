"""Several processes of one API server on one store: what a read and an event cost them, and how they scale.

With workers, work goes to other cores only as far as it costs no more than in one process: so processor time for each
read and each event told is what is compared, beside the speed, which the load on the same machine shares in.
"""

import asyncio
import itertools
import os
import ssl
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.harness import TOKEN, Result, pod
from benchmarks.load import Connection, request
from benchmarks.processes import Api, api_at, cpu_of, create

_PORT = 16470
_PODS = "/api/v1/namespaces/default/pods"
_CONFIGS = "/api/v1/namespaces/default/configmaps"
_READS, _CONNECTIONS = 20_000, 32
_WATCHERS, _EVENTS = 100, 300
_EVENT = b'"type":"ADDED"'
_AIM = 0.8  # of as many times as there are workers, up to the cores


class _Figures:
    """The speeds, and the processor seconds for each thing done, of a server with so many workers."""

    def __init__(self, reads: float, read_cost: float, events: float, event_cost: float) -> None:
        self.reads = reads
        self.read_cost = read_cost
        self.events = events
        self.event_cost = event_cost


async def run() -> list[Result]:
    """Reads and watch fan-out of one process, and of two."""
    with tempfile.TemporaryDirectory() as name:
        found = []
        for workers in (1, 2):
            folder = Path(name) / str(workers)
            folder.mkdir()
            async with api_at(folder, f"--workers={workers}", port=_PORT + workers) as api:
                found.append(await _measure(api))
    one, two = found
    times = min(2, os.cpu_count() or 1)
    return [
        _speed("GETs, two workers", one.reads, two.reads, times),
        _cost("  processor time of a GET", one.read_cost, two.read_cost),
        _speed("events told, two workers", one.events, two.events, times),
        _cost("  processor time of an event", one.event_cost, two.event_cost),
    ]


def _speed(title: str, one: float, two: float, times: int) -> Result:
    return Result(title, f"{two:,.0f}/s", f"{times} x {one:,.0f}/s", two / one / times, _AIM)


def _cost(title: str, one: float, two: float) -> Result:
    return Result(title, f"{two * 1e6:.0f} µs", f"alone {one * 1e6:.0f} µs", two / one, 1 / _AIM, at_most=True)


async def _measure(api: Api) -> _Figures:
    await _answers(api)
    await api.send([create(_PODS, pod(f"pod-{number}")) for number in range(200)])
    lines = [request("GET", f"{_PODS}/pod-{number}", TOKEN) for number in range(200)]
    await api.send(itertools.islice(itertools.cycle(lines), 2000), connections=_CONNECTIONS)
    before = _cpu(api.pid)
    reads = await api.send(itertools.islice(itertools.cycle(lines), _READS), connections=_CONNECTIONS)
    read_cost = (_cpu(api.pid) - before) / _READS
    version = (await api.read(_CONFIGS))["metadata"]["resourceVersion"]
    watchers = [await _watch(api.port, api.tls, version) for _ in range(_WATCHERS)]
    loop = asyncio.get_running_loop()
    before, began = _cpu(api.pid), loop.time()
    tree = {"kind": "ConfigMap", "apiVersion": "v1", "data": {"text": "x" * 1000}}
    bodies = [create(_CONFIGS, {**tree, "metadata": {"name": f"c{number}"}}) for number in range(_EVENTS)]
    await api.send(bodies, connections=_CONNECTIONS)  # fewer would have the telling wait for the disk
    async with asyncio.timeout(60):
        while min(watcher.told for watcher in watchers) < _EVENTS:  # noqa: ASYNC110 - others are told
            await asyncio.sleep(0.01)
    told = _WATCHERS * _EVENTS
    events, event_cost = told / (loop.time() - began), (_cpu(api.pid) - before) / told
    for watcher in watchers:
        watcher.close()
    return _Figures(reads, read_cost, events, event_cost)


async def _answers(api: Api) -> None:
    """Wait until all workers serve: a connection goes to whichever takes it."""
    for _ in range(20):
        await api.read("/api/v1/namespaces/default")
        await asyncio.sleep(0.1)


class _Watcher(Connection):
    """A connection that counts the events it is told."""

    told = 0
    _rest = b""

    def data_received(self, data: bytes) -> None:
        data = self._rest + data
        self.told += data.count(_EVENT)
        self._rest = data[max(data.rfind(_EVENT) + 1, len(data) - len(_EVENT) + 1, 0) :]


async def _watch(port: int, tls: ssl.SSLContext, version: str) -> _Watcher:
    loop = asyncio.get_running_loop()
    _, made = await loop.create_connection(_Watcher, "127.0.0.1", port, ssl=tls, server_hostname="127.0.0.1")
    made._transport.write(request("GET", f"{_CONFIGS}?watch=1&resourceVersion={version}", TOKEN))
    return made


def _cpu(pid: int) -> float:
    """Processor seconds of a process and its children."""
    children: Sequence[str] = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return cpu_of(pid) + sum(cpu_of(int(child)) for child in children)
