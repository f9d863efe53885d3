"""Normalization: idempotent, and recognized by the quick check."""

import copy
from collections.abc import Mapping
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from apiserver_stub.kinds.defaults.kinds import apply_defaults
from apiserver_stub.kinds.registry import built_in
from apiserver_stub.kinds.resource_info import ResourceInfo
from apiserver_stub.kinds.schema.clean import Report, clean
from apiserver_stub.kinds.schema.schema import Schema
from apiserver_stub.kinds.schema.schema_types import fitting, takes

KINDS = built_in()
DEEPEST = 10
# By type: values that clients write, common or not; null stands for any value.
VALUES: Mapping[str, tuple[Any, ...]] = {
    "any": (1, "", {}, {"a": None}),
    "string": ("", "x", "Always", "RollingUpdate", "Container"),
    "boolean": (True, False),
    "integer": (0, 1, 443),
    "number": (0, 1.5),
    "bytes": ("", "aGk=", "aG\nk="),
    "int-or-string": (0, 80, "http", "25%"),
    "quantity": ("0", "1000m", "0.5", "64Mi", "1024Ki", 2, 0.1, "1e3"),
    "time": ("2024-01-02T03:04:05Z", "2024-01-02T05:04:05.5+02:00", "0001-01-01T00:00:00Z"),
    "micro-time": ("2024-01-02T03:04:05.000000Z", "2025-04-30T05:04:05.500000+02:00"),
}


@st.composite
def _objects(draw: st.DrawFn) -> tuple[ResourceInfo, Any]:
    """An object of some kind that fits its schema."""
    kind = draw(st.sampled_from(list(KINDS.all())))

    def grow(node: Schema, depth: int) -> Any:
        if depth and draw(st.integers(0, 20)) == 20:
            return None
        if node.values is not None:
            return {key: grow(node.values, depth + 1) for key in draw(st.sampled_from(["", "a", "ab"]))}
        if node.type == "object":
            names = draw(st.lists(st.sampled_from(sorted(node.fields)), max_size=5)) if node.fields else []
            return {name: grow(node.fields[name], depth + 1) for name in names if depth < DEEPEST}
        if node.type == "array":
            return [grow(node.items, depth + 1) for _ in range(draw(st.integers(0, 2)))] if node.items else []
        return draw(st.sampled_from(node.enum or VALUES[node.type]))

    return kind, grow(kind.schema, 0)


@settings(max_examples=200, deadline=None)
@given(_objects())
def test_normalization_is_idempotent(drawn: tuple[ResourceInfo, Any]) -> None:
    kind, tree = drawn
    assert clean(tree, kind) == Report()
    apply_defaults(tree, kind)
    once = copy.deepcopy(tree)
    assert clean(tree, kind) == Report(), "a default has a name or a type of its own"
    apply_defaults(tree, kind)
    assert tree == once


@settings(max_examples=100, deadline=None)
@given(_objects())
def test_normal_form_passes_the_quick_check(drawn: tuple[ResourceInfo, Any]) -> None:
    kind, tree = drawn
    clean(tree, kind)
    apply_defaults(tree, kind)
    text = repr(tree)
    if "e3" not in text and "None" not in text:  # exponents and values without schema take the full check
        assert takes(fitting(kind.schema), tree) or _leads_back(kind.schema, tree)


def _leads_back(node: Schema | None, tree: Any) -> bool:
    """Whether the value uses a recursive schema, which the quick check does not follow."""
    if isinstance(tree, list):
        return any(_leads_back(node.items if node else None, item) for item in tree)
    if not isinstance(tree, dict) or node is None:
        return False
    return any(name in ("not", "allOf", "anyOf", "oneOf", "properties") for name in tree) or any(
        _leads_back(node.fields.get(name) or node.values, value) for name, value in tree.items()
    )
