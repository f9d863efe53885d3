"""Compile errors equal those recorded for custom resource definitions."""

import json
from pathlib import Path
from typing import Any

import pytest

from controller_manager.common.cel.environment import Environment
from controller_manager.common.cel.parser import MAX_CODE_POINTS, MAX_DEPTH, parse
from controller_manager.common.cel.schema_types import declared_type
from controller_manager.common.cel.syntax import CompileError

ROWS = [json.loads(line) for line in (Path(__file__).parent / "data" / "mistakes.jsonl").read_text().splitlines()]
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "n": {"type": "integer"},
        "s": {"type": "string", "maxLength": 5},
        "str": {"type": "string", "maxLength": 5},
        "d": {"type": "number"},
        "t": {"type": "boolean"},
        "b": {"type": "string", "format": "byte", "maxLength": 4},
        "l": {"type": "array", "maxItems": 2, "items": {"type": "integer"}},
        "ls": {"type": "array", "maxItems": 2, "items": {"type": "string", "maxLength": 3}},
        "mp": {"type": "object", "maxProperties": 2, "additionalProperties": {"type": "integer"}},
        "x": {"x-kubernetes-int-or-string": True},
        "ts": {"type": "string", "format": "date-time"},
        "du": {"type": "string", "format": "duration"},
        "o": {
            "type": "object",
            "properties": {
                "name": {"type": "string", "maxLength": 3},
                "spec": {"type": "object", "properties": {"replicas": {"type": "integer"}}},
            },
        },
    },
}
ROOT = declared_type(SCHEMA, "selfType")
assert ROOT is not None
ENVIRONMENT = Environment.base().extend({"self": ROOT.type, "oldSelf": ROOT.type})


@pytest.mark.parametrize("row", [pytest.param(row, id=str(number)) for number, row in enumerate(ROWS)])
def test_compile_errors_equal_recorded_ones(row: dict[str, str]) -> None:
    with pytest.raises(CompileError) as caught:
        ENVIRONMENT.compile(row["expr"])
    assert caught.value.display() == row["error"]


@pytest.mark.parametrize(
    "nested",
    [
        "(" * MAX_DEPTH + "1" + ")" * MAX_DEPTH,
        "[" * MAX_DEPTH + "]" * MAX_DEPTH,
        "1" + "+1" * MAX_DEPTH,
        "a" + ".b" * MAX_DEPTH,
        "a" + "[0]" * MAX_DEPTH,
        "1 < 2" * 1 + " < 2" * MAX_DEPTH,
        "true ? 1 : " * MAX_DEPTH + "1",
    ],
)
def test_nesting_depth_is_bounded(nested: str) -> None:
    with pytest.raises(CompileError, match=f"expression recursion limit exceeded: {MAX_DEPTH}"):
        parse(nested)


def test_long_flat_expressions_are_not_deep() -> None:
    parse(" || ".join(["a == 1"] * 5000))
    parse("[" + ",".join(["1"] * 5000) + "]")


def test_expression_size_is_bounded() -> None:
    with pytest.raises(CompileError, match=f"size: {MAX_CODE_POINTS + 1}, limit {MAX_CODE_POINTS}"):
        parse(" " * MAX_CODE_POINTS + "1")


def test_number_of_errors_is_bounded() -> None:
    with pytest.raises(CompileError) as caught:
        parse("@ ] , " * 10_000)
    assert len(caught.value.issues) <= 101


def test_macro_expansion_is_bounded() -> None:
    with pytest.raises(CompileError, match="optMap\\(\\) of an expression of more than 5000 parts"):
        parse("optional.of(1)" + ".optMap(a, a)" * 60)
