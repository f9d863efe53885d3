"""Results of kube-apiserver 1.36 for valid objects of every kind, changed in one field.

A line of `recorded.jsonl` is a kind, the path of the change, the new value (`<gone>` removes it, and `~` in a text
stands for fifty times `x`), the fields with reasons that kube-apiserver reported, and the number of warnings. An object
without reported fields was accepted.
"""

import copy
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from apiserver_stub.kinds.resource_info import ResourceInfo
from apiserver_stub.kinds.schema.zero_values import fill_field
from apiserver_stub.kinds.validate import validate
from apiserver_stub.kinds.warnings import warnings_of
from controller_manager.common.api.tree import Tree

LONG = "x" * 50

RECORDED: dict[str, list[Any]] = defaultdict(list)
for line in (Path(__file__).parent / "recorded.jsonl").read_text().replace("~", LONG).splitlines():
    name, *row = json.loads(line)
    RECORDED[name].append(row)


def reported(kind: ResourceInfo, tree: Tree) -> tuple[list[list[str]], int]:
    """Fields with reasons, and the number of warnings, of a new object in normal form and with defaults."""
    warnings = warnings_of(kind, tree, None)
    tree["metadata"] |= {"uid": "u", "creationTimestamp": "2024-01-01T00:00:00Z"}
    kind.strategy.prepare_create(tree)
    fill_field(kind.schema, tree, "status")
    causes = sorted({(cause.field, cause.reason.removeprefix("FieldValue")) for cause in validate(kind, tree, None)})
    return [list(cause) for cause in causes], 0 if causes else len(warnings)


@pytest.mark.parametrize("name", sorted(RECORDED))
def test_results_match_kube_apiserver(validator: Any, name: str) -> None:
    found = []
    for path, value, causes, warnings in RECORDED[name]:
        tree = validator.tree(name, {_dotted(path): copy.deepcopy(value)} if path else {})
        if (now := reported(validator.kind(name), tree)) != (causes, warnings):
            found.append((path, value, now, (causes, warnings)))
    assert found == []


def _dotted(path: list[str | int]) -> str:
    return ".".join(str(part).replace(".", "\\.") for part in path)
