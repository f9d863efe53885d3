"""Results of mutation expressions: merged into the object, applied as a patch, or rejected."""

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apiserver_stub.admission.policies.apply_configuration import merged
from apiserver_stub.admission.policies.json_patches import patched
from apiserver_stub.admission.policies.mutation import MutationError
from apiserver_stub.kinds.registry import built_in
from controller_manager.common.cel.library.mutations import PatchObject, PatchOperation, PatchType
from controller_manager.common.cel.library.quantity import parse
from controller_manager.common.cel.values import NONE, Duration, Optional, Timestamp, Uint

POD: dict[str, Any] = {
    "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "labels": {"a": "b"}},
    "spec": {"containers": [{"name": "c", "image": "i", "ports": [{"containerPort": 80, "protocol": "TCP"}]}]},
}  # fmt: skip
SCHEMA = next(info.schema for info in built_in().all() if info.api_version == "v1" and info.kind == "Pod")
NAMES = ("metadata", "spec", "containers", "name", "image", "ports", "containerPort", "labels", "volumes", "x")


def obj(path: str, **fields: Any) -> PatchObject:
    return PatchObject(PatchType(path), fields)


def test_merge_with_non_string_list_key_is_rejected() -> None:
    containers = [obj("Object.spec.containers", name=[None]), obj("Object.spec.containers", name=Uint(1))]
    with pytest.raises(MutationError, match="expected string"):
        merged(POD, obj("Object", spec=obj("Object.spec", containers=containers)), SCHEMA, (POD,))


def test_patch_uint_values_become_json_numbers() -> None:
    operation = PatchOperation({"op": "add", "path": "/spec/n", "value": [Uint(3), 2**60]})
    found = patched(POD, [operation])["spec"]["n"]
    assert json.dumps(found) == f'[3, "{2**60}"]'
    assert type(found[0]) is int


def test_patch_lists_may_contain_objects() -> None:
    operation = PatchOperation({"op": "add", "path": "/spec/n", "value": [obj("Object.x", a=obj("Object.x.a", b=1))]})
    assert patched(POD, [operation])["spec"]["n"] == [{"a": {"b": 1}}]


def test_merge_of_original_containers_changes_nothing() -> None:
    containers = POD["spec"]["containers"]
    same = merged(POD, obj("Object", spec=obj("Object.spec", containers=containers)), SCHEMA, (POD,))
    assert same == POD
    copied = [dict(containers[0])]
    with pytest.raises(MutationError, match="associative list with keys may not have non-map elements"):
        merged(POD, obj("Object", spec=obj("Object.spec", containers=copied)), SCHEMA, (POD,))


SCALARS = st.sampled_from(
    [None, True, 1, -1.5, "a", "", b"x", Uint(1), Duration(5), Timestamp(0), NONE, Optional("o"), parse("1Gi")]
)


def objects(path: str, depth: int) -> st.SearchStrategy[Any]:
    """Objects with valid field names and values of any type."""

    def fields(names: list[str]) -> st.SearchStrategy[Any]:
        return st.fixed_dictionaries({name: values(f"{path}.{name}", depth - 1) for name in names}).map(
            lambda given: obj(path, **given)
        )

    return st.lists(st.sampled_from(NAMES), max_size=3, unique=True).flatmap(fields)


def values(path: str, depth: int) -> st.SearchStrategy[Any]:
    if depth == 0:
        return SCALARS
    one = objects(path, depth)
    return st.one_of(
        SCALARS, one, st.lists(one, max_size=2), st.lists(SCALARS, max_size=2),
        st.dictionaries(st.sampled_from(["a", "b"]), SCALARS, max_size=2), st.just(POD["spec"]),
    )  # fmt: skip


@settings(max_examples=40, deadline=None)
@given(objects("Object", 3))
def test_any_merge_configuration_is_applied_or_rejected(configuration: PatchObject) -> None:
    before = json.dumps(POD)
    with suppress(MutationError):
        json.dumps(merged(POD, configuration, SCHEMA, (POD,)))
    assert json.dumps(POD) == before


PATHS = st.sampled_from(
    ["", "/spec", "/spec/containers/0", "/spec/containers/-", "/metadata/labels/x", "/no/where", "x"]
)
OPERATIONS = st.builds(
    lambda op, path, source, value: PatchOperation({"op": op, "path": path, "from": source, "value": value}),
    st.sampled_from(["add", "remove", "replace", "move", "copy", "test", ""]), PATHS, PATHS, values("Object.x", 3),
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(st.lists(OPERATIONS, max_size=4))
def test_any_patch_is_applied_or_rejected(operations: list[PatchOperation]) -> None:
    before = json.dumps(POD)
    with suppress(MutationError):
        json.dumps(patched(POD, operations))
    assert json.dumps(POD) == before
