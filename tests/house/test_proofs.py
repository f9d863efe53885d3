"""Every flag of the manager with an effect has a test that is marked with its name."""

import ast
from collections.abc import Iterator
from pathlib import Path

from controller_manager.app.catalog import installed
from controller_manager.app.program import flag_set


def test_every_effective_flag_has_a_test(root: Path) -> None:
    acting = {flag.name for flag in flag_set(installed()) if not flag.declared.inert}
    proved = {
        name for path in sorted((root / "tests").rglob("test_*.py")) for name in _marks(ast.parse(path.read_text()))
    }
    assert acting - proved == set(), "flags without a proof"
    assert proved - acting == set(), "proofs of flags that do not exist, or that have no effect"


def _marks(tree: ast.Module) -> Iterator[str]:
    """Yield the names in `pytest.mark.flag("a", "b")`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.flag":
            yield from (one.value for one in node.args if isinstance(one, ast.Constant))
