"""The API server against a bare server with the same TLS: get, list, durable create, watch fan-out."""

import asyncio
import itertools
import json
import statistics
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

from benchmarks.harness import LIST_SIZE, TOKEN, Pair, Result, connect, pair, pod
from benchmarks.load import Connection, per_second, request

ROUNDS = 5
PODS = "/api/v1/namespaces/default/pods"
WATCHERS = 100
CHANGES = 200

Measure = Callable[[], Awaitable[float]]


async def run() -> list[Result]:
    """All four figures, from one pair of servers."""
    with tempfile.TemporaryDirectory() as name:
        async with pair(Path(name)) as both:
            return [await get(both), await list_(both), await create(both), await fan_out(both)]


async def in_turn(ours: Measure, ceiling: Measure) -> tuple[float, float, float]:
    """Medians of both over several rounds in turn, and the median of the rounds' ratios."""
    await ours(), await ceiling()
    rounds = [(await ours(), await ceiling()) for _ in range(ROUNDS)]
    ratio = statistics.median(mine / top for mine, top in rounds)
    return statistics.median(r[0] for r in rounds), statistics.median(r[1] for r in rounds), ratio


async def get(both: Pair) -> Result:
    """GET of one 3 KB object, 16 callers."""

    def measure(port: int, path: str) -> Measure:
        line = request("GET", path, TOKEN)
        return lambda: per_second(port, both.tls, lambda: itertools.repeat(line), connections=16, count=6000)

    mine, top, ratio = await in_turn(measure(both.port, f"{PODS}/pod-7"), measure(both.ceiling_port, "/object"))
    return Result("GET of a 3 KB object", f"{mine:,.0f}/s", f"{top:,.0f}/s", ratio, 0.6)


async def list_(both: Pair) -> Result:
    """LIST of 5,000 such objects, one caller."""

    def measure(port: int, path: str) -> Measure:
        line = request("GET", path, TOKEN)
        return lambda: per_second(port, both.tls, lambda: itertools.repeat(line), connections=1, count=40)

    mine, top, ratio = await in_turn(measure(both.port, PODS), measure(both.ceiling_port, "/list"))
    return Result(f"LIST of {LIST_SIZE:,} objects", f"{mine:.1f}/s", f"{top:.1f}/s", ratio, 0.8)


async def create(both: Pair) -> Result:
    """Durable create by 64 writers."""
    numbers = itertools.count()

    def measure(port: int, path: str) -> Measure:
        async def once() -> float:
            prepared = [creation(path, f"made-{next(numbers)}") for _ in range(2000)]
            return await per_second(port, both.tls, lambda: iter(prepared), connections=64, count=len(prepared))

        return once

    mine, top, ratio = await in_turn(measure(both.port, PODS), measure(both.ceiling_port, "/create"))
    return Result("durable create, 64 writers", f"{mine:,.0f}/s", f"{top:,.0f}/s", ratio, 0.5)


def creation(path: str, name: str) -> bytes:
    """A request that creates a pod."""
    return request("POST", path, TOKEN, json.dumps(pod(name)).encode())


class Watcher(Connection):
    """A connection that only counts the events that arrive."""

    def __init__(self) -> None:
        super().__init__()
        self.events = 0
        self.wanted = 0
        self.reached = asyncio.Event()

    def data_received(self, data: bytes) -> None:
        self.events += data.count(b'{"type":')
        if self.events >= self.wanted:
            self.reached.set()

    def expect(self, more: int) -> None:
        self.wanted = self.events + more
        self.reached.clear()

    def send(self, line: bytes) -> None:
        self._transport.write(line)


async def fan_out(both: Pair) -> Result:
    """The same changes to 100 watchers; ours includes making the changes, through durable creates."""
    numbers = itertools.count()
    mine = await watchers(both, both.port, f"{PODS}?watch=1&resourceVersion={await version(both)}")
    top = await watchers(both, both.ceiling_port, "/watch")

    async def changes() -> None:
        prepared = [creation(PODS, f"seen-{next(numbers)}") for _ in range(CHANGES)]
        await per_second(both.port, both.tls, lambda: iter(prepared), connections=16, count=CHANGES)

    async def burst() -> None:
        connection = await connect(both.ceiling_port, both.tls)
        await connection.ask(request("POST", f"/burst?count={CHANGES}"))
        connection.close()

    def measure(group: list[Watcher], act: Callable[[], Awaitable[None]]) -> Measure:
        async def once() -> float:
            loop = asyncio.get_running_loop()
            for watcher in group:
                watcher.expect(CHANGES)
            began = loop.time()
            await act()
            for watcher in group:
                await watcher.reached.wait()
            return CHANGES * len(group) / (loop.time() - began)

        return once

    ours, bare, ratio = await in_turn(measure(mine, changes), measure(top, burst))
    for watcher in (*mine, *top):
        watcher.close()
    return Result(f"watch fan-out to {WATCHERS}", f"{ours:,.0f} events/s", f"{bare:,.0f} events/s", ratio, 0.6)


async def watchers(both: Pair, port: int, path: str) -> list[Watcher]:
    """Open watches."""
    loop = asyncio.get_running_loop()
    opened = []
    for _ in range(WATCHERS):
        _, watcher = await loop.create_connection(Watcher, "127.0.0.1", port, ssl=both.tls, server_hostname="127.0.0.1")
        watcher.send(request("GET", path, TOKEN))
        opened.append(watcher)
    await asyncio.sleep(1)
    return opened


async def version(both: Pair) -> str:
    """The version of the collection now."""
    connection = await connect(both.port, both.tls)
    connection.keep = True
    _, _, body = await connection.ask(request("GET", f"{PODS}?limit=1", TOKEN))
    connection.close()
    return str(json.loads(body)["metadata"]["resourceVersion"])
