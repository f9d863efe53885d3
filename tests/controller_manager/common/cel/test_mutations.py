"""Mutation expressions have the recorded outcomes of kube-apiserver."""

import json
from pathlib import Path
from typing import Any

import pytest

from controller_manager.common.cel.environment import Environment, ProgramError
from controller_manager.common.cel.library import UNBOUNDED
from controller_manager.common.cel.library.mutations import MUTATIONS, PATCH_OBJECT, PatchObject, PatchOperation
from controller_manager.common.cel.library.quantity import QuantityValue
from controller_manager.common.cel.library.url import URL
from controller_manager.common.cel.syntax import CompileError
from controller_manager.common.cel.types import DYN, Type
from controller_manager.common.cel.values import (
    ABSENT,
    CostBudget,
    Duration,
    EvaluationError,
    Optional,
    Timestamp,
    Uint,
    type_of,
)

DATA = Path(__file__).parent / "data" / "mutations.jsonl"
ROWS = [json.loads(line) for line in DATA.read_text().splitlines()]
OBJECT = {
    "metadata": {"name": "n", "labels": {"a": "b"}},
    "spec": {"replicas": 3, "containers": [{"name": "c", "image": "i"}], "x": 1.5},
}
ENVIRONMENT = Environment.base().extend({"object": DYN, "oldObject": DYN, "params": DYN}).with_libraries(MUTATIONS)


@pytest.mark.parametrize("row", [pytest.param(row, id=row["expr"]) for row in ROWS])
def test_mutation_outcomes_equal_recorded_ones(row: dict[str, Any]) -> None:
    assert {"expr": row["expr"], **outcome(row["expr"])} == row


def outcome(expression: str) -> dict[str, Any]:
    try:
        program = ENVIRONMENT.compile(expression)
    except ProgramError as error:
        return {"phase": "program", "error": error.issues[0].message}
    except CompileError as error:
        return {"phase": "compile", "errors": [[one.line, one.column, one.message] for one in error.issues]}
    least, most = program.estimate()
    estimate = [least, "unbounded" if most == UNBOUNDED else most]
    budget = CostBudget()
    found: dict[str, Any] = {"phase": "run", "type": str(program.type), "estimate": estimate}
    try:
        found["result"] = shown(program.evaluate({"object": OBJECT}, budget))
    except EvaluationError as error:
        found["error"] = error.message
    return {**found, "cost": budget.spent}


def shown(value: Any) -> Any:
    """Return a value as the rows show it."""
    if isinstance(value, PatchObject):
        wrong = "\n".join(value.misnamed())
        return {"object": value.type.name, "value": plain(value.tree())} | ({"mismatch": wrong} if wrong else {})
    if isinstance(value, PatchOperation):
        fields = {"op": value.op, "path": value.path, "from": value.from_}
        return {"patch": fields | ({} if value.value is ABSENT else {"value": shown(value.value)})}
    if isinstance(value, Optional):
        return {"optional": shown(value.value) if value.present else "none"}
    if isinstance(value, dict):
        return {str(key): shown(item) for key, item in value.items()}
    if isinstance(value, list):
        return [shown(item) for item in value]
    if isinstance(value, Type):
        return {"type": value.name}
    if value is None:
        return None
    return f"{type_of(value).name}:{json.dumps(value) if isinstance(value, bool) else value}"


NATIVE: dict[type, str] = {
    float: "float64",
    Uint: "uint64",
    bytes: "[]uint8",
    Timestamp: "time.Time",
    Duration: "time.Duration",
    QuantityValue: "*resource.Quantity",
    URL: "*url.URL",
}


def plain(value: Any) -> Any:
    """Return plain JSON as in the rows; a value without JSON form is the name of its Go type."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    if value is None or type(value) in (bool, int, str):
        return value
    return NATIVE.get(type(value)) or {"Semver": "semver.Version", "IP": "netip.Addr"}[type(value).__name__]


@pytest.mark.parametrize("expression", ["Object{x: {1: 2}}", "Object{x: [{'a': {true: 1}}]}"])
def test_keys_must_be_strings(expression: str) -> None:
    made = ENVIRONMENT.compile(expression).evaluate({}, CostBudget())
    with pytest.raises(EvaluationError, match="which is no string"):
        made.tree()


def test_mutation_types_have_any_field() -> None:
    assert PATCH_OBJECT.field("whatever").type is DYN
    assert ENVIRONMENT.object_type("Objects") is None
    assert Environment.base().object_type("Object") is None
