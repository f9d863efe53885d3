"""`cluster-up` as a person runs it: real processes, real signals, a real kubectl."""

import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("cluster-up")]

LEASE, RETRY = 3.0, 0.5
TERMS = (
    f"--manager-arg=--leader-elect-lease-duration={LEASE:g}s",
    "--manager-arg=--leader-elect-renew-deadline=2s",
    f"--manager-arg=--leader-elect-retry-period={RETRY * 1000:g}ms",
)


def free_port() -> int:
    """A port that is free, and so is the next one: two managers take both. No client's connection is ever given it."""
    while True:
        port = random.randrange(20_000, 32_000)
        with socket.socket() as probe, socket.socket() as following, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            following.bind(("127.0.0.1", port + 1))
            return port


class Up:
    """A running `cluster-up`."""

    def __init__(self, folder: Path, *flags: str) -> None:
        ports = (f"--api-port={free_port()}", f"--manager-port={free_port()}")
        command = (sys.executable, "-m", "controller_manager.cluster_up", f"--data-dir={folder}", *ports, *flags)
        self.folder = folder
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.said: list[str] = []

    def until(self, text: str) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.said.append(line.rstrip())
            if text in line:
                return
        raise AssertionError("\n".join(self.said))

    def kubectl(self, *words: str, stdin: str = "") -> str:
        command = (os.environ.get("KUBECTL", "kubectl"), f"--kubeconfig={self.folder / 'admin.kubeconfig'}", *words)
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False, timeout=30)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def pid(self, name: str) -> int:
        """The process of one child, by its place in the command line."""
        marker = {"apiserver": "apiserver_stub"}.get(name, f"{name}.kubeconfig")
        for entry in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                line = entry.read_bytes().decode()
            except OSError:
                continue
            if str(self.folder) in line and marker in line and "cluster_up" not in line:
                return int(entry.parent.name)
        raise AssertionError(f"{name} does not run")

    def leader(self) -> str:
        """Which manager says that it leads."""
        logs = {name: (self.folder / f"{name}.log").read_text() for name in ("manager-0", "manager-1")}
        holder = self.kubectl("get", "lease", "-n", "kube-system", "-o", "jsonpath={.items[0].spec.holderIdentity}")
        return next(name for name, log in logs.items() if f'me="{holder}"' in log)

    def stop(self) -> int:
        self.process.send_signal(signal.SIGINT)
        out, _ = self.process.communicate(timeout=30)
        self.said += out.splitlines()
        return self.process.returncode


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Up]:
    running = Up(tmp_path / "cluster", *TERMS)
    try:
        running.until("ready after")
        yield running
    finally:
        if running.process.poll() is None:
            running.stop()


def wait_for(holds: Callable[[], bool], seconds: float) -> float:
    began = time.monotonic()
    while not holds():
        assert time.monotonic() - began < seconds
        time.sleep(0.05)
    return time.monotonic() - began


def make_service(up: Up, name: str) -> None:
    spec = {"selector": {"app": name}, "ports": [{"port": 80}]}
    tree = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec}
    up.kubectl("create", "--validate=false", "-f", "-", stdin=json.dumps(tree))


def has_endpoints(up: Up, name: str) -> bool:
    return name in up.kubectl("get", "endpoints", "-o", "name").replace("endpoints/", "").split()


def test_the_main_job(up: Up) -> None:
    up.kubectl("create", "namespace", "shop")
    make_service(up, "web")
    up.kubectl("run", "web-1", "--image=example.org/web:1", "--labels=app=web")
    ready = {
        "status": {
            "phase": "Running",
            "podIP": "10.1.0.7",
            "podIPs": [{"ip": "10.1.0.7"}],
            "conditions": [{"type": "Ready", "status": "True"}],
        }
    }
    up.kubectl("patch", "pod", "web-1", "--subresource=status", "--type=merge", "-p", json.dumps(ready))
    wait_for(lambda: "10.1.0.7:80" in up.kubectl("get", "endpoints", "web"), 5)
    ready["status"]["conditions"] = [{"type": "Ready", "status": "False"}]
    up.kubectl("patch", "pod", "web-1", "--subresource=status", "--type=merge", "-p", json.dumps(ready))
    moved = "jsonpath={.subsets[0].notReadyAddresses[0].ip}"
    wait_for(lambda: up.kubectl("get", "endpoints", "web", "-o", moved) == "10.1.0.7", 5)
    up.kubectl("run", "sold", "-n", "shop", "--image=example.org/shop:1")
    up.kubectl("delete", "namespace", "shop", "--timeout=20s")
    assert "shop" not in up.kubectl("get", "namespaces", "-o", "name")


def test_every_namespace_knows_the_authority_and_it_signs(up: Up) -> None:
    up.kubectl("create", "namespace", "shop")
    authority = (up.folder / "ca.crt").read_text()
    kept = (
        "get",
        "configmap",
        "kube-root-ca.crt",
        "-n",
        "shop",
        "--ignore-not-found",
        "-o",
        r"jsonpath={.data.ca\.crt}",
    )
    wait_for(lambda: up.kubectl(*kept) == authority, 5)
    wait_for(lambda: "default" in up.kubectl("get", "serviceaccounts", "-n", "shop", "-o", "name"), 5)
    command = (Path(f"/proc/{up.pid('manager-0')}/cmdline")).read_text().split("\0")
    assert f"--cluster-signing-cert-file={up.folder / 'ca.crt'}" in command
    assert f"--cluster-signing-key-file={up.folder / 'ca.key'}" in command


def test_the_standby_takes_over(up: Up) -> None:
    first = up.leader()
    killed = time.monotonic()
    os.kill(up.pid(first), signal.SIGKILL)
    up.until(f"{first} was killed by SIGKILL")
    make_service(up, "a")
    wait_for(lambda: has_endpoints(up, "a"), LEASE + RETRY + 2)
    assert time.monotonic() - killed <= LEASE + RETRY + 2
    second = up.leader()
    assert second != first
    assert up.stop() == 0
    assert [line for line in up.said if line.endswith(" stopped")] == [f"{second} stopped", "apiserver stopped"]


def test_a_stopped_leader_hands_over_at_once(up: Up) -> None:
    first = up.leader()
    os.kill(up.pid(first), signal.SIGTERM)
    up.until(f"{first} ended with exit status 0")
    make_service(up, "a")
    assert wait_for(lambda: has_endpoints(up, "a"), LEASE) <= LEASE


def test_everything_is_there_after_a_restart(up: Up, tmp_path: Path) -> None:
    make_service(up, "kept")
    assert up.stop() == 0
    again = Up(tmp_path / "cluster", *TERMS)
    try:
        again.until("ready after")
        assert "kept" in again.kubectl("get", "services", "-o", "name")
    finally:
        again.stop()


def test_the_end_of_the_api_server_is_the_end(up: Up) -> None:
    os.kill(up.pid("apiserver"), signal.SIGKILL)
    up.until("apiserver was killed by SIGKILL; its last log lines:")
    assert up.process.stdout is not None
    up.process.stdout.read()
    assert up.process.wait(30) == 1


def test_a_busy_port_is_one_sentence(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        command = (
            sys.executable,
            "-m",
            "controller_manager.cluster_up",
            f"--data-dir={tmp_path}",
            f"--api-port={port}",
        )
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    assert done.returncode == 1
    assert re.fullmatch(rf"cluster-up: --api-port: port {port} on 127.0.0.1 is in use; .*\n", done.stderr)


def test_an_unusable_folder_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    command = (sys.executable, "-m", "controller_manager.cluster_up", f"--data-dir={tmp_path / 'file' / 'x'}")
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    assert done.returncode == 1
    assert re.fullmatch(r"cluster-up: --data-dir: .* is not a writable folder: .*\n", done.stderr)


def test_a_server_that_cannot_start_is_reported_with_its_last_words(tmp_path: Path) -> None:
    command = (sys.executable, "-m", "controller_manager.cluster_up", f"--data-dir={tmp_path}")
    ports = (f"--api-port={free_port()}", f"--manager-port={free_port()}")
    wrong = (*command, *ports, "--apiserver-arg=--no-such-flag")
    done = subprocess.run(wrong, capture_output=True, text=True, check=False, timeout=30)
    assert done.returncode == 1
    assert "no-such-flag" in done.stderr
