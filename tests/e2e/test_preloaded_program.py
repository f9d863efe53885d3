"""A preloaded program runs once its starter says so, and not without it."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.e2e

COMMAND = (sys.executable, "-m", "controller_manager.common.base.tethered", "--loaded=ahead", "program", "word")


@pytest.fixture
def child(tmp_path: Path) -> "subprocess.Popen[str]":
    (tmp_path / "ahead.py").write_text("print('loaded', flush=True)")
    (tmp_path / "program.py").write_text("import sys; print('runs', *sys.argv[1:], 'ahead' in sys.modules, flush=True)")
    return subprocess.Popen(COMMAND, cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def test_program_runs_when_started(child: "subprocess.Popen[str]") -> None:
    assert child.stdin is not None
    assert child.stdout is not None
    assert child.stdout.readline() == "loaded\n"
    child.stdin.write("\n")
    child.stdin.flush()
    assert child.stdout.read() == "runs word True\n"
    child.communicate(timeout=30)
    assert child.returncode == 0


def test_program_exits_with_its_starter(child: "subprocess.Popen[str]") -> None:
    assert child.stdout is not None
    assert child.stdout.readline() == "loaded\n"
    assert child.communicate(timeout=30) == ("", None)
    assert child.returncode == 0
