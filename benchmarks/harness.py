"""Results, processes under test, and the bytes that both sides serve."""

import asyncio
import atexit
import contextlib
import json
import os
import shutil
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.load import Connection, request

TOKEN = os.environ.get("BENCHMARK_TOKEN", "benchmark-token")
LIST_SIZE = 5000


@dataclass(frozen=True)
class Result:
    """One figure; `ratio` is what `aim` speaks of, larger is better unless `at_most`."""

    name: str
    figure: str
    ceiling: str
    ratio: float
    aim: float
    at_most: bool = False

    @property
    def reached(self) -> bool:
        return self.ratio <= self.aim if self.at_most else self.ratio >= self.aim

    def __str__(self) -> str:
        sign = "≤" if self.at_most else "≥"
        verdict = "reached" if self.reached else "MISSED"
        return (
            f"{self.name:34} {self.figure:>18} {self.ceiling:>20} {self.ratio:8.2f}   aim {sign} {self.aim:g} {verdict}"
        )


@dataclass(frozen=True)
class Pair:
    """The server under test and its ceiling, both with the same certificate."""

    port: int
    ceiling_port: int
    tls: ssl.SSLContext


def pod(name: str, size: int = 3072) -> dict[str, Any]:
    """A pod whose JSON has about `size` bytes once it is stored."""
    container = {
        "name": "main",
        "image": "registry.example/app:1.2.3",
        "ports": [{"containerPort": 8080, "name": "http", "protocol": "TCP"}],
        "env": [{"name": f"SETTING_{i}", "value": f"value-{i}"} for i in range(12)],
        "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"memory": "128Mi"}},
        "readinessProbe": {"httpGet": {"path": "/ready", "port": 8080}, "periodSeconds": 10},
    }
    tree: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": {"app": "web", "tier": "front"}},
        "spec": {"containers": [container], "restartPolicy": "Always"},
    }
    padding = size - len(json.dumps(tree)) - 750  # what the server adds: identity, defaults and status
    tree["metadata"]["annotations"] = {"example.org/padding": "x" * max(0, padding)}
    return tree


@cache
def installed() -> Mapping[str, str]:
    """Return the environment of processes under test: their Python keeps the byte code of what it has once imported, as
    it does in any ordinary installation. It is gone with this process.
    """
    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return {**os.environ, "PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": folder}


@contextlib.contextmanager
def process(*command: str, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A child process, ended with the block."""
    with log.open("wb") as out, subprocess.Popen(command, stdout=out, stderr=out, env=installed()) as child:
        try:
            yield child
        finally:
            child.terminate()
            try:
                child.wait(20)
            except subprocess.TimeoutExpired:
                child.kill()


def api_server(folder: Path, port: int, *more: str) -> tuple[str, ...]:
    """The command of an API server with a token for the load."""
    tokens = folder / "tokens.csv"
    tokens.write_text(f'{TOKEN},benchmark,1,"system:masters"\n')
    own = (f"--data-dir={folder / 'data'}", f"--secure-port={port}", "--bind-address=127.0.0.1")
    return (sys.executable, "-m", "apiserver_stub", *own, f"--token-auth-file={tokens}", *more)


async def connect(port: int, tls: ssl.SSLContext, seconds: float = 20.0) -> Connection:
    """A connection, as soon as somebody listens."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return await Connection.open(port, tls)
        except OSError:
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(0.05)


async def fetch(connection: Connection, path: str) -> bytes:
    """The body of a GET, without chunk framing."""
    connection.keep = True
    status, _, body = await connection.ask(request("GET", path, TOKEN))
    connection.keep = False
    if status != 200:
        raise RuntimeError(f"GET {path} answered {status}: {body[:300]!r}")
    return body if body[:1] == b"{" else dechunk(body)


def dechunk(body: bytes) -> bytes:
    """The content of a chunked body."""
    parts: list[bytes] = []
    at = 0
    while True:
        end = body.index(b"\r\n", at)
        size = int(body[at:end], 16)
        if size == 0:
            return b"".join(parts)
        parts.append(body[end + 2 : end + 2 + size])
        at = end + 2 + size + 2


@contextlib.asynccontextmanager
async def pair(folder: Path, *server_flags: str) -> AsyncIterator[Pair]:
    """An API server filled with `LIST_SIZE` pods, and a ceiling that serves the same bytes."""
    port, ceiling_port = 16443, 16444
    tls = ssl.create_default_context()
    tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    with process(*api_server(folder, port, *server_flags), log=folder / "server.log"):
        connection = await connect(port, tls)
        await fill(connection, LIST_SIZE)
        single = await fetch(connection, "/api/v1/namespaces/default/pods/pod-0")
        listing = await fetch(connection, "/api/v1/namespaces/default/pods")
        connection.close()
        (folder / "object.json").write_bytes(single)
        (folder / "list.json").write_bytes(listing)
        (folder / "line.json").write_bytes(b'{"type":"MODIFIED","object":' + single + b"}\n")
        with ceiling(folder, ceiling_port):
            (await connect(ceiling_port, tls)).close()
            yield Pair(port, ceiling_port, tls)


@contextlib.contextmanager
def ceiling(folder: Path, port: int) -> Iterator[None]:
    """A bare server of the bytes that are in the folder now, with the API server's certificate."""
    data = folder / "data"
    command = (sys.executable, "-m", "benchmarks.ceiling", f"--port={port}", f"--folder={folder}")
    pair = (f"--cert={data / 'apiserver.crt'}", f"--key={data / 'apiserver.key'}")
    with process(*command, *pair, log=folder / f"ceiling-{port}.log"):
        yield


async def fill(connection: Connection, count: int) -> None:
    """Create `count` pods named pod-0, pod-1, …"""
    for number in range(count):
        body = json.dumps(pod(f"pod-{number}")).encode()
        status, _, _ = await connection.ask(request("POST", "/api/v1/namespaces/default/pods", TOKEN, body))
        if status != 201:
            raise RuntimeError(f"a pod could not be created: {status}")
