"""Objects are cleaned to fit their schema, and fields that do not fit are reported."""

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apiserver_stub.kinds.registry import built_in
from apiserver_stub.kinds.resource_info import ResourceInfo
from apiserver_stub.kinds.schema.clean import DEEPEST, MOST_REPORTED, Report, clean, clean_tree
from apiserver_stub.kinds.schema.schema import Schemas

KINDS = built_in()
PODS = KINDS.find("", "v1", "pods")
LEASES = KINDS.find("coordination.k8s.io", "v1", "leases")
assert PODS is not None
assert LEASES is not None


def _cleaned(tree: dict[str, Any]) -> tuple[dict[str, Any], Report]:
    assert PODS is not None
    report = clean(tree, PODS)
    return tree, report


def test_valid_tree_is_unchanged() -> None:
    container = {"name": "c", "image": "i", "resources": {}}
    pod = {"metadata": {"name": "a", "labels": {"b": "c"}}, "spec": {"containers": [container]}, "status": {}}
    before = copy.deepcopy(pod)
    assert _cleaned(pod) == (before, Report())


def test_unknown_fields_are_removed_and_reported() -> None:
    pod = {
        "spec": {"foo": 1, "containers": [{"name": "c", "bar": {}, "ports": [{"containerPort": 1, "x": 1}]}]},
        "y": 2,
    }
    tree, report = _cleaned(pod)
    assert set(report.unknown) == {"spec.foo", "spec.containers[0].bar", "spec.containers[0].ports[0].x", "y"}
    container = {"name": "c", "ports": [{"containerPort": 1, "protocol": "TCP"}], "resources": {}}
    assert tree == {"metadata": {}, "spec": {"containers": [container]}, "status": {}}


def test_null_fields_are_removed_and_null_elements_zeroed() -> None:
    tree, report = _cleaned(
        {
            "metadata": {"creationTimestamp": None, "labels": {"a": None}, "finalizers": [None]},
            "spec": {"containers": [None], "overhead": {"cpu": None}},
            "status": None,
        }
    )
    assert report == Report()
    assert tree == {
        "metadata": {"labels": {"a": ""}, "finalizers": [""]},
        "spec": {"containers": [{"name": "", "resources": {}}], "overhead": {"cpu": "0"}},
        "status": {},
    }


@pytest.mark.parametrize(
    ("spec", "kept"),
    [
        ({"nodeName": "", "hostNetwork": False, "nodeSelector": {}, "volumes": []}, {}),
        ({"priority": 0, "enableServiceLinks": False, "runtimeClassName": ""}, ...),
        ({"securityContext": {}, "affinity": {"nodeAffinity": {}}}, ...),
        ({"securityContext": {"supplementalGroups": [], "runAsUser": 0}}, {"securityContext": {"runAsUser": 0}}),
        ({"volumes": [{"name": "a", "emptyDir": {}}, {"name": "b", "secret": {"items": []}}]},
         {"volumes": [{"name": "a", "emptyDir": {}}, {"name": "b", "secret": {}}]}),
        ({"tolerations": [{}]}, ...),
    ],
)  # fmt: skip
def test_meaningless_empty_values_are_removed(spec: dict[str, Any], kept: Any) -> None:
    before = copy.deepcopy(spec)
    tree, report = _cleaned({"spec": spec})
    assert report == Report()
    assert tree["spec"] == (before if kept is ... else kept)


@pytest.mark.parametrize(
    ("group", "plural", "tree"),
    [
        ("rbac.authorization.k8s.io", "clusterroles", {"rules": None}),
        ("networking.k8s.io", "networkpolicies", {"spec": {"podSelector": {}, "ingress": [{}]}}),
        (
            "apiextensions.k8s.io", "customresourcedefinitions",
            {
                "spec": {
                    "group": "a.b", "names": {"kind": "A", "plural": "as"}, "scope": "Cluster",
                    "versions": [{
                        "name": "v1", "served": False, "storage": False,
                        "schema": {"openAPIV3Schema": {"default": {}, "enum": [None, "", {}]}},
                    }],
                },
                "status": {},
            },
        ),
        ("apps", "controllerrevisions", {"data": {"a": [], "b": None}, "revision": 0}),
    ],
)  # fmt: skip
def test_meaningful_empty_values_are_preserved(group: str, plural: str, tree: dict[str, Any]) -> None:
    kind = KINDS.find(group, "v1", plural)
    assert kind is not None
    tree = {"metadata": {}, **tree}
    before = copy.deepcopy(tree)
    assert clean(tree, kind) == Report()
    assert tree == before


def test_minimal_deployment_gets_required_structs() -> None:
    deployments = KINDS.find("apps", "v1", "deployments")
    assert deployments is not None
    tree: dict[str, Any] = {"spec": {"template": {"metadata": {"creationTimestamp": None}, "spec": {}}}, "status": {}}
    assert clean(tree, deployments) == Report()
    assert tree == {
        "metadata": {},
        "spec": {"strategy": {}, "template": {"metadata": {}, "spec": {}}},
        "status": {},
    }


def test_fields_without_omitempty_get_zero_values() -> None:
    tree, _ = _cleaned({"status": {"containerStatuses": [{"name": "c"}]}})
    status = tree["status"]["containerStatuses"][0]
    assert status == {
        "name": "c", "image": "", "imageID": "", "ready": False, "restartCount": 0, "state": {}, "lastState": {},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("tree", "wrong"),
    [
        ({"spec": []}, "spec: expected object, got array"),
        ({"spec": {"containers": {}}}, "spec.containers: expected array, got object"),
        ({"spec": {"hostNetwork": "yes"}}, "spec.hostNetwork: expected boolean, got string"),
        ({"spec": {"priority": "1"}}, "spec.priority: expected integer, got string"),
        ({"spec": {"priority": True}}, "spec.priority: expected integer, got boolean"),
        ({"spec": {"priority": 1.5}}, "spec.priority: expected integer, got number"),
        ({"spec": {"priority": 2**31}}, "spec.priority: 2147483648 does not fit int32"),
        (
            {"spec": {"activeDeadlineSeconds": 2**63}},
            "spec.activeDeadlineSeconds: 9223372036854775808 does not fit int64",
        ),
        ({"metadata": {"labels": {"a.b/c": 1}}}, "metadata.labels[a.b/c]: expected string, got integer"),
        ({"metadata": {"creationTimestamp": "now"}}, "metadata.creationTimestamp: 'now' is no RFC 3339 time"),
        (
            {"metadata": {"creationTimestamp": "2024-02-30T00:00:00Z"}},
            "metadata.creationTimestamp: '2024-02-30T00:00:00Z' is no RFC 3339 time",
        ),
        (
            {"metadata": {"creationTimestamp": "0001-01-01T00:00:00+05:00"}},
            "metadata.creationTimestamp: '0001-01-01T00:00:00+05:00' is no RFC 3339 time",
        ),
        (
            {"spec": {"overhead": {"cpu": "1 core"}}},
            "spec.overhead.cpu: '1 core' is no quantity, such as 100m or 1.5Gi",
        ),
        ({"spec": {"overhead": {"cpu": {}}}}, "spec.overhead.cpu: expected quantity, got object"),
    ],
)
def test_wrong_types_are_reported_and_unchanged(tree: dict[str, Any], wrong: str) -> None:
    before = copy.deepcopy(tree)
    assert _cleaned(tree) == (before, Report(wrong=(wrong,)))


def test_all_problems_are_reported_together() -> None:
    _, report = _cleaned({"spec": {"priority": "x", "hostPID": 1, "nope": 1}, "status": 3})
    assert len(report.wrong) == 3
    assert report.unknown == ("spec.nope",)


@pytest.mark.parametrize(
    ("given_value", "kept"),
    [
        ("2024-01-02T03:04:05Z", "2024-01-02T03:04:05Z"),
        ("2024-01-02T03:04:05.678Z", "2024-01-02T03:04:05Z"),
        ("2024-01-02T03:04:05.123456789Z", "2024-01-02T03:04:05Z"),
        ("2024-01-02T05:04:05+02:00", "2024-01-02T03:04:05Z"),
    ],
)
def test_times_are_normalized(given_value: str, kept: str) -> None:
    tree, report = _cleaned({"metadata": {"creationTimestamp": given_value}})
    assert (tree["metadata"]["creationTimestamp"], report) == (kept, Report())


def test_zero_time_is_removed() -> None:
    assert LEASES is not None
    tree, report = _cleaned({"metadata": {"creationTimestamp": "0001-01-01T00:00:00Z"}})
    assert (tree["metadata"], report) == ({}, Report())
    lease = {"metadata": {}, "spec": {"renewTime": "0001-01-01T00:00:00.000000Z"}}
    assert clean(lease, LEASES) == Report()
    assert lease == {"metadata": {}, "spec": {}}


def test_micro_times_have_six_digits() -> None:
    assert LEASES is not None
    lease = {"spec": {"renewTime": "2024-01-02T05:04:05.500000+02:00", "acquireTime": "2024-01-02T03:04:05.000001Z"}}
    assert clean(lease, LEASES) == Report()
    assert lease["spec"] == {
        "renewTime": "2024-01-02T03:04:05.500000Z",
        "acquireTime": "2024-01-02T03:04:05.000001Z",
    }
    for text in ("2024-01-02T03:04:05Z", "2024-01-02T03:04:05.5Z", "2024-01-02T03:04:05.0000001Z"):
        (wrong,) = clean({"spec": {"renewTime": text}}, LEASES).wrong
        assert "spec.renewTime" in wrong


def test_quantities_accept_numbers_and_ports_accept_names() -> None:
    tree, report = _cleaned(
        {
            "spec": {
                "overhead": {"cpu": 1, "memory": 0.5, "x": "1e3", "y": "-1.5Gi", "z": "100m"},
                "containers": [
                    {"readinessProbe": {"httpGet": {"port": 80}}, "livenessProbe": {"httpGet": {"port": "http"}}}
                ],
            }
        }
    )
    assert report == Report()
    assert tree["spec"]["overhead"] == {"cpu": "1", "memory": "500m", "x": "1e3", "y": "-1536Mi", "z": "100m"}


def test_quantity_precision_depends_on_the_field() -> None:
    volume = {"name": "v", "emptyDir": {"sizeLimit": "1500u"}}
    container = {"name": "c", "resources": {"limits": {"cpu": "1500u"}}}
    tree, _ = _cleaned({"spec": {"volumes": [volume], "containers": [container]}})
    assert tree["spec"]["volumes"][0]["emptyDir"]["sizeLimit"] == "1500u"
    assert tree["spec"]["containers"][0]["resources"]["limits"]["cpu"] == "2m"


def test_secret_data_must_be_base64() -> None:
    secrets = KINDS.find("", "v1", "secrets")
    assert secrets is not None
    secret = {"data": {"a": "aG\nk=", "b": ""}}
    assert clean(secret, secrets) == Report()
    assert secret["data"] == {"a": "aGk=", "b": ""}
    assert clean({"data": {"a": "aGk"}}, secrets).wrong == ("data.a: expected base64 text",)


def test_value_without_schema_is_unchanged() -> None:
    revisions = KINDS.find("apps", "v1", "controllerrevisions")
    assert revisions is not None
    tree: dict[str, Any] = {"data": {"spec": {"template": {"$patch": "replace", "x": None}}}, "revision": 1}
    assert clean(tree, revisions) == Report()
    assert tree["data"] == {"spec": {"template": {"$patch": "replace", "x": None}}}


def test_preserved_objects_keep_unknown_fields() -> None:
    schemas = Schemas({"x": {"type": "object", "preserve": True, "fields": {"a": {"type": "string"}}}})
    tree = {"a": "1", "b": [None]}
    assert clean_tree(tree, schemas.node("x")) == Report()
    assert tree == {"a": "1", "b": [None]}


def test_number_of_reported_problems_is_limited() -> None:
    """A map key may be nearly as long as the body, above a hundred thousand wrong values."""
    pod = {
        "spec": {
            "overhead": {"k" * 100_000 + str(i): [] for i in range(2)},
            "containers": [{"x": 1} for _ in range(1000)],
        }
    }
    report = _cleaned(pod)[1]
    assert len(report.unknown) == MOST_REPORTED
    assert report.wrong[0] == f"spec.overhead[{'k' * 256}...]: expected quantity, got array"
    pod = {"spec": {"containers": [{"name": 1} for _ in range(1000)]}}
    assert len(_cleaned(pod)[1].wrong) == MOST_REPORTED


def test_depth_is_limited() -> None:
    definitions = KINDS.find("apiextensions.k8s.io", "v1", "customresourcedefinitions")
    assert definitions is not None
    inner: dict[str, Any] = {}
    for _ in range(DEEPEST * 5):
        inner = {"not": inner}
    tree = {"spec": {"versions": [{"name": "v1", "schema": {"openAPIV3Schema": inner}}]}}
    assert len(clean(tree, definitions).wrong) == 1
    assert "nested too deeply" in clean(tree, definitions).wrong[0]


_names = st.sampled_from(["metadata", "spec", "status", "name", "labels", "containers", "image", "ports", "env", "zzz"])
_trees = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_names, inner, max_size=4),
    max_leaves=20,
)


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(list(KINDS.all())), st.dictionaries(_names, _trees, max_size=5))
def test_cleaning_is_idempotent(kind: ResourceInfo, tree: dict[str, Any]) -> None:
    first = clean(tree, kind)
    once = copy.deepcopy(tree)
    second = clean(tree, kind)
    assert tree == once
    assert second == Report(unknown=(), wrong=first.wrong)
