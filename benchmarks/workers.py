"""Several processes of one API server on one store: what a read and an event cost them, and how they scale.

The load runs on the same cores as the servers, so two workers are never twice as fast as one process here. The ceiling
is what these cores allow: two API servers that know nothing of each other, each with half of the readers and half of
the watchers, and with all of the writes.
"""

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.harness import TOKEN, Result, pod
from benchmarks.load import Connection, request
from benchmarks.processes import Api, api_at, cpu_of, create
from controller_manager.common.base.tasks import all_of

_PORT = 16470
_PODS = "/api/v1/namespaces/default/pods"
_CONFIGS = "/api/v1/namespaces/default/configmaps"
_READS, _CONNECTIONS = 20_000, 64
_WATCHERS, _EVENTS = 600, 100
_EVENT = b'"type":"ADDED"'
_AIM = 0.8  # of what servers apart do


@dataclass(frozen=True)
class _Figures:
    """Reads and events a second, and the processor seconds of the servers for each."""

    reads: float
    read_cost: float
    events: float
    event_cost: float


async def run() -> list[Result]:
    """Reads and watch fan-out of two workers, of two servers apart, and of one process."""
    alone, shared, apart = [await _measure(workers) for workers in ([1], [2], [1, 1])]
    return [
        _speed("GETs, two workers", shared.reads, apart.reads),
        _cost("  processor time of a GET", shared.read_cost, apart.read_cost, alone.read_cost),
        _speed("events told, two workers", shared.events, apart.events),
        _cost("  processor time of an event", shared.event_cost, apart.event_cost, alone.event_cost),
    ]


def _speed(title: str, shared: float, apart: float) -> Result:
    return Result(title, f"{shared:,.0f}/s", f"apart {apart:,.0f}/s", shared / apart, _AIM)


def _cost(title: str, shared: float, apart: float, alone: float) -> Result:
    figure = f"{shared * 1e6:.0f} µs, one {alone * 1e6:.0f} µs"
    return Result(title, figure, f"apart {apart * 1e6:.0f} µs", shared / apart, 1 / _AIM, at_most=True)


async def _measure(workers: Sequence[int]) -> _Figures:
    """Of a server for each number of workers; they share the load."""
    async with AsyncExitStack() as stack:
        apis = [await stack.enter_async_context(_server(number, count)) for number, count in enumerate(workers)]
        return await _figures(apis)


@asynccontextmanager
async def _server(number: int, workers: int) -> AsyncIterator[Api]:
    with tempfile.TemporaryDirectory() as name:
        async with api_at(Path(name), f"--workers={workers}", port=_PORT + number) as api:
            await _answers(api)
            await api.send([create(_PODS, pod(f"pod-{number}")) for number in range(200)])
            yield api


async def _figures(apis: Sequence[Api]) -> _Figures:
    lines = [request("GET", f"{_PODS}/pod-{number}", TOKEN) for number in range(200)]
    await _send(apis, lines * 5)
    before, began = _cpu(apis), time.monotonic()
    await _send(apis, lines * (_READS // len(lines) // len(apis)))
    reads, read_cost = _READS / (time.monotonic() - began), (_cpu(apis) - before) / _READS
    watchers = [watcher for api in apis for watcher in await _watch(api, _WATCHERS // len(apis))]
    tree = {"kind": "ConfigMap", "apiVersion": "v1", "data": {"text": "x" * 1000}}
    bodies = [create(_CONFIGS, {**tree, "metadata": {"name": f"c{number}"}}) for number in range(_EVENTS)]
    before, began = _cpu(apis), time.monotonic()
    await _send(apis, bodies)
    async with asyncio.timeout(60):
        while min(watcher.told for watcher in watchers) < _EVENTS:  # noqa: ASYNC110 - others are told
            await asyncio.sleep(0.01)
    told = _WATCHERS * _EVENTS
    events, event_cost = told / (time.monotonic() - began), (_cpu(apis) - before) / told
    for watcher in watchers:
        watcher.close()
    return _Figures(reads, read_cost, events, event_cost)


async def _send(apis: Sequence[Api], requests: Sequence[bytes]) -> None:
    """Send all of them to each server."""
    connections = _CONNECTIONS // len(apis)  # fewer would have the telling wait for the disk
    await all_of(*(api.send(requests, connections=connections) for api in apis))


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


async def _watch(api: Api, count: int) -> list[_Watcher]:
    """Open so many watches of what comes from now on."""
    version = (await api.read(_CONFIGS))["metadata"]["resourceVersion"]
    loop, opened = asyncio.get_running_loop(), []
    for _ in range(count):
        _, made = await loop.create_connection(
            _Watcher, "127.0.0.1", api.port, ssl=api.tls, server_hostname="127.0.0.1"
        )
        made._transport.write(request("GET", f"{_CONFIGS}?watch=1&resourceVersion={version}", TOKEN))
        opened.append(made)
    return opened


def _cpu(apis: Sequence[Api]) -> float:
    """Processor seconds of the processes and their children."""
    pids = [api.pid for api in apis]
    children = [int(child) for pid in pids for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return sum(map(cpu_of, [*pids, *children]))
