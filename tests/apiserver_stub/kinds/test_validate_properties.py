"""Validation of any object that fits the schema never raises and never modifies it."""

import copy
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from apiserver_stub.kinds.defaults.kinds import apply_defaults
from apiserver_stub.kinds.registry import built_in
from apiserver_stub.kinds.resource_info import ResourceInfo
from apiserver_stub.kinds.schema.clean import clean
from apiserver_stub.kinds.schema.schema import Schemas
from apiserver_stub.kinds.validate import check_schema, validate
from controller_manager.common.api.tree import Tree

KINDS = built_in()


def test_required_fields_of_recursive_schema_are_checked() -> None:
    schemas = Schemas({
        "a": {"type": "object", "fields": {"b": {"ref": "b"}, "leaf": {"ref": "leaf"}}},
        "b": {"type": "object", "fields": {"a": {"ref": "a"}}},
        "leaf": {"type": "object", "required": ["x"], "fields": {"x": {"type": "string"}}},
    })  # fmt: skip
    tree = {"b": {"a": {"b": {"a": {"leaf": {}}}}}}
    assert [cause.field for cause in check_schema(tree, schemas.node("a"))] == ["b.a.b.a.leaf.x"]
    assert [cause.field for cause in check_schema(tree["b"], schemas.node("b"))] == ["a.b.a.leaf.x"]


_leaf = st.sampled_from([None, 0, -1, 2**31 - 1, "", "x", "-", "1.2.3.4", "aGk=", "2024-01-01T00:00:00Z", "In", True])


@st.composite
def _fitting(draw: st.DrawFn) -> tuple[ResourceInfo, Tree]:
    """A random object that mostly fits its schema; the caller drops what does not."""
    kind = draw(st.sampled_from(list(KINDS.all())))

    def grow(node: Any, depth: int) -> Any:
        if depth > 7:
            return None
        if node.type == "object" and node.values is not None:
            return {
                key: grow(node.values, depth + 1) for key in draw(st.lists(st.sampled_from(["a", "", "/"]), max_size=2))
            }
        if node.type == "object":
            names = sorted(node.fields)
            chosen = draw(st.lists(st.sampled_from(names), max_size=4, unique=True)) if names else []
            return {name: grow(node.fields[name], depth + 1) for name in (*chosen, *node.required)}
        if node.type == "array":
            return [grow(node.items, depth + 1) for _ in range(draw(st.integers(0, 2)))]
        return draw(_leaf)

    return kind, grow(kind.schema, 0)


@settings(max_examples=200, deadline=None)
@given(_fitting(), st.sampled_from([None, "", "status", "approval", "resize", "ephemeralcontainers"]))
def test_any_valid_object_can_be_validated(drawn: tuple[ResourceInfo, Tree], part: str | None) -> None:
    kind, tree = drawn
    if clean(tree, kind).wrong:
        return
    apply_defaults(tree, kind)
    tree.setdefault("metadata", {})
    kind.strategy.prepare_create(tree)
    before = copy.deepcopy(tree)
    causes = validate(kind, tree, None)
    assert all(cause.reason and cause.message for cause in causes)
    assert tree == before
    if part is not None:
        new = copy.deepcopy(tree)
        kind.strategy.prepare_update(new, tree)
        again = validate(kind, new, tree, part)
        assert tree == before
        assert part or causes or not again


@settings(max_examples=150, deadline=None)
@given(_fitting(), st.data(), st.sampled_from(["", "status", "approval", "resize", "ephemeralcontainers"]))
def test_any_change_can_be_validated(drawn: tuple[ResourceInfo, Tree], data: st.DataObject, part: str) -> None:
    kind, old = drawn
    new = copy.deepcopy(old)
    for name in data.draw(st.lists(st.sampled_from(sorted(kind.schema.fields)), max_size=2)):
        new.pop(name, None)
    trees = [old, new]
    if any(clean(tree, kind).wrong for tree in trees):
        return
    for tree in trees:
        tree.setdefault("metadata", {})
    before = copy.deepcopy(trees)
    for one, other in (trees, trees[::-1]):
        assert all(cause.reason for cause in validate(kind, one, other, part))
    assert trees == before
