"""An API server and a controller manager as processes, and what the manager does in objects a second and CPU each.

async with api_at(folder) as api:
    await api.send(creations)                                  # bare requests, as fast as they are answered
    async with manager_of(api, "--controllers=...") as manager:
        work = await manager.measure(count, act)               # act() returns once everything is as it should be
    top = await api.send(the_same_calls)                       # the ceiling, without the manager
return work.results("title", top, aim=0.5, cpu_ms=6.0)
"""

import asyncio
import contextlib
import json
import os
import ssl
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from apiserver_stub.process.pki.authorities import Authorities, CertificateIdentity
from benchmarks.harness import TOKEN, Result, api_server, connect, dechunk, process
from benchmarks.load import per_second, request
from controller_manager.common.api.platform import MANAGER_USER

API_PORT, MANAGER_PORT = 16450, 16451
_LONGEST = 60.0
_TICK = os.sysconf("SC_CLK_TCK")

Act = Callable[[], Awaitable[None]]


@dataclass(frozen=True)
class Work:
    """Measured work: so many objects, in so many seconds, with so many CPU seconds of the manager."""

    objects: int
    seconds: float
    cpu: float

    def results(
        self, title: str, ceiling: float, *, aim: float, cpu_ms: float, of: str = "Go", cpu_aim: float = 1
    ) -> list[Result]:
        """Objects a second against the ceiling's, and milliseconds of CPU each against those `of` somebody else: what
        the Go original takes, unless it is said whose they are.
        """
        speed, each = self.objects / self.seconds, self.cpu / self.objects * 1000
        return [
            Result(title, f"{speed:,.0f}/s", f"{ceiling:,.0f}/s", speed / ceiling, aim),
            Result(
                "  CPU of the manager, each",
                f"{each:.2f} ms",
                f"{of} {cpu_ms:.2g} ms",
                each / cpu_ms,
                cpu_aim,
                at_most=True,
            ),
        ]


@dataclass(frozen=True)
class Api:
    """A running API server with its durable store, spoken to as an administrator."""

    folder: Path
    port: int
    tls: ssl.SSLContext
    pid: int

    async def send(self, requests: Iterable[bytes], *, connections: int = 16) -> float:
        """Send all of them; how many were answered a second. A refusal is an error."""
        prepared = list(requests)
        made = lambda: iter(prepared)  # noqa: E731
        return await per_second(self.port, self.tls, made, connections=connections, count=len(prepared))

    async def read(self, path: str) -> Any:
        """The JSON of a GET."""
        connection = await connect(self.port, self.tls)
        connection.keep = True
        status, _, body = await connection.ask(request("GET", path, TOKEN))
        connection.close()
        if status != 200:
            raise RuntimeError(f"GET {path} answered {status}: {body[:300]!r}")
        return json.loads(body if body[:1] == b"{" else dechunk(body))

    async def count(self, path: str) -> int:
        """Return the number of objects in a collection, without reading them."""
        page = await self.read(f"{path}?limit=1")
        return len(page["items"]) + int(page["metadata"].get("remainingItemCount", 0))

    async def until(self, holds: Callable[[], Awaitable[bool]], *, every: float = 0.1) -> None:
        """Wait for a condition; asking for it costs the API server time too."""
        deadline = time.monotonic() + _LONGEST
        while not await holds():
            if time.monotonic() > deadline:
                raise RuntimeError(f"not done after {_LONGEST:g} s")
            await asyncio.sleep(every)

    async def until_count(self, path: str, count: int) -> None:
        """Wait until a collection has so many objects."""

        async def reached() -> bool:
            return await self.count(path) == count

        await self.until(reached)


@dataclass(frozen=True)
class Manager:
    """A running controller manager."""

    pid: int
    began: float

    def cpu(self) -> float:
        """CPU seconds it has taken so far."""
        return cpu_of(self.pid)

    async def measure(self, objects: int, act: Act) -> Work:
        """Return the work until `act` returns."""
        began, cpu = time.monotonic(), self.cpu()
        await act()
        return Work(objects, time.monotonic() - began, self.cpu() - cpu)

    async def measure_from_start(self, objects: int, act: Act) -> Work:
        """Return the work since the process began until `act` returns, its start included."""
        await act()
        return Work(objects, time.monotonic() - self.began, self.cpu())


@contextlib.asynccontextmanager
async def api_at(folder: Path, *flags: str, port: int = API_PORT) -> AsyncIterator[Api]:
    """An API server in that folder."""
    tls = ssl.create_default_context()
    tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    with process(*api_server(folder, port, *flags), log=folder / "server.log") as child:
        (await connect(port, tls)).close()
        yield Api(folder, port, tls, child.pid)


@contextlib.asynccontextmanager
async def manager_of(api: Api, *flags: str, port: int = MANAGER_PORT, ready: bool = True) -> AsyncIterator[Manager]:
    """A manager that leads at once and has no limits, with certificates and bodies as of cluster-up; once `ready` if
    wanted.
    """
    data = api.folder / "data"
    kubeconfig = data / "manager.kubeconfig"
    authorities = Authorities(data)
    authorities.kubeconfig(kubeconfig, f"https://127.0.0.1:{api.port}", CertificateIdentity(MANAGER_USER))
    credentials = (f"--{name}kubeconfig={kubeconfig}" for name in ("", "authentication-", "authorization-"))
    own = (f"--secure-port={port}", "--bind-address=127.0.0.1", f"--cert-dir={api.folder / 'manager'}")
    free = (
        "--leader-elect=false",
        "--cluster-api-qps=-1",
        "--cluster-api-content-type=application/json",
        f"--client-ca-file={authorities.clients.certificate_file}",
    )
    command = (sys.executable, "-m", "controller_manager", *credentials, *own, *free, *flags)
    with process(*command, log=api.folder / "manager.log") as child:
        manager = Manager(child.pid, time.monotonic())
        if ready and not await _is_ready(port, api.tls):
            raise RuntimeError(f"the manager does not become ready: {(api.folder / 'manager.log').read_text()[-2000:]}")
        yield manager


async def _is_ready(port: int, tls: ssl.SSLContext, seconds: float = 30.0) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            connection = await connect(port, tls, 1.0)
            status, _, _ = await connection.ask(request("GET", "/readyz"))
            connection.close()
            if status == 200:
                await asyncio.sleep(1)  # until its informers have read what there is
                return True
        await asyncio.sleep(0.05)
    return False


def cpu_of(pid: int) -> float:
    """CPU seconds a process has taken so far, in user and system mode."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICK


def create(path: str, tree: dict[str, Any]) -> bytes:
    """A request that creates an object in a collection."""
    return request("POST", path, TOKEN, json.dumps(tree).encode())


def delete(path: str, **options: Any) -> bytes:
    """A request that deletes an object."""
    return request("DELETE", path, TOKEN, json.dumps(options).encode() if options else b"")


def patch(path: str, change: dict[str, Any]) -> bytes:
    """A request that merges a change into an object."""
    line = request("PATCH", path, TOKEN, json.dumps(change).encode())
    return line.replace(b"Content-Type: application/json", b"Content-Type: application/merge-patch+json", 1)
