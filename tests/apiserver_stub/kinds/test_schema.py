"""Values derived from a schema are computed once and freed with it."""

import gc
import threading
import weakref
from typing import Any

import pytest

from apiserver_stub.kinds import published
from apiserver_stub.kinds.schema.schema import Schema, Schemas
from apiserver_stub.kinds.schema.schema_types import complete, fitting, takes
from apiserver_stub.kinds.schema.zero_values import fill, filler
from apiserver_stub.kinds.validate import check_schema

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


def test_derived_value_is_computed_once_per_schema() -> None:
    one, other = _schema(), _schema()
    made: list[Schema] = []

    def make(schema: Schema) -> list[Schema]:
        made.append(schema)
        return [schema]

    assert one.derived(make) is one.derived(make)
    assert one.derived(make) is not other.derived(make)
    assert one.derived(lambda schema: schema.type) == "object"
    assert made == [one, other]


def test_failed_derivation_is_retried() -> None:
    schema, failures = _schema(), [ValueError("wrong")]

    def make(schema: Schema) -> str:
        if failures:
            raise failures.pop()
        return "made"

    with pytest.raises(ValueError, match="wrong"):
        schema.derived(make, "meanwhile")
    assert schema.derived(make, "meanwhile") == "made"


def test_derived_values_are_garbage_collected() -> None:
    references = _used_references()
    gc.collect()
    assert [reference() for reference in references if reference() is not None] == []


def _schema() -> Schema:
    return Schema(RAW, published.schemas().node)


def _used_references() -> list[Any]:
    schema = _schema()
    assert takes(fitting(schema), TREE)
    assert takes(complete(schema), TREE)
    assert check_schema({"list": [{}]}, schema) != []
    fill(schema, {**TREE})
    found: list[Any] = [schema, schema.derived(lambda schema: {schema})]
    for inner in (schema, schema.fields["list"].items, schema.fields["map"].values):
        assert inner is not None
        found += [inner, fitting(inner)]
    items = schema.fields["list"].items
    assert items is not None
    return [weakref.ref(one) for one in [*found, complete(schema), complete(items), filler(schema)]]


def test_recursive_schema_can_be_derived_by_two_threads() -> None:
    """A second thread never sees the placeholder that stands for an unfinished schema."""
    loop = {"type": "object", "fields": {"name": {"type": "string", "default": ""}, "next": {"ref": "Loop"}}}
    begun, go_on = threading.Event(), threading.Event()

    def make(schema: Schema) -> str:
        if threading.current_thread() is not threading.main_thread():
            begun.set()
            assert go_on.wait(10)
        return schema.fields["next"].derived(make, "meanwhile") + " made"

    schema = Schemas({"Loop": loop}).node("Loop")
    other: list[str] = []
    thread = threading.Thread(target=lambda: other.append(schema.derived(make, "meanwhile")))
    thread.start()
    assert begun.wait(10)
    assert schema.derived(make, "meanwhile") == "meanwhile made"
    tree: dict[str, Any] = {"next": {"next": {}}}
    fill(schema, tree)
    assert tree == {"name": "", "next": {"name": "", "next": {"name": ""}}}
    go_on.set()
    thread.join()
    assert other == ["meanwhile made made"], "of what the first has made by now"
