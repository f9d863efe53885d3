"""Mistakes in author code that mypy reports."""

import re
import subprocess
import sys
from pathlib import Path

SOURCE = """\
from controller_manager.framework import Model, Object, ObjectMeta
from controller_manager.framework import ControlerSpec  # has no attribute "ControlerSpec"
from controller_manager.framework.controller import GiveUp  # has no attribute "GiveUp"
from controller_manager.testing import Clustr  # has no attribute "Clustr"
from controller_manager.framework.client import HttpTransprt  # has no attribute "HttpTransprt"


class Spec(Model):
    replicas: int = 1
    image: str


class Greeting(Object):
    spec: Spec


greeting = Greeting(metadata=ObjectMeta(name="hello"), spec=Spec(image="a"))
greeting.spec.replicas = 2  # read-only
Spec(2, "a")  # Too many positional arguments
Spec(replicas=2)  # Missing named argument "image"
Greeting(metadata=ObjectMeta(name="hello"))  # Missing named argument "spec"
print(greeting.spec.replicas + 1)
"""


def test_mypy_reports_each_mistake_in_author_code(root: Path, tmp_path: Path) -> None:
    file = tmp_path / "greeter.py"
    file.write_text(SOURCE)
    command = [sys.executable, "-m", "mypy", "--config-file", "pyproject.toml", str(file)]
    output = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False).stdout
    found = {int(line): text for line, text in re.findall(r"greeter\.py:(\d+): error: (.*)", output)}
    lines = enumerate(SOURCE.splitlines(), 1)
    expected = {number: line.partition("  # ")[2] for number, line in lines if "  # " in line}
    assert found.keys() == expected.keys(), output
    for number, words in expected.items():
        assert words in found[number]
