"""Rows of cluster configuration: RBAC, certificates, admission, priorities, flow control, device resources."""

from typing import Any

from apiserver_stub.kinds.printers.cells import (
    AGE,
    NAME,
    NONE,
    UNSET,
    age,
    columns,
    condition,
    deleting,
    duration,
    labels,
    name,
    part,
    selector,
    shortened,
    since,
)
from apiserver_stub.kinds.resource_info import Column, Printer
from controller_manager.common.api.tree import Tree

_BINDING: tuple[Column, ...] = (NAME, ("PolicyName", "string", "", 0), ("ParamRef", "string", "", 0), AGE)
_APPROVALS = ("Denied", "Approved")
_ENDS = ("Complete", "Failed")
_DEVICES = ("totalDevices", "availableDevices", "allocatedDevices", "unavailableDevices")
_MIGRATION = ("Running", "Failed", "Succeeded")


def _role_binding(tree: Tree) -> list[Any]:
    """Return the cells of a RoleBinding or ClusterRoleBinding."""
    role = part(tree, "roleRef")
    return [
        name(tree),
        f"{role.get('kind', '')}/{role.get('name', '')}",
        age(tree),
        *(_subjects(tree, kind) for kind in ("User", "Group", "ServiceAccount")),
    ]


def _signing_request(tree: Tree) -> list[Any]:
    spec = part(tree, "spec")
    expiry = spec.get("expirationSeconds")
    return [
        name(tree),
        age(tree),
        spec.get("signerName") or NONE,
        spec.get("username", ""),
        NONE if expiry is None else duration(expiry),
        _signing_state(part(tree, "status")),
    ]


def _trust_bundle(tree: Tree) -> list[Any]:
    return [name(tree), part(tree, "spec").get("signerName") or NONE]


def _pod_certificate(tree: Tree) -> list[Any]:
    spec, outcomes = part(tree, "spec"), {c.get("type") for c in part(tree, "status").get("conditions") or ()}
    state = next((kind for kind in ("Issued", "Denied", "Failed") if kind in outcomes), "Pending")
    fields = (spec.get(field, "") for field in ("podName", "serviceAccountName", "nodeName", "signerName"))
    return [name(tree), *fields, state, labels(spec.get("unverifiedUserAnnotations"))]


def _storage_version(tree: Tree) -> list[Any]:
    status = part(tree, "status")
    entries = [
        f"{e.get('apiServerID', '')}={e.get('encodingVersion', '')}" for e in status.get("storageVersions") or ()
    ]
    return [name(tree), status.get("commonEncodingVersion", UNSET), shortened(entries), age(tree)]


def _migration(tree: Tree) -> list[Any]:
    resource = part(tree, "spec", "resource")
    resource_name = ".".join(filter(None, (resource.get("resource"), resource.get("group"))))
    true = [c.get("type") for c in part(tree, "status").get("conditions") or () if c.get("status") == "True"]
    return [name(tree), resource_name, next((kind for kind in reversed(true) if kind in _MIGRATION), "Unknown")]


def _webhooks(tree: Tree) -> list[Any]:
    return [name(tree), len(tree.get("webhooks", ())), age(tree)]


def _validating_policy(tree: Tree) -> list[Any]:
    return _policy(tree, "validations")


def _mutating_policy(tree: Tree) -> list[Any]:
    return _policy(tree, "mutations")


def _policy_binding(tree: Tree) -> list[Any]:
    spec = part(tree, "spec")
    reference = part(spec, "paramRef")
    param = UNSET
    if reference.get("name"):
        param = f"{reference.get('namespace') or '*'}/{reference['name']}"
    elif "selector" in reference:
        param = selector(reference["selector"])
    return [name(tree), spec.get("policyName", ""), param, age(tree)]


def _priority_class(tree: Tree) -> list[Any]:
    default, preemption = tree.get("globalDefault", False), tree.get("preemptionPolicy", "")
    return [name(tree), tree.get("value", 0), default, age(tree), preemption]


def _runtime_class(tree: Tree) -> list[Any]:
    return [name(tree), tree.get("handler", ""), age(tree)]


def _flow_schema(tree: Tree) -> list[Any]:
    spec = part(tree, "spec")
    return [
        name(tree),
        part(spec, "priorityLevelConfiguration").get("name", ""),
        spec.get("matchingPrecedence", 0),
        part(spec, "distinguisherMethod").get("type", NONE),
        age(tree),
        condition(tree, "Dangling") or "?",
    ]


def _priority_level(tree: Tree) -> list[Any]:
    spec = part(tree, "spec")
    queuing = part(spec, "limited", "limitResponse", "queuing")
    return [
        name(tree),
        spec.get("type", ""),
        part(spec, "limited").get("nominalConcurrencyShares", NONE),
        *(queuing.get(field, NONE) for field in ("queues", "handSize", "queueLengthLimit")),
        age(tree),
    ]


def _api_service(tree: Tree) -> list[Any]:
    service = part(tree, "spec", "service")
    backend = f"{service.get('namespace', '')}/{service.get('name', '')}" if service else "Local"
    available = condition(tree, "Available")
    reasons = [c.get("reason") for c in part(tree, "status").get("conditions", ()) if c.get("type") == "Available"]
    shown = f"{available} ({reasons[0]})" if available not in ("True", "") and reasons[0] else available or "Unknown"
    return [name(tree), backend, shown, age(tree)]


def _named(tree: Tree) -> list[Any]:
    return [name(tree), age(tree)]


def _resource_claim(tree: Tree) -> list[Any]:
    status = part(tree, "status")
    states = ["deleted"] if deleting(tree) else []
    if "allocation" in status:
        states += ["allocated", "reserved"] if status.get("reservedFor") else ["allocated"]
    elif not states:
        states = ["pending"]
    return [name(tree), ",".join(states), age(tree)]


def _resource_slice(tree: Tree) -> list[Any]:
    spec = part(tree, "spec")
    pool = part(spec, "pool").get("name", "")
    return [name(tree), spec.get("nodeName", ""), spec.get("driver", ""), pool, age(tree)]


def _subjects(tree: Tree, kind: str) -> str:
    found = [subject for subject in tree.get("subjects", ()) if subject.get("kind") == kind]
    if kind == "ServiceAccount":
        return ", ".join(f"{subject.get('namespace', '')}/{subject.get('name', '')}" for subject in found)
    return ", ".join(subject.get("name", "") for subject in found)


def _signing_state(status: Tree) -> str:
    types = {c.get("type") for c in status.get("conditions", ())}
    states = [next((state for state in _APPROVALS if state in types), "Pending")]
    states += ["Failed"] if "Failed" in types else []
    states += ["Issued"] if status.get("certificate") else []
    return ",".join(states)


def _taint_rule(tree: Tree) -> list[Any]:
    taint = part(tree, "spec", "taint")
    added = since(taint["timeAdded"]) if taint.get("timeAdded") else ""
    return [name(tree), taint.get("key", ""), taint.get("value", ""), taint.get("effect", ""), added, age(tree)]


def _pool_status(tree: Tree) -> list[Any]:
    status = part(tree, "status")
    ended: Tree = next(
        (c for c in status.get("conditions") or () if c.get("type") in _ENDS and c.get("status") == "True"), {}
    )
    pools, count, state = status.get("pools") or [], status.get("poolCount", 0), ended.get("type", "Pending")
    sums = ["-"] * 5
    if tree.get("status") is not None and state != "Failed":
        sums = [str(sum(pool.get(field) or 0 for pool in pools)) for field in _DEVICES]
        sums.append(str(sum("validationError" in pool for pool in pools)))
    completed = since(ended.get("lastTransitionTime")) if state == "Complete" else NONE
    if state == "Complete" and count > len(pools):
        state = f"Complete ({len(pools)}/{count} pools)"
    return [name(tree), part(tree, "spec").get("driver", ""), *sums, count, state, completed]


def _policy(tree: Tree, rules: str) -> list[Any]:
    spec = part(tree, "spec")
    param = part(spec, "paramKind")
    kind = f"{param.get('apiVersion', '')}/{param.get('kind', '')}" if param else UNSET
    return [name(tree), len(spec.get(rules, ())), kind, age(tree)]


def _policy_columns(rules: str) -> tuple[Column, ...]:
    return (NAME, (rules, "integer", "", 0), ("ParamKind", "string", "", 0), AGE)


PRINTERS = {
    ("admissionregistration.k8s.io", "MutatingAdmissionPolicy"): Printer(
        _policy_columns("Mutations"), _mutating_policy
    ),
    ("admissionregistration.k8s.io", "MutatingAdmissionPolicyBinding"): Printer(_BINDING, _policy_binding),
    ("admissionregistration.k8s.io", "MutatingWebhookConfiguration"): Printer(columns("mutatingWebhook"), _webhooks),
    ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy"): Printer(
        _policy_columns("Validations"), _validating_policy
    ),
    ("admissionregistration.k8s.io", "ValidatingAdmissionPolicyBinding"): Printer(_BINDING, _policy_binding),
    ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration"): Printer(
        columns("validatingWebhook"), _webhooks
    ),
    ("apiregistration.k8s.io", "APIService"): Printer(
        (NAME, ("Service", "string", "", 0), ("Available", "string", "", 0), AGE), _api_service
    ),
    ("certificates.k8s.io", "CertificateSigningRequest"): Printer(
        columns("certificateSigningRequest"), _signing_request
    ),
    ("certificates.k8s.io", "ClusterTrustBundle"): Printer(columns("clusterTrustBundle"), _trust_bundle),
    ("certificates.k8s.io", "PodCertificateRequest"): Printer(columns("podCertificateRequest"), _pod_certificate),
    ("flowcontrol.apiserver.k8s.io", "FlowSchema"): Printer(
        columns("flowSchema"), _flow_schema, order="spec.matchingPrecedence"
    ),
    ("flowcontrol.apiserver.k8s.io", "PriorityLevelConfiguration"): Printer(columns("priorityLevel"), _priority_level),
    ("internal.apiserver.k8s.io", "StorageVersion"): Printer(columns("storageVersion"), _storage_version),
    ("node.k8s.io", "RuntimeClass"): Printer(columns("runtimeClass"), _runtime_class),
    ("rbac.authorization.k8s.io", "ClusterRoleBinding"): Printer(columns("clusterRoleBindings"), _role_binding),
    ("rbac.authorization.k8s.io", "RoleBinding"): Printer(columns("roleBindings"), _role_binding),
    ("resource.k8s.io", "DeviceClass"): Printer(columns("deviceClass"), _named),
    ("resource.k8s.io", "ResourceClaim"): Printer(columns("resourceClaim"), _resource_claim),
    ("resource.k8s.io", "ResourceClaimTemplate"): Printer(columns("resourceClaimTemplate"), _named),
    ("resource.k8s.io", "DeviceTaintRule"): Printer(columns("deviceTaint"), _taint_rule),
    ("resource.k8s.io", "ResourcePoolStatusRequest"): Printer(columns("resourcePoolStatusRequest"), _pool_status),
    ("resource.k8s.io", "ResourceSlice"): Printer(columns("nodeResourceSlice"), _resource_slice),
    ("scheduling.k8s.io", "PriorityClass"): Printer(columns("priorityClass"), _priority_class),
    ("storagemigration.k8s.io", "StorageVersionMigration"): Printer(columns("storageVersionMigration"), _migration),
}
