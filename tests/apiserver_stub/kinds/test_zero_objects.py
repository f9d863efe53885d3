"""Zero objects, as in bookmarks of kube-apiserver 1.36, for each resource that can be watched."""

import json
from pathlib import Path
from typing import Any

import pytest

from apiserver_stub.kinds.registry import built_in
from apiserver_stub.kinds.schema.zero_values import zero_object

RECORDED: dict[str, Any] = {
    row["path"]: row["zero"] for row in map(json.loads, (Path(__file__).parent / "zero_objects.jsonl").open())
}
KINDS = built_in()


@pytest.mark.parametrize("path", RECORDED)
def test_zero_object_matches_kube_apiserver(path: str) -> None:
    prefix, *place = path[1:].split("/")
    kind = KINDS.find(*place) if prefix == "apis" else KINDS.find("", *place)
    assert kind is not None
    found = zero_object(kind.name, kind.schema)
    assert {"kind": kind.kind, "apiVersion": kind.api_version, **found} == RECORDED[path]
