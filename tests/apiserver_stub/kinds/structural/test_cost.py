"""Objects that cost more than their size, because their schema has many defaults, rules or fields."""

import json
from typing import Any

import pytest

from apiserver_stub.kinds.structural.cost import SchemaCost, prepare
from apiserver_stub.kinds.structural.schema import VALIDATIONS, StructuralSchema

TEXT, NUMBER = {"type": "string"}, {"type": "integer", "default": 1}


def schema_of(**properties: Any) -> StructuralSchema:
    return StructuralSchema({"type": "object", "properties": properties}, root=True)


def fields(count: int, schema: Any) -> Any:
    return {"type": "object", "properties": {f"f{number}": schema for number in range(count)}}


def ruled(*rules: str, **more: Any) -> Any:
    return {"type": "array", **more, VALIDATIONS: [{"rule": rule} for rule in rules]}


FEW, SOME, MANY = ({"l": [1] * count} for count in (5, 200, 3000))
EACH, PAIRS = "self.all(x, x > 0)", "self.all(x, self.exists(y, x + y > 0))"


@pytest.mark.parametrize(
    ("schema", "value", "costly"),
    [
        (schema_of(a=TEXT), SOME, False),
        (schema_of(a=TEXT), {"a": [{}] * 5000}, True),
        (schema_of(spec=fields(900, NUMBER)), {}, False),
        (schema_of(spec=fields(1100, NUMBER)), {}, True),
        (schema_of(spec={"type": "object", "default": {"l": [0] * 1100}}), {}, True),
        (schema_of(l={"type": "array", "items": fields(20, NUMBER)}), {"l": [{}] * 10}, False),
        (schema_of(l={"type": "array", "items": fields(20, NUMBER)}), {"l": [{}] * 100}, True),
        (schema_of(m={"type": "object", "additionalProperties": fields(20, NUMBER)}),
         {"m": {f"k{n}": {} for n in range(99)}}, True),
        (schema_of(l=ruled(EACH)), SOME, False),
        (schema_of(l=ruled(PAIRS)), FEW, False),
        (schema_of(l=ruled(PAIRS)), SOME, True),
        (schema_of(l=ruled(*[EACH] * 200)), SOME, True),
        (schema_of(l={"type": "array", "items": ruled(*["true"] * 200)}), SOME, True),
        (schema_of(l=ruled(*["size(self) < 5"] * 200)), SOME, False),
    ],
)  # fmt: skip
def test_object_cost_depends_on_schema(schema: StructuralSchema, value: Any, costly: bool) -> None:
    schema.derived(prepare)
    assert SchemaCost(schema).is_costly(json.dumps(value, separators=(",", ":")).encode()) is costly


def test_first_object_of_large_schema_is_costly() -> None:
    schema = schema_of(spec=fields(300, TEXT))
    cost = SchemaCost(schema)
    assert cost.is_costly(b"{}")
    schema.derived(prepare)
    assert not cost.is_costly(b"{}")
    assert not SchemaCost(schema_of(spec=fields(100, TEXT))).is_costly(b"{}")
