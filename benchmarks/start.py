"""Time to ready: the in-process cluster, and `cluster-up` with two managers; and what `--help` costs."""

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.harness import Result

ROUNDS = 5
IN_PROCESS = """
import asyncio, time
began = time.perf_counter()
from controller_manager.testing.cluster import Cluster
async def main():
    async with Cluster() as cluster:
        print(time.perf_counter() - began)
asyncio.run(main())
"""


def run() -> list[Result]:
    """Seconds, each against its bound; the interpreter's own start is the ceiling shown beside them."""
    bare = _median(lambda: _timed(sys.executable, "-c", "pass"))
    in_process = _median(_in_process)
    up = _median(_cluster_up)
    help_ = _median(lambda: _timed(sys.executable, "-m", "controller_manager", "--help"))
    ceiling = f"python {bare:.2f} s"
    return [
        Result("in-process cluster to ready", f"{in_process:.2f} s", ceiling, in_process, 1.0, at_most=True),
        Result("cluster-up to ready", f"{up:.2f} s", ceiling, up, 2.0, at_most=True),
        Result("cluster-controller-manager --help", f"{help_:.2f} s", ceiling, help_, 0.4, at_most=True),
    ]


def _median(measure: Callable[[], float]) -> float:
    return statistics.median(measure() for _ in range(ROUNDS))


def _timed(*command: str) -> float:
    began = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


def _in_process() -> float:
    return float(subprocess.run((sys.executable, "-c", IN_PROCESS), check=True, capture_output=True).stdout)


def _cluster_up() -> float:
    with tempfile.TemporaryDirectory() as folder:
        command = (sys.executable, "-m", "controller_manager.cluster_up", f"--data-dir={Path(folder) / 'up'}")
        began = time.perf_counter()
        child = subprocess.Popen((*command, "--api-port=16445"), stdout=subprocess.PIPE, text=True)
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
