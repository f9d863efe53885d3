"""Project setup: bounded dependencies, lock files with hashes, and optional programs."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))
import programs

RANGE = re.compile(r"[A-Za-z][\w-]*>=[\w.]+,<[\w.]+")
PIN = re.compile(r"^([\w.-]+)==(\S+) \\$", re.MULTILINE)


@pytest.fixture
def project(root: Path) -> Any:
    return tomllib.loads((root / "pyproject.toml").read_text())["project"]


def locked(root: Path, name: str) -> dict[str, str]:
    text = (root / "requirements" / f"{name}.txt").read_text()
    return {found[1].lower().replace("_", "-"): found[2] for found in PIN.finditer(text)}


def named(requirement: str) -> str:
    return re.split(r"[>=<\[]", requirement)[0].lower().replace("_", "-")


def test_every_dependency_has_both_bounds(project: Any) -> None:
    extras = [one for many in project["optional-dependencies"].values() for one in many]
    ours = {f"{project['name']}[{extra}]" for extra in ("cbor,otel,secretbox,testing", "tests")}
    assert [one for one in (*project["dependencies"], *extras) if not RANGE.fullmatch(one) and one not in ours] == []


def test_lock_files_contain_every_dependency(root: Path, project: Any) -> None:
    extras = [one for many in project["optional-dependencies"].values() for one in many]
    assert {named(one) for one in project["dependencies"]} <= locked(root, "runtime").keys()
    assert {named(one) for one in extras} - {project["name"]} <= locked(root, "dev").keys()
    assert locked(root, "build").keys() == {"setuptools"}


@pytest.mark.parametrize("name", ["runtime", "dev", "build"])
def test_lock_files_have_exact_versions_and_hashes(root: Path, name: str) -> None:
    lines = (root / "requirements" / f"{name}.txt").read_text().splitlines()
    assert [
        line for line in lines if line and not re.match(r"[\w.-]+==\S+ \\|    --hash=sha256:[0-9a-f]{64}", line)
    ] == []


def test_every_documented_make_target_exists(root: Path) -> None:
    """Targets are written as `make` and a word in code quotes."""
    targets = set(re.findall(r"^([a-z]+):", (root / "Makefile").read_text(), re.MULTILINE))
    documents = [*root.glob("*.md"), *root.glob("docs/*.md"), root / "pyproject.toml"]
    spoken = {word for file in documents for word in re.findall(r"`make ([a-z-]+)", file.read_text())}
    assert {"lock", "lowest"} <= spoken <= targets


@pytest.mark.parametrize(("code", "status"), [(0, 0), (5, 0), (1, 2)])  # 5: pytest has found no tests
def test_soak_passes_without_matching_tests(root: Path, tmp_path: Path, code: int, status: int) -> None:
    for name in ("pyproject.toml", "requirements/dev.txt", "requirements/build.txt", ".venv/bin/python", ".venv/made"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / ".venv/dev").touch()
    (tmp_path / ".venv/bin/python").write_text(f'#!/bin/sh\ncase "$*" in *pytest*) exit {code};; esac\n')
    (tmp_path / ".venv/bin/python").chmod(0o755)
    command = ["make", "-f", str(root / "Makefile"), "soak", "ARGS=some"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == status, done.stdout + done.stderr


def test_lowest_versions_are_exact_and_complete(root: Path, project: Any) -> None:
    command = [sys.executable, str(root / "tests" / "lowest.py")]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    extras = project["optional-dependencies"]
    tried = [one for extra in ("cbor", "otel", "testing") for one in extras[extra]]
    assert [re.split("==", line)[0] for line in lines] == [
        re.split(">=", one)[0] for one in (*project["dependencies"], *tried)
    ]
    assert all(re.fullmatch(r"[\w-]+==[\d.]+", line) for line in lines)


def test_image_uses_base_digest_and_lock_file(root: Path) -> None:
    text = (root / "Dockerfile").read_text()
    assert re.search(r"^ARG PYTHON=\S+@sha256:[0-9a-f]{64}$", text, re.MULTILINE)
    assert set(re.findall(r"^FROM (\S+)", text, re.MULTILINE)) == {"${PYTHON}"}
    assert "install --require-hashes --requirement requirements/runtime.txt" in text


def test_only_our_three_packages_are_installed(root: Path) -> None:
    found = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]["find"]["include"]
    assert sorted(found) == ["apiserver_stub*", "controller_manager*", "controllers*"]


def test_message_names_missing_programs_and_skipped_tests() -> None:
    message = programs.sentence(["prometheus", "chromium"])
    assert message == (
        "MISSING: prometheus, chromium; left out are the tests that scrape the manager; that read its pages in a "
        "browser."
    )
    assert programs.sentence([]) == ""


TESTS = """
import pytest

@pytest.mark.needs("chromium")
def test_in_a_browser(): raise RuntimeError("it ran")

@pytest.mark.long
def test_for_hours(): raise RuntimeError("it ran")

def test_other(): pass
"""


@pytest.mark.parametrize(
    ("environment", "status", "words"),
    [
        ({}, 0, "LEFT OUT: 1 tests, missing programs: chromium"),
        ({"CI": "true"}, 1, "it ran"),
        ({"LONG": "1"}, 1, "it ran"),
    ],
)
def test_skipped_tests_are_reported(
    root: Path, tmp_path: Path, environment: dict[str, str], status: int, words: str
) -> None:
    (tmp_path / "conftest.py").write_text((root / "tests" / "conftest.py").read_text())
    (tmp_path / "test_some.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--rootdir={tmp_path}", str(tmp_path)]
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env={"PATH": "/nonexistent", "PYTHONPATH": f"{root / 'tests'}:{root}", **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, words in done.stdout) == (status, True), done.stdout + done.stderr
