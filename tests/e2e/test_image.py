"""The Dockerfile: its files suffice for the build, and the process runs without privileges and without writing."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).parents[2]
UNPRIVILEGED = 65532


def instructions(word: str) -> list[list[str]]:
    lines = re.sub(r"\\\n", " ", (ROOT / "Dockerfile").read_text()).splitlines()
    return [line.split()[1:] for line in lines if line.startswith(f"{word} ")]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The distribution, built from what the Dockerfile copies and nothing else."""
    source, target = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("image") / "site"
    for *names, where in (words for words in instructions("COPY") if not words[0].startswith("--")):
        for name in names:
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, source / where, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(ROOT / name, source)
    environment = {
        name: value for name, value in os.environ.items() if name != "SSL_CERT_FILE"
    }  # pip contacts the index
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--disable-pip-version-check"]
    subprocess.run(
        [*command, "--no-compile", f"--target={target}", str(source)], check=True, env=environment, timeout=100
    )
    return target


def test_image_runs_without_privileges() -> None:
    assert instructions("USER") == [[f"{UNPRIVILEGED}:{UNPRIVILEGED}"]]
    assert instructions("ENTRYPOINT") == [['["cluster-controller-manager"]']]
    assert instructions("EXPOSE") == [["10257"]]


def test_data_files_are_in_the_package(installed: Path) -> None:
    packages = ("controller_manager", "controllers", "apiserver_stub")
    files = {path.relative_to(ROOT) for name in packages for path in (ROOT / name).rglob("*.*")}
    wanted = {path for path in files if path.suffix in (".json", ".jsonl", ".sql", ".typed", ".py")}
    missing = {path for path in wanted if not (installed / path).is_file()}
    assert not missing


def test_installed_program_runs_unprivileged_without_writing(installed: Path, tmp_path: Path) -> None:
    """Without a bytecode cache, a home or a writable folder."""
    os.chmod(tmp_path, 0o555)
    paths = os.pathsep.join((str(installed), sysconfig.get_path("purelib")))
    code = "import controller_manager.__main__ as m, sys; print(m.__file__); sys.argv = ['x', '--help']; m.main()"
    done = subprocess.run(
        [sys.executable, "-P", "-c", code],
        cwd=tmp_path,
        env={"PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1", "HOME": "/nonexistent"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        user=UNPRIVILEGED if os.geteuid() == 0 and readable_by_all(Path(sys.executable)) else None,
    )
    assert done.returncode == 0, done.stderr
    where, *text = done.stdout.splitlines()
    assert Path(where).is_relative_to(installed)
    assert any("namespace-controller" in line for line in text)


def readable_by_all(path: Path) -> bool:
    """Whether another user can run this interpreter, which must not be below a private home."""
    return all(folder.stat().st_mode & 0o001 for folder in path.resolve().parents)
