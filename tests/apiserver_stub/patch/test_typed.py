"""Ownership in values of each type: declared, new, changed, merged and pruned fields."""

import copy
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apiserver_stub.patch.conformance import check_typed
from apiserver_stub.patch.field_set import of, ordered, paths
from apiserver_stub.patch.typed import IndistinctError
from apiserver_stub.patch.typed_objects import type_of
from controller_manager.common.api.errors import UnknownError

Tree = dict[str, Any]

WEB = 'k:{"name":"web"}'
HTTP = 'k:{"number":80,"protocol":"TCP"}'

# The declared fields of each value of `spec`, and the further fields of a new one.
OWNED: dict[str, tuple[Tree, Tree, Tree]] = {
    "scalar": ({"replicas": 1}, {"f:replicas": {}}, {"f:replicas": {}}),
    "null": ({"replicas": None, "settings": None}, {"f:replicas": {}, "f:settings": {}}, {}),
    "atomic list": ({"args": ["a"], "plain": []}, {"f:args": {}, "f:plain": {}}, {"f:args": {}, "f:plain": {}}),
    "atomic map": ({"selector": {"a": "b"}}, {"f:selector": {}}, {"f:selector": {}}),
    "atomic struct": ({"place": {"zone": "z"}}, {"f:place": {}}, {"f:place": {}}),
    "map": ({"settings": {"a": "1"}}, {"f:settings": {"f:a": {}}}, {"f:settings": {".": {}, "f:a": {}}}),
    "empty map": ({"settings": {}}, {"f:settings": {}}, {"f:settings": {}}),
    "struct": ({"strategy": {"type": "x"}}, {"f:strategy": {"f:type": {}}}, {"f:strategy": {".": {}, "f:type": {}}}),
    "empty struct": ({"strategy": {}}, {"f:strategy": {}}, {"f:strategy": {}}),
    "set": ({"colors": ["a"]}, {"f:colors": {'v:"a"': {}}}, {"f:colors": {".": {}, 'v:"a"': {}}}),
    "empty set": ({"colors": []}, {}, {"f:colors": {}}),
    "keyed list": (
        {"steps": [{"name": "web", "image": "i"}]},
        {"f:steps": {WEB: {".": {}, "f:name": {}, "f:image": {}}}},
        {"f:steps": {".": {}, WEB: {".": {}, "f:name": {}, "f:image": {}}}},
    ),
    "key with a default": (
        {"ports": [{"number": 80}]},
        {"f:ports": {HTTP: {".": {}, "f:number": {}}}},
        {"f:ports": {".": {}, HTTP: {".": {}, "f:number": {}}}},
    ),
    "no schema": (
        {"free": {"a": {"b": 1, "c": [1]}}},
        {"f:free": {"f:a": {".": {}, "f:b": {}, "f:c": {}}}},
        {"f:free": {".": {}, "f:a": {".": {}, "f:b": {}, "f:c": {}}}},
    ),
    "any": ({"any": {"a": 1}}, {"f:any": {}}, {"f:any": {}}),
    "unknown": ({"nonsense": 1}, {}, {}),
}


@pytest.mark.parametrize("name", OWNED)
def test_declared_fields_of_value(things, name: str) -> None:
    value, declared, _ = OWNED[name]
    assert type_of(things.node.fields["spec"]).declared(value) == declared


@pytest.mark.parametrize("name", [name for name in OWNED if name not in ("null", "unknown")])
def test_initial_fields_of_new_value(things, name: str) -> None:
    value, _, new = OWNED[name]
    kind = type_of(things.node)
    assert kind.initial({"spec": value}) == {"f:spec": new}
    assert kind.compare({"spec": {}}, {"spec": value}) == ({"f:spec": new}, None)
    assert kind.compare({"spec": value}, {"spec": {}}) == (None, {"f:spec": new})


@pytest.mark.parametrize(
    "value",
    [
        {"steps": [{"name": "web", "image": "i"}, {"image": "j", "name": "db"}], "settings": {"b": "1", "a": "2"}},
        {"strategy": {}, "replicas": 1, "colors": ["b", "a"], "args": ["x"]},
        {"settings": {"z": "1"}, "free": {"b": {"d": 1, "c": 2}, "a": 1}, "mode": "m"},
    ],
)
def test_field_sets_of_whole_value_are_sorted(things, value: Tree) -> None:
    kind, tree = type_of(things.node), {"spec": value, "metadata": {"labels": {"b": "1", "a": "2"}}}
    for found in (kind.initial(tree), kind.whole(tree), kind.declared(tree)):
        assert orjson.dumps(found) == orjson.dumps(ordered(found)) == orjson.dumps(found, option=orjson.OPT_SORT_KEYS)


# From one `spec` to another: changed and removed fields.
CHANGED: dict[str, tuple[Tree, Tree, list[str], list[str]]] = {
    "scalar": ({"replicas": 1, "mode": "a"}, {"replicas": 2, "mode": "a"}, ["f:replicas"], []),
    "atomic": ({"args": ["a"], "selector": {"a": "1"}}, {"args": ["b"], "selector": {}}, ["f:args", "f:selector"], []),
    "map": ({"settings": {"a": "1", "b": "1"}}, {"settings": {"a": "2"}}, ["f:settings f:a"], ["f:settings f:b"]),
    "set": ({"colors": ["a", "b"]}, {"colors": ["c", "a"]}, ['f:colors v:"c"'], ['f:colors v:"b"']),
    "order": ({"colors": ["a", "b"]}, {"colors": ["b", "a"]}, [], []),
    "element": (
        {"steps": [{"name": "web", "image": "1"}]}, {"steps": [{"name": "web", "image": "2"}]},
        [f"f:steps {WEB} f:image"], [],
    ),
    "element that came and went": (
        {"steps": [{"name": "db"}]}, {"steps": [{"name": "web"}]},
        [f"f:steps {WEB}", f"f:steps {WEB} f:name"], ['f:steps k:{"name":"db"}', 'f:steps k:{"name":"db"} f:name'],
    ),
    "elements that become ambiguous": (
        {"steps": [{"name": "web"}]}, {"steps": [{"name": "web"}, {"name": "web"}]},
        [f"f:steps {WEB}"], [f"f:steps {WEB}", f"f:steps {WEB} f:name"],
    ),
    "ambiguous elements that stay so": (
        {"steps": [{"name": "web"}, {"name": "web"}]}, {"steps": [{"name": "web"}, {"name": "web", "image": "i"}]},
        [f"f:steps {WEB}"], [],
    ),
    "elements no longer ambiguous": (
        {"steps": [{"name": "web"}, {"name": "web"}]}, {"steps": [{"name": "web"}]},
        [f"f:steps {WEB}", f"f:steps {WEB} f:name"], [],
    ),
    "another type": ({"free": {"a": {"b": 1}}}, {"free": {"a": 1}}, ["f:free f:a"], ["f:free f:a", "f:free f:a f:b"]),
    "no schema": ({"free": {"a": {"b": 1}}}, {"free": {"a": {"b": 2}}}, ["f:free f:a f:b"], []),
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGED)
def test_compare_returns_changed_and_removed_fields(things, name: str) -> None:
    old, new, changed, removed = CHANGED[name]
    found = type_of(things.node.fields["spec"]).compare(old, new)
    assert [" ".join(path) for path in paths(found.changed or {})] == changed
    assert [" ".join(path) for path in paths(found.removed or {})] == removed


# Null and a value: the fields that differ when one replaces the other.
BESIDE_NULL: dict[str, tuple[Tree, list[str]]] = {
    "scalar": ({"mode": "a"}, []),
    "atomic list": ({"args": ["a"]}, []),
    "atomic map": ({"selector": {"a": "1"}}, []),
    "empty map": ({"settings": {}}, []),
    "empty set": ({"colors": []}, []),
    "map": ({"settings": {"a": "1"}}, ["f:settings f:a"]),
    "struct": ({"strategy": {"type": "a"}}, ["f:strategy f:type"]),
    "set": ({"colors": ["a"]}, ['f:colors v:"a"']),
    "keyed list": ({"steps": [{"name": "web"}]}, [f"f:steps {WEB}", f"f:steps {WEB} f:name"]),
    "map without schema": ({"free": {"a": 1}}, ["f:free f:a"]),
}


@pytest.mark.parametrize("name", BESIDE_NULL)
def test_null_against_map_differs_in_members(things, name: str) -> None:
    value, members = BESIDE_NULL[name]
    kind, null = type_of(things.node.fields["spec"]), dict.fromkeys(value)
    itself = [f"f:{field}" for field in value]
    came, went = kind.compare(null, value), kind.compare(value, null)
    assert [" ".join(path) for path in paths(came.changed or {})] == (members or itself)
    assert came.removed is None
    assert [" ".join(path) for path in paths(went.removed or {})] == members
    assert [" ".join(path) for path in paths(went.changed or {})] == ([] if members else itself)


@pytest.mark.parametrize(
    ("live", "applied", "merged"),
    [
        ("ab", "", "ab"),
        ("ab", "c", "abc"),
        ("abc", "b", "abc"),
        ("ab", "ba", "ba"),
        ("abc", "ca", "bca"),
        ("abd", "ba", "bda"),
        ("ab", "xb", "axb"),
        ("ab", "bxa", "bxa"),
        ("abcd", "dxb", "acdxb"),
        ("", "ba", "ba"),
    ],
)
def test_merge_keeps_applied_order_and_other_positions(things, live: str, applied: str, merged: str) -> None:
    spec = type_of(things.node.fields["spec"])
    colors = spec.merge({"colors": list(live)}, {"colors": list(applied)})["colors"]
    steps = spec.merge({"steps": [{"name": n} for n in live]}, {"steps": [{"name": n} for n in applied]})["steps"]
    assert "".join(colors) == "".join(step["name"] for step in steps) == merged


def test_many_elements_merge_in_linear_time(things) -> None:
    spec = type_of(things.node.fields["spec"])
    names = [str(number) for number in range(100_000)]
    merged = spec.merge({"colors": names}, {"colors": [*reversed(names[:10]), *names[10:]]})
    assert merged["colors"] == [*reversed(names[:10]), *names[10:]]


def test_list_elements_merge_by_their_keys(things) -> None:
    spec = type_of(things.node.fields["spec"])
    live = {"ports": [{"number": 1, "protocol": "TCP", "name": "a"}, {"number": 1, "protocol": "UDP"}]}
    merged = spec.merge(live, {"ports": [{"number": 1, "name": "b"}, {"number": 1, "protocol": "UDP", "name": "c"}]})
    assert merged["ports"] == [
        {"number": 1, "protocol": "TCP", "name": "b"},
        {"number": 1, "protocol": "UDP", "name": "c"},
    ]


def test_null_replaces_scalar_but_not_container(things) -> None:
    live = {"replicas": 1, "args": ["a"], "settings": {"a": "1"}}
    merged = type_of(things.node.fields["spec"]).merge(live, {"replicas": None, "args": None, "settings": None})
    assert merged == {"replicas": None, "args": None, "settings": {"a": "1"}}


@pytest.mark.parametrize(("live", "merged"), [("x", None), ([1], None), ({}, None), ({"a": 1}, {"a": 1}), (None, None)])
def test_null_applied_to_value_without_schema_keeps_members(things, live: Any, merged: Any) -> None:
    kind = type_of(things.node.fields["spec"])
    assert kind.merge({"free": {"b": live}}, {"free": {"b": None}}) == {"free": {"b": merged}}


def test_duplicate_live_elements_are_replaced_by_one(things) -> None:
    live = {"steps": [{"name": "web", "image": "1"}, {"name": "db"}, {"name": "web", "image": "2"}]}
    merged = type_of(things.node.fields["spec"]).merge(live, {"steps": [{"name": "web"}]})
    assert merged["steps"] == [{"name": "web"}, {"name": "db"}]


@pytest.mark.parametrize(
    ("spec", "path", "why"),
    [
        ({"colors": ["a", "a"]}, ("f:colors",), 'duplicate entries for key [="a"]'),
        ({"steps": [{"name": "web"}, {"name": "web"}]}, ("f:steps",), 'duplicate entries for key [name="web"]'),
        ({"ports": [{"number": 1}, {"number": 1, "protocol": "TCP"}]}, ("f:ports",), "duplicate"),
        ({"steps": [{"name": "web", "env": [{"name": "A"}, {"name": "A"}]}]}, ("f:steps", WEB, "f:env"), "duplicate"),
        ({"steps": [{"image": "i"}]}, ("f:steps",), "omits all key fields: name"),
        ({"steps": [None]}, ("f:steps",), "an element is null"),
        ({"colors": ["a", None]}, ("f:colors",), "an element is null"),
    ],
)
def test_indistinct_elements_are_rejected(things, spec: Tree, path: tuple, why: str) -> None:
    with pytest.raises(IndistinctError) as refusal:
        type_of(things.node.fields["spec"]).declared(spec)
    assert refusal.value.path == path
    assert why in refusal.value.why


PRUNED: dict[str, tuple[Tree, list[tuple], list[tuple], Tree]] = {
    "mine": ({"replicas": 1, "mode": "a"}, [("f:replicas",)], [], {"mode": "a"}),
    "also another's": ({"replicas": 1}, [("f:replicas",)], [("f:replicas",)], {"replicas": 1}),
    "absent": ({"mode": "a"}, [("f:replicas",)], [], {"mode": "a"}),
    "entry": ({"settings": {"a": "1", "b": "1"}}, [("f:settings", "f:a")], [("f:settings", "f:b")],
              {"settings": {"b": "1"}}),
    "last entry": ({"settings": {"a": "1"}, "mode": "a"}, [("f:settings", "f:a")], [], {"mode": "a"}),
    "element with defaults": (
        {"steps": [{"name": "web", "image": "i"}, {"name": "db"}]},
        [("f:steps", WEB), ("f:steps", WEB, "f:name")], [("f:steps", 'k:{"name":"db"}')],
        {"steps": [{"name": "db"}]},
    ),
    "element another has a part of": (
        {"steps": [{"name": "web", "image": "i"}]},
        [("f:steps", WEB), ("f:steps", WEB, "f:name"), ("f:steps", WEB, "f:image")],
        [("f:steps", WEB), ("f:steps", WEB, "f:name")], {"steps": [{"name": "web"}]},
    ),
    "struct with defaults": ({"strategy": {"type": "x", "limit": "default"}}, [("f:strategy", "f:type")], [], {}),
    "struct another has a part of": (
        {"strategy": {"type": "x", "limit": "l"}}, [("f:strategy", "f:type")], [("f:strategy", "f:limit")],
        {"strategy": {"limit": "l"}},
    ),
    "scalar of a set": ({"colors": ["a", "b"]}, [("f:colors", 'v:"a"')], [("f:colors", 'v:"b"')], {"colors": ["b"]}),
    "null": ({"settings": None, "mode": "a"}, [("f:settings",)], [], {"mode": "a"}),
    "null of others": ({"settings": None}, [("f:settings",)], [("f:settings",)], {"settings": None}),
    "null in a map": (
        {"free": {"a": None, "b": 1}}, [("f:free", "f:a")], [("f:free", "f:b")], {"free": {"b": 1}},
    ),
    "last entry of a map of others": ({"settings": {"a": "1"}}, [("f:settings", "f:a")], [("f:settings",)],
                                      {"settings": {}}),
    "last entry of a map whose others are gone": ({"settings": {"a": "1"}}, [("f:settings", "f:a")],
                                                  [("f:settings", "f:b")], {"settings": {}}),
    "all but an empty list of an object of others": (
        {"nested": {"colors": [], "mode": "a"}}, [("f:nested", "f:mode")], [("f:nested",)], {},
    ),
    "empty list in place of null": ({"colors": []}, [("f:colors",)], [], {"colors": []}),
    "last element of a set of others": ({"colors": ["a"]}, [("f:colors", 'v:"a"')], [("f:colors",)], {}),
}  # fmt: skip


@pytest.mark.parametrize("name", PRUNED)
def test_prune_removes_unowned_fields(things, name: str) -> None:
    value, last, owned, left = PRUNED[name]
    assert type_of(things.node.fields["spec"]).prune(value, of(*last), of(*owned)) == left


def test_long_keys_with_common_prefix_are_distinct(things) -> None:
    """Elements are compared by their whole keys, though messages show only the beginning."""
    one, two = ("x" * 300 + end for end in "ab")
    check_typed({"spec": {"steps": [{"name": one}, {"name": two}], "colors": [one, two]}}, things.node)
    for again in ({"steps": [{"name": one}, {"name": one}]}, {"colors": [one, one]}):
        with pytest.raises(UnknownError, match=r"duplicate entries for key \[.*x\.\.\.$"):
            check_typed({"spec": again}, things.node)


@settings(max_examples=150)
@given(st.data())
def test_compare_finds_all_differences(things, data: st.DataObject) -> None:
    """After an update, the owners of all former fields own exactly the existing ones."""
    old, new = data.draw(things.drawn), data.draw(things.drawn)
    before = copy.deepcopy((old, new))
    kind = type_of(things.node)
    changes = kind.compare(old, new)
    owned = (set(paths(kind.whole(old))) - set(paths(changes.removed or {}))) | set(paths(changes.changed or {}))
    assert owned == set(paths(kind.whole(new)))
    assert kind.compare(old, copy.deepcopy(old)) == (None, None)
    assert (old, new) == before


@settings(max_examples=150)
@given(st.data())
def test_merge_contains_declared_fields_and_is_idempotent(things, data: st.DataObject) -> None:
    live, applied = data.draw(things.drawn), data.draw(things.drawn)
    before = copy.deepcopy((live, applied))
    kind = type_of(things.node)
    merged = kind.merge(live, applied)
    assert set(paths(kind.declared(applied))) <= set(paths(kind.whole(merged)))
    assert kind.merge(merged, applied) == merged
    assert (live, applied) == before
