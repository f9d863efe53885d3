"""Recorded expressions have the recorded outcome: phase, result, types, cost, estimate and errors."""

import json
from pathlib import Path
from typing import Any

import pytest

from .recorded import outcome

ROWS = [
    json.loads(line)
    for name in ("expressions", "libraries")
    for line in (Path(__file__).parent / "data" / f"{name}.jsonl").read_text().splitlines()
]


@pytest.mark.parametrize("row", [pytest.param(row, id=row["id"]) for row in ROWS])
def test_outcomes_equal_recorded_ones(row: dict[str, Any]) -> None:
    found = outcome(row)
    if row.get("result_type") == "double":
        row = {**row, "result": _double(row["result"])}
    wanted = {key: value for key, value in row.items() if key not in ("id", "expr", "vars", "types")}
    assert {key: found.get(key) for key in wanted} == wanted
    assert ("error" in found) == ("error" in wanted or "errors" in wanted)


def _double(shown: Any) -> Any:
    """Return a double that JSON has as an integer."""
    return shown if isinstance(shown, str) else float(shown)
