"""Results of kube-apiserver 1.36 for changes of the status of jobs.

A line of `job_status.jsonl` has fields of a spec, the old status, and a merge patch of it, with the code of the answer,
and the reported fields with reasons.
"""

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from apiserver_stub.kinds.schema.clean import clean
from apiserver_stub.kinds.validate import validate
from controller_manager.common.api.tree import Tree

JOB = "batch/v1/Job"
ROWS = [json.loads(line) for line in Path(__file__).with_name("job_status.jsonl").read_text().splitlines()]


@pytest.mark.parametrize(("spec", "old", "patch", "code", "causes"), ROWS, ids=[str(row[:3]) for row in ROWS])
def test_status_changes_match_kube_apiserver(
    validator: Any, spec: Tree, old: Tree, patch: Tree, code: int, causes: list[list[str]]
) -> None:
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}
    before = validator.tree(JOB, {"spec": {"template": template, "managedBy": "example.org/x", **spec}})
    before["status"] = old
    after = copy.deepcopy(before)
    after["status"] = {name: value for name, value in {**old, **patch}.items() if value is not None}
    kind = validator.kind(JOB)
    if clean(after, kind).wrong:
        assert code == 422
        return
    found = validate(kind, after, before, "status")
    assert sorted([one.field, one.reason.removeprefix("FieldValue")] for one in found) == causes
