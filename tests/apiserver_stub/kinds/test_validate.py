"""Every broken rule is one cause, in the words clients know, and nothing that is in order is refused."""

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apiserver_stub.kinds.clean import Report, clean
from apiserver_stub.kinds.defaults import apply_defaults
from apiserver_stub.kinds.kind import Kind
from apiserver_stub.kinds.registry import built_in
from apiserver_stub.kinds.schema import Schemas, Tree
from apiserver_stub.kinds.validate import validate
from apiserver_stub.kinds.validate_schema import check_schema

KINDS = built_in()
C: Tree = {"name": "c", "image": "i"}
RUN: Tree = {"command": ["true"]}
HERE: Tree = {"namespace": "n"}
TEMPLATE: Tree = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [C]}}
WORKLOAD: Tree = {"selector": {"matchLabels": {"a": "b"}}, "template": TEMPLATE}


def _kind(api_version: str, plural: str) -> Kind:
    group, _, version = api_version.rpartition("/")
    kind = KINDS.find(group, version, plural)
    assert kind is not None
    return kind


def _object(kind: Kind, tree: Tree) -> Tree:
    metadata = {"name": "a", **({"namespace": "n"} if kind.namespaced else {})}
    whole = copy.deepcopy({"kind": kind.kind, "apiVersion": kind.api_version, **tree})
    whole["metadata"] = {**metadata, **whole.get("metadata", {})}
    assert clean(whole, kind) == Report()
    apply_defaults(whole, kind)
    return whole


def _problems(api_version: str, plural: str, tree: Tree, old: Tree | None = None) -> list[tuple[str, str]]:
    kind = _kind(api_version, plural)
    before = None if old is None else _object(kind, old)
    return [(c.field, c.message) for c in validate(kind, _object(kind, tree), before)]


def _fields(api_version: str, plural: str, tree: Tree, old: Tree | None = None) -> list[str]:
    return [field for field, _ in _problems(api_version, plural, tree, old)]


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
            "volumeClaimTemplates": [{"metadata": {"name": "d"}, "spec": {}}],
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
def test_what_is_in_order_is_accepted_again_and_again(api_version: str, plural: str, tree: Tree) -> None:
    assert _problems(api_version, plural, tree) == []
    assert _problems(api_version, plural, tree, tree) == []


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
        ({"ownerReferences": [{**OWNER, "uid": ""}]}, ["metadata.ownerReferences[0].uid"]),
        ({"ownerReferences": [{**OWNER, "kind": "Event"}]}, ["metadata.ownerReferences[0]"]),
    ],
)
def test_metadata(metadata: Tree, fields: list[str]) -> None:
    assert _fields("v1", "configmaps", {"metadata": metadata}) == fields


@pytest.mark.parametrize(
    ("api_version", "plural", "name", "good"),
    [
        ("v1", "services", "a-1", True),
        ("v1", "services", "1a", False),
        ("v1", "services", "a.b", False),
        ("v1", "namespaces", "1a", True),
        ("v1", "namespaces", "a.b", False),
        ("v1", "namespaces", "a" * 64, False),
        ("rbac.authorization.k8s.io/v1", "clusterroles", "System:Any thing", True),
        ("rbac.authorization.k8s.io/v1", "clusterroles", "a/b", False),
        ("rbac.authorization.k8s.io/v1", "clusterroles", "..", False),
    ],
)
def test_names_by_kind(api_version: str, plural: str, name: str, good: bool) -> None:
    fields = _fields(
        api_version,
        plural,
        {"metadata": {"name": name}, "spec": {"clusterIP": "None"}}
        if plural == "services"
        else {"metadata": {"name": name}},
    )
    assert ("metadata.name" not in fields) is good


def test_a_cluster_wide_object_has_no_namespace() -> None:
    assert _problems("v1", "namespaces", {"metadata": {"namespace": "x"}}) == [
        ("metadata.namespace", "Forbidden: not allowed on this type")
    ]


@pytest.mark.parametrize("field", ["name", "namespace", "uid", "creationTimestamp", "deletionTimestamp"])
def test_identity_never_changes(field: str) -> None:
    time = "2024-01-01T00:00:0{}Z"
    old = {
        "name": "a",
        "namespace": "n",
        "uid": "u",
        "creationTimestamp": time.format(1),
        "deletionTimestamp": time.format(1),
    }
    new = {**old, field: time.format(2) if "Timestamp" in field else "other"}
    problems = _problems("v1", "configmaps", {"metadata": new}, {"metadata": old})
    assert problems == [(f"metadata.{field}", f'Invalid value: "{new[field]}": field is immutable')]


def test_an_object_that_goes_gets_no_new_finalizer() -> None:
    old = {"deletionTimestamp": "2024-01-01T00:00:00Z", "finalizers": ["a.io/x", "b.io/y"]}
    fewer = {**old, "finalizers": ["b.io/y"]}
    assert _problems("v1", "configmaps", {"metadata": fewer}, {"metadata": old}) == []
    more = {**old, "finalizers": ["b.io/y", "c.io/z"]}
    assert _fields("v1", "configmaps", {"metadata": more}, {"metadata": old}) == ["metadata.finalizers"]


def test_the_words_clients_know() -> None:
    pod = {
        "metadata": {"name": "Bad"},
        "spec": {"containers": [{"name": "c"}, {**C, "imagePullPolicy": "Sometimes"}], "restartPolicy": "Maybe"},
    }
    problems = dict(_problems("v1", "pods", pod))
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


def test_every_problem_has_the_reason_of_its_words() -> None:
    kind = _kind("v1", "pods")
    pod = _object(kind, {"metadata": {"name": "A"}, "spec": {"containers": [{"name": "c"}], "restartPolicy": "x"}})
    reasons = {c.field: c.reason for c in validate(kind, pod, None)}
    assert reasons == {
        "metadata.name": "FieldValueInvalid",
        "spec.containers[0].image": "FieldValueRequired",
        "spec.restartPolicy": "FieldValueNotSupported",
    }


@pytest.mark.parametrize(
    ("pod", "fields"),
    [
        ({}, ["spec.containers"]),
        ({"spec": {}}, ["spec.containers"]),
        ({"spec": {"containers": []}}, ["spec.containers"]),
        (_container(name="A"), ["spec.containers[0].name"]),
        (_pod(initContainers=[C]), ["spec.initContainers[0].name"]),
        (_container(image=" i"), ["spec.containers[0].image"]),
        (_container(ports=[{"containerPort": 0}]), ["spec.containers[0].ports[0].containerPort"]),
        (_container(ports=[{"containerPort": 65536}]), ["spec.containers[0].ports[0].containerPort"]),
        (_container(ports=[{"containerPort": 1, "hostPort": 70000}]), ["spec.containers[0].ports[0].hostPort"]),
        (_container(ports=[{"containerPort": 1, "name": "123"}]), ["spec.containers[0].ports[0].name"]),
        (_container(ports=[{"containerPort": 1, "name": "a"}, {"containerPort": 2, "name": "a"}]),
         ["spec.containers[0].ports[1].name"]),
        (_container(ports=[{"containerPort": 1, "protocol": "ICMP"}]), ["spec.containers[0].ports[0].protocol"]),
        (_container(env=[{"name": "A=B"}]), ["spec.containers[0].env[0].name"]),
        (_container(env=[{"value": "x"}]), ["spec.containers[0].env[0].name"]),
        (_container(env=[{"name": "A", "valueFrom": {}}]), ["spec.containers[0].env[0].valueFrom"]),
        (_container(volumeMounts=[{"name": "v", "mountPath": "/"}]), ["spec.containers[0].volumeMounts[0].name"]),
        (_container(livenessProbe={}), ["spec.containers[0].livenessProbe"]),
        (_container(livenessProbe={"exec": RUN, "httpGet": {"port": 1}}), ["spec.containers[0].livenessProbe.httpGet"]),
        (_container(livenessProbe={"tcpSocket": {"port": 0}}), ["spec.containers[0].livenessProbe.tcpSocket.port"]),
        (_container(livenessProbe={"exec": RUN, "periodSeconds": -1}),
         ["spec.containers[0].livenessProbe.periodSeconds"]),
        (_pod(volumes=[{"name": "v", "emptyDir": {}, "hostPath": {"path": "/"}}]), ["spec.volumes[0].hostPath"]),
        (_pod(volumes=[{"name": "v"}, {"name": "v"}]), ["spec.volumes[1].name"]),
        (_pod(terminationGracePeriodSeconds=-1), ["spec.terminationGracePeriodSeconds"]),
        (_pod(activeDeadlineSeconds=0), ["spec.activeDeadlineSeconds"]),
        (_pod(nodeSelector={"a b": "c"}), ["spec.nodeSelector"]),
        (_pod(hostname="a.b"), ["spec.hostname"]),
        (_pod(ephemeralContainers=[{"name": "e", "image": "i"}]), ["spec.ephemeralContainers"]),
        (_pod(tolerations=[{"key": "k", "operator": "Sometimes"}]), ["spec.tolerations[0].operator"]),
    ],
)  # fmt: skip
def test_pods(pod: Tree, fields: list[str]) -> None:
    assert _fields("v1", "pods", pod) == fields


@pytest.mark.parametrize(
    ("new", "old", "fields"),
    [
        (_container(image="other"), _pod(), []),
        (_container(command=["x"]), _pod(), ["spec"]),
        (_pod(nodeName="n"), _pod(), ["spec"]),
        (_pod(nodeName="m"), _pod(nodeName="n"), ["spec"]),
        (_pod(tolerations=[{"key": "a"}]), _pod(), []),
        (_pod(), _pod(tolerations=[{"key": "a"}]), ["spec.tolerations"]),
        (_pod(activeDeadlineSeconds=5), _pod(), []),
        (_pod(activeDeadlineSeconds=5), _pod(activeDeadlineSeconds=4), ["spec.activeDeadlineSeconds"]),
        (_pod(), _pod(activeDeadlineSeconds=4), ["spec.activeDeadlineSeconds"]),
        (_pod(terminationGracePeriodSeconds=5), _pod(terminationGracePeriodSeconds=4), ["spec"]),
        (_pod(terminationGracePeriodSeconds=1), _pod(terminationGracePeriodSeconds=-4), []),
        (_pod(nodeSelector={"a": "b"}), _pod(), ["spec"]),
        (_pod(nodeSelector={"a": "b"}), _pod(schedulingGates=[{"name": "x"}]), []),
        (_pod(schedulingGates=[{"name": "x"}]), _pod(), ["spec.schedulingGates[0].name"]),
    ],
)
def test_what_of_a_pod_may_change(new: Tree, old: Tree, fields: list[str]) -> None:
    assert _fields("v1", "pods", new, old) == fields


def test_a_change_of_the_status_alone_is_held_to_the_schema_alone() -> None:
    pod = _pod(hostname="-")  # let in by other rules than those of today
    labelled = {**pod, "metadata": {"labels": {"a": "b"}}}
    assert _fields("v1", "pods", {**pod, "status": {"phase": "Running"}}, pod) == []
    assert _fields("v1", "pods", labelled, pod) == ["spec.hostname"]
    nameless = {"status": {"resources": {"claims": [{}]}}}
    assert _fields("v1", "pods", {**pod, **nameless}, pod) == ["status.resources.claims[0].name"]


def _workload(**spec: Any) -> Tree:
    return {"spec": {**WORKLOAD, **spec}}


def _template(**spec: Any) -> Tree:
    return {**TEMPLATE, "spec": {"containers": [C], **spec}}


@pytest.mark.parametrize(
    ("plural", "new", "old", "fields"),
    [
        ("deployments", {}, None, ["spec.template", "spec.selector"]),
        ("deployments", {"spec": {}}, None, ["spec.template", "spec.selector"]),
        ("deployments", _workload(replicas=-1), None, ["spec.replicas"]),
        ("deployments", _workload(selector={}), None, ["spec.selector"]),
        ("deployments", _workload(selector={"matchLabels": {"a": "x"}}), None, ["spec.template.metadata.labels"]),
        ("deployments", _workload(selector={"matchExpressions": [{"key": "a", "operator": "In"}]}), None,
         ["spec.selector.matchExpressions[0].values", "spec.template.metadata.labels"]),
        ("deployments", _workload(strategy={"type": "Recreate", "rollingUpdate": {"maxSurge": 1}}), None,
         ["spec.strategy.rollingUpdate"]),
        ("deployments", _workload(strategy={"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 0}}), None,
         ["spec.strategy.rollingUpdate.maxUnavailable"]),
        ("deployments", _workload(strategy={"rollingUpdate": {"maxSurge": "25"}}), None,
         ["spec.strategy.rollingUpdate.maxSurge"]),
        ("deployments", _workload(strategy={"type": "Slow"}), None, ["spec.strategy.type"]),
        ("deployments", _workload(template=_template(restartPolicy="Never")), None,
         ["spec.template.spec.restartPolicy"]),
        ("deployments", _workload(template=_template(containers=[{"name": "c"}])), None,
         ["spec.template.spec.containers[0].image"]),
        ("deployments", _workload(selector={"matchExpressions": [{"key": "a", "operator": "Exists"}]}), _workload(),
         ["spec.selector"]),
        ("replicasets", _workload(selector={"matchExpressions": [{"key": "a", "operator": "Exists"}]}), _workload(),
         ["spec.selector"]),
        ("statefulsets", _workload(replicas=3), _workload(), []),
        ("statefulsets", _workload(serviceName="x"), _workload(), ["spec"]),
        ("statefulsets", _workload(podManagementPolicy="Random"), None, ["spec.podManagementPolicy"]),
        ("daemonsets", _workload(updateStrategy={"type": "x"}), None, ["spec.updateStrategy.type"]),
    ],
)  # fmt: skip
def test_workloads(plural: str, new: Tree, old: Tree | None, fields: list[str]) -> None:
    assert _fields("apps/v1", plural, new, old) == fields


JOB_TEMPLATE = {"spec": {"containers": [C], "restartPolicy": "Never"}}


@pytest.mark.parametrize(
    ("api_version", "plural", "new", "old", "fields"),
    [
        ("batch/v1", "jobs", {"spec": {"template": TEMPLATE}}, None, ["spec.template.spec.restartPolicy"]),
        ("batch/v1", "jobs", {"spec": {"template": JOB_TEMPLATE, "backoffLimit": -1}}, None, ["spec.backoffLimit"]),
        ("batch/v1", "jobs", {"spec": {"template": JOB_TEMPLATE, "completionMode": "Indexed", "parallelism": 1}}, None,
         ["spec.completions"]),
        ("batch/v1", "jobs", {"spec": {"template": JOB_TEMPLATE, "completions": 2}},
         {"spec": {"template": JOB_TEMPLATE, "completions": 3}}, ["spec.completions"]),
        ("batch/v1", "jobs", {"spec": {"template": JOB_TEMPLATE, "parallelism": 2, "completions": 3}},
         {"spec": {"template": JOB_TEMPLATE, "completions": 3}}, []),
        ("batch/v1", "cronjobs", {"spec": {"schedule": "* * *", "jobTemplate": {"spec": {"template": JOB_TEMPLATE}}}},
         None, ["spec.schedule"]),
        ("batch/v1", "cronjobs", {"metadata": {"name": "a" * 53}, "spec": {
            "schedule": "*/5 * * * *", "jobTemplate": {"spec": {"template": JOB_TEMPLATE}}}}, None, ["metadata.name"]),
        ("v1", "replicationcontrollers", {"spec": {"selector": {"a": "c"}, "template": TEMPLATE}}, None,
         ["spec.template.metadata.labels"]),
        ("autoscaling/v2", "horizontalpodautoscalers",
         {"spec": {"scaleTargetRef": {"kind": "X", "name": "y"}, "minReplicas": 3, "maxReplicas": 2}}, None,
         ["spec.maxReplicas"]),
        ("autoscaling/v1", "horizontalpodautoscalers", {"spec": {"scaleTargetRef": {"kind": "X", "name": "y"}}}, None,
         ["spec.maxReplicas"]),
        ("policy/v1", "poddisruptionbudgets", {"spec": {"minAvailable": 1, "maxUnavailable": "50%"}}, None, ["spec"]),
        ("v1", "services", {"spec": {}}, None, ["spec.ports"]),
        ("v1", "services", {"spec": {"ports": [{"port": 80}, {"port": 81}]}}, None,
         ["spec.ports[0].name", "spec.ports[1].name"]),
        ("v1", "services", {"spec": {"ports": [{"port": 1, "name": "a"}, {"port": 2, "name": "a"}]}}, None,
         ["spec.ports[1].name"]),
        ("v1", "services", {"spec": {"ports": [{"port": 1, "name": "a"}, {"port": 1, "name": "b"}]}}, None,
         ["spec.ports[1]"]),
        ("v1", "services", {"spec": {"ports": [{"port": 0, "targetPort": 1}]}}, None, ["spec.ports[0].port"]),
        ("v1", "services", {"spec": {"ports": [{"port": 1, "targetPort": "A"}]}}, None, ["spec.ports[0].targetPort"]),
        ("v1", "services", {"spec": {"type": "Magic", "ports": [{"port": 1}]}}, None, ["spec.type"]),
        ("v1", "services", {"spec": {"type": "ExternalName"}}, None, ["spec.externalName"]),
        ("v1", "services", {"spec": {"clusterIP": "10.0.0.1", "ports": [{"port": 1}]}},
         {"spec": {"clusterIP": "10.0.0.2", "ports": [{"port": 1}]}}, ["spec.clusterIPs[0]"]),
        ("v1", "services", {"spec": {"clusterIP": "10.0.0", "ports": [{"port": 1}]}}, None, ["spec.clusterIPs[0]"]),
        ("v1", "endpoints", {"subsets": [{"addresses": [{"ip": "x"}], "ports": [{"port": 0}]}]}, None,
         ["subsets[0].addresses[0].ip", "subsets[0].ports[0].port"]),
        ("v1", "endpoints", {"subsets": [{}]}, None, ["subsets[0]"]),
        ("discovery.k8s.io/v1", "endpointslices", {}, None, ["addressType"]),
        ("discovery.k8s.io/v1", "endpointslices", {"addressType": "IPv4", "endpoints": [{"addresses": ["a"]}]}, None,
         ["endpoints[0].addresses[0]"]),
        ("discovery.k8s.io/v1", "endpointslices", {"addressType": "IPv4"}, {"addressType": "IPv6"}, ["addressType"]),
        ("networking.k8s.io/v1", "ingresses", {"spec": {}}, None, ["spec"]),
        ("networking.k8s.io/v1", "ingresses", {"spec": {"rules": [{"http": {"paths": [
            {"path": "x", "pathType": "Prefix", "backend": {"service": {"name": "s"}}}]}}]}}, None,
         ["spec.rules[0].http.paths[0].backend.service.port", "spec.rules[0].http.paths[0].path"]),
        ("networking.k8s.io/v1", "networkpolicies", {"spec": {"ingress": [{"from": [{}]}]}}, None,
         ["spec.ingress[0].from[0]"]),
        ("v1", "configmaps", {"data": {"a b": "x"}}, None, ["data[a b]"]),
        ("v1", "configmaps", {"data": {"a": "x"}, "binaryData": {"a": "eA=="}}, None, ["data[a]"]),
        ("v1", "configmaps", {"data": {"a": "x" * 1024 * 1024, "b": "y"}}, None, [""]),
        ("v1", "configmaps", {"data": {"a": "2"}}, {"data": {"a": "1"}, "immutable": True}, ["immutable", "data"]),
        ("v1", "configmaps", {"metadata": {"labels": {"x": "y"}}, "immutable": True}, {"immutable": True}, []),
        ("v1", "secrets", {"type": "kubernetes.io/tls"}, None, ["data[tls.crt]", "data[tls.key]"]),
        ("v1", "secrets", {"type": "a"}, {"type": "b"}, ["type"]),
        ("v1", "persistentvolumeclaims", {"spec": {}}, None, ["spec.accessModes", "spec.resources[storage]"]),
        ("v1", "persistentvolumes", {"spec": {"accessModes": ["Often"], "capacity": {"storage": 1}}}, None,
         ["spec", "spec.accessModes[0]"]),
        ("coordination.k8s.io/v1", "leases", {"spec": {"leaseDurationSeconds": 0, "leaseTransitions": -1}}, None,
         ["spec.leaseDurationSeconds", "spec.leaseTransitions"]),
        ("rbac.authorization.k8s.io/v1", "roles", {"rules": [{"verbs": ["get"]}]}, None,
         ["rules[0].apiGroups", "rules[0].resources"]),
        ("rbac.authorization.k8s.io/v1", "rolebindings", {"roleRef": {"kind": "Role", "name": "b"}},
         {"roleRef": {"kind": "Role", "name": "c"}}, ["roleRef"]),
        ("rbac.authorization.k8s.io/v1", "rolebindings",
         {"roleRef": {"kind": "Role", "name": "b"}, "subjects": [{"kind": "ServiceAccount", "name": "x"}]}, None,
         ["subjects[0].namespace"]),
        ("scheduling.k8s.io/v1", "priorityclasses", {"value": 2_000_000_000}, None, ["value"]),
        ("scheduling.k8s.io/v1", "priorityclasses", {"value": 1}, {"value": 2}, ["value"]),
        ("storage.k8s.io/v1", "storageclasses", {"provisioner": "a"}, {"provisioner": "b"}, ["provisioner"]),
        ("v1", "nodes", {"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}] * 2}}, None, ["spec.taints[1]"]),
        ("v1", "events", {"involvedObject": {"namespace": "other"}}, None, ["involvedObject.namespace"]),
        ("events.k8s.io/v1", "events", {
            "regarding": HERE, "eventTime": "2024-01-01T00:00:00Z", "reason": "x" * 129, "type": "Normal",
            "action": "a", "reportingController": "c", "reportingInstance": "i"}, None,
         ["reason"]),
        ("events.k8s.io/v1", "events", {"regarding": HERE, "eventTime": "2024-01-01T00:00:00Z"}, None,
         ["reportingController", "reportingInstance", "action", "reason", "type"]),
        ("v1", "namespaces", {"spec": {"finalizers": ["odd"]}}, None, ["spec.finalizers[0]"]),
        ("apiextensions.k8s.io/v1", "customresourcedefinitions", {"spec": {
            "group": "x.io", "scope": "Everywhere", "names": {"plural": "foos", "kind": "Foo"},
            "versions": [{"name": "v1"}]}}, None,
         ["spec.versions[0].schema.openAPIV3Schema", "spec.versions", "metadata.name", "spec.scope"]),
    ],
)  # fmt: skip
def test_kinds(api_version: str, plural: str, new: Tree, old: Tree | None, fields: list[str]) -> None:
    assert _fields(api_version, plural, new, old) == fields


def test_what_a_recursive_schema_demands_is_found_on_every_way_through_it() -> None:
    schemas = Schemas({
        "a": {"type": "object", "fields": {"b": {"ref": "b"}, "leaf": {"ref": "leaf"}}},
        "b": {"type": "object", "fields": {"a": {"ref": "a"}}},
        "leaf": {"type": "object", "required": ["x"], "fields": {"x": {"type": "string"}}},
    })  # fmt: skip
    tree = {"b": {"a": {"b": {"a": {"leaf": {}}}}}}
    assert [cause.field for cause in check_schema(tree, schemas.node("a"))] == ["b.a.b.a.leaf.x"]
    assert [cause.field for cause in check_schema(tree["b"], schemas.node("b"))] == ["a.b.a.leaf.x"]


def test_required_below_a_status_is_never_demanded() -> None:
    assert _problems("v1", "pods", {**_pod(), "status": {"conditions": [{}], "containerStatuses": [{}]}}) == []


_leaf = st.sampled_from([None, 0, -1, 2**31 - 1, "", "x", "-", "1.2.3.4", "aGk=", "2024-01-01T00:00:00Z", "In", True])


@st.composite
def _fitting(draw: st.DrawFn) -> tuple[Kind, Tree]:
    """A random object that mostly fits its schema: what does not is dropped by the caller."""
    kind = draw(st.sampled_from(list(KINDS.all())))

    def grow(node: Any, depth: int) -> Any:
        if depth > 7:
            return None
        if node.type == "object" and node.values is not None:
            return {
                key: grow(node.values, depth + 1) for key in draw(st.lists(st.sampled_from(["a", "", "/"]), max_size=2))
            }
        if node.type == "object":
            names = sorted(node.fields)
            chosen = draw(st.lists(st.sampled_from(names), max_size=4, unique=True)) if names else []
            return {name: grow(node.fields[name], depth + 1) for name in (*chosen, *node.required)}
        if node.type == "array":
            return [grow(node.items, depth + 1) for _ in range(draw(st.integers(0, 2)))]
        return draw(_leaf)

    return kind, grow(kind.schema, 0)


@settings(max_examples=200, deadline=None)
@given(_fitting(), st.sampled_from([None, "", "status", "approval", "resize", "ephemeralcontainers"]))
def test_judging_whatever_fits_the_schema_never_fails(drawn: tuple[Kind, Tree], part: str | None) -> None:
    kind, tree = drawn
    if clean(tree, kind).wrong:
        return
    apply_defaults(tree, kind)
    tree.setdefault("metadata", {})
    kind.strategy.prepare_create(tree)
    before = copy.deepcopy(tree)
    causes = validate(kind, tree, None)
    assert all(cause.reason and cause.message for cause in causes)
    assert tree == before
    if part is not None:
        new = copy.deepcopy(tree)
        kind.strategy.prepare_update(new, tree)
        again = validate(kind, new, tree, part)
        assert tree == before
        assert part or causes or not again


@settings(max_examples=150, deadline=None)
@given(_fitting(), st.data(), st.sampled_from(["", "status", "approval", "resize", "ephemeralcontainers"]))
def test_judging_any_change_never_fails(drawn: tuple[Kind, Tree], data: st.DataObject, part: str) -> None:
    kind, old = drawn
    new = copy.deepcopy(old)
    for name in data.draw(st.lists(st.sampled_from(sorted(kind.schema.fields)), max_size=2)):
        new.pop(name, None)
    trees = [old, new]
    if any(clean(tree, kind).wrong for tree in trees):
        return
    for tree in trees:
        tree.setdefault("metadata", {})
    before = copy.deepcopy(trees)
    for one, other in (trees, trees[::-1]):
        assert all(cause.reason for cause in validate(kind, one, other, part))
    assert trees == before
