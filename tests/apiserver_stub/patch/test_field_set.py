"""Field sets: JSON form, rendered paths, and set algebra."""

import copy
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apiserver_stub.patch.field_set import (
    difference,
    gained,
    intersection,
    of,
    ordered,
    parse,
    paths,
    render,
    to_keyed,
    union,
)

Fields = dict[str, Any]

STEPS = st.sampled_from(["f:a", "f:b", 'k:{"name":"a"}', 'k:{"name":"a","port":80}', 'v:"x"', "v:1", "i:0"])
PATHS = st.lists(STEPS, min_size=1, max_size=3).map(tuple)
SETS = st.lists(PATHS, max_size=6).map(lambda found: of(*found))


def members(fields: Fields) -> set[tuple[str, ...]]:
    return set(paths(fields))


@given(st.lists(PATHS, max_size=6))
def test_set_contains_the_paths_it_was_made_of(found) -> None:
    assert members(of(*found)) == set(found)


@settings(max_examples=200)
@given(SETS, SETS)
def test_set_operations_match_sets_of_paths(one: Fields, other: Fields) -> None:
    before = copy.deepcopy((one, other))
    assert members(union(one, other)) == members(one) | members(other)
    assert members(intersection(one, other)) == members(one) & members(other)
    assert members(difference(one, other)) == members(one) - members(other)
    assert (one, other) == before


@given(SETS, SETS)
def test_difference_without_overlap_returns_the_same_set(one: Fields, other: Fields) -> None:
    rest = {step: inner for step, inner in other.items() if step not in one}
    assert difference(one, rest) is one


@given(SETS, SETS, SETS)
def test_set_algebra_laws_hold(one: Fields, two: Fields, three: Fields) -> None:
    """The laws of sets hold for the trees too, so that equal sets are equal trees."""
    assert union(one, two) == union(two, one)
    assert intersection(one, two) == intersection(two, one)
    assert union(union(one, two), three) == union(one, union(two, three))
    assert intersection(one, union(two, three)) == union(intersection(one, two), intersection(one, three))
    assert difference(one, union(two, three)) == difference(difference(one, two), three)
    assert union(difference(one, two), intersection(one, two)) == one
    assert union(one, one) == intersection(one, one) == one
    assert difference(one, one) == {}


@given(SETS, SETS)
def test_gained_equals_union_in_order(one: Fields, other: Fields) -> None:
    before = ordered(one)
    text = json.dumps(before)
    found = gained(before, other)
    assert json.dumps(found) == json.dumps(ordered(union(one, other)))
    assert json.dumps(before) == text


@given(SETS)
def test_parse_of_serialized_set_changes_nothing(fields: Fields) -> None:
    assert parse(fields) == fields


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ({}, {}),
        ({".": {}}, {}),
        ({"f:a": {".": {}}}, {"f:a": {}}),
        ({"f:a": {"x:new": {}}}, {"f:a": {}}),
        ({"x:new": {"f:a": {}}}, {}),
        ({'k:{"b": 1, "a":"x"}': {}}, {'k:{"a":"x","b":1}': {}}),
        ({'k:{"a":1}': {}, 'k:{ "a":1}': {"f:b": {}}}, {'k:{"a":1}': {".": {}, "f:b": {}}}),
        ({'v: "x"': {}}, {'v:"x"': {}}),
        ({"i:07": {}}, {"i:7": {}}),
        ({'v: {"a": 1}': {}, "v: [1]": {}}, {'v:{"a":1}': {}, "v:[1]": {}}),
    ],
)
def test_client_sets_are_normalized(written: Fields, read: Fields) -> None:
    assert parse(written) == read


@pytest.mark.parametrize(
    "written",
    ["", [], 1, None, {"": {}}, {"a": {}}, {"f:a": 1}, {"f:a": None}, {"k:1": {}}, {"k:{}": {}}, {"k:{": {}},
     {"v:": {}}, {"i:x": {}}],
)  # fmt: skip
def test_malformed_set_is_rejected(written: Any) -> None:
    with pytest.raises(ValueError):
        parse(written)


def test_many_paths_are_parsed_in_linear_time() -> None:
    many: Fields = {f"f:{number}": {} for number in range(50_000)}
    assert parse(many) == many


def test_depth_is_limited() -> None:
    deep: Fields = {}
    for _ in range(500):
        deep = {"f:a": deep}
    with pytest.raises(ValueError):
        parse(deep)


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        (("f:spec", "f:replicas"), ".spec.replicas"),
        (("f:list", to_keyed({"name": "web", "port": 80})), '.list[name="web",port=80]'),
        (("f:finalizers", 'v:"x"'), '.finalizers[="x"]'),
        (("f:list", "i:0", "f:a"), ".list[0].a"),
        (("f:metadata", "f:labels", "f:example.org/app"), ".metadata.labels.example.org/app"),
        (("f:" + 1000 * "x", "f:a"), f".{'x' * 1000}.a"),
    ],
)
def test_paths_are_rendered_like_upstream(path: tuple[str, ...], shown: str) -> None:
    assert render(path) == shown
