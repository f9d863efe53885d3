"""Every violated rule is one cause with upstream's message, and valid objects are accepted."""

from typing import Any

import pytest

from apiserver_stub.kinds.validate import validate
from controller_manager.common.api.tree import Tree

MIRROR = "kubernetes.io/config.mirror"
C: Tree = {"name": "c", "image": "i"}
TEMPLATE: Tree = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [C]}}
WORKLOAD: Tree = {"selector": {"matchLabels": {"a": "b"}}, "template": TEMPLATE}


def _pod(**spec: Any) -> Tree:
    return {"spec": {"containers": [C], **spec}}


def _container(**more: Any) -> Tree:
    return {"spec": {"containers": [{**C, **more}]}}


@pytest.mark.parametrize(
    ("api_version", "plural", "tree"),
    [
        ("v1", "pods", _pod()),
        ("v1", "pods", _container(volumeMounts=[])),
        ("v1", "configmaps", {"metadata": {"name": "a.b-c.d"}, "data": {"k.x_Y-1": "v"}}),
        ("v1", "services", {"spec": {"ports": [{"port": 80}]}}),
        ("v1", "services", {"spec": {"clusterIP": "None"}}),
        ("v1", "services", {"spec": {"type": "ExternalName", "externalName": "a.example."}}),
        ("apps/v1", "deployments", {"spec": WORKLOAD}),
        ("apps/v1", "statefulsets", {"spec": WORKLOAD}),
        ("apps/v1", "daemonsets", {"spec": WORKLOAD}),
        ("apps/v1", "statefulsets", {"spec": {
            "selector": {"matchLabels": {"a": "b"}},
            "template": {**TEMPLATE, **_container(volumeMounts=[{"name": "d", "mountPath": "/d"}])},
            "volumeClaimTemplates": [{"metadata": {"name": "d"}, "spec": {
                "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}},
            }}],
        }}),
        ("v1", "replicationcontrollers", {"spec": {"template": TEMPLATE}}),
        ("batch/v1", "jobs", {"spec": {"template": {"spec": {"containers": [C], "restartPolicy": "Never"}}}}),
        ("rbac.authorization.k8s.io/v1", "clusterroles", {"metadata": {"name": "system:x"}, "rules": []}),
        ("v1", "namespaces", {"metadata": {"finalizers": ["x.io/y", "orphan"]}}),
        ("coordination.k8s.io/v1", "leases", {"spec": {"holderIdentity": "me", "leaseDurationSeconds": 15}}),
        ("v1", "events", {"metadata": {"namespace": "default"}, "involvedObject": {"kind": "Node", "name": "x"}}),
        ("storage.k8s.io/v1", "csinodes", {"spec": {}}),
        ("v1", "persistentvolumes", {"spec": {
            "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/x"},
        }}),
        ("networking.k8s.io/v1", "ipaddresses", {
            "metadata": {"name": "2001:db8::1"}, "spec": {"parentRef": {"resource": "services", "name": "x"}},
        }),
    ],
)  # fmt: skip
def test_valid_objects_are_accepted_and_can_be_updated(
    validator: Any, api_version: str, plural: str, tree: Tree
) -> None:
    assert validator.problems(api_version, plural, tree) == []
    assert validator.problems(api_version, plural, tree, tree) == []


OWNER = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u", "controller": True}


@pytest.mark.parametrize(
    ("metadata", "fields"),
    [
        ({"name": ""}, ["metadata.name"]),
        ({"name": "A"}, ["metadata.name"]),
        ({"name": "a_b"}, ["metadata.name"]),
        ({"name": "-a"}, ["metadata.name"]),
        ({"name": "a..b"}, ["metadata.name"]),
        ({"name": "a\n"}, ["metadata.name"]),
        ({"name": "a" * 254}, ["metadata.name"]),
        ({"name": "ok", "generateName": "Bad-"}, ["metadata.generateName"]),
        ({"generateName": "good-"}, []),
        ({"namespace": ""}, ["metadata.namespace"]),
        ({"namespace": "a.b"}, ["metadata.namespace"]),
        ({"labels": {"a b": "c"}}, ["metadata.labels"]),
        ({"labels": {"a": "b c", "ok": ""}}, ["metadata.labels"]),
        ({"labels": {"x/y/z": "b"}}, ["metadata.labels"]),
        ({"labels": {"/y": "b"}}, ["metadata.labels"]),
        ({"labels": {"a" * 64: "b" * 64}}, ["metadata.labels", "metadata.labels"]),
        ({"annotations": {"a": "x" * 256 * 1024}}, ["metadata.annotations"]),
        ({"annotations": {"UPPER.io/Case": "any text\n"}}, []),
        ({"finalizers": ["mine"]}, ["metadata.finalizers[0]"]),
        ({"finalizers": ["a b/c"]}, ["metadata.finalizers"]),
        ({"finalizers": ["orphan", "foregroundDeletion"]}, ["metadata.finalizers"]),
        ({"ownerReferences": [OWNER, {**OWNER, "uid": "v", "controller": False}]}, []),
        ({"ownerReferences": [OWNER, {**OWNER, "uid": "v"}]}, ["metadata.ownerReferences"]),
        ({"ownerReferences": [{**OWNER, "uid": ""}]}, ["metadata.ownerReferences.uid"]),
        ({"ownerReferences": [{**OWNER, "kind": "Event"}]}, ["metadata.ownerReferences"]),
    ],
)
def test_metadata_is_validated(validator: Any, metadata: Tree, fields: list[str]) -> None:
    assert validator.fields("v1", "configmaps", {"metadata": metadata}) == fields


@pytest.mark.parametrize(
    ("api_version", "plural", "name", "good"),
    [
        ("v1", "services", "a-1", True),
        ("v1", "services", "1a", True),
        ("v1", "services", "-a", False),
        ("v1", "services", "a.b", False),
        ("v1", "namespaces", "1a", True),
        ("v1", "namespaces", "a.b", False),
        ("v1", "namespaces", "a" * 64, False),
        ("rbac.authorization.k8s.io/v1", "clusterroles", "System:Any thing", True),
        ("rbac.authorization.k8s.io/v1", "clusterroles", "a/b", False),
        ("rbac.authorization.k8s.io/v1", "clusterroles", "..", False),
    ],
)
def test_names_are_validated_by_kind(validator: Any, api_version: str, plural: str, name: str, good: bool) -> None:
    fields = validator.fields(
        api_version,
        plural,
        {"metadata": {"name": name}, "spec": {"clusterIP": "None"}}
        if plural == "services"
        else {"metadata": {"name": name}},
    )
    assert ("metadata.name" not in fields) is good


def test_cluster_scoped_object_has_no_namespace(validator: Any) -> None:
    assert validator.problems("v1", "namespaces", {"metadata": {"namespace": "x"}}) == [
        ("metadata.namespace", "Forbidden: not allowed on this type")
    ]


@pytest.mark.parametrize("field", ["name", "namespace", "uid", "creationTimestamp", "deletionTimestamp"])
def test_identity_is_immutable(validator: Any, field: str) -> None:
    time = "2024-01-01T00:00:0{}Z"
    old = {
        "name": "a",
        "namespace": "n",
        "uid": "u",
        "creationTimestamp": time.format(1),
        "deletionTimestamp": time.format(1),
    }
    new = {**old, field: time.format(2) if "Timestamp" in field else "other"}
    problems = validator.problems("v1", "configmaps", {"metadata": new}, {"metadata": old})
    assert problems == [(f"metadata.{field}", f'Invalid value: "{new[field]}": field is immutable')]


def test_deleted_object_cannot_get_new_finalizers(validator: Any) -> None:
    old = {"deletionTimestamp": "2024-01-01T00:00:00Z", "finalizers": ["a.io/x", "b.io/y"]}
    fewer = {**old, "finalizers": ["b.io/y"]}
    assert validator.problems("v1", "configmaps", {"metadata": fewer}, {"metadata": old}) == []
    more = {**old, "finalizers": ["b.io/y", "c.io/z"]}
    assert validator.fields("v1", "configmaps", {"metadata": more}, {"metadata": old}) == ["metadata.finalizers"]


def test_messages_match_upstream(validator: Any) -> None:
    pod = {
        "metadata": {"name": "Bad"},
        "spec": {"containers": [{"name": "c"}, {**C, "imagePullPolicy": "Sometimes"}], "restartPolicy": "Maybe"},
    }
    problems = dict(validator.problems("v1", "pods", pod))
    assert problems["metadata.name"].startswith('Invalid value: "Bad": a lowercase RFC 1123 subdomain must')
    assert problems["spec.containers[0].image"] == "Required value"
    assert problems["spec.containers[1].name"] == 'Duplicate value: "c"'
    assert problems["spec.containers[1].imagePullPolicy"] == (
        'Unsupported value: "Sometimes": supported values: "Always", "IfNotPresent", "Never"'
    )
    assert problems["spec.restartPolicy"] == (
        'Unsupported value: "Maybe": supported values: "Always", "Never", "OnFailure"'
    )
    assert len(problems) == 5


def test_every_problem_has_its_reason(validator: Any) -> None:
    kind = validator.kind("v1", "pods")
    pod = validator.object(
        kind, {"metadata": {"name": "A"}, "spec": {"containers": [{"name": "c"}], "restartPolicy": "x"}}
    )
    reasons = {c.field: c.reason for c in validate(kind, pod, None)}
    assert reasons == {
        "metadata.name": "FieldValueInvalid",
        "spec.containers[0].image": "FieldValueRequired",
        "spec.restartPolicy": "FieldValueNotSupported",
    }


def test_required_fields_below_status_are_not_checked(validator: Any) -> None:
    assert validator.problems("v1", "pods", {**_pod(), "status": {"conditions": [{}], "containerStatuses": [{}]}}) == []


def test_changed_parts_are_checked_against_schema(validator: Any) -> None:
    template = {**TEMPLATE, **_container(imagePullPolicy="Sometimes")}
    fields = validator.fields(
        "apps/v1", "deployments", {"spec": {**WORKLOAD, "template": template}}, {"spec": WORKLOAD}
    )
    assert fields == ["spec.template.spec.containers[0].imagePullPolicy"]


def test_changed_pod_spec_is_validated(validator: Any) -> None:
    kind = validator.kind("v1", "pods")
    stored = validator.object(kind, _container(image=" i"))  # it was valid when it was created
    labelled = {**stored, "metadata": {**stored["metadata"], "annotations": {MIRROR: "x"}}}
    assert [cause.field for cause in validate(kind, labelled, stored)] == [f"metadata.annotations[{MIRROR}]"]
    brought = {**labelled, "spec": {**stored["spec"]}}
    assert "spec.containers[0].image" in {cause.field for cause in validate(kind, brought, stored)}


@pytest.mark.parametrize(
    ("metadata", "fields"),
    [
        ({"labels": {"a": "2"}, "annotations": {"b": "2"}}, []),
        ({"labels": {"a": "2", "example.org/c": "d"}}, []),
        ({"labels": {"a": "not good"}}, ["metadata.labels"]),
        ({"labels": {"a": "1", "not good": "1"}}, ["metadata.labels"]),
        ({"annotations": {"b": "2", "not good": "1"}}, ["metadata.annotations"]),
        ({"annotations": {"controller.kubernetes.io/pod-deletion-cost": "x"}},
         ["metadata.annotations[controller.kubernetes.io/pod-deletion-cost]"]),
        ({"uid": "other"}, ["metadata.uid"]),
        ({"annotations": {"b": "x" * 300_000}}, ["metadata.annotations"]),
    ],
)  # fmt: skip
def test_changed_metadata_is_validated(validator: Any, metadata: Tree, fields: list[str]) -> None:
    stored = validator.object(
        validator.kind("v1", "pods"), {**_pod(), "metadata": {"labels": {"a": "1"}, "annotations": {"b": "1"}}}
    )
    changed = {**stored, "metadata": {**stored["metadata"], **metadata}}
    assert [cause.field for cause in validate(validator.kind("v1", "pods"), changed, stored)] == fields
