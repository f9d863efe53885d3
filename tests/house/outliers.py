"""Prints the longest files and functions, and names that several types share: each is a question, not an error."""

import ast
from collections import defaultdict

from conftest import ROOT, product_modules

FILE_LINES = 300
FUNCTION_LINES = 40
NESTING = 4


def main() -> None:
    types: dict[str, list[str]] = defaultdict(list)
    for path, tree in product_modules():
        for name in type_names(tree):
            types[name].append(str(path))
        lines = len((ROOT / path).read_text().splitlines())
        if lines > FILE_LINES:
            print(f"{path}: {lines} lines")
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or node.lineno) - node.lineno + 1
                depth = nesting(node)
                if length > FUNCTION_LINES or depth > NESTING:
                    print(f"{path}:{node.lineno} {node.name}: {length} lines, nested {depth} deep")
    for name, paths in sorted(types.items()):
        if len(paths) > 1:
            print(f"{name}: a type of {', '.join(paths)}")


def type_names(tree: ast.Module) -> list[str]:
    """Return the public classes of a module."""
    return [node.name for node in tree.body if isinstance(node, ast.ClassDef) and not node.name.startswith("_")]


def nesting(node: ast.AST) -> int:
    """Return the depth of nested blocks below `node`."""
    blocks = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith, ast.Try, ast.Match)
    return max(
        (nesting(child) + isinstance(child, blocks) for child in ast.iter_child_nodes(node)),
        default=0,
    )


if __name__ == "__main__":
    main()
