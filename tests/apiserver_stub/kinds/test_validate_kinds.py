"""Several violated rules of Pods, workloads and other kinds: which fields are reported."""

from typing import Any

import pytest

from controller_manager.common.api.tree import Tree

C: Tree = {"name": "c", "image": "i"}
RUN: Tree = {"command": ["true"]}
EMPTY = ["spec.selector", "spec.template.metadata.labels", "spec.template.spec.containers"]
HERE: Tree = {"namespace": "n"}
TEMPLATE: Tree = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [C]}}
WORKLOAD: Tree = {"selector": {"matchLabels": {"a": "b"}}, "template": TEMPLATE}


def _pod(**spec: Any) -> Tree:
    return {"spec": {"containers": [C], **spec}}


def _container(**more: Any) -> Tree:
    return {"spec": {"containers": [{**C, **more}]}}


TARGET = {"apiVersion": "g/v1", "kind": "X", "name": "y"}


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
        (_pod(volumes=[{"name": "v", "scaleIO": {"gateway": "g", "system": "s", "volumeName": "v"}}]), []),
        (_pod(volumes=[{"name": "v", "scaleIO": {"gateway": "g"}}]),
         ["spec.volumes[0].scaleIO.system", "spec.volumes[0].scaleIO.volumeName"]),
        (_pod(volumes=[{"name": "v"}, {"name": "v"}]), ["spec.volumes[1].name"]),
        (_pod(terminationGracePeriodSeconds=-1), []),
        (_pod(activeDeadlineSeconds=0), ["spec.activeDeadlineSeconds"]),
        (_pod(nodeSelector={"a b": "c"}), ["spec.nodeSelector"]),
        (_pod(hostname="a.b"), ["spec.hostname"]),
        (_pod(ephemeralContainers=[{"name": "e", "image": "i"}]), ["spec.ephemeralContainers"]),
        (_pod(tolerations=[{"key": "k", "operator": "Sometimes"}]), ["spec.tolerations[0].operator"]),
    ],
)  # fmt: skip
def test_pods_are_validated(validator: Any, pod: Tree, fields: list[str]) -> None:
    assert validator.fields("v1", "pods", pod) == fields


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
def test_pod_update_allows_only_mutable_fields(validator: Any, new: Tree, old: Tree, fields: list[str]) -> None:
    assert validator.fields("v1", "pods", new, old) == fields


def test_status_change_is_checked_against_schema_only(validator: Any) -> None:
    pod = _pod(hostname="-")  # accepted by earlier rules
    labelled = {**pod, "metadata": {"labels": {"a": "b"}}}
    assert validator.fields("v1", "pods", {**pod, "status": {"phase": "Running"}}, pod) == []
    assert validator.fields("v1", "pods", labelled, pod) == ["spec.hostname"]
    odd = {"status": {"ephemeralContainerStatuses": [{"name": "e", "image": "i", "imageID": "", "ready": True}]}}
    assert validator.fields("v1", "pods", {**pod, **odd}, pod) == []


def _workload(**spec: Any) -> Tree:
    return {"spec": {**WORKLOAD, **spec}}


def _template(**spec: Any) -> Tree:
    return {**TEMPLATE, "spec": {"containers": [C], **spec}}


@pytest.mark.parametrize(
    ("plural", "new", "old", "fields"),
    [
        ("deployments", {}, None, EMPTY),
        ("deployments", {"spec": {}}, None, EMPTY),
        ("deployments", _workload(replicas=-1), None, ["spec.replicas"]),
        ("deployments", _workload(selector={}), None, ["spec.selector"]),
        ("deployments", _workload(selector={"matchLabels": {"a": "x"}}), None, ["spec.template.metadata.labels"]),
        ("deployments", _workload(selector={"matchExpressions": [{"key": "a", "operator": "In"}]}), None,
         ["spec.selector.matchExpressions[0].values", "spec.selector"]),
        ("deployments", _workload(strategy={"type": "Recreate", "rollingUpdate": {"maxSurge": 1}}), None,
         ["spec.strategy.rollingUpdate"]),
        ("deployments", _workload(strategy={"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 0}}), None,
         ["spec.strategy.rollingUpdate.maxUnavailable"]),
        ("deployments", _workload(strategy={"rollingUpdate": {"maxSurge": "25"}}), None,
         ["spec.strategy.rollingUpdate.maxSurge"]),
        ("deployments", _workload(strategy={"type": "Slow"}), None, ["spec.strategy"]),
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
        ("daemonsets", _workload(updateStrategy={"type": "x"}), None, ["spec.updateStrategy"]),
    ],
)  # fmt: skip
def test_workloads_are_validated(validator: Any, plural: str, new: Tree, old: Tree | None, fields: list[str]) -> None:
    assert validator.fields("apps/v1", plural, new, old) == fields


JOB_TEMPLATE = {"spec": {"containers": [C], "restartPolicy": "Never"}}


def _job(**spec: Any) -> Tree:
    template = {**JOB_TEMPLATE, "metadata": TEMPLATE["metadata"]}
    return {"spec": {"selector": WORKLOAD["selector"], "template": template, **spec}}


@pytest.mark.parametrize(
    ("api_version", "plural", "new", "old", "fields"),
    [
        ("batch/v1", "jobs", {"spec": {"template": TEMPLATE}}, None, ["spec.template.spec.restartPolicy"]),
        ("batch/v1", "jobs", {"spec": {"template": JOB_TEMPLATE, "backoffLimit": -1}}, None, ["spec.backoffLimit"]),
        ("batch/v1", "jobs", {"spec": {"template": JOB_TEMPLATE, "completionMode": "Indexed", "parallelism": 1}}, None,
         ["spec.completions"]),
        ("batch/v1", "jobs", _job(completions=2), _job(completions=3), ["spec.completions"]),
        ("batch/v1", "jobs", _job(parallelism=2, completions=3), _job(completions=3), []),
        ("batch/v1", "cronjobs", {"spec": {"schedule": "* * *", "jobTemplate": {"spec": {"template": JOB_TEMPLATE}}}},
         None, ["spec.schedule"]),
        ("batch/v1", "cronjobs", {"metadata": {"name": "a" * 53}, "spec": {
            "schedule": "*/5 * * * *", "jobTemplate": {"spec": {"template": JOB_TEMPLATE}}}}, None, ["metadata.name"]),
        ("v1", "replicationcontrollers", {"spec": {"selector": {"a": "c"}, "template": TEMPLATE}}, None,
         ["spec.template.metadata.labels"]),
        ("autoscaling/v2", "horizontalpodautoscalers",
         {"spec": {"scaleTargetRef": TARGET, "minReplicas": 3, "maxReplicas": 2}}, None,
         ["spec.maxReplicas"]),
        ("autoscaling/v1", "horizontalpodautoscalers", {"spec": {"scaleTargetRef": TARGET}}, None,
         ["spec.maxReplicas", "spec.maxReplicas"]),
        ("policy/v1", "poddisruptionbudgets", {"spec": {"minAvailable": 1, "maxUnavailable": "50%"}}, None, ["spec"]),
        ("v1", "services", {"spec": {}}, None, ["spec.ports"]),
        ("v1", "services", {"spec": {"ports": [{"port": 80}, {"port": 81}]}}, None,
         ["spec.ports[0].name", "spec.ports[1].name"]),
        ("v1", "services", {"spec": {"ports": [{"port": 1, "name": "a"}, {"port": 2, "name": "a"}]}}, None,
         ["spec.ports[1].name"]),
        ("v1", "services", {"spec": {"ports": [{"port": 1, "name": "a"}, {"port": 1, "name": "b"}]}}, None,
         ["spec.ports[1]"]),
        ("v1", "services", {"spec": {"ports": [{"port": 0, "targetPort": 1}]}}, None, ["spec.ports[0].port"]),
        ("v1", "services", {"spec": {"ports": [{"port": 1, "targetPort": "A"}]}}, None,
         ["spec.ports[0].targetPort"] * 2),
        ("v1", "services", {"spec": {"type": "Magic", "ports": [{"port": 1}]}}, None, ["spec.type"]),
        ("v1", "services", {"spec": {"type": "ExternalName"}}, None, ["spec.externalName"]),
        ("v1", "services", {"spec": {"clusterIP": "10.0.0.1", "ports": [{"port": 1}]}},
         {"spec": {"clusterIP": "10.0.0.2", "ports": [{"port": 1}]}}, ["spec.clusterIPs[0]"]),
        ("v1", "services", {"spec": {"clusterIP": "10.0.0", "clusterIPs": ["10.0.0"], "ports": [{"port": 1}]}}, None,
         ["spec.clusterIPs[0]"]),
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
         ["spec.rules[0].http.paths[0].path", "spec.rules[0].http.paths[0].backend"]),
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
         ["spec.accessModes", "spec"]),
        ("coordination.k8s.io/v1", "leases", {"spec": {"leaseDurationSeconds": 0, "leaseTransitions": -1}}, None,
         ["spec.leaseDurationSeconds", "spec.leaseTransitions"]),
        ("rbac.authorization.k8s.io/v1", "roles", {"rules": [{"verbs": ["get"]}]}, None,
         ["rules[0].apiGroups", "rules[0].resources"]),
        ("rbac.authorization.k8s.io/v1", "rolebindings", {"roleRef": {"kind": "Role", "name": "b"}},
         {"roleRef": {"kind": "Role", "name": "c"}}, ["roleRef"]),
        ("rbac.authorization.k8s.io/v1", "rolebindings",
         {"roleRef": {"kind": "Role", "name": "b"}, "subjects": [{"kind": "ServiceAccount", "name": "x"}]}, None, []),
        ("scheduling.k8s.io/v1", "priorityclasses", {"value": 2_000_000_000}, None, ["value"]),
        ("scheduling.k8s.io/v1", "priorityclasses", {"value": 1}, {"value": 2}, ["value"]),
        ("storage.k8s.io/v1", "storageclasses", {"provisioner": "a"}, {"provisioner": "b"}, ["provisioner"]),
        ("v1", "nodes", {"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}] * 2}}, None, ["metadata.taints[1]"]),
        ("v1", "events", {"involvedObject": {"namespace": "other"}}, None, ["involvedObject.namespace"]),
        ("events.k8s.io/v1", "events", {
            "regarding": HERE, "eventTime": "2024-01-01T00:00:00.000000Z", "reason": "x" * 129, "type": "Normal",
            "action": "a", "reportingController": "c", "reportingInstance": "i"}, None,
         ["reason"]),
        ("events.k8s.io/v1", "events", {"regarding": HERE, "eventTime": "2024-01-01T00:00:00.000000Z"}, None,
         ["reportingController"] * 3 + ["reportingInstance", "action", "reason", "type"]),
        ("v1", "namespaces", {"spec": {"finalizers": ["odd"]}}, None, ["spec.finalizers"]),
    ],
)  # fmt: skip
def test_other_kinds_are_validated(
    validator: Any, api_version: str, plural: str, new: Tree, old: Tree | None, fields: list[str]
) -> None:
    assert validator.fields(api_version, plural, new, old) == fields
