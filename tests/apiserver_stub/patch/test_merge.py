"""JSON merge patch: the examples of RFC 7386, appendix A, one level down, and algebraic properties."""

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apiserver_stub.patch import merge
from controller_manager.common.api.errors import BadRequest

CASES: list[tuple[Any, Any, Any]] = [
    ({"a": "b"}, {"a": "c"}, {"a": "c"}),
    ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
    ({"a": "b"}, {"a": None}, {}),
    ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
    ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
    ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
    ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
    ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
    (["a", "b"], ["c", "d"], ["c", "d"]),
    ({"a": "b"}, ["c"], ["c"]),
    ({"a": "foo"}, "bar", "bar"),
    ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
    ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
    ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ({"a": 1}, {"a": {"b": None, "c": 1}}, {"a": {"c": 1}}),
    ({"a": 1}, {"a": [None]}, {"a": [None]}),
]
# The RFC keeps nulls in lists; kube-apiserver drops null members unless the list replaces an object.
IN_LISTS: list[tuple[Any, Any, Any]] = [
    ([1], [{"b": None, "c": [{"d": None}]}, None], [{"c": [{}]}, None]),
    ({}, {"a": [{"b": None}, [{"c": None}]]}, {"a": [{}, [{}]]}),
    ({"a": {"b": 1}}, {"a": [{"c": None}]}, {"a": [{"c": None}]}),
]


@pytest.mark.parametrize(("target", "patch", "expected"), [*CASES, *IN_LISTS])
def test_rfc_7386_examples(target: Any, patch: Any, expected: Any) -> None:
    tree = {"x": target, "y": 1}
    before = copy.deepcopy(tree)
    assert merge.apply(tree, {"x": patch}) == {"x": expected, "y": 1}
    assert tree == before


@pytest.mark.parametrize("patch", [None, [], "x", 1])
def test_patch_must_be_an_object(patch: Any) -> None:
    with pytest.raises(BadRequest):
        merge.apply({}, patch)


NAMES = st.sampled_from("abcd")
SCALARS = st.booleans() | st.integers(0, 3) | st.lists(st.integers(0, 2), max_size=2)
TREES = st.recursive(SCALARS, lambda inner: st.dictionaries(NAMES, inner, max_size=4), max_leaves=12)
OBJECTS = st.dictionaries(NAMES, TREES, max_size=4)
PATCHES = st.dictionaries(NAMES, st.recursive(SCALARS | st.none(), lambda i: st.dictionaries(NAMES, i, max_size=4)))


def _difference(old: Any, new: Any) -> Any:
    """The merge patch that turns one object without nulls into another."""
    patch: dict[str, Any] = {name: None for name in old if name not in new}
    for name, value in new.items():
        both = isinstance(value, dict) and isinstance(old.get(name), dict)
        if name not in old or (not both and (type(old[name]), old[name]) != (type(value), value)):
            patch[name] = value
        elif both:
            patch[name] = _difference(old[name], value)
    return patch


@settings(max_examples=100, deadline=None)
@given(OBJECTS, OBJECTS)
def test_patch_from_difference_yields_the_target(old: dict, new: dict) -> None:
    assert merge.apply(old, _difference(old, new)) == new


@settings(max_examples=100, deadline=None)
@given(OBJECTS, PATCHES)
def test_merge_is_idempotent(tree: dict, patch: dict) -> None:
    before = copy.deepcopy((tree, patch))
    once = merge.apply(tree, patch)
    assert merge.apply(once, patch) == once
    assert (tree, patch) == before


def test_unchanged_parts_are_shared() -> None:
    tree = {"spec": {"a": 1}, "status": {"b": 1}}
    changed = merge.apply(tree, {"spec": {"a": 2}})
    assert changed["status"] is tree["status"]
    assert tree["spec"] == {"a": 1}


def test_result_shares_nothing_with_the_patch() -> None:
    patch = {"a": {"b": [{}]}}
    changed = merge.apply({}, patch)
    changed["a"]["b"][0]["late"] = changed["a"]["late"] = True
    assert patch == {"a": {"b": [{}]}}
