"""Managers that share the deployments of one namespace, as real processes: one is killed, another
takes over its part.
"""

import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.e2e.conftest import Admin, ApiProcess

pytestmark = pytest.mark.e2e

SECONDS = 90.0
NAMES = [f"team-{number:02}" for number in range(1, 7)]
FLAGS = (
    "--leader-elect-per-controller",
    "--controllers=deployment,replicaset",
    "--controller-shards=deployment=4,replicaset=4",
    "--leader-elect-lease-duration=10s",
    "--leader-elect-renew-deadline=8s",
    "--leader-elect-retry-period=1s",
    "--secure-port=0",
)


@contextmanager
def manager(server: ApiProcess, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A manager; if it still runs at the end, it must stop cleanly."""
    command = (sys.executable, "-m", "controller_manager", f"--kubeconfig={server.kubeconfig}", *FLAGS)
    with log.open("wb") as output:
        child = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
    try:
        yield child
    finally:
        child.terminate()
        child.wait(30)


def deployment(name: str) -> dict[str, object]:
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    spec = {"replicas": 2, "selector": {"matchLabels": labels}, "template": template}
    return {"metadata": {"name": name}, "spec": spec}


def wait_for_pods(admin: Admin, replicas: int) -> None:
    """Wait until each deployment has this number of pods; none may ever have more."""
    deadline = time.monotonic() + SECONDS
    while True:
        found = Counter(one["metadata"]["labels"]["app"] for one in admin.ask("GET", PODS)["items"])
        assert all(count <= replicas for count in found.values()), found
        if found == dict.fromkeys(NAMES, replicas):
            return
        assert time.monotonic() < deadline, found
        time.sleep(0.1)


PODS = "/api/v1/namespaces/default/pods"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"


def test_killed_manager_is_replaced_without_duplicate_work(own_server: ApiProcess, tmp_path: Path) -> None:
    admin = Admin(own_server)
    with manager(own_server, tmp_path / "first") as first, manager(own_server, tmp_path / "second") as second:
        for name in NAMES:
            admin.ask("POST", DEPLOYMENTS, deployment(name))
        wait_for_pods(admin, 2)
        wait_until_both_lead(tmp_path)
        first.kill()
        first.wait(30)
        for name in NAMES:
            there = admin.ask("GET", f"{DEPLOYMENTS}/{name}")
            admin.ask("PUT", f"{DEPLOYMENTS}/{name}", {**there, "spec": {**there["spec"], "replicas": 3}})
        wait_for_pods(admin, 3)
        assert second.poll() is None
    assert second.returncode == 0


def wait_until_both_lead(logs: Path) -> None:
    deadline = time.monotonic() + SECONDS
    while not all("-shard-" in (logs / name).read_text() for name in ("first", "second")):
        assert time.monotonic() < deadline, "one has nothing to do"
        time.sleep(0.1)
