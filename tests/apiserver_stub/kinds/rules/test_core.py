"""Rules of configuration, RBAC and cluster objects, each violated alone."""

from typing import Any

import pytest

I, R, N, F, D, L, M = "Invalid", "Required", "NotSupported", "Forbidden", "Duplicate", "TooLong", "TooMany"  # noqa: E741
CLAIM, VOLUME, QUOTA, LIMITS = "v1/PersistentVolumeClaim", "v1/PersistentVolume", "v1/ResourceQuota", "v1/LimitRange"
TARGET, DESCRIBED = "spec.scaleTargetRef", "spec.metrics[0].object.describedObject.apiVersion"
WRONG_VERSIONS = ("v1", "", "/v1", "a/b/c")
SCALER, BUDGET = "autoscaling/v2/HorizontalPodAutoscaler", "policy/v1/PodDisruptionBudget"
OWNER = {"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "1"}
OF_CPU = {
    "type": "Resource",
    "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}},
}
OF_A_QUEUE = {
    "type": "External",
    "external": {"metric": {"name": "length"}, "target": {"type": "Value", "value": "1"}},
}
RBAC, HOOKS = "rbac.authorization.k8s.io/v1", "admissionregistration.k8s.io/v1"
CSR = "certificates.k8s.io/v1/CertificateSigningRequest"
EVENT, FLOW, DEVICES = "events.k8s.io/v1/Event", "flowcontrol.apiserver.k8s.io/v1", "resource.k8s.io/v1"
SERVICE = "apiregistration.k8s.io/v1/APIService"


def measured(version: str) -> Any:
    """Return a metric of an autoscaler in a version."""
    service = {"kind": "Service", "name": "x", "apiVersion": version}
    target = {"type": "Value", "value": "1"}
    return {"type": "Object", "object": {"metric": {"name": "m"}, "target": target, "describedObject": service}}


@pytest.mark.parametrize(
    ("kind", "changes", "causes"),
    [
        ("v1/ConfigMap", {"data.a b": "x"}, [("data[a b]", I)]),
        ("v1/ConfigMap", {"data.\\.\\.a": "x"}, [("data[..a]", I)]),
        ("v1/ConfigMap", {"data.bin": "x"}, [("data[bin]", I)]),
        ("v1/ConfigMap", {"data.big": "x" * 1024 * 1024}, [("", L)]),
        ("v1/Secret", {"data": {}}, [("data[.dockerconfigjson]", R)]),
        ("v1/Secret", {"data.\\.dockerconfigjson": "eA=="}, [("data[.dockerconfigjson]", I)]),
        ("v1/Secret", {"type": "kubernetes.io/basic-auth"}, [("data[password]", R), ("data[username]", R)]),
        ("v1/Secret", {"type": "kubernetes.io/service-account-token"},
         [("metadata.annotations[kubernetes.io/service-account.name]", R)]),
        ("v1/ConfigMap", {"metadata.ownerReferences": [{"apiVersion": "a/b/c", "kind": "", "uid": "1"}]}, [
            ("metadata.ownerReferences.apiVersion", I), ("metadata.ownerReferences.kind", I),
            ("metadata.ownerReferences.name", I),
        ]),
        ("v1/ConfigMap", {"metadata.ownerReferences": [{**OWNER, "uid": one, "controller": True} for one in "abc"]},
         [("metadata.ownerReferences", I)]),
        ("v1/ConfigMap", {"metadata.ownerReferences": [{**OWNER, "kind": "Event"}]}, [("metadata.ownerReferences", I)]),
        ("v1/ConfigMap", {"metadata.finalizers": ["a b"]}, [("metadata.finalizers", I), ("metadata.finalizers[0]", I)]),
        ("v1/ConfigMap", {"metadata.finalizers": ["a.b/c", "abc"]}, [("metadata.finalizers[1]", I)]),
        ("v1/ConfigMap", {"metadata.finalizers": ["a/b/c"]}, [("metadata.finalizers", I)]),
        ("v1/Namespace", {"spec.finalizers": ["abc", "a b"]}, [("spec.finalizers", I)] * 3),
        ("v1/Namespace", {"metadata.name": "a.b"}, [("metadata.name", I)]),
        ("v1/Node", {"spec.taints.1.effect": "NoSchedule"}, [("metadata.taints[1]", D)]),
        ("v1/Node", {"spec.taints.0.value": "a b"}, [("metadata.taints[0].value", I)]),
        ("v1/Node", {"spec.podCIDRs.1": "10.2.0.0/24"}, [("spec.podCIDRs", I)]),
        ("v1/Node", {"spec.podCIDRs.1": "x"},
         [("spec.podCIDRs", "InternalError"), ("spec.podCIDRs", I), ("spec.podCIDRs[1]", I)]),
        (CLAIM, {"spec.accessModes": []}, [("spec.accessModes", R)]),
        (CLAIM, {"spec.accessModes": ["ReadWriteOncePod", "ReadOnlyMany"]}, [("spec.accessModes", F)]),
        (CLAIM, {"spec.accessModes": ["Often"]}, [("spec.accessModes", N)]),
        (CLAIM, {"spec.resources": {}}, [("spec.resources[storage]", R)]),
        (CLAIM, {"spec.resources.requests.storage": "0"}, [("spec.resources[storage]", I)]),
        (CLAIM, {"spec.dataSource.kind": "Bucket"}, [("spec.dataSource", I)]),
        (
            CLAIM,
            {"spec.dataSourceRef": {"kind": "", "name": "x"}},
            [("spec.dataSourceRef.kind", R), ("spec.dataSourceRef", I), ("spec", I)],
        ),
        (VOLUME, {"spec.capacity": {}}, [("spec.capacity", R)]),
        (VOLUME, {"spec.capacity.cpu": "1"}, [("spec.capacity", N)]),
        (VOLUME, {"spec.csi": "<gone>"}, [("spec", R)]),
        (VOLUME, {"spec.nfs": {"server": "s", "path": "/x"}}, [("spec.csi", F)]),
        (VOLUME, {"spec.csi": "<gone>", "spec.local": {"path": "/x"}}, [("spec.nodeAffinity", R)]),
        (VOLUME, {"spec.csi.nodePublishSecretRef.namespace": ""}, [("spec.csi.nodePublishSecretRef.namespace", R)]),
        ("storage.k8s.io/v1/StorageClass", {"provisioner": "a b"}, [("provisioner", I)]),
        ("storage.k8s.io/v1/StorageClass", {"allowedTopologies.0.matchLabelExpressions.0.values": ["a", "a"]},
         [("allowedTopologies[0].matchLabelExpressions[0].values[1]", D)]),
        ("storage.k8s.io/v1/VolumeAttributesClass", {"parameters": {}}, [("parameters", R)]),
        ("storage.k8s.io/v1/VolumeAttachment", {"spec.source": {}}, [("spec.source", R)]),
        ("storage.k8s.io/v1/CSIDriver", {"spec.tokenRequests.1.audience": "a"},
         [("spec.tokenRequests[1].audience", D)]),
        ("storage.k8s.io/v1/CSINode", {"spec.drivers.0.allocatable.count": -1},
         [("spec.drivers[0].allocatable.count", I)]),
        ("storage.k8s.io/v1/CSIStorageCapacity", {"capacity": "-1"}, [("capacity", I)]),
        (LIMITS, {"spec.limits.0.min.cpu": "2"},
         [(f"spec.limits[0].{side}[cpu]", I) for side in ("default", "defaultRequest", "maxLimitRequestRatio", "min")]),
        (LIMITS, {"spec.limits.0.type": "Pod"}, [("spec.limits[0].default", F), ("spec.limits[0].defaultRequest", F)]),
        *(("v1/Node", {"status.declaredFeatures": names}, causes) for names, causes in (
            (["A", "Bc/dE"], []),
            (["a b"], [("status.declaredFeatures[0]", I)]),
            (["A", "A"], [("status.declaredFeatures[1]", D)]),
            (["B", "A"], [("status.declaredFeatures[1]", I)]),
        )),
        (LIMITS, {"spec.limits.0.type": ""}, [("spec.limits[0].type", I)] * 2),
        (LIMITS, {"spec.limits.1.max": {"cpu": "1"}}, [("spec.limits[1].limits", R)]),
        (LIMITS, {"spec.limits.0.maxLimitRequestRatio.cpu": "500m"}, [("spec.limits[0].maxLimitRequestRatio[cpu]", I)]),
        (QUOTA, {"spec.hard.disk": "1"}, [("spec.hard[disk]", I)] * 2),
        (QUOTA, {"spec.hard.storage": "1"}, [("spec.hard[storage]", I)]),
        (QUOTA, {"spec.hard": {"": "1"}}, [("spec.hard[]", I)] * 3),
        (QUOTA, {"spec.hard.pods": "1500m"}, [("spec.hard[pods]", I)]),
        (QUOTA, {"spec.scopes": ["Terminating", "NotTerminating"]}, [("spec.scopes", I)]),
        (QUOTA, {"spec.scopeSelector.matchExpressions.0.values": []},
         [("spec.scopeSelector.matchExpressions.values", R)]),
        ("scheduling.k8s.io/v1/PriorityClass", {"value": 1_000_000_001}, [("value", F)]),
        ("scheduling.k8s.io/v1/PriorityClass", {"metadata.name": "system-mine"}, [("metadata.name", F)]),
        ("node.k8s.io/v1/RuntimeClass", {"handler": "A"}, [("handler", I)]),
        (SCALER, {"spec.maxReplicas": 0}, [("spec.maxReplicas", I), ("spec.maxReplicas", R)]),
        (SCALER, {"spec.minReplicas": 0, "spec.metrics": [OF_CPU]}, [("spec.metrics", F)]),
        (SCALER, {"spec.minReplicas": 0, "spec.metrics": [OF_A_QUEUE]}, []),
        (SCALER, {"spec.minReplicas": -1}, [("spec.minReplicas", I)]),
        (SCALER, {"spec.behavior.scaleUp.tolerance": "-1"}, [("spec.behavior.scaleUp.tolerance", I)]),
        (SCALER, {"spec.minReplicas": 5}, [("spec.maxReplicas", I)]),
        (SCALER, {"spec.metrics.0.type": "Pods"}, [("spec.metrics[0].pods", R)]),
        (SCALER, {"spec.metrics.0.resource.target.averageUtilization": 0},
         [("spec.metrics[0].resource.target.averageUtilization", I)]),
        (SCALER, {"spec.metrics.0.resource.target.averageValue": "1"},
         [("spec.metrics[0].resource.target.averageValue", F)]),
        (SCALER, {"spec.behavior.scaleUp.stabilizationWindowSeconds": 3601},
         [("spec.behavior.scaleUp.stabilizationWindowSeconds", I)]),
        (SCALER, {"spec.behavior.scaleUp.policies.0.periodSeconds": 1801},
         [("spec.behavior.scaleUp.policies[0].periodSeconds", I)]),
        *((SCALER, {f"{TARGET}.apiVersion": version}, [(f"{TARGET}.apiVersion", I)]) for version in WRONG_VERSIONS),
        (SCALER, {TARGET: {"kind": "ReplicationController", "name": "x", "apiVersion": "v1"}}, []),
        (SCALER, {TARGET: {"kind": "ReplicationController", "name": "x"}}, []),
        (SCALER, {"spec.metrics": [measured("v1")]}, []),
        (SCALER, {"spec.metrics": [measured("a/b/c")]}, [(DESCRIBED, I)]),
        ("autoscaling/v1/HorizontalPodAutoscaler", {"spec.targetCPUUtilizationPercentage": 0},
         [("spec.metrics[0].resource.target.averageUtilization", I)]),
        (BUDGET, {"spec.maxUnavailable": 1}, [("spec", I)]),
        (BUDGET, {"spec.minAvailable": "150%"}, [("spec.minAvailable", I)]),
        (f"{RBAC}/Role", {"rules.0.verbs": []}, [("rules[0].verbs", R)]),
        (f"{RBAC}/Role", {"rules.0.nonResourceURLs": ["/x"]}, [("rules[0].nonResourceURLs", I)] * 2),
        (f"{RBAC}/ClusterRole", {"rules.0.resources": ["pods"]}, [("rules[0].nonResourceURLs", I)]),
        (f"{RBAC}/ClusterRole", {"aggregationRule": {}}, [("aggregationRule.clusterRoleSelectors", R)]),
        (f"{RBAC}/RoleBinding", {"subjects.0.namespace": ""}, []),
        (f"{RBAC}/ClusterRoleBinding", {"subjects.0": {"kind": "ServiceAccount", "name": "a"}},
         [("subjects[0].namespace", R)]),
        (f"{RBAC}/RoleBinding", {"subjects.1.apiGroup": "x"}, [("subjects[1].apiGroup", N)]),
        (f"{RBAC}/RoleBinding", {"subjects.1.kind": "Robot"}, [("subjects[1].kind", N)]),
        (f"{RBAC}/ClusterRoleBinding", {"roleRef.kind": "Role"}, [("roleRef.kind", N)]),
        (CSR, {"spec.usages": []}, [("spec.usages", R)]),
        (CSR, {"spec.usages": ["mining", "any", "any"]}, [("spec.usages[0]", N), ("spec.usages[2]", D)]),
        (CSR, {"spec.signerName": "mine"}, [("spec.signerName", I)]),
        (CSR, {"spec.request": "eA=="}, [("spec.request", I)]),
        (CSR, {"spec.expirationSeconds": 599}, [("spec.expirationSeconds", I)]),
        ("coordination.k8s.io/v1/Lease", {"spec.leaseDurationSeconds": 0}, [("spec.leaseDurationSeconds", I)]),
        (SERVICE, {"metadata.name": "v1.other"}, [("metadata.name", I)]),
        (SERVICE, {"spec.groupPriorityMinimum": 0}, [("spec.groupPriorityMinimum", I)]),
        (SERVICE, {"spec.caBundle": "eA=="}, [("spec.insecureSkipTLSVerify", I)]),
        (f"{HOOKS}/ValidatingWebhookConfiguration", {"webhooks.0.name": "a.b"}, [("webhooks[0].name", I)]),
        (f"{HOOKS}/ValidatingWebhookConfiguration", {"webhooks.0.timeoutSeconds": 31},
         [("webhooks[0].timeoutSeconds", I)]),
        (f"{HOOKS}/ValidatingWebhookConfiguration", {"webhooks.0.clientConfig.url": "https://a"},
         [("webhooks[0].clientConfig", R)]),
        (f"{HOOKS}/ValidatingWebhookConfiguration", {"webhooks.0.admissionReviewVersions": ["v9"]},
         [("webhooks[0].admissionReviewVersions", I)]),
        (f"{HOOKS}/ValidatingWebhookConfiguration", {"webhooks.0.rules.0.operations": ["*", "CREATE"]},
         [("webhooks[0].rules[0].operations", I)]),
        (f"{HOOKS}/MutatingWebhookConfiguration", {"webhooks.0.clientConfig.url": "http://a"},
         [("webhooks[0].clientConfig.url", I)]),
        (f"{HOOKS}/ValidatingAdmissionPolicy", {"spec.validations": []},
         [("spec.validations", R), ("spec.auditAnnotations", R)]),
        (f"{HOOKS}/ValidatingAdmissionPolicy", {"spec.matchConstraints.resourceRules": []},
         [("spec.matchConstraints.resourceRules", R)]),
        (f"{HOOKS}/ValidatingAdmissionPolicyBinding", {"spec.validationActions": ["Deny", "Warn"]},
         [("spec.validationActions", I)]),
        (f"{HOOKS}/MutatingAdmissionPolicy", {"spec.mutations.0.jsonPatch": "<gone>"},
         [("spec.mutations[0].jsonPatch", R)]),
        (f"{FLOW}/FlowSchema", {"spec.rules.0.subjects": []}, [("spec.rules[0].subjects", R)]),
        (f"{FLOW}/FlowSchema", {"spec.rules.0.subjects.0.kind": "User"},
         [("spec.rules[0].subjects[0].group", F), ("spec.rules[0].subjects[0].user", R)]),
        (f"{FLOW}/PriorityLevelConfiguration", {"spec.limited.limitResponse.queuing.handSize": 9},
         [("spec.limited.limitResponse.queuing.handSize", I)]),
        (f"{DEVICES}/ResourceClaim", {"spec.devices.requests.0.exactly.count": -1},
         [("spec.devices.requests[0].exactly.count", I)]),
        (f"{DEVICES}/ResourceClaim", {"spec.devices.constraints.0.requests": ["b"]},
         [("spec.devices.constraints[0].requests[0]", I)]),
        (f"{DEVICES}/ResourceSlice", {"spec.nodeName": "<gone>"}, [("spec", R)]),
        (f"{DEVICES}/ResourceSlice", {"spec.devices": [{"name": f"d{i}"} for i in range(129)]}, [("spec.devices", M)]),
    ],
)  # fmt: skip
def test_violated_rules_are_reported(validator: Any, kind: str, changes: Any, causes: list[tuple[str, str]]) -> None:
    assert validator(kind, changes) == sorted(causes)


EVENT_FIELDS = ("action", "reason", "type", "reportingController", "reportingInstance")


@pytest.mark.parametrize(
    ("kind", "changes", "causes"),
    [
        (
            EVENT,
            dict.fromkeys(EVENT_FIELDS, ""),
            [
                ("reportingController", I),
                ("reportingController", I),
                *((name, I if name == "type" else R) for name in EVENT_FIELDS),
            ],
        ),
        (EVENT, {"action": "x" * 129, "reason": "x" * 129}, [("action", I), ("reason", I)]),
        (EVENT, {"reportingInstance": "x" * 129}, [("reportingInstance", I)]),
        (EVENT, {"action": "x" * 128, "note": "x" * 1024}, []),
        (EVENT, {"note": "x" * 1025}, [("message", I)]),
        (EVENT, {"reportingController": "a b"}, [("reportingController", I)]),
        (EVENT, {"type": "Odd"}, [("type", I)]),
        (EVENT, {"eventTime": "<gone>"}, [("eventTime", R)]),
        (EVENT, {"series.count": 1}, [("series.count", I)]),
        (EVENT, {"series.lastObservedTime": "<gone>"}, [("series.lastObservedTime", R)]),
        (EVENT, {"regarding.namespace": ""}, [("involvedObject.namespace", I)]),
        (EVENT, {"regarding.namespace": "", "metadata.namespace": "default"}, []),
        (EVENT, {"deprecatedCount": 1}, [("count", I)]),
        (EVENT, {"deprecatedFirstTimestamp": "2024-01-01T00:00:00Z"}, [("firstTimestamp", I)]),
        (EVENT, {"deprecatedLastTimestamp": "2024-01-01T00:00:00Z"}, [("lastTimestamp", I)]),
        (EVENT, {"deprecatedSource": {"component": "a"}}, [("source", I)]),
        ("v1/Event", {"involvedObject.namespace": "other"}, [("involvedObject.namespace", I)]),
        ("v1/Event", {"type": "Odd", "message": "x" * 5000}, []),
    ],
)
def test_event_rules(validator: Any, kind: str, changes: Any, causes: list[tuple[str, str]]) -> None:
    """API concepts, Event resource: fields of new events, and their limits."""
    assert validator(kind, changes) == sorted(causes)


def test_legacy_event_can_be_updated_in_new_group(validator: Any) -> None:
    older = {"deprecatedCount": 1, "deprecatedSource": {"component": "a"}}
    assert validator.change(EVENT, older, {"series.count": 3}) == []


@pytest.mark.parametrize(
    ("kind", "before", "after", "causes"),
    [
        ("v1/ConfigMap", {"immutable": True}, {"data.a": "b"}, [("data", F)]),
        ("v1/ConfigMap", {"immutable": True}, {"immutable": False}, [("immutable", F)]),
        ("v1/ConfigMap", {"immutable": True}, {"metadata.labels": {"a": "b"}}, []),
        ("v1/Secret", {}, {"type": "Opaque"}, [("type", I)]),
        ("v1/Node", {}, {"spec.podCIDRs": ["10.9.0.0/24"]}, [("spec.podCIDRs", F)]),
        ("v1/Node", {}, {"spec.providerID": "x://2"}, [("spec.providerID", F)]),
        ("v1/Node", {}, {"spec.unschedulable": True}, []),
        (CLAIM, {}, {"spec.storageClassName": "slow"}, [("spec", F)]),
        (CLAIM, {}, {"spec.volumeName": "pv"}, []),
        (CLAIM, {}, {"spec.resources.requests.storage": "2Gi"}, [("spec", F)]),
        (CLAIM, {"status.phase": "Bound"}, {"spec.resources.requests.storage": "2Gi"}, []),
        (CLAIM, {"status.phase": "Bound", "status.capacity": {"storage": "1Gi"}},
         {"spec.resources.requests.storage": "500Mi"}, [("spec.resources.requests.storage", F)]),
        (VOLUME, {}, {"spec.csi.volumeHandle": "other"}, [("spec.persistentvolumesource", F)]),
        (VOLUME, {}, {"spec.persistentVolumeReclaimPolicy": "Delete"}, []),
        (SCALER, {f"{TARGET}.apiVersion": "v1"}, {"spec.maxReplicas": 9}, []),
        (SCALER, {f"{TARGET}.apiVersion": "v1"}, {f"{TARGET}.kind": "Other"}, [(f"{TARGET}.apiVersion", I)]),
        (SCALER, {}, {"spec.metrics": [measured("a/b/c")]}, [(DESCRIBED, I)]),
        (SCALER, {"spec.metrics": [measured("a/b/c")]}, {"spec.maxReplicas": 9}, []),
        ("storage.k8s.io/v1/StorageClass", {}, {"parameters.type": "hdd"}, [("parameters", I)]),
        ("storage.k8s.io/v1/VolumeAttachment", {}, {"spec.nodeName": "other"}, [("spec", I)]),
        ("storage.k8s.io/v1/CSINode", {}, {"spec.drivers.0.nodeID": "other"}, [("spec.drivers", I)]),
        (QUOTA, {}, {"spec.scopes": []}, [("spec.scopes", I)]),
        ("scheduling.k8s.io/v1/PriorityClass", {}, {"value": 1}, [("value", F)]),
        ("node.k8s.io/v1/RuntimeClass", {}, {"handler": "kata"}, [("handler", I)]),
        (f"{RBAC}/RoleBinding", {}, {"roleRef.name": "x"}, [("roleRef", I)]),
        (f"{RBAC}/RoleBinding", {}, {"subjects": []}, []),
        (EVENT, {}, {"series.count": 3}, []),
        (EVENT, {}, {"note": "again"}, [("message", I)]),
        (f"{DEVICES}/ResourceClaim", {}, {"spec.devices.requests.0.name": "z"}, [("spec", I)]),
    ],
)  # fmt: skip
def test_invalid_changes_are_reported(
    validator: Any, kind: str, before: Any, after: Any, causes: list[tuple[str, str]]
) -> None:
    assert validator.change(kind, before, after) == causes


VERDICT = {"type": "Approved", "status": "True"}
GOOD = {"type": "X", "status": "True", "reason": "R", "lastTransitionTime": "2026-01-01T00:00:00Z"}
FLOWS = "flowcontrol.apiserver.k8s.io/v1"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("name", "x"), ("namespace", "x"), ("generateName", "x"), ("finalizers", ["a/b"]), ("generation", 2),
        ("uid", "x"), ("resourceVersion", "1"), ("creationTimestamp", "2026-01-01T00:00:00Z"),
        ("ownerReferences", [{"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "y"}]),
    ],
)  # fmt: skip
def test_claim_template_metadata_allows_labels_and_annotations(validator: Any, name: str, value: Any) -> None:
    good, here = {"labels": {"a": "b"}, "annotations": {"a": "b"}}, "spec.volumes[0].ephemeral.volumeClaimTemplate"
    size = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    volume = {
        "name": "scratch",
        "ephemeral": {"volumeClaimTemplate": {"metadata": {**good, name: value}, "spec": size}},
    }
    assert validator(f"{DEVICES}/ResourceClaimTemplate", {"spec.metadata": good}) == []
    assert validator(f"{DEVICES}/ResourceClaimTemplate", {"spec.metadata": {**good, name: value}}) == [
        (f"spec.metadata.{name}", F)
    ]
    found = validator("v1/Pod", {"spec.volumes.0": volume})
    assert [cause for cause in found if cause[0].startswith(here)] == [(f"{here}.metadata.{name}", F)]


@pytest.mark.parametrize(
    ("before", "after", "part", "causes"),
    [
        ([], [VERDICT], "approval", []),
        ([], [VERDICT], "status", [("status.conditions", F)]),
        ([VERDICT], [], "approval", [("status.conditions", F)]),
        ([], [VERDICT, {**VERDICT, "type": "Denied"}], "approval", [("status.conditions", I)]),
        ([], [VERDICT, VERDICT], "approval", [("status.conditions[1].type", D)]),
        ([], [{**VERDICT, "status": "False"}], "approval", [("status.conditions[0].status", N)]),
    ],
)
def test_signing_request_conditions_cannot_be_contradicted(
    validator: Any, before: Any, after: Any, part: str, causes: list[tuple[str, str]]
) -> None:
    assert validator.change(CSR, {"status.conditions": before}, {"status.conditions": after}, part) == causes


@pytest.mark.parametrize(
    ("kind", "status", "causes"),
    [
        ("v1/Node", {"allocatable": {"pods": "1.5"}}, [("status.allocatable.pods", I)]),
        ("v1/Node", {"addresses": [{"type": "a", "address": "b"}] * 2}, [("status.addresses[1]", D)]),
        ("v1/Namespace", {"phase": "Terminating"}, [("status.Phase", I)]),
        (QUOTA, {"used": {"pods": "-1"}}, [("status.used[pods]", I)]),
        (BUDGET, {"disruptionsAllowed": -1}, [("status.disruptionsAllowed", I)]),
        (BUDGET, {"conditions": [GOOD]}, []),
        (BUDGET, {"conditions": [{"type": "X", "status": "True"}]},
         [("status.conditions[0].lastTransitionTime", R), ("status.conditions[0].reason", R)]),
        (BUDGET, {"conditions": [{**GOOD, "status": "Maybe", "reason": "a b"}]},
         [("status.conditions[0].reason", I), ("status.conditions[0].status", N)]),
        (f"{FLOWS}/FlowSchema", {"conditions": [{"type": "", "status": "Maybe"}]},
         [("status.conditions[0].type", R)]),
        (f"{FLOWS}/PriorityLevelConfiguration", {"conditions": [{"type": ""}]}, [("status.conditions[0].type", R)]),
    ],
)  # fmt: skip
def test_invalid_statuses_are_reported(validator: Any, kind: str, status: Any, causes: list[tuple[str, str]]) -> None:
    assert validator.change(kind, {}, {"status": status}, "status") == causes
