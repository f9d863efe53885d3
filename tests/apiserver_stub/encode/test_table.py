"""Tables: their structure, and the cells of every kind with a printer."""

from datetime import UTC, datetime
from typing import Any

import orjson
import pytest

from apiserver_stub.encode.table import Tabulator, check_include
from apiserver_stub.kinds.data import load
from apiserver_stub.kinds.printers import PRINTERS
from apiserver_stub.kinds.printers.cells import NAME, duration, labels, selector, shortened
from apiserver_stub.kinds.resource_info import DEFAULT_PRINTER
from controller_manager.common.api.errors import BadRequest

NOW = datetime(2026, 1, 12, 3, 4, 5, tzinfo=UTC)
BORN = "2026-01-10T00:04:05Z"  # two days and three hours before
RECENTLY = "2026-01-12T03:00:05Z"  # four minutes before


POD = PRINTERS["", "Pod"]


def _object(**members: Any) -> dict:
    metadata = {"name": "x", "creationTimestamp": BORN, **members.pop("metadata", {})}
    return {"metadata": metadata, **members}


def _cells(group: str, kind: str, tree: dict) -> list:
    found = orjson.loads(Tabulator(PRINTERS.get((group, kind), DEFAULT_PRINTER), NOW).one(orjson.dumps(tree)))
    assert len(found["columnDefinitions"]) == len(found["rows"][0]["cells"])
    return found["rows"][0]["cells"]


def _pod_spec(*names: str, **more: Any) -> dict:
    return {"containers": [{"name": n, "image": f"{n}:1"} for n in names], **more}


TEMPLATE = {"metadata": {"labels": {"b": "2", "a": "1"}}, "spec": _pod_spec("web", "log", nodeSelector={"disk": "ssd"})}
SELECTOR = {"matchLabels": {"b": "2"}, "matchExpressions": [{"key": "a", "operator": "In", "values": ["z", "y"]}]}
SELECTED = "a in (y,z),b=2"

KINDS: list[tuple[str, str, dict, list]] = [
    ("", "PodTemplate", {"template": TEMPLATE}, ["x", "web,log", "web:1,log:1", "a=1,b=2"]),
    ("", "ReplicationController",
     {"spec": {"replicas": 3, "selector": {"a": "1"}, "template": TEMPLATE},
      "status": {"replicas": 2, "readyReplicas": 1}},
     ["x", 3, 2, 1, "2d3h", "web,log", "web:1,log:1", "a=1"]),
    ("apps", "ReplicaSet",
     {"spec": {"replicas": 3, "selector": SELECTOR, "template": TEMPLATE}, "status": {"replicas": 2}},
     ["x", 3, 2, 0, "2d3h", "web,log", "web:1,log:1", SELECTED]),
    ("apps", "Deployment",
     {"spec": {"replicas": 3, "selector": SELECTOR, "template": TEMPLATE},
      "status": {"readyReplicas": 1, "updatedReplicas": 2, "availableReplicas": 1}},
     ["x", "1/3", 2, 1, "2d3h", "web,log", "web:1,log:1", SELECTED]),
    ("apps", "StatefulSet", {"spec": {"replicas": 3, "template": TEMPLATE}},
     ["x", "0/3", "2d3h", "web,log", "web:1,log:1"]),
    ("apps", "DaemonSet",
     {"spec": {"selector": SELECTOR, "template": TEMPLATE},
      "status": {"desiredNumberScheduled": 5, "currentNumberScheduled": 4, "numberReady": 3,
                 "updatedNumberScheduled": 2, "numberAvailable": 1}},
     ["x", 5, 4, 3, 2, 1, "disk=ssd", "2d3h", "web,log", "web:1,log:1", SELECTED]),
    ("apps", "ControllerRevision",
     {"revision": 4, "metadata": {"ownerReferences": [
         {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db", "controller": True}]}},
     ["x", "statefulset.apps/db", 4, "2d3h"]),
    ("apps", "ControllerRevision", {}, ["x", "<none>", 0, "2d3h"]),
    ("batch", "CronJob",
     {"spec": {"schedule": "* * * * *", "suspend": False, "jobTemplate": {"spec": {"template": TEMPLATE}}},
      "status": {"active": [{}], "lastScheduleTime": RECENTLY}},
     ["x", "* * * * *", "<none>", "False", 1, "4m", "2d3h", "web,log", "web:1,log:1", "<none>"]),
    ("batch", "CronJob", {"spec": {"schedule": "@daily", "timeZone": "Asia/Tokyo"}},
     ["x", "@daily", "Asia/Tokyo", "<unset>", 0, "<none>", "2d3h", "", "", "<none>"]),
    ("autoscaling", "Scale", {"spec": {"replicas": 3}, "status": {"replicas": 2}}, ["x", 3, 2, "2d3h"]),
    ("policy", "PodDisruptionBudget", {"spec": {"minAvailable": "50%"}, "status": {"disruptionsAllowed": 2}},
     ["x", "50%", "N/A", 2, "2d3h"]),
    ("policy", "PodDisruptionBudget", {"spec": {"maxUnavailable": 0}}, ["x", "N/A", "0", 0, "2d3h"]),
    ("", "Namespace", {"status": {"phase": "Active"}}, ["x", "Active", "2d3h"]),
    ("", "Node",
     {"metadata": {"labels": {"node-role.kubernetes.io/worker": "", "kubernetes.io/role": "master",
                              "node-role.kubernetes.io/": ""}},
      "spec": {"unschedulable": True},
      "status": {"conditions": [{"type": "Ready", "status": "True"}],
                 "nodeInfo": {"kubeletVersion": "v1.36.0", "osImage": "Linux", "kernelVersion": "6",
                              "containerRuntimeVersion": "containerd://2"},
                 "addresses": [{"type": "Hostname", "address": "h"}, {"type": "InternalIP", "address": "10.0.0.1"},
                               {"type": "ExternalIP", "address": "1.2.3.4"}]}},
     ["x", "Ready,SchedulingDisabled", "master,worker", "2d3h", "v1.36.0", "10.0.0.1", "1.2.3.4", "Linux", "6",
      "containerd://2"]),
    ("", "Node", {"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}},
     ["x", "NotReady", "<none>", "2d3h", "", "<none>", "<none>", "<unknown>", "<unknown>", "<unknown>"]),
    ("", "Node", {}, ["x", "Unknown", "<none>", "2d3h", "", "<none>", "<none>", "<unknown>", "<unknown>", "<unknown>"]),
    ("", "ConfigMap", {"data": {"a": "1", "b": "2"}, "binaryData": {"c": ""}}, ["x", 3, "2d3h"]),
    ("", "Secret", {"type": "Opaque", "data": {"a": ""}}, ["x", "Opaque", 1, "2d3h"]),
    ("", "ServiceAccount", {}, ["x", "2d3h"]),
    ("", "ResourceQuota",
     {"status": {"hard": {"requests.cpu": "2", "pods": "10", "limits.cpu": "4", "limits.memory": "1Gi"},
                 "used": {"pods": "3", "limits.cpu": "1"}}},
     ["x", "pods: 3/10, requests.cpu: 0/2", "limits.cpu: 1/4, limits.memory: 0/1Gi", "2d3h"]),
    ("", "ComponentStatus", {"conditions": [{"type": "Healthy", "status": "True", "message": "ok"}]},
     ["x", "Healthy", "ok", ""]),
    ("", "ComponentStatus", {"conditions": [{"type": "Healthy", "status": "False", "error": "down"}]},
     ["x", "Unhealthy", "", "down"]),
    ("", "ComponentStatus", {}, ["x", "Unknown", "", ""]),
    ("", "Event",
     {"involvedObject": {"kind": "Pod", "name": "web", "fieldPath": "spec.containers{a}"}, "type": "Normal",
      "reason": "Pulled", "message": " done\n", "source": {"component": "kubelet", "host": "n1"}, "count": 3,
      "firstTimestamp": BORN, "lastTimestamp": RECENTLY},
     ["4m", "Normal", "Pulled", "pod/web", "spec.containers{a}", "kubelet, n1", "done", "2d3h", 3, "x"]),
    ("", "Event",
     {"involvedObject": {"kind": "Node"}, "type": "Warning", "reason": "R", "reportingComponent": "c",
      "eventTime": "2026-01-12T03:00:05.000000Z"},
     ["4m", "Warning", "R", "node", "", "c", "", "4m", 1, "x"]),
    ("events.k8s.io", "Event",
     {"regarding": {"kind": "Pod", "name": "web"}, "type": "Normal", "reason": "R", "note": "n",
      "reportingController": "c", "reportingInstance": "i", "eventTime": BORN,
      "series": {"count": 7, "lastObservedTime": "2026-01-12T03:04:00.000000Z"}},
     ["5s", "Normal", "R", "pod/web", "", "c, i", "n", "2d3h", 7, "x"]),
    ("coordination.k8s.io", "Lease", {"spec": {"holderIdentity": "me"}}, ["x", "me", "2d3h"]),
    ("discovery.k8s.io", "EndpointSlice",
     {"addressType": "IPv4", "ports": [{"port": 80}, {"name": "any"}, {}],
      "endpoints": [{"addresses": ["10.0.0.1", "10.0.0.2"]}, {"addresses": ["10.0.0.3", "10.0.0.4"]}]},
     ["x", "IPv4", "80,any,*", "10.0.0.1,10.0.0.2,10.0.0.3 + 1 more...", "2d3h"]),
    ("discovery.k8s.io", "EndpointSlice", {"addressType": "IPv4"}, ["x", "IPv4", "<unset>", "<unset>", "2d3h"]),
    ("networking.k8s.io", "Ingress",
     {"spec": {"ingressClassName": "nginx", "rules": [{"host": f"{h}.example"} for h in "abcde"], "tls": [{}]},
      "status": {"loadBalancer": {"ingress": [{"ip": "9.9.9.9"}, {"hostname": "lb"}, {"ip": "9.9.9.9"}]}}},
     ["x", "nginx", "a.example,b.example,c.example + 2 more...", "9.9.9.9,lb", "80, 443", "2d3h"]),
    ("networking.k8s.io", "Ingress",
     {"spec": {"rules": [{"host": "a"}, {}, {"host": "b"}, {"host": "c"}]},
      "status": {"loadBalancer": {"ingress": [{"ip": f"9.9.9.{i}"} for i in (5, 3, 1, 4, 2)]}}},
     ["x", "<none>", "a,b,c", "9.9.9.1,9.9.9.2,9.9.9.3,9.9.9.4,9.9.9.5", "80", "2d3h"]),
    ("networking.k8s.io", "Ingress", {"spec": {"rules": [{"host": "a"}, {"host": "b"}, {"host": "c"}, {}]}},
     ["x", "<none>", "a,b,c + 1 more...", "", "80", "2d3h"]),
    ("networking.k8s.io", "Ingress", {"spec": {"rules": [{}]}}, ["x", "<none>", "*", "", "80", "2d3h"]),
    ("networking.k8s.io", "IngressClass",
     {"spec": {"controller": "c/d", "parameters": {"kind": "Par", "apiGroup": "g.io", "name": "p"}}},
     ["x", "c/d", "Par.g.io/p", "2d3h"]),
    ("networking.k8s.io", "IngressClass", {"spec": {"controller": "c/d"}}, ["x", "c/d", "<none>", "2d3h"]),
    ("networking.k8s.io", "NetworkPolicy", {"spec": {"podSelector": {"matchLabels": {"a": "1"}}}},
     ["x", "a=1", "2d3h"]),
    ("networking.k8s.io", "NetworkPolicy", {"spec": {"podSelector": {}}}, ["x", "<none>", "2d3h"]),
    ("networking.k8s.io", "ServiceCIDR", {"spec": {"cidrs": ["10.0.0.0/16", "fd00::/108"]}},
     ["x", "10.0.0.0/16,fd00::/108", "2d3h"]),
    ("networking.k8s.io", "IPAddress",
     {"spec": {"parentRef": {"resource": "services", "namespace": "default", "name": "web"}}},
     ["x", "services/default/web"]),
    ("", "PersistentVolume",
     {"spec": {"capacity": {"storage": "5Gi"}, "accessModes": ["ReadWriteMany", "ReadWriteOnce"],
               "persistentVolumeReclaimPolicy": "Retain", "claimRef": {"namespace": "ns", "name": "data"},
               "storageClassName": "fast", "volumeMode": "Filesystem"}, "status": {"phase": "Bound"}},
     ["x", "5Gi", "RWO,RWX", "Retain", "Bound", "ns/data", "fast", "<unset>", "", "2d3h", "Filesystem"]),
    ("", "PersistentVolume",
     {"metadata": {"deletionTimestamp": RECENTLY}, "spec": {}, "status": {"phase": "Bound", "reason": "r"}},
     ["x", "0", "", "", "Terminating", "", "", "<unset>", "r", "2d3h", "<unset>"]),
    ("", "PersistentVolumeClaim",
     {"spec": {"volumeName": "v", "storageClassName": "fast", "volumeMode": "Block"},
      "status": {"phase": "Bound", "capacity": {"storage": "5Gi"}, "accessModes": ["ReadWriteOncePod"]}},
     ["x", "Bound", "v", "5Gi", "RWOP", "fast", "<unset>", "2d3h", "Block"]),
    ("", "PersistentVolumeClaim",
     {"metadata": {"annotations": {"volume.beta.kubernetes.io/storage-class": "old"}},
      "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "new"}, "status": {"phase": "Pending"}},
     ["x", "Pending", "", "", "", "old", "<unset>", "2d3h", "<unset>"]),
    ("storage.k8s.io", "StorageClass",
     {"metadata": {"annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}, "provisioner": "p",
      "volumeBindingMode": "WaitForFirstConsumer", "allowVolumeExpansion": True},
     ["x (default)", "p", "Delete", "WaitForFirstConsumer", True, "2d3h"]),
    ("storage.k8s.io", "StorageClass", {"provisioner": "p", "reclaimPolicy": "Retain"},
     ["x", "p", "Retain", "Immediate", False, "2d3h"]),
    ("storage.k8s.io", "VolumeAttributesClass", {"driverName": "d"}, ["x", "d", "2d3h"]),
    ("storage.k8s.io", "VolumeAttributesClass",
     {"metadata": {"annotations": {"volumeattributesclass.alpha.kubernetes.io/is-default-class": "true"}},
      "driverName": "d"},
     ["x (default)", "d", "2d3h"]),
    ("storage.k8s.io", "VolumeAttachment",
     {"spec": {"attacher": "a", "source": {"persistentVolumeName": "pv"}, "nodeName": "n"},
      "status": {"attached": True}},
     ["x", "a", "pv", "n", True, "2d3h"]),
    ("storage.k8s.io", "CSIDriver",
     {"spec": {"attachRequired": False, "tokenRequests": [{"audience": "a"}, {"audience": "b"}],
               "volumeLifecycleModes": ["Persistent", "Ephemeral"]}},
     ["x", False, False, False, "a,b", False, "Persistent,Ephemeral", "2d3h"]),
    ("storage.k8s.io", "CSIDriver", {"spec": {}}, ["x", True, False, False, "<unset>", False, "<none>", "2d3h"]),
    ("storage.k8s.io", "CSINode", {"spec": {"drivers": [{}, {}]}}, ["x", 2, "2d3h"]),
    ("rbac.authorization.k8s.io", "RoleBinding",
     {"roleRef": {"kind": "Role", "name": "r"},
      "subjects": [{"kind": "User", "name": "u"}, {"kind": "Group", "name": "g"}, {"kind": "User", "name": "v"},
                   {"kind": "ServiceAccount", "name": "s", "namespace": "ns"}]},
     ["x", "Role/r", "2d3h", "u, v", "g", "ns/s"]),
    ("rbac.authorization.k8s.io", "ClusterRoleBinding", {"roleRef": {"kind": "ClusterRole", "name": "r"}},
     ["x", "ClusterRole/r", "2d3h", "", "", ""]),
    ("certificates.k8s.io", "CertificateSigningRequest",
     {"spec": {"signerName": "s", "username": "u", "expirationSeconds": 3600},
      "status": {"conditions": [{"type": "Approved"}], "certificate": "Zm9v"}},
     ["x", "2d3h", "s", "u", "60m", "Approved,Issued"]),
    ("certificates.k8s.io", "CertificateSigningRequest",
     {"spec": {"username": "u"},
      "status": {"conditions": [{"type": "Failed"}, {"type": "Approved"}, {"type": "Denied"}]}},
     ["x", "2d3h", "<none>", "u", "<none>", "Denied,Failed"]),
    ("certificates.k8s.io", "ClusterTrustBundle", {}, ["x", "<none>"]),
    ("certificates.k8s.io", "PodCertificateRequest",
     {"spec": {"podName": "p", "serviceAccountName": "sa", "nodeName": "n", "signerName": "good.com/x",
               "unverifiedUserAnnotations": {"example.com/b": "2", "example.com/a": "1"}},
      "status": {"conditions": [{"type": "Denied"}]}},
     ["x", "p", "sa", "n", "good.com/x", "Denied", "example.com/a=1,example.com/b=2"]),
    ("internal.apiserver.k8s.io", "StorageVersion",
     {"status": {"storageVersions": [{"apiServerID": name, "encodingVersion": "v1"} for name in "abcd"]}},
     ["x", "<unset>", "a=v1,b=v1,c=v1 + 1 more...", "2d3h"]),
    ("storagemigration.k8s.io", "StorageVersionMigration",
     {"spec": {"resource": {"group": "g.example", "resource": "foos"}},
      "status": {"conditions": [{"type": "Running", "status": "True"}, {"type": "Succeeded", "status": "True"}]}},
     ["x", "foos.g.example", "Succeeded"]),
    ("certificates.k8s.io", "CertificateSigningRequest", {}, ["x", "2d3h", "<none>", "", "<none>", "Pending"]),
    ("admissionregistration.k8s.io", "MutatingWebhookConfiguration", {"webhooks": [{}, {}]}, ["x", 2, "2d3h"]),
    ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration", {}, ["x", 0, "2d3h"]),
    ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy",
     {"spec": {"validations": [{}], "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"}}},
     ["x", 1, "v1/ConfigMap", "2d3h"]),
    ("admissionregistration.k8s.io", "MutatingAdmissionPolicy", {"spec": {"mutations": [{}, {}]}},
     ["x", 2, "<unset>", "2d3h"]),
    ("admissionregistration.k8s.io", "ValidatingAdmissionPolicyBinding",
     {"spec": {"policyName": "p", "paramRef": {"name": "n"}}}, ["x", "p", "*/n", "2d3h"]),
    ("admissionregistration.k8s.io", "ValidatingAdmissionPolicyBinding",
     {"spec": {"policyName": "p", "paramRef": {"selector": {"matchLabels": {"a": "1"}}}}}, ["x", "p", "a=1", "2d3h"]),
    ("admissionregistration.k8s.io", "MutatingAdmissionPolicyBinding", {"spec": {"policyName": "p"}},
     ["x", "p", "<unset>", "2d3h"]),
    ("scheduling.k8s.io", "PriorityClass", {"value": 10, "globalDefault": True, "preemptionPolicy": "Never"},
     ["x", 10, True, "2d3h", "Never"]),
    ("node.k8s.io", "RuntimeClass", {"handler": "runc"}, ["x", "runc", "2d3h"]),
    ("flowcontrol.apiserver.k8s.io", "FlowSchema",
     {"spec": {"priorityLevelConfiguration": {"name": "pl"}, "matchingPrecedence": 5,
               "distinguisherMethod": {"type": "ByUser"}},
      "status": {"conditions": [{"type": "Dangling", "status": "False"}]}},
     ["x", "pl", 5, "ByUser", "2d3h", "False"]),
    ("flowcontrol.apiserver.k8s.io", "FlowSchema", {}, ["x", "", 0, "<none>", "2d3h", "?"]),
    ("flowcontrol.apiserver.k8s.io", "PriorityLevelConfiguration",
     {"spec": {"type": "Limited", "limited": {"nominalConcurrencyShares": 30, "limitResponse": {
         "queuing": {"queues": 64, "handSize": 6, "queueLengthLimit": 50}}}}},
     ["x", "Limited", 30, 64, 6, 50, "2d3h"]),
    ("flowcontrol.apiserver.k8s.io", "PriorityLevelConfiguration", {"spec": {"type": "Exempt"}},
     ["x", "Exempt", "<none>", "<none>", "<none>", "<none>", "2d3h"]),
    ("apiregistration.k8s.io", "APIService", {"status": {"conditions": [{"type": "Available", "status": "True"}]}},
     ["x", "Local", "True", "2d3h"]),
    ("apiregistration.k8s.io", "APIService",
     {"spec": {"service": {"namespace": "ns", "name": "s"}},
      "status": {"conditions": [{"type": "Available", "status": "False", "reason": "Missing"}]}},
     ["x", "ns/s", "False (Missing)", "2d3h"]),
    ("apiregistration.k8s.io", "APIService", {}, ["x", "Local", "Unknown", "2d3h"]),
    ("resource.k8s.io", "DeviceClass", {}, ["x", "2d3h"]),
    ("resource.k8s.io", "ResourceClaimTemplate", {}, ["x", "2d3h"]),
    ("resource.k8s.io", "ResourceClaim", {}, ["x", "pending", "2d3h"]),
    ("resource.k8s.io", "ResourceClaim", {"status": {"allocation": {}, "reservedFor": [{}]}},
     ["x", "allocated,reserved", "2d3h"]),
    ("resource.k8s.io", "ResourceClaim", {"metadata": {"deletionTimestamp": RECENTLY}}, ["x", "deleted", "2d3h"]),
    ("resource.k8s.io", "DeviceTaintRule",
     {"spec": {"taint": {"key": "k", "value": "v", "effect": "NoExecute", "timeAdded": BORN}}},
     ["x", "k", "v", "NoExecute", "2d3h", "2d3h"]),
    ("resource.k8s.io", "ResourcePoolStatusRequest", {"spec": {"driver": "d"}},
     ["x", "d", "-", "-", "-", "-", "-", 0, "Pending", "<none>"]),
    ("resource.k8s.io", "ResourcePoolStatusRequest",
     {"spec": {"driver": "d"}, "status": {"poolCount": 0, "conditions": [{"type": "Failed", "status": "True"}]}},
     ["x", "d", "-", "-", "-", "-", "-", 0, "Failed", "<none>"]),
    ("resource.k8s.io", "ResourcePoolStatusRequest",
     {"spec": {"driver": "d"}, "status": {"poolCount": 3, "pools": [
         {"totalDevices": 4, "allocatedDevices": 1, "availableDevices": 3, "unavailableDevices": 0},
         {"validationError": "e"},
     ], "conditions": [{"type": "Complete", "status": "True", "lastTransitionTime": BORN}]}},
     ["x", "d", "4", "3", "1", "0", "1", 3, "Complete (2/3 pools)", "2d3h"]),
    ("resource.k8s.io", "ResourceSlice", {"spec": {"nodeName": "n", "driver": "d", "pool": {"name": "p"}}},
     ["x", "n", "d", "p", "2d3h"]),
    ("", "LimitRange", {}, ["x", BORN]),
    ("rbac.authorization.k8s.io", "ClusterRole", {}, ["x", BORN]),
    ("stable.example.com", "CronTab", {"spec": {"anything": 1}}, ["x", BORN]),
]  # fmt: skip


@pytest.mark.parametrize(("group", "kind", "members", "expected"), KINDS)
def test_cells_of_kinds(group: str, kind: str, members: dict, expected: list) -> None:
    assert _cells(group, kind, _object(**members)) == expected


def test_every_printer_is_tested() -> None:
    beside = {("", "Pod"), ("", "Service"), ("", "Endpoints"), ("batch", "Job")}
    beside.add(("autoscaling", "HorizontalPodAutoscaler"))
    assert {(group, kind) for group, kind, _, _ in KINDS} | beside >= PRINTERS.keys()


@pytest.mark.parametrize("kind", PRINTERS)
def test_minimal_object_fills_every_column(kind: tuple[str, str]) -> None:
    cells = _cells(*kind, {"metadata": {"name": "bare"}})
    assert len(cells) == len(PRINTERS[kind].columns)
    assert "bare" in cells


def test_every_column_table_is_used() -> None:
    read = {tuple(column[:4] for column in printer.columns) for printer in PRINTERS.values()}
    assert {tuple(map(tuple, table)) for table in load("columns.json").values()} <= read


def test_column_definitions() -> None:
    found = Tabulator(POD, NOW).head({})["columnDefinitions"]
    name = {"name": "Name", "type": "string", "format": "name", "description": NAME[-1], "priority": 0}
    assert (found[0], found[1]["description"]) == (name, "")
    wide = [c["name"] for c in found if c["priority"] == 1]
    assert wide == ["IP", "Node", "Nominated Node", "Readiness Gates"]
    default = Tabulator(DEFAULT_PRINTER, NOW).head({})["columnDefinitions"]
    assert [(c["name"], c["type"]) for c in default] == [("Name", "string"), ("Created At", "date")]


def test_rows_contain_the_requested_object() -> None:
    tree = {"kind": "Pod", "apiVersion": "v1", **_object(metadata={"labels": {"a": "1"}}), "spec": {}}
    partial = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": tree["metadata"]}
    for include, carried in {"": partial, "Metadata": partial, "Object": tree, "None": None}.items():
        check_include(include)
        row = orjson.loads(Tabulator(POD, NOW, include).row(orjson.dumps(tree)))
        assert row["object"] == carried
    with pytest.raises(BadRequest, match="includeObject"):
        check_include("Everything")


def test_table_has_metadata_of_list_or_object() -> None:
    tabulator = Tabulator(POD, NOW)
    head = tabulator.head({"resourceVersion": "9", "continue": "token"})
    assert (head["kind"], head["apiVersion"]) == ("Table", "meta.k8s.io/v1")
    assert head["metadata"] == {"resourceVersion": "9", "continue": "token"}
    one = orjson.loads(tabulator.one(orjson.dumps(_object(metadata={"resourceVersion": "7"}))))
    assert (one["metadata"], len(one["rows"])) == ({"resourceVersion": "7"}, 1)
    assert one["columnDefinitions"] == head["columnDefinitions"]
    assert tabulator.head({}, headed=False)["columnDefinitions"] is None


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "<invalid>"), (-1.5, "0s"), (0, "0s"), (5.9, "5s"), (119, "119s"), (120, "2m"), (192, "3m12s"),
        (600, "10m"), (3 * 3600 - 1, "179m"), (3 * 3600, "3h"), (4 * 3600 + 300, "4h5m"), (8 * 3600 + 300, "8h"),
        (48 * 3600 - 1, "47h"), (48 * 3600, "2d"), (51 * 3600, "2d3h"), (8 * 86400 + 7200, "8d"), (729 * 86400, "729d"),
        (730 * 86400, "2y"), (735 * 86400, "2y5d"), (9 * 365 * 86400 + 86400, "9y"),
    ],
)  # fmt: skip
def test_duration_text(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_missing_creation_time_is_unknown() -> None:
    assert _cells("", "ServiceAccount", {"metadata": {"name": "x"}}) == ["x", "<unknown>"]


def test_selector_text() -> None:
    expressions = [
        {"key": "d", "operator": "DoesNotExist"},
        {"key": "c", "operator": "Exists"},
        {"key": "b", "operator": "NotIn", "values": ["1"]},
    ]
    assert selector({"matchExpressions": expressions, "matchLabels": {"a": "1"}}) == "a=1,b notin (1),c,!d"
    assert selector(None) == selector({}) == "<none>"


def test_labels_are_sorted() -> None:
    assert (
        labels({"app": "web", "app.kubernetes.io/name": "x", "app-id": "1"})
        == "app-id=1,app.kubernetes.io/name=x,app=web"
    )
    assert labels(None) == labels({}) == "<none>"


def test_long_lists_are_shortened() -> None:
    assert shortened(["a", "b", "c"]) == "a,b,c"
    assert shortened(["a", "b", "c", "d", "e"]) == "a,b,c + 2 more..."
