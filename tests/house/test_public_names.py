"""Every public name has a docstring, a row in a reference table, and an example that uses it."""

import ast
import importlib
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import surface

ROOT = Path(__file__).parents[2]
EXAMPLES = {path.stem: path.read_text() for path in sorted((ROOT / "examples").glob("*.py"))}
DOCUMENTS = [ROOT / "docs/controllers.md", ROOT / "docs/testing.md"]
MODULES = {"builders"}  # public modules; their own names are public too
ROW = re.compile(r"^\| (`\w+`(?:, `\w+`)*) \| .+ \| \[(\w+)\]\(\.\./examples/\2\.py\) \|$", re.MULTILINE)
NAMES = [(package, name) for package in surface.PACKAGES for name in importlib.import_module(package).__all__]


def rows() -> Iterator[tuple[str, str]]:
    """Yield the names in the first column of the reference tables, each with its example."""
    for document in DOCUMENTS:
        for names, example in ROW.findall(document.read_text()):
            yield from ((name, example) for name in re.findall(r"\w+", names))


def used_names(code: str) -> set[tuple[str, str]]:
    """Return the names that a program imports from packages, or reads from an imported module of the kit."""
    tree = ast.parse(code)
    imported = {
        (node.module or "", alias.name)
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    read = {
        (f"controller_manager.testing.{node.value.id}", node.attr)
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in MODULES
    }
    return imported | read


@pytest.mark.parametrize(("package", "name"), NAMES)
def test_public_name_is_used_by_the_example_of_its_row(package: str, name: str) -> None:
    examples = [example for listed, example in rows() if listed == name]
    assert len(examples) == 1, f"{name}: must have one row in a reference table"
    assert (package, name) in used_names(EXAMPLES[examples[0]]), f"examples/{examples[0]}.py does not use {name}"


def test_reference_tables_list_public_names_only() -> None:
    assert {name for name, _ in rows()} - {name for _, name in NAMES} == MODULES


def test_public_classes_and_functions_have_a_docstring() -> None:
    found = [(name, getattr(importlib.import_module(package), name)) for package, name in NAMES]
    silent = [name for name, one in found if (inspect.isclass(one) or inspect.isfunction(one)) and not one.__doc__]
    assert silent == []


def test_name_without_use_in_an_example_is_found() -> None:
    code = "from controller_manager.testing import builders\nbuilders.pod('a')\n"
    assert ("controller_manager.testing.builders", "pod") in used_names(code)
    assert ("controller_manager.testing.builders", "service") not in used_names(code)
