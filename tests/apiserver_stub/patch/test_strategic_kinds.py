"""Strategic merge patches of built-in kinds, by their schema."""

import contextlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apiserver_stub.kinds.registry import built_in
from apiserver_stub.patch import merge
from controller_manager.common.api.errors import BadRequest, UnknownError

KINDS = built_in()


def _patched(group: str, plural: str, tree: dict, patch: Any) -> dict:
    kind = KINDS.find(group, "v1", plural)
    assert kind is not None
    return merge.apply_strategic(tree, patch, kind.schema)


def _deployment(**spec: Any) -> dict:
    return {"spec": {"template": {"spec": spec}}}


@pytest.mark.parametrize(
    ("field", "before", "patch", "after"),
    [
        ("containers", [{"name": "a", "image": "1"}, {"name": "b"}], [{"name": "a", "image": "2"}],
         [{"name": "a", "image": "2"}, {"name": "b"}]),
        ("initContainers", [{"name": "a"}, {"name": "b"}], [{"name": "a", "$patch": "delete"}], [{"name": "b"}]),
        ("tolerations", [{"key": "a"}], [{"key": "b"}], [{"key": "b"}]),
        ("volumes", [{"name": "v", "emptyDir": {}}],
         [{"name": "v", "$retainKeys": ["name", "configMap"], "configMap": {"name": "c"}}],
         [{"name": "v", "configMap": {"name": "c"}}]),
        ("hostAliases", [{"ip": "1.1.1.1", "hostnames": ["a"]}], [{"ip": "1.1.1.1", "hostnames": ["b"]}],
         [{"ip": "1.1.1.1", "hostnames": ["b"]}]),
        ("imagePullSecrets", [{"name": "a"}], [{"name": "b"}], [{"name": "b"}, {"name": "a"}]),
        ("nodeSelector", {"a": "1"}, {"b": "2"}, {"a": "1", "b": "2"}),
    ],
)  # fmt: skip
def test_deployment_patch(field: str, before: Any, patch: Any, after: Any) -> None:
    found = _patched("apps", "deployments", _deployment(**{field: before}), _deployment(**{field: patch}))
    assert found == _deployment(**{field: after})


def test_container_lists_patch() -> None:
    before = {"name": "a", "ports": [{"containerPort": 80}], "env": [{"name": "X", "value": "1"}], "args": ["1"],
              "volumeMounts": [{"mountPath": "/a", "name": "v"}]}  # fmt: skip
    patch = {"name": "a", "ports": [{"containerPort": 80, "name": "http"}], "env": [{"name": "X", "value": "2"}],
             "args": ["2"], "volumeMounts": [{"mountPath": "/a", "name": "w"}]}  # fmt: skip
    assert _patched("", "pods", {"spec": {"containers": [before]}}, {"spec": {"containers": [patch]}}) == {
        "spec": {"containers": [patch]}
    }


def test_metadata_patch() -> None:
    before = {"finalizers": ["a"], "ownerReferences": [{"uid": "1", "name": "x"}], "annotations": {"a": "1"}}
    patch = {
        "$setElementOrder/finalizers": ["a", "b"],
        "finalizers": ["b"],
        "ownerReferences": [{"uid": "1", "$patch": "delete"}],
        "annotations": {"a": None},
    }
    found = _patched("", "configmaps", {"metadata": before}, {"metadata": patch})
    assert found == {"metadata": {"finalizers": ["a", "b"], "ownerReferences": [], "annotations": {}}}


def test_merge_keys_of_services_conditions_and_strategies() -> None:
    ports = [{"port": 80, "name": "http"}, {"port": 443}]
    found = _patched("", "services", {"spec": {"ports": ports}}, {"spec": {"ports": [{"port": 80, "nodePort": 30080}]}})
    assert found == {"spec": {"ports": [{"port": 80, "name": "http", "nodePort": 30080}, {"port": 443}]}}
    conditions = [{"type": "Ready", "status": "False"}, {"type": "Other"}]
    ready = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    found = _patched("", "nodes", {"status": {"conditions": conditions}}, ready)
    assert found == {"status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "Other"}]}}
    rolling = {"spec": {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}}}
    recreate = {"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}}
    assert _patched("apps", "deployments", rolling, recreate) == {"spec": {"strategy": {"type": "Recreate"}}}


NAMES = st.sampled_from(
    ["metadata", "spec", "template", "containers", "name", "env", "ports", "labels", "finalizers", "strategy", "$patch",
     "$retainKeys", "$setElementOrder/containers", "$setElementOrder/finalizers", "$deleteFromPrimitiveList/finalizers"]
)  # fmt: skip
SCALARS = st.none() | st.booleans() | st.integers(0, 2) | st.sampled_from(["a", "delete", "replace", "merge", "name"])
ANYTHING = st.recursive(
    SCALARS, lambda i: st.lists(i, max_size=4) | st.dictionaries(NAMES, i, max_size=5), max_leaves=30
)


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(NAMES, ANYTHING, max_size=5), ANYTHING)
def test_any_patch_is_merged_or_rejected(tree: dict, patch: Any) -> None:
    with contextlib.suppress(BadRequest, UnknownError):
        assert isinstance(_patched("apps", "deployments", tree, patch), dict)
