"""Members of an etcd that tests start, pause, cut off and kill."""

import asyncio
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Self

PROGRAM = os.environ.get("ETCD", "etcd")
_RAM = Path("/dev/shm")
_PATIENCE = 30.0


class Member:
    """One process of an etcd, on ports of its own, whose data are in memory."""

    def __init__(self, name: str, folder: Path, flags: Sequence[str] = ()) -> None:
        self.name = name
        self.port, self.peer_port = free_ports(2)
        self.url = f"{'https' if '--client-cert-auth' in flags else 'http'}://127.0.0.1:{self.port}"
        self.peer_url = f"http://127.0.0.1:{self.peer_port}"
        self._folder = folder / name
        self._flags = flags
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, cluster: str, state: str = "new") -> None:
        log = self._folder.with_suffix(".log").open("ab")
        self.process = subprocess.Popen(
            [
                *(PROGRAM, "--name", self.name, "--data-dir", str(self._folder), "--logger=zap"),
                *("--listen-client-urls", self.url, "--advertise-client-urls", self.url),
                *("--listen-peer-urls", self.peer_url, "--initial-advertise-peer-urls", self.peer_url),
                *("--initial-cluster", cluster, "--initial-cluster-state", state, *self._flags),
            ],
            stdout=log,
            stderr=log,
        )
        log.close()

    def send(self, number: signal.Signals) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(number)

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def leads(self) -> bool:
        """Return whether this is the leader of the members."""
        try:
            ask = urllib.request.Request(f"{self.url}/v3/maintenance/status", data=b"{}", method="POST")
            with urllib.request.urlopen(ask, timeout=1) as answer:
                found = json.load(answer)
        except OSError:
            return False
        return bool(found["leader"] == found["header"]["member_id"])

    def is_healthy(self) -> bool:
        if self.url.startswith("https:"):  # those who would ask are no clients of it
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1):
                return True
            return False
        try:
            with urllib.request.urlopen(f"{self.url}/health", timeout=1) as answer:
                return b'"true"' in answer.read()
        except OSError:
            return False


class Etcd:
    """Some members."""

    def __init__(self, members: int, folder: Path, flags: Sequence[str] = ()) -> None:
        self.members = [Member(f"m{number}", folder, flags) for number in range(members)]
        self._cluster = ",".join(f"{member.name}={member.peer_url}" for member in self.members)

    @property
    def urls(self) -> list[str]:
        return [member.url for member in self.members]

    def start(self) -> None:
        for member in self.members:
            member.start(self._cluster)
        self.settle()

    def restart(self, member: Member) -> None:
        member.start(self._cluster, "existing")

    def settle(self) -> None:
        """Wait until all members take part."""
        until = time.monotonic() + _PATIENCE
        while not all(member.is_healthy() for member in self.members):
            for member in self.members:
                assert member.process is None or member.process.poll() is None, f"{member.name} ended"
            assert time.monotonic() < until, "etcd is not healthy in time"
            time.sleep(0.02)

    def stop(self) -> None:
        for member in self.members:
            member.send(signal.SIGCONT)
            member.kill()


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in sockets]


@contextlib.contextmanager
def running(members: int = 1, *flags: str) -> Iterator[Etcd]:
    """An etcd that is there for a while."""
    folder = Path(tempfile.mkdtemp(dir=_RAM if _RAM.is_dir() else None))
    etcd = Etcd(members, folder, flags)
    try:
        etcd.start()
        yield etcd
    finally:
        etcd.stop()
        shutil.rmtree(folder, ignore_errors=True)


class Partition:
    """The way to a member, which can be cut, and on which requests or answers can be kept back."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._streams: set[asyncio.StreamWriter] = set()
        self._is_cut = False
        self._requests, self._answers = asyncio.Event(), asyncio.Event()
        self._requests.set()
        self._answers.set()
        self.port = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        self.cut()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def cut(self) -> None:
        """Break all connections, and let none through."""
        self._is_cut = True
        self._requests.set()
        self._answers.set()
        for writer in self._streams:
            writer.transport.abort()

    def heal(self) -> None:
        self._is_cut = False

    def keep_answers(self) -> None:
        """Let requests through, and no answers."""
        self._answers.clear()

    def keep_requests(self) -> None:
        """Let nothing more through to the member."""
        self._requests.clear()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._is_cut:
            writer.transport.abort()
            return
        try:
            inner, out = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            writer.transport.abort()
            return
        self._streams |= {writer, out}
        copies = [
            asyncio.create_task(self._copy(reader, out, self._requests)),
            asyncio.create_task(self._copy(inner, writer, self._answers)),
        ]
        try:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait(copies)
        finally:
            for copy in copies:
                copy.cancel()
            for one in (writer, out):
                self._streams.discard(one)
                one.transport.abort()

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, allowed: asyncio.Event) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(1 << 16):
                await allowed.wait()
                if self._is_cut:
                    break
                writer.write(data)
                await writer.drain()
        writer.transport.abort()
