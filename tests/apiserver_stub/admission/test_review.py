"""Admission reviews as webhooks and expressions see them."""

from typing import Any

from apiserver_stub.admission.chain import Attributes
from apiserver_stub.admission.review import admission_request, converted
from apiserver_stub.kinds.defaults.kinds import apply_defaults
from apiserver_stub.kinds.registry import built_in
from controller_manager.common.serving.authentication import User

KINDS = built_in()
ADMIN = User("admin", groups=("system:masters",), extra={"scopes": ("a", "b")})


def kind(group: str, plural: str, version: str = "v1") -> Any:
    return KINDS.find(group, version, plural)


def test_review_converts_create_to_matched_version() -> None:
    v1, v2 = (kind("autoscaling", "horizontalpodautoscalers", version) for version in ("v1", "v2"))
    query = {"fieldManager": "fm", "fieldValidation": "Strict", "dryRun": "All", "pretty": "true"}
    attributes = Attributes("create", v1, "team", "a", "", {}, None, ADMIN, True, query)
    assert admission_request(attributes, v2) == {
        "kind": {"group": "autoscaling", "version": "v2", "kind": "HorizontalPodAutoscaler"},
        "resource": {"group": "autoscaling", "version": "v2", "resource": "horizontalpodautoscalers"},
        "requestKind": {"group": "autoscaling", "version": "v1", "kind": "HorizontalPodAutoscaler"},
        "requestResource": {"group": "autoscaling", "version": "v1", "resource": "horizontalpodautoscalers"},
        "name": "a",
        "namespace": "team",
        "operation": "CREATE",
        "userInfo": {"username": "admin", "groups": ["system:masters"], "extra": {"scopes": ["a", "b"]}},
        "dryRun": True,
        "options": {
            "kind": "CreateOptions",
            "apiVersion": "meta.k8s.io/v1",
            "dryRun": ["All"],
            "fieldManager": "fm",
            "fieldValidation": "Strict",
        },
    }


def test_review_describes_subresource_of_another_kind() -> None:
    pods = kind("", "pods")
    attributes = Attributes("create", pods, "team", "p", "eviction", {}, None, User("u"), requested_name="p")
    found = admission_request(attributes, pods)
    assert found["kind"] == found["requestKind"] == {"group": "policy", "version": "v1", "kind": "Eviction"}
    assert found["resource"] == found["requestResource"] == {"group": "", "version": "v1", "resource": "pods"}
    assert found["subResource"] == found["requestSubResource"] == "eviction"
    assert found["userInfo"] == {"username": "u"}


def test_review_without_name_or_options() -> None:
    pods, namespaces = kind("", "pods"), kind("", "namespaces")
    options = {"kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1", "gracePeriodSeconds": 0}
    one_of_many = Attributes("delete", pods, "team", "p", "", None, {}, ADMIN, options=options)
    assert "name" not in admission_request(one_of_many, pods)
    assert admission_request(one_of_many, pods)["options"] == options
    connection = Attributes("connect", pods, "team", "p", "exec", {}, None, ADMIN, requested_name="p")
    assert admission_request(connection, pods)["options"] is None
    namespace = Attributes("create", namespaces, "", "new", "", {}, None, ADMIN)
    assert admission_request(namespace, namespaces)["namespace"] == "new"


async def test_objects_are_converted_to_matched_version() -> None:
    v1, v2 = (kind("autoscaling", "horizontalpodautoscalers", version) for version in ("v1", "v2"))
    spec = {"maxReplicas": 3, "scaleTargetRef": {"kind": "a", "name": "b"}, "targetCPUUtilizationPercentage": 50}
    tree = {"apiVersion": "autoscaling/v1", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "a"}, "spec": spec}
    apply_defaults(tree, v1)
    new = await converted(tree, v1, v2, "")
    assert new["apiVersion"] == "autoscaling/v2"
    assert new["spec"]["metrics"][0]["resource"]["target"] == {"type": "Utilization", "averageUtilization": 50}
    assert await converted(new, v2, v1, "") == {**tree, "status": {"currentReplicas": 0, "desiredReplicas": 0}}
    assert await converted(tree, v1, v1, "") is tree


async def test_event_groups_and_scale_are_converted() -> None:
    old, new = kind("", "events"), kind("events.k8s.io", "events")
    event = {"apiVersion": "v1", "kind": "Event", "metadata": {"name": "e"}, "involvedObject": {"name": "p"}}
    found = await converted(event, old, new, "")
    assert (found["apiVersion"], found["regarding"]) == ("events.k8s.io/v1", {"name": "p"})
    scale = {"apiVersion": "autoscaling/v1", "kind": "Scale"}
    deployments = kind("apps", "deployments")
    assert await converted(scale, deployments, deployments, "scale") is scale
