"""Strategic merge patch: known examples, the order of merged lists, and patches made from differences."""

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apiserver_stub.kinds.schema.schema import Schema, Schemas
from apiserver_stub.patch import merge
from controller_manager.common.api.errors import BadRequest, UnknownError


def _array(items: dict, strategy: str = "", key: str = "") -> dict:
    return {"type": "array", "items": items, "patchStrategy": strategy, "patchMergeKey": key}


def _object(**fields: dict) -> dict:
    return {"type": "object", "fields": fields}


STRING: dict = {"type": "string"}
MAP: dict = {"type": "object", "values": STRING}
DEFINITIONS: dict[str, dict] = {
    "Container": _object(
        name=STRING,
        image=STRING,
        args=_array(STRING),
        resources=_object(limits=MAP),
        ports=_array(_object(containerPort={"type": "integer"}, protocol=STRING), "merge", "containerPort"),
        env=_array(_object(name=STRING, value=STRING, valueFrom=MAP), "merge", "name"),
    ),
    "Volume": _object(name=STRING, emptyDir=MAP, secret=MAP),
    "Spec": _object(
        containers=_array({"ref": "Container"}, "merge", "name"),
        volumes=_array({"ref": "Volume"}, "merge,retainKeys", "name"),
        tolerations=_array(_object(key=STRING)),
        strategy={**_object(type=STRING, rollingUpdate=MAP), "patchStrategy": "retainKeys"},
        nodeSelector={**MAP, "mapType": "atomic"},
        selector={**_object(matchLabels=MAP), "patchStrategy": "replace"},
        template={"ref": "Spec"},
    ),
    "Thing": _object(metadata=_object(labels=MAP, finalizers=_array(STRING, "merge")), spec={"ref": "Spec"}),
}
THING: Schema = Schemas(DEFINITIONS).node("Thing")

Case = tuple[dict, dict, dict]

MAPS: dict[str, Case] = {
    "members merge": ({"metadata": {"labels": {"a": "1"}}}, {"metadata": {"labels": {"b": "2"}}},
                      {"metadata": {"labels": {"a": "1", "b": "2"}}}),
    "null deletes": ({"metadata": {"labels": {"a": "1", "b": "2"}}}, {"metadata": {"labels": {"a": None}}},
                     {"metadata": {"labels": {"b": "2"}}}),
    "null deletes a list": ({"spec": {"containers": [{"name": "a"}]}}, {"spec": {"containers": None}}, {"spec": {}}),
    "null for nothing": ({"metadata": {}}, {"metadata": {"labels": {"a": None, "b": "1"}}},
                         {"metadata": {"labels": {"b": "1"}}}),
    "a map atomic for apply merges": ({"spec": {"nodeSelector": {"a": "1"}}}, {"spec": {"nodeSelector": {"b": "2"}}},
                                      {"spec": {"nodeSelector": {"a": "1", "b": "2"}}}),
    "replace strategy": ({"spec": {"selector": {"matchLabels": {"a": "1"}}}},
                         {"spec": {"selector": {"matchLabels": {"b": "2"}}}},
                         {"spec": {"selector": {"matchLabels": {"b": "2"}}}}),
    "$patch replace": ({"metadata": {"labels": {"a": "1"}}}, {"metadata": {"labels": {"$patch": "replace", "b": "2"}}},
                       {"metadata": {"labels": {"b": "2"}}}),
    "$patch delete": ({"metadata": {"labels": {"a": "1"}}}, {"metadata": {"labels": {"$patch": "delete"}}},
                      {"metadata": {"labels": {}}}),
    "$patch delete of nothing": ({"metadata": {}}, {"metadata": {"labels": {"$patch": "delete"}}}, {"metadata": {}}),
    "$patch replace of nothing": ({"metadata": {}}, {"metadata": {"labels": {"$patch": "replace", "b": "2"}}},
                                  {"metadata": {}}),
    "$patch replace with null": ({"x": {"a": {"b": 1}}}, {"x": {"a": {"$patch": "replace", "c": None}}},
                                 {"x": {"a": {"c": None}}}),
    "$retainKeys": ({"spec": {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "1"}}}},
                    {"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}},
                    {"spec": {"strategy": {"type": "Recreate"}}}),
    "$retainKeys of nothing": ({}, {"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}},
                               {"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}}),
    "another type replaces": ({"spec": {"strategy": "x"}}, {"spec": {"strategy": {"type": "Recreate"}}},
                              {"spec": {"strategy": {"type": "Recreate"}}}),
    "unknown fields merge as maps": ({"x": {"a": {"b": 1}}}, {"x": {"a": {"c": 2}}}, {"x": {"a": {"b": 1, "c": 2}}}),
    "unknown lists replace": ({"x": [1, 2]}, {"x": [3]}, {"x": [3]}),
    "a name that only looks like a directive": ({"x": {"$ref": "a"}}, {"x": {"$ref": "b"}}, {"x": {"$ref": "b"}}),
    "a scalar": ({"spec": {"strategy": {"type": "a"}}}, {"spec": {"strategy": {"type": "b"}}},
                 {"spec": {"strategy": {"type": "b"}}}),
}  # fmt: skip


@pytest.mark.parametrize("case", MAPS.values(), ids=MAPS)
def test_map_merge(case: Case) -> None:
    tree, patch, expected = case
    before = copy.deepcopy((tree, patch))
    assert merge.apply_strategic(tree, patch, THING) == expected
    assert (tree, patch) == before


LISTS: dict[str, Case] = {
    "an element is found by its key": (
        {"containers": [{"name": "a", "image": "1"}, {"name": "b", "image": "1"}]},
        {"containers": [{"name": "b", "image": "2"}]},
        {"containers": [{"name": "a", "image": "1"}, {"name": "b", "image": "2"}]},
    ),
    "a new element comes first": (
        {"containers": [{"name": "a"}, {"name": "b"}]},
        {"containers": [{"name": "c"}]},
        {"containers": [{"name": "c"}, {"name": "a"}, {"name": "b"}]},
    ),
    "new elements surround a known one as the patch has them": (
        {"containers": [{"name": "a"}, {"name": "b"}]},
        {"containers": [{"name": "c"}, {"name": "b"}, {"name": "d"}]},
        {"containers": [{"name": "c"}, {"name": "a"}, {"name": "b"}, {"name": "d"}]},
    ),
    "an element is deleted": (
        {"containers": [{"name": "a"}, {"name": "b"}]},
        {"containers": [{"name": "a", "$patch": "delete"}]},
        {"containers": [{"name": "b"}]},
    ),
    "an absent element is deleted": (
        {"containers": [{"name": "a"}]},
        {"containers": [{"name": "x", "$patch": "delete"}]},
        {"containers": [{"name": "a"}]},
    ),
    "deleting in a list that is not there": (
        {}, {"containers": [{"name": "a", "$patch": "delete"}]}, {"containers": []},
    ),
    "replacing drops the element that says so": (
        {"containers": [{"name": "a", "image": "1"}, {"name": "b"}]},
        {"containers": [{"name": "a", "$patch": "replace", "args": ["x"]}, {"name": "c"}]},
        {"containers": [{"name": "c"}]},
    ),
    "replacing a list that is not there": (
        {}, {"containers": [{"$patch": "replace"}, {"name": "c"}]}, {"containers": [{"name": "c"}]},
    ),
    "the whole list is replaced": (
        {"containers": [{"name": "a", "image": "1"}, {"name": "b"}]},
        {"containers": [{"$patch": "replace"}, {"name": "c"}]},
        {"containers": [{"name": "c"}]},
    ),
    "the whole list is emptied": (
        {"containers": [{"name": "a"}]},
        {"containers": [{"$patch": "replace"}]},
        {"containers": []},
    ),
    "an empty list changes nothing": (
        {"containers": [{"name": "a"}]}, {"containers": []}, {"containers": [{"name": "a"}]},
    ),
    "ports by number": (
        {"containers": [{"name": "a", "ports": [{"containerPort": 80}, {"containerPort": 443}]}]},
        {"containers": [{"name": "a", "ports": [{"containerPort": 80, "protocol": "UDP"}]}]},
        {"containers": [{"name": "a", "ports": [{"containerPort": 80, "protocol": "UDP"}, {"containerPort": 443}]}]},
    ),
    "of two ports of one number the first is meant": (
        {"containers": [{"name": "a", "ports": [{"containerPort": 53, "protocol": "TCP"},
                                                {"containerPort": 53, "protocol": "UDP"}]}]},
        {"containers": [{"name": "a", "ports": [{"containerPort": 53, "name": "dns"}]}]},
        {"containers": [{"name": "a", "ports": [{"containerPort": 53, "protocol": "TCP", "name": "dns"},
                                                {"containerPort": 53, "protocol": "UDP"}]}]},
    ),
    "environment by name": (
        {"containers": [{"name": "a", "env": [{"name": "X", "value": "1"}, {"name": "Y", "value": "1"}]}]},
        {"containers": [{"name": "a", "env": [{"name": "Y", "value": None, "valueFrom": {"k": "v"}}]}]},
        {"containers": [{"name": "a", "env": [{"name": "X", "value": "1"}, {"name": "Y", "valueFrom": {"k": "v"}}]}]},
    ),
    "arguments are replaced": (
        {"containers": [{"name": "a", "args": ["x", "y"]}]},
        {"containers": [{"name": "a", "args": ["z"]}]},
        {"containers": [{"name": "a", "args": ["z"]}]},
    ),
    "tolerations are replaced": (
        {"tolerations": [{"key": "a"}]}, {"tolerations": [{"key": "b"}]}, {"tolerations": [{"key": "b"}]},
    ),
    "a volume changes its source": (
        {"volumes": [{"name": "v", "emptyDir": {}}, {"name": "w", "emptyDir": {}}]},
        {"volumes": [{"name": "v", "$retainKeys": ["name", "secret"], "secret": {"secretName": "s"}}]},
        {"volumes": [{"name": "v", "secret": {"secretName": "s"}}, {"name": "w", "emptyDir": {}}]},
    ),
    "a new volume": (
        {}, {"volumes": [{"name": "v", "$retainKeys": ["name", "secret"], "secret": {}}]},
        {"volumes": [{"name": "v", "$retainKeys": ["name", "secret"], "secret": {}}]},
    ),
    "directives in a new element": (
        {"containers": [{"name": "a"}]}, {"containers": [{"name": "b", "resources": {"$patch": "replace"}}]},
        {"containers": [{"name": "b", "resources": {"$patch": "replace"}}, {"name": "a"}]},
    ),
    "the order alone": (
        {"containers": [{"name": "a"}, {"name": "b"}, {"name": "c"}]},
        {"$setElementOrder/containers": [{"name": "c"}, {"name": "a"}]},
        {"containers": [{"name": "b"}, {"name": "c"}, {"name": "a"}]},
    ),
    "the order of a list that is not there": ({}, {"$setElementOrder/containers": [{"name": "c"}]}, {}),
    "order with a new element at the end": (
        {"containers": [{"name": "a"}]},
        {"$setElementOrder/containers": [{"name": "a"}, {"name": "b"}], "containers": [{"name": "b", "image": "1"}]},
        {"containers": [{"name": "a"}, {"name": "b", "image": "1"}]},
    ),
    "order with a deletion": (
        {"containers": [{"name": "a"}, {"name": "b"}]},
        {"$setElementOrder/containers": [{"name": "b"}], "containers": [{"name": "a", "$patch": "delete"}]},
        {"containers": [{"name": "b"}]},
    ),
    "an element the server added stays where it was": (
        {"containers": [{"name": "a"}, {"name": "sidecar"}, {"name": "b"}]},
        {"$setElementOrder/containers": [{"name": "a"}, {"name": "b"}, {"name": "c"}], "containers": [{"name": "c"}]},
        {"containers": [{"name": "a"}, {"name": "sidecar"}, {"name": "b"}, {"name": "c"}]},
    ),
    "elements with one key stand together": (
        {"containers": [{"name": "a", "image": "1"}, {"name": "b"}, {"name": "a", "image": "2"}]},
        {"$setElementOrder/containers": [{"name": "a"}, {"name": "b"}, {"name": "a"}],
         "containers": [{"name": "b", "image": "3"}]},
        {"containers": [{"name": "a", "image": "1"}, {"name": "a", "image": "2"}, {"name": "b", "image": "3"}]},
    ),
    "the first elements with one key say where all stand": (
        {"containers": [{"name": "a"}, {"name": "b"}, {"name": "a", "image": "1"}]},
        {"containers": []},
        {"containers": [{"name": "a"}, {"name": "a", "image": "1"}, {"name": "b"}]},
    ),
    "an order that lists nothing": (
        {"containers": [{"name": "a"}, {"name": "b"}]},
        {"$setElementOrder/containers": [], "containers": [{"name": "b", "image": "1"}]},
        {"containers": [{"name": "a"}, {"name": "b", "image": "1"}]},
    ),
    "order of a new list": (
        {},
        {"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}, {"name": "b"}],
         "containers": [{"name": "a", "image": "1"}, {"name": "b"}]},
        {"containers": [{"name": "b"}, {"name": "a", "image": "1"}]},
    ),
    "elements with one key in the patch": (
        {"containers": [{"name": "a"}, {"name": "b"}, {"name": "a", "image": "2"}]},
        {"containers": [{"name": "a", "image": "1"}, {"name": "b"}, {"name": "a", "image": "3"}]},
        {"containers": [{"name": "a", "image": "3"}, {"name": "a", "image": "2"}, {"name": "b"}]},
    ),
    "order inside an element": (
        {"containers": [{"name": "a", "env": [{"name": "X"}, {"name": "Y"}]}]},
        {"$setElementOrder/containers": [{"name": "a"}],
         "containers": [{"name": "a", "$setElementOrder/env": [{"name": "Y"}, {"name": "X"}]}]},
        {"containers": [{"name": "a", "env": [{"name": "Y"}, {"name": "X"}]}]},
    ),
    "nested templates": (
        {"template": {"containers": [{"name": "a", "image": "1"}]}},
        {"template": {"containers": [{"name": "a", "image": "2"}]}},
        {"template": {"containers": [{"name": "a", "image": "2"}]}},
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", LISTS.values(), ids=LISTS)
def test_list_merge(case: Case) -> None:
    spec, patch, expected = case
    before = copy.deepcopy((spec, patch))
    assert merge.apply_strategic({"spec": spec}, {"spec": patch}, THING) == {"spec": expected}
    assert (spec, patch) == before


FINALIZERS: dict[str, tuple[list, dict, list]] = {
    "a set": (["a", "b"], {"finalizers": ["b", "c"]}, ["a", "b", "c"]),
    "one alone comes first": (["a", "b"], {"finalizers": ["c"]}, ["c", "a", "b"]),
    "deleted": (["a", "b", "c"], {"$deleteFromPrimitiveList/finalizers": ["b", "x"]}, ["a", "c"]),
    "deleted and added": (
        ["a", "b"],
        {"$deleteFromPrimitiveList/finalizers": ["a"], "finalizers": ["c"], "$setElementOrder/finalizers": ["b", "c"]},
        ["b", "c"],
    ),
    "ordered": (["a", "b"], {"$setElementOrder/finalizers": ["b", "a"]}, ["b", "a"]),
    "once each": (["a"], {"finalizers": ["a", "b", "b"]}, ["a", "b"]),
}


@pytest.mark.parametrize("case", FINALIZERS.values(), ids=FINALIZERS)
def test_scalar_list_merge(case: tuple[list, dict, list]) -> None:
    finalizers, patch, expected = case
    tree = {"metadata": {"finalizers": finalizers}}
    assert merge.apply_strategic(tree, {"metadata": patch}, THING) == {"metadata": {"finalizers": expected}}


CONTRADICTORY: list[Any] = [
    None,
    [],
    "x",
    {"spec": {"strategy": {"$retainKeys": "type"}}},
    {"spec": {"strategy": {"$retainKeys": [1]}}},
    {"spec": {"strategy": {"$retainKeys": ["type"], "rollingUpdate": {}}}},
    {"metadata": {"$deleteFromPrimitiveList/finalizers": "a"}},
]  # fmt: skip
# kube-apiserver has its own error for these.
MALFORMED: list[Any] = [
    {"spec": {"$patch": "explode"}},
    {"spec": {"$patch": ["replace"]}},
    {"spec": {"$patch": "merge"}},
    {"spec": {"containers": [{"name": "a", "$patch": "merge"}]}},
    {"spec": {"$setElementOrder/volumes": [{"name": "b"}], "volumes": [{"name": "a"}]}},
    {"spec": {"$setElementOrder/containers": [{"name": "a"}], "containers": [{"name": "a"}, {"$patch": "replace"}]}},
    {"spec": {"containers": [{"image": "no name"}]}},
    {"spec": {"containers": [{"name": {}}]}},
    {"spec": {"containers": [{"name": "a", "$patch": "explode"}]}},
    {"spec": {"containers": [{"$patch": "delete"}]}},
    {"spec": {"containers": ["a"]}},
    {"spec": {"containers": [["a"]]}},
    {"spec": {"$setElementOrder/containers": {"name": "a"}}},
    {"spec": {"$setElementOrder/containers": ["a"]}},
    {"spec": {"$setElementOrder/containers": [{"name": "a"}], "containers": [{"name": "b"}]}},
    {"spec": {"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}],
              "containers": [{"name": "a"}, {"name": "b"}]}},
    {"metadata": {"finalizers": [{"a": 1}]}},
    {"metadata": {"$deleteFromPrimitiveList/finalizers": [{}]}},
]  # fmt: skip


@pytest.mark.parametrize(
    ("patch", "refusal"),
    [*((patch, BadRequest) for patch in CONTRADICTORY), *((patch, UnknownError) for patch in MALFORMED)],
)
def test_malformed_patches_are_rejected(patch: Any, refusal: type[Exception]) -> None:
    tree = {"metadata": {"finalizers": ["x"]}, "spec": {"containers": [{"name": "a"}], "strategy": {"type": "x"}}}
    before = copy.deepcopy(tree)
    with pytest.raises(refusal):
        merge.apply_strategic(tree, patch, THING)
    assert tree == before


def test_element_with_null_merge_key_is_added() -> None:
    patch = {"spec": {"containers": [{"name": None, "image": "i"}]}}
    merged = merge.apply_strategic({"spec": {"containers": [{"name": "a"}]}}, patch, THING)
    assert merged["spec"]["containers"] == [{"name": None, "image": "i"}, {"name": "a"}]


def test_unchanged_parts_are_shared() -> None:
    tree = {"metadata": {"labels": {"a": "1"}}, "spec": {"containers": [{"name": "a"}, {"name": "b"}]}}
    changed = merge.apply_strategic(tree, {"spec": {"containers": [{"name": "a", "image": "1"}]}}, THING)
    assert changed["metadata"] is tree["metadata"]
    assert changed["spec"]["containers"][1] is tree["spec"]["containers"][1]


def test_result_shares_nothing_with_the_patch() -> None:
    patch = {"spec": {"tolerations": [{"key": "a"}], "containers": [{"name": "b", "args": []}], "x": [{}]}}
    before = copy.deepcopy(patch)
    changed = merge.apply_strategic({"spec": {"tolerations": [], "containers": [{"name": "a"}]}}, patch, THING)["spec"]
    for item in (*changed["tolerations"], *changed["containers"], *changed["x"]):
        item["late"] = True
    changed["containers"][0]["args"].append("late")
    assert patch == before


def test_many_elements_merge_in_linear_time() -> None:
    spec = {"containers": [{"name": str(i), "image": "1"} for i in range(20_000)]}
    patch = {"containers": [{"name": str(i), "image": "2"} for i in range(20_000)]}
    assert merge.apply_strategic({"spec": spec}, {"spec": patch}, THING) == {"spec": patch}


def test_many_names_are_retained_in_linear_time() -> None:
    names = {str(i): i for i in range(50_000)}
    patch = {"$retainKeys": list(names), **names}
    assert merge.apply_strategic({"spec": {"strategy": {"x": 1}}}, {"spec": {"strategy": patch}}, THING) == {
        "spec": {"strategy": names}
    }


def test_repeated_element_in_patch_is_limited() -> None:
    """Ports of one number and two protocols repeat like this; each time the whole element is copied."""
    tree, big = {"spec": {"containers": [{"name": "a"}]}}, {"name": "a", **{str(i): i for i in range(10_000)}}
    again = [{"name": "a", "x": 1}]
    merged = merge.apply_strategic(tree, {"spec": {"containers": [big, *again * 99]}}, THING)
    assert merged == {"spec": {"containers": [{**big, "x": 1}]}}
    with pytest.raises(BadRequest, match="more than 100 elements with the same 'name'"):
        merge.apply_strategic(tree, {"spec": {"containers": [big, *again * 50_000]}}, THING)


# Differences: the patch that a client such as kubectl sends to turn `old` into `new`.


def _difference(old: dict, new: dict, node: Schema) -> dict:
    patch: dict[str, Any] = {name: None for name in old if name not in new}
    for name, value in new.items():
        child = node.fields.get(name) or node.values
        assert child is not None
        if name not in old:
            patch[name] = value
        elif old[name] != value:
            patch |= _changed_member(name, old[name], value, child)
    return patch


def _changed_member(name: str, old: Any, new: Any, node: Schema) -> dict:
    if isinstance(new, dict) and "replace" not in node.patch_strategy:
        keys = {"$retainKeys": sorted(new)} if "retainKeys" in node.patch_strategy else {}
        return {name: {**keys, **_difference(old, new, node)}}
    if isinstance(new, list) and "merge" in node.patch_strategy:
        return _changed_list(name, old, new, node)
    return {name: new}


def _changed_list(name: str, old: list, new: list, node: Schema) -> dict:
    key = node.patch_merge_key
    if not key:
        removed = [item for item in old if item not in new]
        added = {name: [item for item in new if item not in old]}
        return {f"$setElementOrder/{name}": new, f"$deleteFromPrimitiveList/{name}": removed, **added}
    assert node.items is not None
    before = {item[key]: item for item in old}
    changes = []
    for item in new:
        known = before.pop(item[key], None)
        if known is None:
            changes.append(item)
        elif known != item:
            keys = {"$retainKeys": sorted(item)} if "retainKeys" in node.patch_strategy else {}
            changes.append({**keys, **_difference(known, item, node.items), key: item[key]})
    changes += [{key: gone, "$patch": "delete"} for gone in before]
    return {f"$setElementOrder/{name}": [{key: item[key]} for item in new], name: changes}


NAMES = ["a", "b", "c", "d"]
TEXTS = st.sampled_from(["1", "2"])
MAPS_OF_TEXT = st.dictionaries(st.sampled_from(NAMES), TEXTS, max_size=3)


def _keyed(key: str, keys: list, **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[list]:
    item = st.fixed_dictionaries({key: st.sampled_from(keys)}, optional=fields)
    return st.lists(item, unique_by=lambda found: found[key], max_size=4)


ENV = _keyed("name", NAMES, value=TEXTS)
PORTS = _keyed("containerPort", [80, 81, 82], protocol=TEXTS)
ARGS = st.lists(TEXTS, max_size=2)
CONTAINERS = _keyed("name", NAMES, image=TEXTS, args=ARGS, env=ENV, ports=PORTS)
VOLUMES = _keyed("name", NAMES, emptyDir=MAPS_OF_TEXT, secret=MAPS_OF_TEXT)
STRATEGY = st.fixed_dictionaries({}, optional={"type": TEXTS, "rollingUpdate": MAPS_OF_TEXT})
SELECTOR = st.fixed_dictionaries({}, optional={"matchLabels": MAPS_OF_TEXT})
SPEC_FIELDS = {
    "containers": CONTAINERS,
    "volumes": VOLUMES,
    "strategy": STRATEGY,
    "selector": SELECTOR,
    "nodeSelector": MAPS_OF_TEXT,
}
METADATA = st.fixed_dictionaries(
    {}, optional={"labels": MAPS_OF_TEXT, "finalizers": st.lists(st.sampled_from(NAMES), unique=True, max_size=4)}
)
THINGS = st.fixed_dictionaries({"metadata": METADATA, "spec": st.fixed_dictionaries({}, optional=SPEC_FIELDS)})


@settings(max_examples=200, deadline=None)
@given(THINGS, THINGS)
def test_patch_from_difference_yields_the_target(old: dict, new: dict) -> None:
    patch = _difference(old, new, THING)
    before = copy.deepcopy((old, patch))
    reached = merge.apply_strategic(old, patch, THING)
    assert reached == new
    assert merge.apply_strategic(reached, patch, THING) == new
    assert (old, patch) == before


@settings(max_examples=100, deadline=None)
@given(old=CONTAINERS, new=CONTAINERS, places=st.lists(st.integers(0, 4), max_size=3))
def test_elements_added_by_server_keep_their_order(old: list, new: list, places: list[int]) -> None:
    live = [*old]
    for number, place in enumerate(places):
        live.insert(place, {"name": f"server-{number}"})
    patch = _difference({"containers": old}, {"containers": new}, Schemas(DEFINITIONS).node("Spec"))
    reached = merge.apply_strategic({"spec": {"containers": live}}, {"spec": patch}, THING)["spec"]["containers"]
    ours = [item for item in reached if not item["name"].startswith("server-")]
    theirs = [item for item in reached if item["name"].startswith("server-")]
    assert ours == new
    assert theirs == [item for item in live if item["name"].startswith("server-")]
