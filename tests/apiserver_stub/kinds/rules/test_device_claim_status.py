"""Results of kube-apiserver 1.36 for changes of the status of resource claims.

A line of `device_claim_status.jsonl` has the old status, a merge patch of it, and whether the claim is being deleted,
with the code of the answer, the reported fields with reasons, and the reported devices, without nulls.
"""

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from apiserver_stub.kinds.schema.clean import clean
from apiserver_stub.kinds.validate import validate
from controller_manager.common.api.tree import Tree
from controller_manager.common.base.plain_yaml import without_nulls

CLAIM = "resource.k8s.io/v1/ResourceClaim"
DEVICE_CLASS = "gpu.example.org"
REQUESTS = [
    {"name": "a", "exactly": {"deviceClassName": DEVICE_CLASS}},
    {"name": "b", "firstAvailable": [{"name": "x", "deviceClassName": DEVICE_CLASS}]},
]
LINES = Path(__file__).with_name("device_claim_status.jsonl").read_text().splitlines()


@pytest.mark.parametrize("row", [json.loads(line) for line in LINES], ids=lambda row: str(row["patch"])[:80])
def test_status_changes_match_kube_apiserver(validator: Any, row: Any) -> None:
    before: Tree = validator.tree(CLAIM, {"spec": {"devices": {"requests": REQUESTS}}})
    before["status"] = copy.deepcopy(row["old"])
    if row["deleted"]:
        before["metadata"] |= {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["example.org/held"]}
    after = copy.deepcopy(before)
    status = copy.deepcopy({**row["old"], **row["patch"]})
    after["status"] = {name: value for name, value in status.items() if value is not None}
    kind = validator.kind(CLAIM)
    assert not clean(after, kind).wrong
    kind.strategy.prepare_subresource("status", after, before)
    causes = sorted(
        [one.field, one.reason.removeprefix("FieldValue")] for one in validate(kind, after, before, "status")
    )
    assert causes == row["causes"]
    if row["code"] == 200:
        assert without_nulls(after["status"].get("devices")) == row["devices"]
