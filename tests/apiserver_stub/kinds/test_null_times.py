"""Unset times as kube-apiserver returns them: null where Go's type always has the field."""

import json
from pathlib import Path
from typing import Any

import pytest

from apiserver_stub.kinds.registry import built_in
from apiserver_stub.kinds.schema.clean import clean
from apiserver_stub.kinds.schema.schema_types import fitting, takes

ROWS = [json.loads(line) for line in Path(__file__).with_name("null_times.jsonl").read_text().splitlines()]
KINDS = built_in()


def name(row: Any) -> str:
    return f"{row['apiVersion']} {row['resource']}"


@pytest.mark.parametrize("row", ROWS, ids=name)
def test_unset_time_is_null(row: Any) -> None:
    """Returned objects are in normal form: they need no cleaning when they are sent back."""
    group, _, version = row["apiVersion"].rpartition("/")
    kind = KINDS.find(group, version, row["resource"])
    assert kind is not None
    sent, answered = row["sent"], row["answered"]
    clean(sent, kind)
    inside, expected = (sent["status"], answered["status"]) if "status" in answered else (sent, answered)
    assert inside | expected == inside
    assert takes(fitting(kind.schema), sent)
