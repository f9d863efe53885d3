"""What is made of a schema is made once, and goes with it."""

import gc
import weakref
from typing import Any

from apiserver_stub.kinds import built_in
from apiserver_stub.kinds.schema import Schema
from apiserver_stub.kinds.shapes import takes
from apiserver_stub.kinds.validate_schema import check_schema

ITEMS = {
    "type": "object",
    "required": ["name"],
    "fields": {"name": {"type": "string"}, "next": {"type": "time"}},
}
RAW = {
    "type": "object",
    "required": ["list"],
    "fields": {
        "metadata": {"ref": "meta.v1.ObjectMeta"},
        "list": {"type": "array", "omit": True, "default": [], "items": ITEMS},
        "map": {"type": "object", "omit": True, "values": {"type": "object", "fields": {"size": {"type": "quantity"}}}},
        "text": {"type": "string", "omit": True, "enum": ["a", "b"]},
    },
}
TREE: dict[str, Any] = {"metadata": {"name": "x"}, "list": [{"name": "a"}], "map": {"a": {"size": "1"}}, "text": "a"}


def test_what_is_derived_is_made_once_for_each_schema() -> None:
    one, other = _schema(), _schema()
    made: list[Schema] = []

    def make(schema: Schema) -> list[Schema]:
        made.append(schema)
        return [schema]

    assert one.derived(make) is one.derived(make)
    assert one.derived(make) is not other.derived(make)
    assert one.derived(lambda schema: schema.type) == "object"
    assert made == [one, other]


def test_nothing_keeps_what_was_made_of_a_schema() -> None:
    references = _used()
    gc.collect()
    assert [reference() for reference in references if reference() is not None] == []


def _schema() -> Schema:
    return Schema(RAW, built_in.schemas().node)


def _used() -> list[Any]:
    schema = _schema()
    assert takes(schema.fitting, TREE)
    assert takes(schema.complete, TREE)
    assert check_schema({"list": [{}]}, schema) != []
    schema.fill({**TREE})
    found: list[Any] = [schema, schema.derived(lambda schema: {schema})]
    for inner in (schema, schema.fields["list"].items, schema.fields["map"].values):
        assert inner is not None
        found += [inner, inner.fitting]
    items = schema.fields["list"].items
    assert items is not None
    return [weakref.ref(one) for one in [*found, schema.complete, items.complete, schema.fill]]
