"""The built-in controllers are ours, whatever the folder a process is started in holds."""

import subprocess
import sys
from pathlib import Path

import pytest

from controller_manager.app.catalog import installed

NAMES = [spec.name for spec in installed()]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with a package `controllers` of its own, as operators have one."""
    (tmp_path / "controllers").mkdir()
    (tmp_path / "controllers" / "__init__.py").write_text("")
    (tmp_path / "controllers" / "mine.py").write_text("SPECS = ()\nOWN = 'still mine'\n")
    return tmp_path


def run(folder: Path, *arguments: str) -> str:
    command = [sys.executable, *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_folder_called_controllers_does_not_replace_the_built_in_ones(project: Path) -> None:
    assert "--concurrent-namespace-syncs" in run(project, "-m", "controller_manager", "--help")


def test_a_package_called_controllers_can_be_imported_beside_the_built_in_ones(project: Path) -> None:
    code = (
        "from controllers import mine\n"
        "from controller_manager.app.catalog import installed\n"
        "print([spec.name for spec in installed()])\n"
        "import controllers.mine as again\n"
        "print(again.OWN, again is mine)\n"
    )
    assert run(project, "-c", code).splitlines() == [str(NAMES), "still mine True"]


def test_a_folder_without_an_init_file_hides_nothing(project: Path) -> None:
    (project / "controllers" / "__init__.py").unlink()
    assert "--concurrent-namespace-syncs" in run(project, "-m", "controller_manager", "--help")


def test_they_go_by_their_own_name_where_nobody_else_does() -> None:
    assert {spec.options.__module__.partition(".")[0] for spec in installed()} <= {"controllers", "controller_manager"}
