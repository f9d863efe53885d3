"""JSON patch: tables in the order of RFC 6902, and the `jsonpatch` library as an oracle."""

import contextlib
import copy
from typing import Any

import jsonpatch
import jsonpointer
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apiserver_stub.patch import json_patch
from controller_manager.common.api.errors import BadRequest, Invalid, RequestEntityTooLarge

FITS: list[tuple[dict, list[dict], dict]] = [
    ({"a": 1}, [], {"a": 1}),
    ({"a": 1}, [{"op": "add", "path": "/b", "value": 2}], {"a": 1, "b": 2}),
    ({"a": 1}, [{"op": "add", "path": "/a", "value": [2]}], {"a": [2]}),
    ({"a": 1}, [{"op": "add", "path": "/", "value": 2}], {"a": 1, "": 2}),
    ({"a": 1}, [{"op": "add", "path": "", "value": {"b": 2}}], {"b": 2}),
    ({"a": 1}, [{"op": "replace", "path": "", "value": {"b": 2}}], {"b": 2}),
    ({"a": 1}, [{"op": "add", "path": "/b", "value": None}], {"a": 1, "b": None}),
    # kube-apiserver treats a missing value as null.
    ({"a": 1}, [{"op": "add", "path": "/b"}], {"a": 1, "b": None}),
    ({"a": 1}, [{"op": "replace", "path": "/a"}], {"a": None}),
    ({"a": 1}, [{"op": "test", "path": "/b"}], {"a": 1}),
    ({"a": [1, 3]}, [{"op": "add", "path": "/a/1", "value": 2}], {"a": [1, 2, 3]}),
    ({"a": [1, 3]}, [{"op": "add", "path": "/a/2", "value": 4}], {"a": [1, 3, 4]}),
    ({"a": [1]}, [{"op": "add", "path": "/a/-", "value": [2]}], {"a": [1, [2]]}),
    ({"a": []}, [{"op": "add", "path": "/a/0", "value": 1}], {"a": [1]}),
    ({"a": {"b": {}}}, [{"op": "add", "path": "/a/b/c", "value": 1}], {"a": {"b": {"c": 1}}}),
    ({"a": 1, "b": 2}, [{"op": "remove", "path": "/a"}], {"b": 2}),
    ({"a": [1, 2, 3]}, [{"op": "remove", "path": "/a/1"}], {"a": [1, 3]}),
    ({"a": None}, [{"op": "remove", "path": "/a"}], {}),
    ({"a": 1}, [{"op": "replace", "path": "/a", "value": {"b": 1}}], {"a": {"b": 1}}),
    ({"a": [1, 2]}, [{"op": "replace", "path": "/a/0", "value": 3}], {"a": [3, 2]}),
    ({"a": {"b": 1}, "c": {}}, [{"op": "move", "from": "/a/b", "path": "/c/d"}], {"a": {}, "c": {"d": 1}}),
    ({"a": [1, 2, 3]}, [{"op": "move", "from": "/a/0", "path": "/a/2"}], {"a": [2, 3, 1]}),
    ({"a": [1, 2]}, [{"op": "move", "from": "/a/0", "path": "/a/-"}], {"a": [2, 1]}),
    ({"a": {"b": 1}}, [{"op": "move", "from": "/a/b", "path": "/a"}], {"a": 1}),
    ({"a": 1}, [{"op": "move", "from": "/a", "path": "/a"}], {"a": 1}),
    ({"ab": 1, "a": {}}, [{"op": "move", "from": "/a", "path": "/abc"}], {"ab": 1, "abc": {}}),
    ({"a": {"b": 1}}, [{"op": "copy", "from": "/a", "path": "/c"}], {"a": {"b": 1}, "c": {"b": 1}}),
    ({"a": {"b": 1}}, [{"op": "copy", "from": "/a", "path": "/a/c"}], {"a": {"b": 1, "c": {"b": 1}}}),
    ({"a": 1}, [{"op": "copy", "from": "", "path": "/b"}], {"a": 1, "b": {"a": 1}}),
    ({"a/b": 1}, [{"op": "replace", "path": "/a~1b", "value": 2}], {"a/b": 2}),
    ({"m~n": 1}, [{"op": "replace", "path": "/m~0n", "value": 2}], {"m~n": 2}),
    ({"~1": 1}, [{"op": "replace", "path": "/~01", "value": 2}], {"~1": 2}),
    ({"0": 1}, [{"op": "replace", "path": "/0", "value": 2}], {"0": 2}),
    ({"01": 1, "-": 2}, [{"op": "remove", "path": "/01"}, {"op": "remove", "path": "/-"}], {}),
    ({"a": 1}, [{"op": "test", "path": "/a", "value": 1.0}], {"a": 1}),
    ({"a": {"b": 1, "c": []}}, [{"op": "test", "path": "/a", "value": {"c": [], "b": 1}}], {"a": {"b": 1, "c": []}}),
    ({"a": [0]}, [{"op": "test", "path": "/a", "value": [0.0]}], {"a": [0]}),
    ({"a": 1}, [{"op": "test", "path": "", "value": {"a": 1}}], {"a": 1}),
    ({"a": None}, [{"op": "test", "path": "/a", "value": None}], {"a": None}),
    ({}, [{"op": "test", "path": "/absent", "value": None}], {}),
    ({"a": 1}, [{"op": "add", "path": "/b", "value": 2, "extra": 3}], {"a": 1, "b": 2}),
]  # fmt: skip

DOES_NOT_FIT: list[tuple[dict, list[dict]]] = [
    ({"a": 1}, [{"op": "test", "path": "/a"}]),
    ({}, [{"op": "remove", "path": "/a"}]),
    ({}, [{"op": "add", "path": "/a/b", "value": 1}]),
    ({"a": 1}, [{"op": "add", "path": "/a/b", "value": 1}]),
    ({"a": "text"}, [{"op": "add", "path": "/a/0", "value": 1}]),
    ({"a": None}, [{"op": "add", "path": "/a/b", "value": 1}]),
    ({"a": [1]}, [{"op": "add", "path": "/a/2", "value": 1}]),
    ({"a": [1]}, [{"op": "add", "path": "/a/-1", "value": 1}]),
    ({"a": [1]}, [{"op": "add", "path": "/a/00", "value": 1}]),
    ({"a": [1, 2]}, [{"op": "remove", "path": "/a/01"}]),
    ({"a": [1]}, [{"op": "remove", "path": "/a/-1"}]),
    ({"a": [1]}, [{"op": "remove", "path": "/a/-"}]),
    ({"a": [1]}, [{"op": "remove", "path": "/a/1"}]),
    ({"a": [1]}, [{"op": "remove", "path": "/a/1e0"}]),
    ({"a": [1]}, [{"op": "remove", "path": "/a/\u0660"}]),
    ({"a": [1]}, [{"op": "remove", "path": "/a/" + "9" * 5000}]),
    ({"a": [1]}, [{"op": "replace", "path": "/a/-", "value": 1}]),
    ({"a": [1]}, [{"op": "test", "path": "/a/x", "value": None}]),
    ({"a": 1}, [{"op": "remove", "path": ""}]),
    ({"a": 1}, [{"op": "replace", "path": "", "value": []}]),
    ({"a": 1}, [{"op": "move", "from": "", "path": "/a"}]),
    ({"a": {"b": {}}}, [{"op": "move", "from": "/a", "path": "/a/b"}]),
    ({"a": [{}, {}]}, [{"op": "move", "from": "/a/0", "path": "/a/0/b"}]),
    ({}, [{"op": "move", "from": "/a", "path": "/b"}]),
    ({}, [{"op": "move", "from": "/a", "path": "/a"}]),
    ({}, [{"op": "copy", "from": "/a", "path": "/b"}]),
    ({"a": 1}, [{"op": "test", "path": "/a", "value": 2}]),
    ({"a": 1}, [{"op": "test", "path": "/a", "value": True}]),
    ({"a": 0}, [{"op": "test", "path": "/a", "value": False}]),
    ({"a": 1}, [{"op": "test", "path": "/a", "value": "1"}]),
    ({"a": [1]}, [{"op": "test", "path": "/a", "value": [True]}]),
    ({"a": 1}, [{"op": "test", "path": "/a", "value": None}]),
    ({}, [{"op": "test", "path": "/a/b", "value": None}]),
    ({"a": {"b": 1}}, [{"op": "test", "path": "/a", "value": {"b": 1, "c": 2}}]),
]

MALFORMED: list[Any] = [
    None,
    {},
    "[]",
    [1],
    [None],
    [{}],
    [{"op": "spam", "path": "/a"}],
    [{"op": ["add"], "path": "/a"}],
    [{"op": "Add", "path": "/a", "value": 1}],
    [{"op": "add", "value": 1}],
    [{"op": "add", "path": None, "value": 1}],
    [{"op": "add", "path": "a", "value": 1}],
    [{"op": "add", "path": ""}],
    [{"op": "move", "path": "/a"}],
    [{"op": "copy", "path": "/a", "from": 1}],
    [{"op": "add", "path": "/a~2", "value": 1}],
    [{"op": "add", "path": "/a~", "value": 1}],
    [{"op": "add", "path": "/a" * 300, "value": 1}],
]


@pytest.mark.parametrize(("tree", "operations", "expected"), FITS)
def test_valid_operations_are_applied(tree: dict, operations: list[dict], expected: dict) -> None:
    before = copy.deepcopy(tree)
    assert json_patch.apply(tree, operations) == expected
    assert tree == before


@pytest.mark.parametrize(("tree", "operations"), DOES_NOT_FIT)
def test_inapplicable_operations_are_invalid(tree: dict, operations: list[dict]) -> None:
    before = copy.deepcopy(tree)
    with pytest.raises(Invalid):
        json_patch.apply(tree, operations)
    assert tree == before


@pytest.mark.parametrize("operations", MALFORMED)
def test_malformed_patch_is_rejected(operations: Any) -> None:
    with pytest.raises(Invalid if isinstance(operations, list) else BadRequest):
        json_patch.apply({"a": {"a": 1}}, operations)


def test_replace_of_missing_member_works_but_not_of_element() -> None:
    """As in kube-apiserver; RFC 6902 (section 4.3) requires the member to exist."""
    replace = {"op": "replace", "path": "/a/b", "value": 1}
    assert json_patch.apply({"a": {}}, [replace]) == {"a": {"b": 1}}
    for tree in ({}, {"a": "text"}, {"a": ["x"]}):
        with pytest.raises(Invalid):
            json_patch.apply(tree, [replace])
    with pytest.raises(Invalid):
        json_patch.apply({"a": ["x"]}, [{"op": "replace", "path": "/a/1", "value": 1}])


def test_message_names_operation_and_path() -> None:
    operations = [{"op": "test", "path": "/a", "value": 1}, {"op": "remove", "path": "/b~1c/d"}]
    with pytest.raises(Invalid) as refused:
        json_patch.apply({"a": 1}, operations)
    assert refused.value.message == 'operation 1 of the JSON patch does not fit: "/b~1c" does not exist'


@pytest.mark.parametrize(
    ("operation", "problem"),
    [
        (
            {"op": "remove", "path": "/data/none"},
            "error in remove for path: '/data/none': Unable to remove nonexistent key: none: missing value",
        ),
        (
            {"op": "remove", "path": "/x/y"},
            'remove operation does not apply: doc is missing path: "/x/y": missing value',
        ),
        (
            {"op": "remove", "path": "/list/3"},
            "error in remove for path: '/list/3': Unable to access invalid index: 3: invalid index referenced",
        ),
        (
            {"op": "add", "path": "/list/x", "value": 1},
            (
                "error in add for path: '/list/x': value was not a proper array index: 'x': "
                'strconv.Atoi: parsing "x": invalid syntax'
            ),
        ),
        (
            {"op": "add", "path": "/x/y", "value": 1},
            'add operation does not apply: doc is missing path: "/x/y": missing value',
        ),
        (
            {"op": "replace", "path": "/x/y", "value": 1},
            "replace operation does not apply: doc is missing path: /x/y: missing value",
        ),
        (
            {"op": "replace", "path": "/list/7", "value": 1},
            "replace operation does not apply: doc is missing key: /list/7: missing value",
        ),
        ({"op": "test", "path": "/data/a", "value": "x"}, "testing value /data/a failed: test failed"),
        ({"op": "test", "path": "/x/y"}, "test operation does not apply: is missing path: /x/y: missing value"),
        (
            {"op": "move", "from": "/x/y", "path": "/z"},
            "move operation does not apply: doc is missing from path: /x/y: missing value",
        ),
        (
            {"op": "move", "from": "/data/none", "path": "/z"},
            "error in move for path: 'none': Unable to remove nonexistent key: none: missing value",
        ),
        (
            {"op": "copy", "from": "/data/a", "path": "/x/y"},
            "copy operation does not apply: doc is missing destination path: /x/y: missing value",
        ),
        ({"op": "zap", "path": "/data/a"}, "Unexpected kind: zap"),
        ({"op": "add", "value": 1}, "add operation failed to decode path: missing value"),
        (
            {"op": "copy", "path": "/a"},
            "copy operation failed to decode from: operation, missing from field: missing value",
        ),
        ({"op": "", "path": "/a"}, "Unexpected kind: "),
    ],
)
def test_problems_are_worded_like_go_json_patch(operation: dict, problem: str) -> None:
    with pytest.raises(json_patch.PatchError) as refused:
        json_patch.apply({"data": {"a": "b"}, "list": [1]}, [operation])
    assert refused.value.problem == problem


def test_only_changed_parts_are_copied() -> None:
    tree = {"spec": {"list": [{"a": 1}, {"b": 2}]}, "status": {"x": 1}}
    changed = json_patch.apply(tree, [{"op": "replace", "path": "/spec/list/0/a", "value": 9}])
    assert changed["status"] is tree["status"]
    assert changed["spec"]["list"][1] is tree["spec"]["list"][1]
    assert changed["spec"]["list"][0] == {"a": 9}
    assert tree["spec"]["list"][0] == {"a": 1}


def test_patch_values_are_not_modified() -> None:
    operations = [{"op": "add", "path": "/a", "value": {"b": []}}, {"op": "add", "path": "/a/b/-", "value": 1}]
    before = copy.deepcopy(operations)
    assert json_patch.apply({}, operations) == json_patch.apply({}, operations) == {"a": {"b": [1]}}
    assert operations == before


def test_result_shares_nothing_with_the_patch() -> None:
    operations: list[dict] = [{"op": op, "path": "/a", "value": {"b": [{}]}} for op in ("add", "replace")]
    for operation in operations:
        changed = json_patch.apply({"a": 1}, [operation])
        changed["a"]["b"][0]["late"] = True
        changed["a"]["late"] = True
        assert operation["value"] == {"b": [{}]}


def test_copied_value_is_independent() -> None:
    operations = [
        {"op": "add", "path": "/a/x", "value": 1},
        {"op": "copy", "from": "/a", "path": "/b"},
        {"op": "add", "path": "/b/y", "value": 2},
        {"op": "add", "path": "/a/z", "value": 3},
    ]
    assert json_patch.apply({"a": {}}, operations) == {"a": {"x": 1, "z": 3}, "b": {"x": 1, "y": 2}}


def test_number_of_operations_is_limited() -> None:
    fine = [{"op": "test", "path": "/a", "value": 1}] * json_patch.MAX_OPERATIONS
    assert json_patch.apply({"a": 1}, fine) == {"a": 1}
    with pytest.raises(RequestEntityTooLarge):
        json_patch.apply({"a": 1}, [*fine, fine[0]])


@pytest.mark.parametrize("operation", [
    {"op": "add", "path": "/a/0", "value": 0}, {"op": "remove", "path": "/a/0"},
    {"op": "move", "from": "/a/0", "path": "/a/-"},
], ids=lambda operation: operation["op"])  # fmt: skip
def test_moved_array_elements_are_limited(operation: dict) -> None:
    with pytest.raises(Invalid, match="would move"):
        json_patch.apply({"a": [0] * 100_000}, [operation] * 1_000)


def test_appending_moves_no_elements() -> None:
    operations = [{"op": "add", "path": "/a/-", "value": 0}] * 1_000
    assert len(json_patch.apply({"a": [0] * 100_000}, operations)["a"]) == 101_000


def test_number_of_copied_values_is_limited() -> None:
    nested = [{"op": "copy", "from": "/a", "path": "/a/-"}] * 18  # three hundred thousand empty arrays
    with pytest.raises(Invalid, match="copies"):
        json_patch.apply({"a": []}, nested)


DOUBLING = [{"op": "copy", "from": "/a", "path": "/b"}, {"op": "move", "from": "/b", "path": "/a/-"}] * 60
REPEATING = [{"op": "copy", "from": "/a", "path": "/b/-"}] * 60


@pytest.mark.parametrize("operations", [DOUBLING, REPEATING], ids=["doubling", "repeating"])
def test_copied_bytes_are_limited(operations: list[dict]) -> None:
    with pytest.raises(Invalid, match="bytes"):
        json_patch.apply({"a": ["x" * 100_000], "b": []}, operations)


def test_copied_depth_is_limited() -> None:
    with pytest.raises(Invalid, match="deep"):
        json_patch.apply({"a": {}}, [{"op": "copy", "from": "", "path": "/a"}] * 1000)


NAMES = st.sampled_from(["a", "b", "0", "1", "a/b", "m~n", ""])
SCALARS = st.none() | st.booleans() | st.integers(2, 9) | st.sampled_from(["", "x", "y"])
VALUES = st.recursive(SCALARS, lambda i: st.lists(i, max_size=3) | st.dictionaries(NAMES, i, max_size=3), max_leaves=8)
TREES = st.dictionaries(NAMES, VALUES, max_size=4)


def _pointers(value: Any, prefix: str = "") -> list[str]:
    found = [prefix]
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, item in items:
        found += _pointers(item, f"{prefix}/{str(name).replace('~', '~0').replace('/', '~1')}")
    return found


@st.composite
def _patches(draw: st.DrawFn) -> tuple[dict, list[dict]]:
    tree = draw(TREES)
    known = [p for p in _pointers(tree) if p]
    near = st.sampled_from(known) if known else st.just("/a")
    path = near | st.builds(lambda p, t: f"{p}/{t}", near, st.sampled_from(["a", "0", "-", "7"])) | st.just("/b")
    operations = []
    for _ in range(draw(st.integers(1, 5))):
        name = draw(st.sampled_from(["add", "remove", "replace", "move", "copy", "test"]))
        operation = {"op": name, "path": draw(path)}
        if name in ("move", "copy"):
            operation["from"] = draw(path)
        elif name != "remove":
            operation["value"] = draw(VALUES)
        operations.append(operation)
    return tree, operations


def _is_unlike(operation: dict) -> bool:
    """Where the library differs on purpose: missing values as null, `-` as a source, moves into the moved value."""
    source = operation.get("from", "")
    return (
        (operation["op"] == "test" and (operation["value"] is None or operation["path"].endswith("/-")))
        or source.endswith("/-")
        or (operation["op"] == "move" and f"{operation['path']}/".startswith(f"{source}/"))
    )


def _by_oracle(tree: dict, operations: list[dict]) -> Any:
    """The result of the library, except that missing members of objects may be replaced."""
    for operation in operations:
        try:
            tree = jsonpatch.apply_patch(tree, [operation])
        except jsonpatch.JsonPatchConflict:
            parent, _, _ = operation["path"].rpartition("/")
            if operation["op"] != "replace" or not isinstance(jsonpointer.resolve_pointer(tree, parent), dict):
                raise
            tree = jsonpatch.apply_patch(tree, [{**operation, "op": "add"}])
    return tree


@settings(max_examples=200, deadline=None)
@given(_patches())
def test_result_agrees_with_jsonpatch_library(case: tuple[dict, list[dict]]) -> None:
    tree, operations = case
    operations = [operation for operation in operations if not _is_unlike(operation)]
    before = copy.deepcopy((tree, operations))
    try:
        expected = _by_oracle(tree, operations)
    except (jsonpatch.JsonPatchException, jsonpatch.JsonPointerException):
        with pytest.raises(Invalid):
            json_patch.apply(tree, operations)
    else:
        assert json_patch.apply(tree, operations) == expected
    assert (tree, operations) == before


NEARLY = st.fixed_dictionaries(
    {},
    optional={
        "op": st.sampled_from(["add", "remove", "replace", "move", "copy", "test"]) | VALUES,
        "path": st.sampled_from(["", "/", "/a", "/a/0", "/a/-", "a", "/~"]) | VALUES,
        "from": st.sampled_from(["", "/", "/a", "/a/0"]) | VALUES,
        "value": VALUES,
    },
)


@settings(max_examples=200, deadline=None)
@given(TREES, st.lists(NEARLY | VALUES, max_size=4) | VALUES)
def test_any_operations_are_applied_or_rejected(tree: dict, operations: Any) -> None:
    with contextlib.suppress(BadRequest, Invalid):
        assert isinstance(json_patch.apply(tree, operations), dict)
