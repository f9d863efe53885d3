"""Priority and fairness: what tenants notice of a flood by one of them, and what fairness costs a GET.

Tenants are users of one priority level, with connections of their own on which they ask one request after the other.
"""

import asyncio
import itertools
import ssl
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import uvloop

from benchmarks.harness import TOKEN, Result, api_server, connect, fill, process
from benchmarks.load import Connection, per_second, request

PATH = "/api/v1/namespaces/default/pods/pod-0"
TENANTS = 8
EACH, FLOOD = 2, 20  # connections of a tenant, and of the one that floods
SECONDS = 4.0
_START = 1.5  # seconds that the process of the flood takes to begin
ROUNDS = 3
_PORT = 16447
_OFF = ("--enable-priority-and-fairness=false", "--max-requests-inflight=0", "--max-mutating-requests-inflight=0")
_OPEN = "--authorization-mode=AlwaysAllow"


async def run() -> list[Result]:
    """Both figures, each on servers of its own."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tls = _tls()
        for part in ("fair", "first"):
            (folder / part).mkdir()
        return [await _patience(folder / "fair", tls), await _cost(folder / "first", tls)]


async def _patience(folder: Path, tls: ssl.SSLContext) -> Result:
    """The 99th percentile of seven tenants while the eighth asks ten times as much, against before."""
    with process(*_server(folder, _PORT), log=folder / "server.log"):
        await _filled(_PORT, tls)
        calm, flooded = [], []
        for _ in range(ROUNDS):
            calm.append(await _slowest(tls, EACH))
            flooded.append(await _slowest(tls, FLOOD))
    before, after = statistics.median(calm), statistics.median(flooded)
    title = "p99 of others, flood of one tenant"
    return Result(title, f"{after * 1e3:.1f} ms", f"calm {before * 1e3:.1f} ms", after / before, 2.0, at_most=True)


async def _cost(folder: Path, tls: ssl.SSLContext) -> Result:
    """GETs a second of one tenant, with fairness and without, in turn."""
    line = request("GET", PATH, f"{TOKEN}-0")
    (folder / "off").mkdir()
    with (
        process(*_server(folder, _PORT), log=folder / "on.log"),
        process(*_server(folder / "off", _PORT + 1, *_OFF), log=folder / "off.log"),
    ):
        speeds: dict[int, list[float]] = {}
        for port in (_PORT, _PORT + 1):
            await _filled(port, tls)
        for port in itertools.islice(itertools.cycle((_PORT, _PORT + 1)), 2 * (ROUNDS + 1)):
            speed = await per_second(port, tls, lambda: itertools.repeat(line), connections=16, count=6000)
            speeds.setdefault(port, []).append(speed)
    on, off = (statistics.median(found[1:]) for found in speeds.values())
    ratio = statistics.median(a / b for a, b in zip(*speeds.values(), strict=True))
    return Result("GET with priority and fairness", f"{on:,.0f}/s", f"without {off:,.0f}/s", ratio, 0.9)


def _server(folder: Path, port: int, *flags: str) -> tuple[str, ...]:
    command = api_server(folder, port, _OPEN, *flags)
    tenants = "".join(f"{TOKEN}-{number},tenant-{number},{number + 2}\n" for number in range(TENANTS))
    with (folder / "tokens.csv").open("a") as tokens:
        tokens.write(tenants)
    return command


async def _filled(port: int, tls: ssl.SSLContext) -> None:
    connection = await connect(port, tls)
    await fill(connection, 1)
    connection.close()


async def _slowest(tls: ssl.SSLContext, flood: int) -> float:
    """Return the 99th percentile of the seconds that requests of all tenants but the first take. That one asks from a
    process of its own, so that the others do not wait for each other's answers to be read.
    """
    command = (sys.executable, "-m", "benchmarks.fairness", str(flood))
    other = await asyncio.create_subprocess_exec(*command)
    await asyncio.sleep(_START)
    tenants = [tenant for tenant in range(1, TENANTS) for _ in range(EACH)]
    taken = await _asked(tls, tenants, SECONDS)
    await other.wait()
    return statistics.quantiles(taken, n=100)[98]


async def _asked(tls: ssl.SSLContext, tenants: Sequence[int], seconds: float) -> list[float]:
    """Return how long requests take that each of these tenants sends one after the other, for so many seconds."""
    taken = list[float]()
    end = time.monotonic() + seconds

    async def ask(tenant: int) -> None:
        connection = await Connection.open(_PORT, tls)
        line = request("GET", PATH, f"{TOKEN}-{tenant}")
        while (began := time.monotonic()) < end:
            status, _, _ = await connection.ask(line)
            if status not in (200, 429):
                raise RuntimeError(f"the server answered {status}")
            taken.append(time.monotonic() - began)
        connection.close()

    async with asyncio.TaskGroup() as group:
        for tenant in tenants:
            group.create_task(ask(tenant))
    return taken


def _tls() -> ssl.SSLContext:
    tls = ssl.create_default_context()
    tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    return tls


if __name__ == "__main__":
    uvloop.run(_asked(_tls(), [0] * int(sys.argv[1]), _START + SECONDS))
