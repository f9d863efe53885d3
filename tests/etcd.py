"""Members of an etcd that tests start, pause, cut off and kill."""

import contextlib
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

PROGRAM = os.environ.get("ETCD", "etcd")
_RAM = Path("/dev/shm")
_PATIENCE = 30.0


class Member:
    """One process of an etcd, on ports of its own, whose data are in memory."""

    def __init__(self, name: str, folder: Path, flags: Sequence[str] = ()) -> None:
        self.name = name
        self.port, self.peer_port = free_ports(2)
        self.url = f"http://127.0.0.1:{self.port}"
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

    def is_healthy(self) -> bool:
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
