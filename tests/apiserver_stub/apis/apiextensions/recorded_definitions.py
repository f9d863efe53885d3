"""Definitions and requests with the answers of a real API server of Kubernetes 1.36.

A row has an `id`, says `what` it is about, and is either a `manifest` with the `code` of its creation, the `causes` of
a refusal (field, reason, message) or what comes of it (`spec` only where it differs from the manifest by more than the
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
    """The spec as it is stored."""
    return row.get("spec") or {"conversion": NONE, **row["manifest"]["spec"]}
