"""The pprof of the Go distribution reads the profiles of a working manager."""

import json
import re
import signal
import ssl
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest

pytestmark = [pytest.mark.e2e, pytest.mark.needs("pprof")]

PPROF = Path(sys.executable).with_name("pprof")
CONTROLLER = "endpoints-controller"
TRIES = 5  # a busy machine may leave too few samples


class Manager:
    """A manager; its profiles are public, because `go tool pprof` sends no credentials."""

    def __init__(self, folder: Path, kubeconfig: Path, port: int) -> None:
        assert PPROF.exists(), "these tests need what `make .venv/clients` installs"
        self.folder, self.url = folder, f"https://127.0.0.1:{port}/debug/pprof"
        self.authority = folder / "cluster-controller-manager.crt"
        self.environment = {"HOME": str(folder), "PPROF_TMPDIR": str(folder), "SSL_CERT_FILE": str(self.authority)}
        self.numbers = count()
        self.argv = (
            f"--kubeconfig={kubeconfig}",
            "--bind-address=127.0.0.1",
            f"--secure-port={port}",
            f"--cert-dir={folder}",
            "--authorization-always-allow-paths=/readyz,/debug/pprof/*",
            "--contention-profiling",
            "--leader-elect=false",  # the former leader may have been killed
            "--cluster-api-qps=-1",  # so that there is something to profile
        )
        self.log = (folder / "manager.log").open("w")
        self.child = subprocess.Popen([sys.executable, "-m", "controller_manager", *self.argv], stderr=self.log)
        self._wait_until_ready()

    def get(self, name: str) -> str:
        """A page as text."""
        with urllib.request.urlopen(f"{self.url}/{name}", context=self.tls, timeout=30) as answer:
            found: bytes = answer.read()
            return found.decode()

    def pprof(self, *arguments: str) -> str:
        """What `go tool pprof` prints."""
        done = subprocess.run(
            [str(PPROF), *arguments], capture_output=True, text=True, check=False, env=self.environment
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def fetch(self, name: str) -> str:
        """The file of a profile that pprof has fetched."""
        file = self.folder / f"{next(self.numbers)}.pb.gz"
        self.pprof("-proto", f"-output={file}", f"{self.url}/{name}")
        return str(file)

    def stop(self) -> None:
        self.child.send_signal(signal.SIGTERM)
        assert self.child.wait(20) == 0
        self.log.close()

    def _wait_until_ready(self) -> None:
        for _ in range(1200):
            with suppress(OSError):
                self.tls = ssl.create_default_context(cafile=self.authority)
                self.get("cmdline")
                return
            time.sleep(0.05)
        raise AssertionError(Path(self.log.name).read_text())


@pytest.fixture(scope="module")
def manager(
    control_plane: Any, tmp_path_factory: pytest.TempPathFactory, free_port: Callable[[], int]
) -> Iterator[Manager]:
    made = Manager(tmp_path_factory.mktemp("manager"), control_plane.kubeconfig, free_port())
    yield made
    made.stop()


@pytest.fixture
def work(control_plane: Any, launch: Callable[..., "subprocess.Popen[str]"], counter: Iterator[int]) -> Iterator[None]:
    """Create services one after the other during the test."""
    series = f"pprof-{next(counter)}"
    specs = [{"ports": [{"port": 80}], "selector": {"app": f"{series}-{number}"}} for number in range(1000)]
    labels = {"series": series}
    services = [
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": f"{series}-{number}", "labels": labels},
            "spec": spec,
        }
        for number, spec in enumerate(specs)
    ]
    child = launch(f"--kubeconfig={control_plane.kubeconfig}", "create", "--validate=false", "-f", "-")
    assert child.stdin is not None
    child.stdin.write(json.dumps({"apiVersion": "v1", "kind": "List", "items": services}))
    child.stdin.close()
    yield
    child.kill()
    child.wait()
    selected = f"/api/v1/namespaces/default/services?labelSelector=series%3D{series}"
    child = launch(f"--kubeconfig={control_plane.kubeconfig}", "delete", f"--raw={selected}")
    child.communicate(timeout=60)
    assert child.returncode == 0  # no other controller should work for them


def test_cpu_profile(manager: Manager, work: None) -> None:
    for _ in range(TRIES):
        file = manager.fetch("profile?seconds=1")
        tags = manager.pprof("-tags", file)
        top = manager.pprof("-top", "-cum", "-nodecount=500", "-nodefraction=0", file)
        mine = manager.pprof("-top", "-cum", "-nodefraction=0", f"-tagfocus=controller={CONTROLLER}", file)
        if "Controller._reconcile" in top and "EndpointsController.reconcile" in mine:
            break
    assert "Type: cpu" in top
    assert re.search(r"Duration: 1[.\d]*s, Total samples = \d", top)
    assert "controller_manager.framework.controller.runner.Controller._reconcile" in top
    assert re.search(rf" controller: Total .*\n(?: .*\n)*? .*: {CONTROLLER}\n", tags)
    assert f": {CONTROLLER} default/pprof-" in tags
    assert "controllers.endpoints.EndpointsController.reconcile" in mine


def test_trace(manager: Manager, work: None) -> None:
    stretches = manager.pprof("-traces", manager.fetch("trace?seconds=1")).split("-----------+-")[1:]
    assert any("state:  running" in one for one in stretches)
    assert any("state:  waiting" in one and "waits_for:  " in one for one in stretches)
    assert any(f"{CONTROLLER} default/pprof-" in one for one in stretches)


def test_heap_profile(manager: Manager) -> None:
    everything = ("-top", "-nodecount=1000", "-nodefraction=0")
    file = manager.fetch("heap?gc=1")
    assert "Type: inuse_space" in manager.pprof("-top", file)
    assert "controller_manager.common.api.core.services.Service" in manager.pprof(*everything, "-inuse_objects", file)
    assert "Type: alloc_space" in manager.pprof("-top", manager.fetch("allocs"))


def test_heap_profile_over_time(manager: Manager, work: None) -> None:
    for _ in range(TRIES):
        file = manager.fetch("heap?seconds=1")
        top = manager.pprof("-top", "-cum", "-nodecount=1000", "-nodefraction=0", file)
        if "controller_manager.framework.cache.informer.Informer." in top:
            break
    assert "controller_manager.framework.cache.informer.Informer." in top


def test_goroutine_and_thread_profiles(manager: Manager) -> None:
    tasks = manager.pprof("-traces", manager.fetch("goroutine"))
    assert "Type: goroutine" in tasks
    assert re.search(
        r"controller_manager\.framework\.cache\.informer\.Informer\._follow\n(.|\n)*?Informer\.run\n", tasks
    )
    one_by_one = manager.get("goroutine?debug=2")
    assert re.search(r'^task "informers" \[waiting for \w+\]:$', one_by_one, re.MULTILINE)
    assert ": watchdog\n" in manager.pprof("-tags", manager.fetch("threadcreate"))


def test_block_and_mutex_profiles(manager: Manager) -> None:
    block = manager.pprof("-top", manager.fetch("block"))
    assert "Type: delay" in block
    assert "Recorded since the start" in block
    assert "without locks" in manager.pprof("-top", manager.fetch("mutex"))


def test_profile_ends_with_its_client(manager: Manager) -> None:
    child = subprocess.Popen([str(PPROF), "-top", f"{manager.url}/profile?seconds=120"], env=manager.environment)
    while "cpu_profile()" not in manager.get("goroutine?debug=2"):
        assert child.poll() is None
        time.sleep(0.05)
    with pytest.raises(HTTPError) as refused:
        manager.get("trace?seconds=1")
    assert refused.value.code == 409
    assert "another profile of CPU time is being taken" in refused.value.read().decode()
    child.kill()
    child.wait()
    while "cpu_profile()" in manager.get("goroutine?debug=2"):
        time.sleep(0.05)
    assert "cpu/nanoseconds" in manager.get("profile?seconds=1&debug=1")


def test_index_and_command_line(manager: Manager) -> None:
    assert "<h1>Profiles of cluster-controller-manager</h1>" in manager.get("")
    assert manager.get("cmdline").split("\0")[1:] == list(manager.argv)
