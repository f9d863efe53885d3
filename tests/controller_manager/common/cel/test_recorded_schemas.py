"""Recorded schema rules have the recorded outcome: errors, maximum cost, actual cost and result."""

import json
from pathlib import Path
from typing import Any

import pytest

from controller_manager.common.cel.environment import Environment, ProgramError
from controller_manager.common.cel.schema_types import declared_type
from controller_manager.common.cel.sizes import declared_sizes
from controller_manager.common.cel.syntax import CompileError
from controller_manager.common.cel.types import BOOL
from controller_manager.common.cel.values import CostBudget, EvaluationError

ROWS = [json.loads(line) for line in (Path(__file__).parent / "data" / "schemas.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("row", [pytest.param(row, id=str(number)) for number, row in enumerate(ROWS)])
def test_rule_outcomes_equal_recorded_ones(row: dict[str, Any]) -> None:
    declared = declared_type(row["schema"], "selfType", resource=row["root"])
    assert declared is not None
    assert declared.min_size == row["min_size"]
    environment = Environment.base().extend({"self": declared.type, "oldSelf": declared.type})
    for wanted in row["rules"]:
        found = {"rule": wanted["rule"], **outcome(environment, wanted["rule"], row["self"])}
        if "max_cost" in wanted and "error" not in wanted:
            found["max_cost"] = environment.compile(wanted["rule"]).estimate(declared_sizes(declared.type)).max
        assert found == wanted


def outcome(environment: Environment, rule: str, tree: Any) -> dict[str, Any]:
    """Return the outcome of a rule for an unchanged value."""
    try:
        program = environment.compile(rule)
    except ProgramError as error:
        return {"error": f"program instantiation failed: {error.issues[0].message}"}
    except CompileError as error:
        return {"error": f"compilation failed: {error.display()}"}
    if program.type != BOOL:
        return {"error": "cel expression must evaluate to a bool"}
    budget = CostBudget()
    try:
        errors = [] if program.evaluate({"self": tree, "oldSelf": tree}, budget) else [f"failed rule: {rule}"]
    except EvaluationError as error:
        errors = [error.message]
    return {"errs": errors, "cost": budget.spent}
