"""Duplicates in lists of the types set and map (KEP-555): values are compared as JSON, not as Python values."""

from typing import Any

import pytest

from apiserver_stub.common.error_list import ErrorList
from apiserver_stub.kinds.structural.lists import report_duplicates
from apiserver_stub.kinds.structural.schema import StructuralSchema

SET = {"type": "array", "x-kubernetes-list-type": "set", "items": {"x-kubernetes-preserve-unknown-fields": True}}
MAP = {
    "type": "array",
    "x-kubernetes-list-type": "map",
    "x-kubernetes-list-map-keys": ["a", "b"],
    "items": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
}


@pytest.mark.parametrize(
    ("schema", "value", "again"),
    [
        (SET, [], []),
        (SET, ["x", "y", "x", "x"], ["[2]"]),
        (SET, [1, True, 1.0, "1"], []),
        (SET, [{"a": 1}, {"a": 1}, None, None], ["[1]", "[3]"]),
        (MAP, [{"a": 1, "b": 2}, {"a": 1, "b": 3}, {"a": 2}], []),
        (MAP, [{"a": 1, "b": 2}, {"b": 2, "a": 1, "c": 0}], ["[1]"]),
        (MAP, [{"a": 1}, {"a": True}, {"a": 1.0}], []),
        (MAP, [{"a": 1}, {"a": 1, "b": None}], []),
        (MAP, [{"a": 1}, {"c": 1}, {"a": 1}], ["[2]"]),
        (MAP, [{"a": [1]}, {"a": [1]}, {"a": [2]}], ["[1]"]),
        (MAP, [None, {"a": 1}, None], ["[2]"]),
    ],
)
def test_duplicates_are_reported_at_second_occurrence(schema: Any, value: Any, again: list[str]) -> None:
    errors = ErrorList()
    report_duplicates(value, StructuralSchema(schema), errors)
    assert [cause.field for cause in errors.causes] == again
    assert {cause.reason for cause in errors.causes} <= {"FieldValueDuplicate"}
