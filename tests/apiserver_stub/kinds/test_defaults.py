"""Default values of fields that clients leave out."""

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apiserver_stub.kinds.defaults.kinds import DEFAULT_ROWS, VIEW_DEFAULT_ROWS, apply_defaults
from apiserver_stub.kinds.registry import built_in
from apiserver_stub.kinds.resource_info import ResourceInfo
from apiserver_stub.kinds.schema.clean import Report, clean
from apiserver_stub.kinds.schema.schema import Schema
from apiserver_stub.kinds.values.trees import get_in
from controller_manager.common.api.tree import Tree

KINDS = built_in()
DIGEST = f"sha256:{'0' * 64}"

# The defaults of a missing template.
TEMPLATE = {
    "metadata": {},
    "spec": {
        "dnsPolicy": "ClusterFirst", "restartPolicy": "Always", "schedulerName": "default-scheduler",
        "securityContext": {}, "terminationGracePeriodSeconds": 30,
    },
}  # fmt: skip


def _kind(api_version: str, plural: str) -> ResourceInfo:
    group, _, version = api_version.rpartition("/")
    kind = KINDS.find(group, version, plural)
    assert kind is not None
    return kind


def _defaulted(api_version: str, plural: str, tree: Tree) -> Tree:
    kind = _kind(api_version, plural)
    assert clean(tree, kind) == Report()
    apply_defaults(tree, kind)
    once = copy.deepcopy(tree)
    apply_defaults(tree, kind)
    assert tree == once
    assert clean(tree, kind) == Report()
    assert tree == once
    return tree


def test_empty_pod_ip_is_not_copied() -> None:
    status = _defaulted("v1", "pods", {"status": {"podIPs": [{"ip": ""}]}})["status"]
    assert status == {"podIPs": [{"ip": ""}]}


def test_minimal_pod_defaults() -> None:
    pod = _defaulted("v1", "pods", {"spec": {"containers": [{"name": "c", "image": "nginx"}]}})
    assert pod["spec"] == {
        "containers": [
            {
                "name": "c",
                "image": "nginx",
                "imagePullPolicy": "Always",
                "resources": {},
                "terminationMessagePath": "/dev/termination-log",
                "terminationMessagePolicy": "File",
            }
        ],
        "dnsPolicy": "ClusterFirst",
        "enableServiceLinks": True,
        "restartPolicy": "Always",
        "schedulerName": "default-scheduler",
        "securityContext": {},
        "terminationGracePeriodSeconds": 30,
    }


@pytest.mark.parametrize(
    ("image", "policy"),
    [
        ("nginx", "Always"),
        ("nginx:latest", "Always"),
        ("nginx:1.25", "IfNotPresent"),
        ("registry:5000/nginx", "Always"),
        ("registry:5000/nginx:1", "IfNotPresent"),
        (f"nginx@{DIGEST}", "IfNotPresent"),
        (f"nginx:1@{DIGEST}", "IfNotPresent"),
        (f"nginx:latest@{DIGEST}", "Always"),
        ("nginx:latest@sha256:abc", "IfNotPresent"),
        ("Example.org/nginx", "Always"),
        ("Nginx", "IfNotPresent"),
        (" ", "IfNotPresent"),
        ("", "IfNotPresent"),
    ],
)
def test_pull_policy_depends_on_image_tag(image: str, policy: str) -> None:
    pod = _defaulted("v1", "pods", {"spec": {"containers": [{"name": "c", "image": image}]}})
    assert pod["spec"]["containers"][0]["imagePullPolicy"] == policy
    volume = {"name": "v", "image": {"reference": image}}
    pod = _defaulted("v1", "pods", {"spec": {"containers": [], "volumes": [volume]}})
    assert pod["spec"]["volumes"][0]["image"]["pullPolicy"] == policy


def test_container_and_volume_defaults() -> None:
    pod = _defaulted(
        "v1",
        "pods",
        {
            "spec": {
                "hostNetwork": True,
                "serviceAccountName": "sa",
                "containers": [
                    {
                        "name": "c",
                        "image": "i:1",
                        "ports": [{"containerPort": 80}],
                        "env": [{"name": "E", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
                        "livenessProbe": {"httpGet": {"port": 80}},
                        "resources": {"limits": {"cpu": 1, "memory": "1Gi"}, "requests": {"cpu": "100m"}},
                    }
                ],
                "volumes": [
                    {"name": "a"},
                    {"name": "b", "configMap": {"name": "m"}},
                    {"name": "c", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}},
                    {"name": "d", "hostPath": {"path": "/x"}},
                ],
            }
        },
    )
    container = pod["spec"]["containers"][0]
    assert container["ports"] == [{"containerPort": 80, "protocol": "TCP", "hostPort": 80}]
    assert container["env"][0]["valueFrom"]["fieldRef"] == {"fieldPath": "metadata.name", "apiVersion": "v1"}
    assert container["livenessProbe"] == {
        "httpGet": {"port": 80, "path": "/", "scheme": "HTTP"},
        "timeoutSeconds": 1,
        "periodSeconds": 10,
        "successThreshold": 1,
        "failureThreshold": 3,
    }
    assert container["resources"]["requests"] == {"cpu": "100m", "memory": "1Gi"}
    assert pod["spec"]["serviceAccount"] == "sa"
    assert pod["spec"]["volumes"] == [
        {"name": "a", "emptyDir": {}},
        {"name": "b", "configMap": {"name": "m", "defaultMode": 420}},
        {
            "name": "c",
            "projected": {
                "sources": [{"serviceAccountToken": {"path": "t", "expirationSeconds": 3600}}],
                "defaultMode": 420,
            },
        },
        {"name": "d", "hostPath": {"path": "/x", "type": ""}},
    ]


def test_template_gets_no_pod_only_defaults() -> None:
    template = {"spec": {"containers": [{"name": "c", "image": "i", "resources": {"limits": {"cpu": "1"}}}]}}
    deployment = _defaulted("apps/v1", "deployments", {"spec": {"selector": {}, "template": template}})
    spec = deployment["spec"]["template"]["spec"]
    assert "enableServiceLinks" not in spec
    assert spec["containers"][0]["resources"] == {"limits": {"cpu": "1"}}
    assert spec["restartPolicy"] == "Always"


def test_given_values_are_preserved() -> None:
    spec = {"type": "Recreate"}
    deployment = _defaulted("apps/v1", "deployments", {"spec": {"replicas": 0, "strategy": spec}})
    assert deployment["spec"] == {
        "replicas": 0,
        "strategy": {"type": "Recreate"},
        "revisionHistoryLimit": 10,
        "progressDeadlineSeconds": 600,
        "template": TEMPLATE,
    }


@pytest.mark.parametrize(
    ("api_version", "plural", "tree", "path", "expected"),
    [
        (
            "apps/v1", "deployments", {"spec": {}}, "spec.strategy",
            {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"}},
        ),
        ("apps/v1", "replicasets", {"spec": {}}, "spec.replicas", 1),
        (
            "apps/v1", "statefulsets", {"spec": {}}, "spec.updateStrategy",
            {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}},
        ),
        (
            "apps/v1", "statefulsets", {"spec": {"updateStrategy": {"type": "RollingUpdate"}}}, "spec.updateStrategy",
            {"type": "RollingUpdate"},
        ),
        (
            "apps/v1", "statefulsets", {"spec": {"updateStrategy": {"type": "OnDelete"}}}, "spec.updateStrategy",
            {"type": "OnDelete"},
        ),
        (
            "apps/v1", "daemonsets", {"spec": {}}, "spec.updateStrategy",
            {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}},
        ),
        (
            "apps/v1", "statefulsets", {"spec": {"volumeClaimTemplates": [{"spec": {}}]}}, "spec.volumeClaimTemplates",
            [{
                "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {},
                "spec": {"resources": {}, "volumeMode": "Filesystem"}, "status": {"phase": "Pending"},
            }],
        ),
        (
            "batch/v1", "jobs", {"spec": {}}, "spec",
            {
                "completions": 1, "parallelism": 1, "backoffLimit": 6, "completionMode": "NonIndexed",
                "manualSelector": False, "podReplacementPolicy": "TerminatingOrFailed", "suspend": False,
                "template": TEMPLATE,
            },
        ),
        ("batch/v1", "jobs", {"spec": {"parallelism": 3}}, "spec.completions", None),
        (
            "batch/v1", "cronjobs", {"spec": {"schedule": "@daily"}}, "spec",
            {
                "schedule": "@daily", "concurrencyPolicy": "Allow", "suspend": False,
                "successfulJobsHistoryLimit": 3, "failedJobsHistoryLimit": 1,
                "jobTemplate": {"metadata": {}, "spec": {"template": TEMPLATE}},
            },
        ),
        (
            "v1", "services", {"spec": {"ports": [{"port": 80}, {"port": 1, "targetPort": "web"}]}}, "spec",
            {
                "type": "ClusterIP", "sessionAffinity": "None", "internalTrafficPolicy": "Cluster",
                "ports": [
                    {"port": 80, "protocol": "TCP", "targetPort": 80},
                    {"port": 1, "protocol": "TCP", "targetPort": "web"},
                ],
            },
        ),
        ("v1", "services", {"spec": {"type": "ExternalName"}}, "spec.ipFamilies", None),
        ("v1", "services", {"spec": {"type": "LoadBalancer"}}, "spec.externalTrafficPolicy", "Cluster"),
        (
            "v1", "services", {"spec": {"sessionAffinity": "ClientIP"}}, "spec.sessionAffinityConfig",
            {"clientIP": {"timeoutSeconds": 10800}},
        ),
        ("v1", "namespaces", {"metadata": {"name": "a"}}, "metadata.labels", {"kubernetes.io/metadata.name": "a"}),
        ("v1", "secrets", {"stringData": {"a": "hi"}, "data": {"b": ""}}, "data", {"a": "aGk=", "b": ""}),
        ("v1", "secrets", {}, "type", "Opaque"),
        (
            "v1", "endpoints", {"subsets": [{"ports": [{"port": 1}]}]}, "subsets",
            [{"ports": [{"port": 1, "protocol": "TCP"}]}],
        ),
        (
            "discovery.k8s.io/v1", "endpointslices", {"ports": [{"port": 1}]}, "ports",
            [{"port": 1, "name": "", "protocol": "TCP"}],
        ),
        ("networking.k8s.io/v1", "networkpolicies", {"spec": {"podSelector": {}}}, "spec.policyTypes", ["Ingress"]),
        (
            "networking.k8s.io/v1", "networkpolicies", {"spec": {"egress": [{}]}}, "spec.policyTypes",
            ["Ingress", "Egress"],
        ),
        (
            "v1", "persistentvolumeclaims", {"spec": {"accessModes": []}}, "spec",
            {"resources": {}, "volumeMode": "Filesystem"},
        ),
        (
            "v1", "services", {"spec": {"externalIPs": ["192.0.2.1"]}}, "spec.externalTrafficPolicy", "Cluster",
        ),
        (
            "v1", "services", {"spec": {"sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 1}}}},
            "spec.sessionAffinityConfig", None,
        ),
        (
            "v1", "services",
            {"spec": {"type": "LoadBalancer"}, "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}},
            "status.loadBalancer.ingress", [{"ip": "192.0.2.1", "ipMode": "VIP"}],
        ),
        ("v1", "nodes", {"spec": {"podCIDR": "192.0.2.0/24"}}, "spec.podCIDRs", ["192.0.2.0/24"]),
        (
            "v1", "nodes", {"spec": {"podCIDRs": ["192.0.2.0/25", "2001:db8::/64"]}}, "spec",
            {"podCIDRs": ["192.0.2.0/25", "2001:db8::/64"], "podCIDR": "192.0.2.0/25"},
        ),
        (
            "v1", "nodes", {"status": {"capacity": {"cpu": "4"}}}, "status",
            {
                "capacity": {"cpu": "4"}, "allocatable": {"cpu": "4"},
                "daemonEndpoints": {"kubeletEndpoint": {"Port": 0}},
                "nodeInfo": {
                    "architecture": "", "bootID": "", "containerRuntimeVersion": "", "kernelVersion": "",
                    "kubeProxyVersion": "", "kubeletVersion": "", "machineID": "", "operatingSystem": "",
                    "osImage": "", "systemUUID": "",
                },
            },
        ),
        (
            "networking.k8s.io/v1", "ingressclasses", {"spec": {"parameters": {"kind": "K", "name": "n"}}},
            "spec.parameters.scope", "Cluster",
        ),
        ("networking.k8s.io/v1", "ingresses", {"spec": {}}, "status", {"loadBalancer": {}}),
        (
            "policy/v1", "poddisruptionbudgets", {"spec": {"minAvailable": 0}}, None,
            {
                "metadata": {}, "spec": {"minAvailable": 0},
                "status": {"currentHealthy": 0, "desiredHealthy": 0, "disruptionsAllowed": 0, "expectedPods": 0},
            },
        ),
        (
            "batch/v1", "jobs", {"spec": {"completionMode": "Indexed", "completions": 3}}, "spec.parallelism", 1,
        ),
        ("batch/v1", "jobs", {"spec": {"backoffLimitPerIndex": 0}}, "spec.backoffLimit", 2**31 - 1),
        (
            "batch/v1", "jobs", {"spec": {"podFailurePolicy": {"rules": [{"onPodConditions": [{"type": "A"}]}]}}},
            "spec.podFailurePolicy.rules", [{"action": "", "onPodConditions": [{"type": "A", "status": "True"}]}],
        ),
        (
            "batch/v1", "jobs", {"spec": {"template": {"metadata": {"labels": {"a": "b"}}}}}, "metadata.labels",
            {"a": "b"},
        ),
        (
            "flowcontrol.apiserver.k8s.io/v1", "flowschemas", {"spec": {"matchingPrecedence": 0}},
            "spec.matchingPrecedence", 1000,
        ),
        (
            "flowcontrol.apiserver.k8s.io/v1", "prioritylevelconfigurations",
            {"spec": {"type": "Limited", "limited": {"limitResponse": {"type": "Queue", "queuing": {"queues": 0}}}}},
            "spec.limited",
            {
                "nominalConcurrencyShares": 30, "lendablePercent": 0,
                "limitResponse": {"type": "Queue", "queuing": {"queues": 64, "handSize": 8, "queueLengthLimit": 50}},
            },
        ),
        ("rbac.authorization.k8s.io/v1", "rolebindings", {"roleRef": {"apiGroup": "", "kind": "Role", "name": "a"}},
         "roleRef.apiGroup", "rbac.authorization.k8s.io"),
        (
            "resource.k8s.io/v1", "resourceclaims",
            {"spec": {"devices": {"requests": [{"name": "a", "exactly": {"deviceClassName": "c", "count": 0}}]}}},
            "spec.devices.requests",
            [{"name": "a", "exactly": {"deviceClassName": "c", "allocationMode": "ExactCount", "count": 1}}],
        ),
        ("v1", "persistentvolumes", {"spec": {}}, "spec.persistentVolumeReclaimPolicy", "Retain"),
        (
            "autoscaling/v2", "horizontalpodautoscalers", {"spec": {"maxReplicas": 3}}, "spec.metrics",
            [{
                "type": "Resource",
                "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}},
            }],
        ),
        (
            "autoscaling/v1", "horizontalpodautoscalers", {"spec": {"maxReplicas": 3}}, "spec",
            {
                "maxReplicas": 3, "minReplicas": 1, "scaleTargetRef": {"kind": "", "name": ""},
                "targetCPUUtilizationPercentage": 80,
            },
        ),
        (
            "autoscaling/v2", "horizontalpodautoscalers", {"spec": {"behavior": {}}}, "spec.behavior.scaleDown",
            {"policies": [{"type": "Percent", "value": 100, "periodSeconds": 15}], "selectPolicy": "Max"},
        ),
        (
            "rbac.authorization.k8s.io/v1", "rolebindings",
            {"subjects": [{"kind": "User", "name": "a"}, {"kind": "ServiceAccount", "name": "a"}]}, "subjects",
            [
                {"kind": "User", "name": "a", "apiGroup": "rbac.authorization.k8s.io"},
                {"kind": "ServiceAccount", "name": "a"},
            ],
        ),
        (
            "v1", "limitranges",
            {"spec": {"limits": [{"type": "Container", "max": {"cpu": "2"}, "min": {"memory": "1"}}]}},
            "spec.limits",
            [{
                "type": "Container", "max": {"cpu": "2"}, "min": {"memory": "1"},
                "default": {"cpu": "2"}, "defaultRequest": {"cpu": "2", "memory": "1"},
            }],
        ),
        (
            "apiextensions.k8s.io/v1", "customresourcedefinitions", {"spec": {"names": {"kind": "Foo"}}}, "spec.names",
            {"kind": "Foo", "plural": "", "listKind": "FooList", "singular": "foo"},
        ),
    ],
)  # fmt: skip
def test_default_of_kind(api_version: str, plural: str, tree: Tree, path: str | None, expected: Any) -> None:
    assert get_in(_defaulted(api_version, plural, tree), path.split(".") if path else ()) == expected


def test_replication_controller_copies_labels_from_template() -> None:
    template = {"metadata": {"labels": {"a": "b"}}}
    controller = _defaulted("v1", "replicationcontrollers", {"spec": {"template": copy.deepcopy(template)}})
    assert controller["spec"]["selector"] == {"a": "b"}
    assert controller["metadata"]["labels"] == {"a": "b"}
    replica_set = _defaulted("apps/v1", "replicasets", {"spec": {"template": copy.deepcopy(template)}})
    assert "selector" not in replica_set["spec"]
    assert replica_set["metadata"] == {}


def test_defaults_are_not_shared_between_objects() -> None:
    first = _defaulted("autoscaling/v2", "horizontalpodautoscalers", {"spec": {"maxReplicas": 3}})
    first["spec"]["metrics"][0]["resource"]["name"] = "changed"
    second = _defaulted("autoscaling/v2", "horizontalpodautoscalers", {"spec": {"maxReplicas": 3}})
    assert second["spec"]["metrics"][0]["resource"]["name"] == "cpu"


def test_default_rows_name_existing_kinds_and_fields() -> None:
    every = tuple(built_in(lambda _: True).all())
    by_name = {kind.name: kind for kind in every if kind.to_storage is None}
    assert DEFAULT_ROWS.keys() <= by_name.keys()
    for name, rows in DEFAULT_ROWS.items():
        _check_rows(rows, by_name[name].schema, name)
    assert VIEW_DEFAULT_ROWS.keys() <= {kind.name for kind in every if kind.to_storage is not None}


def _check_rows(rows: Any, node: Schema, where: str) -> None:
    while node.type == "array":
        assert node.items is not None
        node = node.items
    for name, rule in rows:
        if name:
            assert name in node.fields, f"{where}.{name}"
            if isinstance(rule, tuple):
                _check_rows(rule, node.fields[name], f"{where}.{name}")


_objects = st.recursive(
    st.sampled_from([None, 0, "", "x", True]),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from(["spec", "template", "containers", "ports", "volumes", "strategy", "limits"]), inner
        )
    ),
    max_leaves=12,
)


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(list(KINDS.all())), st.dictionaries(st.sampled_from(["metadata", "spec", "status"]), _objects))
def test_any_valid_object_can_be_defaulted_idempotently(kind: ResourceInfo, tree: Tree) -> None:
    if clean(tree, kind).wrong:
        return
    apply_defaults(tree, kind)
    once = copy.deepcopy(tree)
    apply_defaults(tree, kind)
    assert tree == once
    assert clean(tree, kind) == Report()
    assert tree == once
