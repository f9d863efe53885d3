"""The built-in controllers are loaded in any working directory."""

import subprocess
import sys
from pathlib import Path

import pytest

from controller_manager.app.catalog import installed

NAMES = [spec.name for spec in installed()]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with its own package `controllers`, like that of an operator."""
    (tmp_path / "controllers").mkdir()
    (tmp_path / "controllers" / "__init__.py").write_text("")
    (tmp_path / "controllers" / "mine.py").write_text("SPECS = ()\nOWN = 'still mine'\n")
    return tmp_path


def run(folder: Path, *arguments: str) -> str:
    command = [sys.executable, *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_folder_named_controllers_does_not_shadow_built_ins(project: Path) -> None:
    assert "--concurrent-namespace-syncs" in run(project, "-m", "controller_manager", "--help")


def test_package_named_controllers_is_importable_beside_ours(project: Path) -> None:
    code = (
        "from controllers import mine\n"
        "from controller_manager.app.catalog import installed\n"
        "print([spec.name for spec in installed()])\n"
        "import controllers.mine as again\n"
        "print(again.OWN, again is mine)\n"
    )
    assert run(project, "-c", code).splitlines() == [str(NAMES), "still mine True"]


def test_folder_without_init_file_shadows_nothing(project: Path) -> None:
    (project / "controllers" / "__init__.py").unlink()
    assert "--concurrent-namespace-syncs" in run(project, "-m", "controller_manager", "--help")


def test_spec_modules_keep_their_package_names() -> None:
    assert {spec.options.__module__.partition(".")[0] for spec in installed()} <= {"controllers", "controller_manager"}
