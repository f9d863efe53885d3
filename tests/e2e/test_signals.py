"""A manager with a controller that does not stop, and the signals it gets."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.e2e

STUBBORN = """
import asyncio
from controller_manager.framework import PODS, For, Options, Spec, main

class Stubborn:
    def __init__(self, context, options):
        self._log = context.log

    async def reconcile(self, key):
        self._log.info(f"hold on to {key}")
        while True:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                self._log.info(f"never let go of {key}")

main((Spec(name="stubborn-controller", reconciler=Stubborn, options=Options, watches=(For(PODS),)),), name="stubborn")
"""


class Process:
    """The manager process and its log."""

    def __init__(self, folder: Path, *flags: str) -> None:
        (folder / "stubborn.py").write_text(STUBBORN)
        self.log = folder / "log"
        command = [sys.executable, "stubborn.py", *flags]
        with self.log.open("w") as log:
            self.child = subprocess.Popen(command, cwd=folder, stderr=log)

    def wait_for_log(self, text: str) -> None:
        """Wait until the log contains this text."""
        deadline = time.monotonic() + 60
        while text not in self.log.read_text():
            assert self.child.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.05)


@pytest.fixture
def process(server: Any, tmp_path: Path) -> Iterator[Process]:
    started = Process(tmp_path, f"--kubeconfig={server.kubeconfig}", "--leader-elect=false")
    yield started
    started.child.kill()
    started.child.wait()


@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
def test_second_signal_exits_despite_hanging_controller(
    second: signal.Signals, process: Process, namespace: str, kubectl: Callable[..., str]
) -> None:
    kubectl("run", "a", "--image=a", "-n", namespace)
    process.wait_for_log("hold on to")  # this pod, or that of another test
    process.child.send_signal(signal.SIGTERM)
    process.wait_for_log('"stopping"')
    time.sleep(1.1)  # sooner it would merge with the first signal
    assert process.child.poll() is None
    process.child.send_signal(second)
    assert process.child.wait(20) == 1  # by itself it would exit after 25 s, with another message
    last = process.log.read_text().splitlines()[-1]
    assert last.startswith("E")
    assert f'reason="received {second.name} while stopping" status=1' in last
