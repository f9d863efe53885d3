"""Time to ready: the in-process cluster with all controllers, and `cluster-up` with two managers; what `--help` costs.

Python keeps the byte code of what it has once imported, as it does in any ordinary installation.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from benchmarks.harness import Result

ROUNDS = 5
IN_PROCESS = """
import time
began = time.perf_counter()
from controller_manager.api.core import ENDPOINTS, SERVICES
from controller_manager.api.resource import Key
from controller_manager.testing import Cluster, builders, run
async def main():
    async with Cluster() as cluster:
        await cluster.manage()
        await cluster.client.create(SERVICES, builders.service("web", {"app": "web"}))
        await cluster.settle()
        await cluster.client.get(ENDPOINTS, Key("default", "web"))
        print(time.perf_counter() - began)
run(main())
"""


def run() -> list[Result]:
    """Seconds, each against its bound; the interpreter's own start is the ceiling shown beside them."""
    with tempfile.TemporaryDirectory() as cache:
        return _measured({**os.environ, "PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": cache})


def _measured(environment: Mapping[str, str]) -> list[Result]:
    bare = _median(lambda: _timed(environment, sys.executable, "-c", "pass"))
    in_process = _median(lambda: _in_process(environment))
    up = _median(lambda: _cluster_up(environment))
    help_ = _median(lambda: _timed(environment, sys.executable, "-m", "controller_manager", "--help"))
    ceiling = f"python {bare:.2f} s"
    return [
        Result("in-process, all controllers at work", f"{in_process:.2f} s", ceiling, in_process, 1.0, at_most=True),
        Result("cluster-up to ready", f"{up:.2f} s", ceiling, up, 2.0, at_most=True),
        Result("cluster-controller-manager --help", f"{help_:.2f} s", ceiling, help_, 0.4, at_most=True),
    ]


def _median(measure: Callable[[], float]) -> float:
    return statistics.median(measure() for _ in range(ROUNDS))


def _timed(environment: Mapping[str, str], *command: str) -> float:
    began = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)
    return time.perf_counter() - began


def _in_process(environment: Mapping[str, str]) -> float:
    command = (sys.executable, "-c", IN_PROCESS)
    return float(subprocess.run(command, check=True, capture_output=True, env=environment).stdout)


def _cluster_up(environment: Mapping[str, str]) -> float:
    with tempfile.TemporaryDirectory() as folder:
        command = (sys.executable, "-m", "controller_manager.cluster_up", f"--data-dir={Path(folder) / 'up'}")
        began = time.perf_counter()
        child = subprocess.Popen((*command, "--api-port=16445"), stdout=subprocess.PIPE, text=True, env=environment)
        assert child.stdout is not None
        lines = []
        for line in child.stdout:
            lines.append(line)
            if line.startswith("ready"):
                break
        elapsed = time.perf_counter() - began
        child.terminate()
        child.stdout.read()
        if child.wait(30) != 0:
            raise RuntimeError("".join(lines))
        return elapsed
