"""Prints the longest files and functions: each is a question, not an error."""

import ast

from conftest import ROOT, product_modules

FILE_LINES = 300
FUNCTION_LINES = 40
NESTING = 4


def main() -> None:
    for path, tree in product_modules():
        lines = len((ROOT / path).read_text().splitlines())
        if lines > FILE_LINES:
            print(f"{path}: {lines} lines")
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or node.lineno) - node.lineno + 1
                depth = nesting(node)
                if length > FUNCTION_LINES or depth > NESTING:
                    print(f"{path}:{node.lineno} {node.name}: {length} lines, nested {depth} deep")


def nesting(node: ast.AST) -> int:
    """How many blocks stand within each other below `node`."""
    blocks = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith, ast.Try, ast.Match)
    return max(
        (nesting(child) + isinstance(child, blocks) for child in ast.iter_child_nodes(node)),
        default=0,
    )


if __name__ == "__main__":
    main()
