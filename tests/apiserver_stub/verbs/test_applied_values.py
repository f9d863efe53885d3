"""Configurations with nulls, empty values and other spellings, applied to a deployment by two managers, with the
results of kube-apiserver 1.36. The fields of other managers are compared as written; managers that change nothing have
no time.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from controller_manager.common.api.errors import ApiError

CASES: dict[str, list[dict[str, Any]]] = json.loads((Path(__file__).parent / "data/applied_values.json").read_text())
DEPLOYMENT = "/apis/apps/v1/namespaces/default/deployments/d"


@pytest.mark.parametrize("name", CASES)
async def test_applied_values_match_kube_apiserver(apply: Any, name: str) -> None:
    for step in CASES[name]:
        applied = step["applied"]
        metadata = {"name": "d", **applied.get("metadata", {})}
        tree = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": applied["spec"]}
        query = f"force={str(step.get('force', False)).lower()}"
        if "owners" in step:
            answer = await apply(DEPLOYMENT, tree, step["manager"], query)
            assert (answer.status, owners(answer.tree)) == (step["code"], step["owners"])
        else:
            with pytest.raises(ApiError) as refusal:
                await apply(DEPLOYMENT, tree, step["manager"], query)
            assert error_summary(refusal.value) == (step["code"], step["reason"], step.get("causes", []))


def error_summary(error: ApiError) -> tuple[int, str, list[list[str]]]:
    """Code, reason and causes of an error."""
    details = error.details
    causes = {(cause.reason, cause.field) for cause in details.causes} if details is not None else set()
    return error.code, error.status().reason, [list(cause) for cause in sorted(causes)]


def owners(tree: dict[str, Any]) -> list[dict[str, Any]]:
    """The entries of managed fields, in order."""
    return [
        {"manager": entry["manager"], "timed": "time" in entry, "fields": entry["fieldsV1"]}
        for entry in tree["metadata"]["managedFields"]
    ]
