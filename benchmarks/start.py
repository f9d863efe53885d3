"""Time to ready: the in-process cluster with all controllers, `cluster-up` with two managers; what `--help` costs."""

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.harness import Result, installed

ROUNDS = 5
IN_PROCESS = """
import time
began = time.perf_counter()
from controller_manager.common.api.core import ENDPOINTS, SERVICES
from controller_manager.common.api.resource import Key
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
    bare = _median(lambda: _timed(sys.executable, "-c", "pass"))
    in_process, up = _median(_in_process), _median(_cluster_up)
    help_ = _median(lambda: _timed(sys.executable, "-m", "controller_manager", "--help"))
    ceiling = f"python {bare:.2f} s"
    return [
        Result("in-process, all controllers at work", f"{in_process:.2f} s", ceiling, in_process, 1.0, at_most=True),
        Result("cluster-up to ready", f"{up:.2f} s", ceiling, up, 2.0, at_most=True),
        Result("cluster-controller-manager --help", f"{help_:.2f} s", ceiling, help_, 0.4, at_most=True),
    ]


def _median(measure: Callable[[], float]) -> float:
    return statistics.median(measure() for _ in range(ROUNDS))


def _timed(*command: str) -> float:
    began = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=installed())
    return time.perf_counter() - began


def _in_process() -> float:
    command = (sys.executable, "-c", IN_PROCESS)
    return float(subprocess.run(command, check=True, capture_output=True, env=installed()).stdout)


def _cluster_up() -> float:
    with tempfile.TemporaryDirectory() as folder:
        command = (sys.executable, "-m", "controller_manager.cluster_up", f"--data-dir={Path(folder) / 'up'}")
        began = time.perf_counter()
        child = subprocess.Popen((*command, "--api-port=16445"), stdout=subprocess.PIPE, text=True, env=installed())
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
