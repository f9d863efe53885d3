"""House rules that a machine can check."""

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

Modules = dict[Path, ast.Module]

TREES = (
    "apiserver_stub/apis/apiextensions",
    "apiserver_stub/bootstrap/",
    "apiserver_stub/patch",
    "apiserver_stub/kinds",
    "apiserver_stub/verbs",
    "apiserver_stub/admission",
    "apiserver_stub/encode",
    "controller_manager/common/api/diff.py",
    "controller_manager/common/api/quota/",
    "controller_manager/testing/record",
    "controller_manager/testing/replay.py",
)


def test_every_module_has_a_docstring(modules: Modules) -> None:
    silent = [str(path) for path, tree in modules.items() if "." not in (ast.get_docstring(tree) or "")]
    assert silent == []


def test_ruff_check_passes(root: Path) -> None:
    """The configuration bans direct use of clock, random numbers and task creation (banned-api)."""
    command = [sys.executable, "-m", "ruff", "check", "--output-format=concise", "."]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_ruff_reports_banned_calls(root: Path) -> None:
    source = "import asyncio\nimport time\n\ntime.time()\nasyncio.create_task(None)\n"
    command = [sys.executable, "-m", "ruff", "check", "--select=TID251", "--stdin-filename=controllers/x.py", "-"]
    done = subprocess.run(command, cwd=root, input=source, capture_output=True, text=True, check=False)
    assert done.stdout.count("TID251") == 2


def test_object_trees_are_subscripted_in_listed_modules_only(modules: Modules) -> None:
    found = [
        f"{path}:{line}"
        for path, tree in modules.items()
        if not str(path).startswith(TREES)
        for line in _metadata_subscripts(tree)
    ]
    assert found == []


def test_verbs_name_no_kind(root: Path, modules: Modules) -> None:
    resources = json.loads((root / "apiserver_stub/kinds/data/resources.json").read_text())
    names = {word for row in resources for word in (row["kind"], row["plural"])} - {"Scale", "Status", "Binding"}
    named = [
        f"{path}: {node.value!r}"
        for path, tree in modules.items()
        if path.is_relative_to("apiserver_stub/verbs")
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and node.value in names
    ]
    assert named == []


def test_exceptions_are_swallowed_in_listed_modules_only(modules: Modules) -> None:
    found = {
        str(path)
        for path, tree in modules.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ExceptHandler) and isinstance(node.type, ast.Name) and node.type.id == "Exception"
    }
    assert found == {
        "controller_manager/common/base/tasks.py",
        "controller_manager/framework/work/loop.py",
        "apiserver_stub/server/handler_chain.py",
        "controller_manager/common/serving/connection.py",  # handlers of a manager's pages
        "apiserver_stub/admission/own_plugins.py",  # raised again with the name of the package
        "controller_manager/app/cloud.py",  # likewise
        "controllers/shared/cloud.py",  # likewise
    }


def _metadata_subscripts(tree: ast.Module) -> Iterator[int]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant) and node.slice.value == "metadata":
            yield node.lineno
