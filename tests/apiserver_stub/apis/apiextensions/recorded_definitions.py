"""Definitions and requests with the results of kube-apiserver 1.36.

A row has an `id`, a subject (`what`), and is either a `manifest` with the `code` of its creation and the `causes` of an
error (field, reason, message) or the created object (`spec` only where it differs from the manifest by more than the
default of `conversion`), or a sequence of requests (`steps`).
"""

import json
from pathlib import Path
from typing import Any

ROWS: list[dict[str, Any]] = [
    json.loads(line) for line in (Path(__file__).parent / "data" / "definitions.jsonl").read_text().splitlines()
]
MANIFESTS = [row for row in ROWS if "manifest" in row]
SEQUENCES = [row for row in ROWS if "steps" in row]
NONE = {"strategy": "None"}


def stored_spec(row: dict[str, Any]) -> Any:
    """The stored spec."""
    return row.get("spec") or {"conversion": NONE, **row["manifest"]["spec"]}
