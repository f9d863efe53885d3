"""Large answers beside short requests: what writers and readers keep of their speed while others list or watch.

Eight writers create, two readers get, each one request after the other; the large answers are taken by a process of its
own, which yields to them. What the short requests do meanwhile is compared with what they did just before; watches are
open by then, and are told what the writers do.
"""

import asyncio
import itertools
import json
import os
import ssl
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import uvloop

from benchmarks.api import PODS, Watcher, creation
from benchmarks.harness import TOKEN, Result, api_server, connect, fetch, pod, process
from benchmarks.load import Connection, request
from benchmarks.processes import create

LISTED = "/api/v1/namespaces/listed/pods"
WRITERS, READERS, WATCHERS = 8, 2, 400
SECONDS, ROUNDS = 3.0, 3
_PORT = 16452
_READY = b"ready\n"
_SIZE = 4800  # bytes of a pod that is listed
_PROTOBUF = "application/vnd.kubernetes.protobuf"
_names = itertools.count()


@dataclass(frozen=True)
class Speed:
    """Creates and gets a second, and the 99th percentile of the seconds that a get takes."""

    creates: float
    gets: float
    slowest: float


async def run() -> list[Result]:
    """Each sort of large answers on a server of its own."""
    return [
        *await _beside("2,000 pods listed", 2000, f"{LISTED}?limit=2000"),
        *await _beside("20 MB of protobuf listed", 6000, LISTED, _PROTOBUF),
        *await _beside(f"{WATCHERS} watchers", 0, f"{PODS}?watch=1"),
    ]


async def _beside(title: str, count: int, path: str, media: str = "application/json") -> list[Result]:
    """Measure the short requests with and without the large answers, in turn."""
    tls = _tls()
    with tempfile.TemporaryDirectory() as name, process(*api_server(Path(name), _PORT), log=Path(name) / "log"):
        await _fill(tls, count)
        await _short(tls, 1.0)
        calm, busy, answers = [], [], list[float]()
        for _ in range(ROUNDS):
            calm.append(await _short(tls, SECONDS))
            other = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "benchmarks.mixed", path, media),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
            )
            assert other.stdout is not None
            if await other.stdout.readline() != _READY:
                raise RuntimeError("the large answers cannot be taken")
            busy.append(await _short(tls, SECONDS))
            told, _ = await other.communicate(b"")  # with input, or standard input would stay open
            answers.append(float(told))
    creates, gets, slowest = (
        [statistics.median(getattr(one, figure) for one in speeds) for speeds in (busy, calm)]
        for figure in ("creates", "gets", "slowest")
    )
    per_second = statistics.median(answers)
    return [
        Result(f"creates, {title}", f"{creates[0]:,.0f}/s", f"{creates[1]:,.0f}/s", creates[0] / creates[1], 0.7),
        Result("  GETs", f"{gets[0]:,.0f}/s", f"{gets[1]:,.0f}/s", gets[0] / gets[1], 0.7),
        Result("  p99 of a GET", f"{slowest[0] * 1e3:.1f} ms", "10 ms", slowest[0] * 100, 1.0, at_most=True),
        Result("  MB of large answers", f"{per_second / 1e6:.1f}/s", "10/s", per_second / 1e7, 1.0),
    ]


async def _fill(tls: ssl.SSLContext, count: int) -> None:
    connection = await connect(_PORT, tls)
    await connection.ask(create("/api/v1/namespaces", {"metadata": {"name": "listed"}}))
    for number in range(count):
        status, _, _ = await connection.ask(create(LISTED, _listed(number)))
        if status != 201:
            raise RuntimeError(f"a pod could not be created: {status}")
    await connection.ask(creation(PODS, "read"))
    connection.close()


def _listed(number: int) -> dict[str, object]:
    tree = pod(f"pod-{number}", _SIZE)
    tree["metadata"]["namespace"] = "listed"
    return tree


async def _short(tls: ssl.SSLContext, seconds: float) -> Speed:
    """Create and get for so many seconds."""
    read, made, taken = request("GET", f"{PODS}/read", TOKEN), list[float](), list[float]()
    prepared = [creation(PODS, f"made-{next(_names)}") for _ in range(int(3000 * seconds))]
    connections = [await Connection.open(_PORT, tls) for _ in range(WRITERS + READERS)]
    end = time.monotonic() + seconds

    async def ask(connection: Connection, found: list[float], *, writes: bool) -> None:
        while (began := time.monotonic()) < end and prepared:
            status, _, _ = await connection.ask(prepared.pop() if writes else read)
            if status >= 300:
                raise RuntimeError(f"the server answered {status}")
            found.append(time.monotonic() - began)
        connection.close()

    async with asyncio.TaskGroup() as group:
        for number, connection in enumerate(connections):
            writes = number < WRITERS
            group.create_task(ask(connection, made if writes else taken, writes=writes))
    return Speed(len(made) / seconds, len(taken) / seconds, statistics.quantiles(taken, n=100)[98])


async def _take(path: str, media: str) -> float:
    """Take large answers until standard input ends; return how many bytes came a second since it was said that they
    do.
    """
    os.nice(10)
    over = asyncio.Event()
    asyncio.get_running_loop().add_reader(sys.stdin, over.set)
    if "watch=1" in path:
        return await _watch(path, over)
    return await _list(request("GET", path, TOKEN).replace(b"application/json", media.encode(), 1), over)


async def _list(line: bytes, over: asyncio.Event) -> float:
    connection = await Connection.open(_PORT, _tls())
    await _answer(connection, line)
    size, began = 0, _say_ready()
    while not over.is_set():
        size += await _answer(connection, line)
    connection.close()
    return size / (time.monotonic() - began)


async def _answer(connection: Connection, line: bytes) -> int:
    status, length, _ = await connection.ask(line)
    if status != 200:
        raise RuntimeError(f"the server answered {status}")
    return length


class _Counting(Watcher):
    """A watcher that counts bytes, of which the first are the head of its answer."""

    def data_received(self, data: bytes) -> None:
        self.events += len(data)
        self.reached.set()


async def _watch(path: str, over: asyncio.Event) -> float:
    """Open watches of what comes from now on, and count when all are open."""
    loop, tls, opened = asyncio.get_running_loop(), _tls(), []
    page = json.loads(await fetch(await connect(_PORT, tls), f"{PODS}?limit=1"))
    line = request("GET", f"{path}&resourceVersion={page['metadata']['resourceVersion']}", TOKEN)
    for _ in range(WATCHERS):
        _, watcher = await loop.create_connection(_Counting, "127.0.0.1", _PORT, ssl=tls, server_hostname="127.0.0.1")
        watcher.send(line)
        opened.append(watcher)
    for watcher in opened:
        await watcher.reached.wait()
    before, began = sum(watcher.events for watcher in opened), _say_ready()
    await over.wait()
    return (sum(watcher.events for watcher in opened) - before) / (time.monotonic() - began)


def _say_ready() -> float:
    """Tell who started this process that it takes answers now, and return the time."""
    sys.stdout.buffer.write(_READY)
    sys.stdout.buffer.flush()
    return time.monotonic()


def _tls() -> ssl.SSLContext:
    tls = ssl.create_default_context()
    tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    return tls


if __name__ == "__main__":
    print(uvloop.run(_take(*sys.argv[1:])))
