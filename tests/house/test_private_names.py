"""Private names of libraries are used in adapters only, because they change without notice."""

import ast
from collections.abc import Iterator
from pathlib import Path

Modules = dict[Path, ast.Module]

OURS = ("controller_manager", "controllers", "apiserver_stub")
DOCUMENTED = {
    *("_replace", "_asdict", "_fields", "_make"),  # of named tuples
    *("_getframe", "_current_frames", "_exit"),  # of sys and os
    "_proxy_to_logger",  # of structlog, for custom wrappers
}
ADAPTERS = {"controller_manager/common/base/standard_library.py": {"_ssl", "_sslobj", "_fut_waiter"}}
"""The one module for each library that has no public name for what is needed; the tests of the module try each name."""


def test_private_library_names_are_used_in_adapters_only(modules: Modules) -> None:
    defined = {path: set(_defined(tree)) for path, tree in modules.items()}
    found = set()
    for path, tree in modules.items():
        allowed = _known(path, tree, defined) | DOCUMENTED | ADAPTERS.get(str(path), set())
        found |= {f"{path}:{line}: {name}" for name, line in _used(tree) if name not in allowed}
    assert found == set()


def _known(path: Path, tree: ast.Module, defined: dict[Path, set[str]]) -> set[str]:
    """Return private names that this module defines, or that it imports from ours."""
    return defined[path].union(*(defined.get(one, set()) for one in _imported(path, tree)))


def _imported(path: Path, tree: ast.Module) -> Iterator[Path]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            base = path.parents[node.level - 1].parts if node.level else ()
            module = Path(*base, *(node.module or "").split("."))
            yield from (module.with_suffix(".py"), module / "__init__.py")
            yield from (module / f"{one.name}.py" for one in node.names)


def _used(tree: ast.Module) -> Iterator[tuple[str, int]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and _is_private(node.attr):
            yield node.attr, node.lineno
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "getattr":
            names = [one.value for one in node.args[1:2] if isinstance(one, ast.Constant)]
            yield from ((name, node.lineno) for name in names if _is_private(name))
        elif isinstance(node, ast.Import):
            yield from ((one.name, node.lineno) for one in node.names if any(map(_is_private, one.name.split("."))))
        elif isinstance(node, ast.ImportFrom) and not node.level and (node.module or "").split(".")[0] not in OURS:
            names = [*(node.module or "").split("."), *(one.name for one in node.names)]
            yield from ((name, node.lineno) for name in names if _is_private(name) and name != "__future__")


def _defined(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.Attribute(attr=name, ctx=ast.Store(), value=ast.Name(id="self" | "cls" | "found" | "made")):
                yield name
            case ast.Name(id=name, ctx=ast.Store()):
                yield name


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def test_private_names_are_detected() -> None:
    source = "import _ssl\nfrom aiohttp import _websocket\nclass A(B):\n    def f(self):\n"
    source += "        self._mine = self._theirs\n"
    source += "        return getattr(self, '_other')\n"
    tree = ast.parse(source)
    known = _known(Path("a.py"), tree, {Path("a.py"): set(_defined(tree))})
    assert {name for name, _ in _used(tree)} - known == {"_ssl", "_websocket", "_theirs", "_other"}
