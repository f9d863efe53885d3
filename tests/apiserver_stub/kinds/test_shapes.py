"""A shape accepts only values that the full checks accept."""

import copy
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apiserver_stub.kinds.registry import built_in
from apiserver_stub.kinds.schema.clean import Report, clean_tree, sweep
from apiserver_stub.kinds.schema.schema import Raw, Schema, Schemas
from apiserver_stub.kinds.schema.schema_types import complete, fitting, takes
from apiserver_stub.kinds.validate import check_schema, unmet

KINDS = built_in()
# By type: values of the usual form, and similar ones.
GOOD: Mapping[str, tuple[Any, ...]] = {
    "any": (1, "x", {"y": None}),
    "string": ("", "x"),
    "boolean": (True, False),
    "integer": (0, -5, 2**31 - 1, -(2**31)),
    "number": (0, 1.5),
    "bytes": ("", "aGk="),
    "int-or-string": (80, "http", "25%"),
    "quantity": ("0", "1", "100m", "1536Mi", "-7Ei", "9999Ti", "5n", "123456789012345678"),
    "time": ("2024-01-02T03:04:05Z", "2024-12-31T23:59:59Z", "2024-02-28T00:00:00Z"),
    "micro-time": ("2024-01-02T03:04:05.000000Z", "2025-04-30T03:04:05.123456Z"),
}
ODD: tuple[Any, ...] = (
    None, "", "x", "1 core", "1\n", "٣", 1, 1.0, True, 2**31, 2**63, -(2**63) - 1, 2**70, [], {}, [None], {"a": None},
    "aGk", "aG\nk=", "a===", "2024-02-29T00:00:00Z", "2023-02-29T00:00:00Z", "2024-04-31T00:00:00Z",
    "2024-01-02T03:04:05.5Z", "2024-01-02t03:04:05z", "2024-01-02T24:00:00Z", "2024-01-02T03:04:60Z",
    "1000m", "1000", "0.5", "1024Ki", "8Ei", "2048Mi", "+1", "01", "-0", "0m", "1e3", "9000Pi",
    "1234567890123456789", False, 0.0, -1, {"a": ""}, [""],
    "2024-01-02T03:04:05Z\n", "2024-01-02T03:04:05.123456+00:00", "0999-01-02T03:04:05Z", "2024-13-01T00:00:00Z",
)  # fmt: skip


OMITTED = ("string", "bytes", "boolean", "integer", "array")


def _node(raw: Raw) -> Schema:
    return Schemas({"x": raw}).node("x")


@pytest.mark.parametrize("type_", sorted(GOOD))
def test_usual_values_are_accepted(type_: str) -> None:
    assert all(takes(fitting(_node({"type": type_})), value) for value in GOOD[type_])


@pytest.mark.parametrize("omit", [False, True])
@pytest.mark.parametrize("format_", ["", "int32", "int64", "milli"])
@pytest.mark.parametrize("type_", [*sorted(GOOD), "object", "array"])
def test_accepted_values_need_no_cleaning(type_: str, format_: str, omit: bool) -> None:
    if omit and type_ not in OMITTED:
        return
    node = _node({"type": "object", "fields": {"x": {"type": type_, "format": format_, "omit": omit}}})
    for value in ODD:
        tree = {"x": copy.deepcopy(value)}
        if takes(fitting(node), tree):
            assert sweep(tree, node) == Report()
            assert tree == {"x": value}


def test_empty_values_are_accepted_only_if_preserved() -> None:
    labels = {"type": "object", "values": {"type": "string"}}
    assert takes(fitting(_node({"type": "object", "fields": {"x": labels}})), {"x": {}})
    assert not takes(fitting(_node({"type": "object", "fields": {"x": {**labels, "omit": True}}})), {"x": {}})
    assert takes(fitting(_node({"type": "object", "fields": {"x": {"type": "boolean", "omit": True}}})), {"x": True})


def test_unknown_fields_are_accepted_only_if_preserved() -> None:
    fields = {"a": {"type": "string"}}
    assert not takes(fitting(_node({"type": "object", "fields": fields})), {"b": 1})
    assert takes(fitting(_node({"type": "object", "fields": fields, "preserve": True})), {"a": "", "b": None})


@pytest.mark.parametrize(
    ("raw", "good", "bad"),
    [
        ({"type": "string"}, "x", ""),
        ({"type": "string", "enum": ["A", "B"]}, "A", ""),
        ({"type": "string", "enum": ["A", "B"]}, "B", "C"),
        ({"type": "any"}, {}, ""),
        ({"type": "integer"}, 0, None),
        ({"type": "object", "fields": {"y": {"type": "string"}}, "required": ["y"]}, {"y": "1"}, {}),
        ({"type": "array", "items": {"type": "string", "enum": ["A"]}}, ["A"], ["A", ""]),
        ({"type": "object", "values": {"type": "string", "enum": ["A"]}}, {"k": "A"}, {"k": "B"}),
    ],
)
def test_required_field_must_be_present(raw: Raw, good: Any, bad: Any) -> None:
    node = _node({"type": "object", "fields": {"x": raw}, "required": ["x"]})
    for tree, right in (({"x": good}, True), ({"x": bad}, False), ({}, False)):
        assert takes(complete(node), tree) is right
        assert (list(check_schema(tree, node)) == []) is right


def test_required_field_needs_no_schema() -> None:
    node = _node({"type": "object", "preserve": True, "required": ["x"]})
    assert takes(complete(node), {"x": 1})
    assert not takes(complete(node), {"x": ""})


def test_recursive_schema_is_checked_fully() -> None:
    raw = {"type": "object", "fields": {"next": {"ref": "x"}, "n": {"type": "integer", "default": 0}}}
    node = _node(raw)
    assert takes(fitting(node), {"n": 1})
    assert not takes(fitting(node), {"next": {"n": 1}})
    tree: dict[str, Any] = {"next": {"next": {"n": 1}, "z": 1}}
    assert clean_tree(tree, node) == Report(unknown=("next.z",))
    assert tree == {"n": 0, "next": {"n": 0, "next": {"n": 1}}}


@st.composite
def _objects(draw: st.DrawFn) -> tuple[Schema, Any]:
    """An object of some kind, valid except for some values."""
    kind = draw(st.sampled_from(list(KINDS.all())))

    def grow(node: Schema, depth: int) -> Any:
        if draw(st.integers(0, 40)) == 40:
            return copy.deepcopy(draw(st.sampled_from(ODD)))
        if node.values is not None:
            return {key: grow(node.values, depth + 1) for key in draw(st.sampled_from(["", "a", "ab"]))}
        if node.type == "object":
            names = draw(st.lists(st.sampled_from(sorted(node.fields)), max_size=4)) if node.fields else []
            wanted = {*names, *node.required} if depth < 9 else set()
            return {name: grow(node.fields[name], depth + 1) for name in sorted(wanted)}
        if node.type == "array":
            return [grow(node.items, depth + 1) for _ in range(draw(st.integers(0, 2)))] if node.items else []
        return draw(st.sampled_from([value for value in node.enum or GOOD[node.type] if value != ""]))

    return kind.schema, grow(kind.schema, 0)


@settings(max_examples=200, deadline=None)
@given(_objects())
def test_quick_check_agrees_with_full_check(drawn: tuple[Schema, Any]) -> None:
    node, tree = drawn
    if not isinstance(tree, dict):
        return
    if takes(complete(node), tree):
        assert list(unmet(tree, node)) == []
    before, taken = copy.deepcopy(tree), takes(fitting(node), tree)
    report = sweep(tree, node)
    assert not taken or (report, tree) == (Report(), before)


def test_always_present_null_is_preserved_by_full_check() -> None:
    kind = KINDS.find("", "v1", "events")
    assert kind is not None
    tree: dict[str, Any] = {"involvedObject": {}, "lastTimestamp": None, "message": None, "metadata": {}}
    assert sweep(tree, kind.schema) == Report()
    assert tree == {"involvedObject": {}, "lastTimestamp": None, "metadata": {}}
