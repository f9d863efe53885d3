"""The verbs are generic: their code names no kind."""

import ast
from pathlib import Path

import apiserver_stub.verbs
from apiserver_stub.kinds.registry import ResourceRegistry


def test_no_verb_names_a_kind(kinds: ResourceRegistry) -> None:
    names = {name for kind in kinds.all() for name in (kind.kind, kind.plural, kind.storage)}
    folder = Path(apiserver_stub.verbs.__file__).parent
    for file in folder.rglob("*.py"):
        nodes = ast.walk(ast.parse(file.read_text()))
        texts = {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
        assert not texts & names, file
