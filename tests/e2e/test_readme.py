"""The commands of the README run as written."""

import re
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from controller_manager.cluster_up.probes import without_verifying

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def status_of(port: str, path: str, token: str) -> int:
    """Return the status of a page on this machine, requested with or without a token."""
    asked = urllib.request.Request(f"https://127.0.0.1:{port}{path}")
    if token:
        asked.add_header("Authorization", f"Bearer {token}")
    try:
        with urllib.request.urlopen(asked, context=without_verifying(), timeout=30) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


@pytest.fixture
def occupied_port() -> Iterator[int]:
    """The default port of a controller manager, bound by another program."""
    with socket.socket() as one:
        with suppress(OSError):  # used unchanged
            one.bind(("127.0.0.1", 10257))
            one.listen()
        yield 10257


@pytest.mark.usefixtures("occupied_port")
def test_readme_controller_runs_beside_make_run(
    server: Any, namespace: str, kubectl: Callable[..., str], tmp_path: Path
) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    (tmp_path / ".cluster").symlink_to(server.folder)
    program, *arguments = next(line for line in README.splitlines() if "python examples/greeter.py" in line).split()
    assert program == ".venv/bin/python"
    with (tmp_path / "log").open("w") as log:
        child = subprocess.Popen([sys.executable, *arguments], cwd=tmp_path, stderr=log)
        try:
            kubectl("run", "a", "--image=a", "-n", namespace)
            query = ("get", "pod", "a", "-n", namespace, "-o", "jsonpath={.metadata.annotations.greeting}")
            deadline = time.monotonic() + 60
            while (greeting := kubectl(*query)) != "hi" and child.poll() is None and time.monotonic() < deadline:
                time.sleep(0.05)
            assert greeting == "hi", (tmp_path / "log").read_text()
            holder = kubectl("get", "lease", "greeter", "-n", "kube-system", "-o", "jsonpath={.spec.holderIdentity}")
            assert holder
            found = re.search(r'"serving".* port=(\d+)', (tmp_path / "log").read_text())
            assert found
            kubectl("create", "serviceaccount", "scraper", "-n", namespace)
            rights = ("--clusterrole=cluster-admin", f"--serviceaccount={namespace}:scraper")
            kubectl("create", "clusterrolebinding", namespace, *rights)
            token = kubectl("create", "token", "scraper", "-n", namespace)
            assert [status_of(found[1], path, token) for path in ("/metrics", "/debug/controllers")] == [200, 200]
            assert [status_of(found[1], "/metrics", other) for other in ("forged", "")] == [401, 403]
        finally:
            child.terminate()
            assert child.wait(30) == 0
