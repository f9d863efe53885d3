"""A public type name has at most two meanings in the product."""

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOTS = ("controller_manager", "controllers", "apiserver_stub")
MOST_MEANINGS = 2


def test_public_type_names_have_at_most_two_meanings(root: Path) -> None:
    """A type is public if another module of the product imports it."""
    trees = {_module(path.relative_to(root)): ast.parse(path.read_text()) for path in _files(root)}
    imported = {pair for module, tree in trees.items() for pair in _imports(module, tree)}
    homes: dict[str, list[str]] = defaultdict(list)
    for module, tree in trees.items():
        for name in _types(tree):
            if (module, name) in imported:
                homes[name].append(module)
    assert {name: where for name, where in homes.items() if len(where) > MOST_MEANINGS} == {}


def _files(root: Path) -> Iterator[Path]:
    for name in ROOTS:
        yield from (root / name).rglob("*.py")


def _module(path: Path) -> str:
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _types(tree: ast.Module) -> Iterator[str]:
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id
            if name[0].isupper() and not name.isupper():
                yield name


def _imports(module: str, tree: ast.Module) -> Iterator[tuple[str, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                package = module.split(".")[: -node.level]
                base = ".".join([*package, *filter(None, [node.module])])
            yield from ((base, alias.name) for alias in node.names)
