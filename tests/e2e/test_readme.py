"""What README tells people to do, done."""

import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.e2e

README = (Path(__file__).parents[2] / "README.md").read_text()


def test_your_own_controller_runs_as_it_stands(
    server: Any, namespace: str, kubectl: Callable[..., str], tmp_path: Path
) -> None:
    code = next(code for code in re.findall(r"```python\n(.*?)```", README, re.DOTALL) if "main(SPECS)" in code)
    assert len([line for line in code.splitlines() if line.strip()]) <= 30
    (tmp_path / "greeter.py").write_text(code)
    shown = next(line for line in README.splitlines() if line.startswith("python greeter.py"))
    flags = [word for word in shown.split()[2:] if not word.startswith("--kubeconfig=")]
    command = [sys.executable, "greeter.py", f"--kubeconfig={server.kubeconfig}", "--secure-port=0", *flags]
    with (tmp_path / "log").open("w") as log:
        child = subprocess.Popen(command, cwd=tmp_path, stderr=log)
        try:
            kubectl("run", "a", "--image=a", "-n", namespace)
            greeting = ""
            for _ in range(200):
                greeting = kubectl(
                    "get", "pod", "a", "-n", namespace, "-o", "jsonpath={.metadata.annotations.greeting}"
                )
                if greeting:
                    break
                time.sleep(0.05)
            assert greeting == "hi", (tmp_path / "log").read_text()
        finally:
            child.terminate()
            assert child.wait(20) == 0
