"""The strategy of each kind, as rows; a kind without a row has the plain strategy with its status split off."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType

from apiserver_stub.kinds.certificate_request import REQUESTS, request_born, request_changed
from apiserver_stub.kinds.pod_life import pod_born, pod_changed, pod_patience, resized, with_ephemeral
from apiserver_stub.kinds.schema import Tree
from apiserver_stub.kinds.service_spec import service_born, service_changed
from apiserver_stub.kinds.strategy import METADATA, NO_PARTS, STATUS, Path, Strategy
from apiserver_stub.kinds.template_generation import daemon_set_born, daemon_set_changed
from apiserver_stub.kinds.trees import dicts, get_in, put_in

_FINALIZE: Mapping[str, tuple[Path, ...]] = MappingProxyType({
    "status": (("status",),), "finalize": (("spec", "finalizers"),),
})  # fmt: skip
_APPROVAL: Mapping[str, tuple[Path, ...]] = MappingProxyType({
    "status": (("status",),), "approval": (("status", "conditions"),),
})  # fmt: skip
_UID_LABELS = ("batch.kubernetes.io/controller-uid", "controller-uid")
_NAME_LABELS = ("batch.kubernetes.io/job-name", "job-name")


def strategy_of(name: str, subresources: Iterable[str]) -> Strategy:
    """The strategy of the kind called `plural.group`."""
    row = _ROWS.get(name)
    if row is None:
        parts = STATUS if "status" in subresources else NO_PARTS
        row = Strategy(parts, generation=name in _COUNTED, creates_on_update=name in _PUT_CREATES)
    return replace(
        row,
        kept=_KEPT.get(name, row.kept),
        unconditional_update=name not in _CONDITIONAL,
        shows_deleted=name in _SHOWN_WHEN_GONE,
        dependents=_DEPENDENTS.get(name, "Background"),
        lists_deleted=name not in _FLEETING,
        has_ttl=name in _FLEETING,
    )


def _namespace_born(namespace: Tree) -> None:
    namespace["status"] = {"phase": "Active"}
    held = get_in(namespace, ("spec", "finalizers")) or []
    put_in(namespace, ("spec", "finalizers"), held if "kubernetes" in held else [*held, "kubernetes"])


def _namespace_marked(namespace: Tree) -> None:
    put_in(namespace, ("status", "phase"), "Terminating")


def _volume_born(volume: Tree) -> None:
    volume["status"] = {"phase": "Pending", "lastPhaseTransitionTime": volume["metadata"].get("creationTimestamp")}


def _claim_born(claim: Tree) -> None:
    claim["status"] = {"phase": "Pending"}


def _node_changed(new: Tree, old: Tree, _part: str) -> None:
    # What was given to a node stays with it.
    for name in ("podCIDR", "podCIDRs", "providerID"):
        if get_in(new, ("spec", name)) is None:
            put_in(new, ("spec", name), get_in(old, ("spec", name)))


def _job_born(job: Tree) -> None:
    """Give the Pods of a job labels of their own and select by them, unless its owner does that by hand."""
    if get_in(job, ("spec", "manualSelector")) or not isinstance(get_in(job, ("spec", "template")), dict):
        return
    metadata = job["metadata"]
    uid, name = metadata.get("uid", ""), metadata.get("name", "")
    ours = {**dict.fromkeys(_UID_LABELS, uid), **dict.fromkeys(_NAME_LABELS, name)}
    labels = get_in(job, ("spec", "template", "metadata", "labels")) or {}
    put_in(job, ("spec", "template", "metadata", "labels"), {**labels, **ours})
    if metadata.get("labels", {}) == labels:  # it has none of its own, and so those of its Pods
        metadata["labels"] = {**labels, **ours}
    if get_in(job, ("spec", "selector")) is None:
        put_in(job, ("spec", "selector"), {"matchLabels": {_UID_LABELS[0]: uid}})


def _crd_born(definition: Tree) -> None:
    stored = [v.get("name") for _, v in dicts(get_in(definition, ("spec", "versions"))) if v.get("storage")]
    definition["status"] = {"storedVersions": stored}


# Kinds of whose metadata the writers of a status may change nothing, or not all.
_ALL_KEPT: Mapping[str, tuple[str, ...]] = MappingProxyType({"status": METADATA})
_KEPT: Mapping[str, Mapping[str, tuple[str, ...]]] = MappingProxyType({
    **dict.fromkeys((
        "apiservices.apiregistration.k8s.io", "customresourcedefinitions.apiextensions.k8s.io",
        "flowschemas.flowcontrol.apiserver.k8s.io", "prioritylevelconfigurations.flowcontrol.apiserver.k8s.io",
        "resourceclaims.resource.k8s.io", "servicecidrs.networking.k8s.io",
        "validatingadmissionpolicies.admissionregistration.k8s.io", "volumeattachments.storage.k8s.io",
    ), _ALL_KEPT),
    "deployments.apps": {"status": ("labels",)},
    "pods": {"status": ("ownerReferences",), "ephemeralcontainers": METADATA, "resize": METADATA},
})  # fmt: skip

_COUNTED = frozenset({
    "cronjobs.batch", "deployments.apps", "replicasets.apps", "statefulsets.apps",
    "replicationcontrollers", "podtemplates", "ingresses.networking.k8s.io", "ingressclasses.networking.k8s.io",
    "networkpolicies.networking.k8s.io", "poddisruptionbudgets.policy", "endpointslices.discovery.k8s.io",
    "flowschemas.flowcontrol.apiserver.k8s.io",
    "prioritylevelconfigurations.flowcontrol.apiserver.k8s.io", "priorityclasses.scheduling.k8s.io",
    "mutatingwebhookconfigurations.admissionregistration.k8s.io",
    "validatingwebhookconfigurations.admissionregistration.k8s.io",
    "mutatingadmissionpolicies.admissionregistration.k8s.io",
    "mutatingadmissionpolicybindings.admissionregistration.k8s.io",
    "validatingadmissionpolicies.admissionregistration.k8s.io",
    "validatingadmissionpolicybindings.admissionregistration.k8s.io",
    "deviceclasses.resource.k8s.io", "resourceslices.resource.k8s.io",
})  # fmt: skip

# Kinds whose updates must say which version they change.
_CONDITIONAL = frozenset({
    "apiservices.apiregistration.k8s.io", "csidrivers.storage.k8s.io", "csinodes.storage.k8s.io",
    "csistoragecapacities.storage.k8s.io", "customresourcedefinitions.apiextensions.k8s.io",
    "flowschemas.flowcontrol.apiserver.k8s.io", "leases.coordination.k8s.io", "poddisruptionbudgets.policy",
    "mutatingadmissionpolicies.admissionregistration.k8s.io",
    "mutatingadmissionpolicybindings.admissionregistration.k8s.io",
    "mutatingwebhookconfigurations.admissionregistration.k8s.io",
    "prioritylevelconfigurations.flowcontrol.apiserver.k8s.io", "runtimeclasses.node.k8s.io",
    "validatingadmissionpolicies.admissionregistration.k8s.io",
    "validatingadmissionpolicybindings.admissionregistration.k8s.io",
    "validatingwebhookconfigurations.admissionregistration.k8s.io", "volumeattachments.storage.k8s.io",
})  # fmt: skip

_PUT_CREATES = frozenset({
    "endpoints", "events", "events.events.k8s.io", "leases.coordination.k8s.io", "limitranges",
    "roles.rbac.authorization.k8s.io", "rolebindings.rbac.authorization.k8s.io",
    "clusterroles.rbac.authorization.k8s.io", "clusterrolebindings.rbac.authorization.k8s.io",
})  # fmt: skip

# What becomes of the dependents of an object whose deletion says nothing of them, where that is not the usual.
_DEPENDENTS: Mapping[str, str] = MappingProxyType({
    "jobs.batch": "Orphan", "replicationcontrollers": "Orphan", "events": "", "events.events.k8s.io": "",
})  # fmt: skip

_FLEETING = frozenset({"events", "events.events.k8s.io"})

_SHOWN_WHEN_GONE = frozenset({
    "pods", "podtemplates", "persistentvolumeclaims", "persistentvolumes", "resourcequotas", "services",
    "serviceaccounts", "deviceclasses.resource.k8s.io", "resourceclaims.resource.k8s.io",
    "resourceclaimtemplates.resource.k8s.io", "resourceslices.resource.k8s.io", "csidrivers.storage.k8s.io",
    "csinodes.storage.k8s.io", "storageclasses.storage.k8s.io", "volumeattachments.storage.k8s.io",
    "volumeattributesclasses.storage.k8s.io",
})  # fmt: skip

_ROWS: Mapping[str, Strategy] = MappingProxyType({
    "pods": Strategy(
        MappingProxyType({
            "status": (("status",),),
        }),
        MappingProxyType({"resize": resized, "ephemeralcontainers": with_ephemeral}), generation=True,
        born=pod_born, changed=pod_changed,
        patience=pod_patience,
    ),
    "namespaces": Strategy(
        _FINALIZE, born=_namespace_born, marked=_namespace_marked, finalizers=("spec", "finalizers"),
    ),
    "nodes": Strategy(STATUS, changed=_node_changed, born_with_status=True),
    "services": Strategy(STATUS, born=service_born, changed=service_changed, creates_on_update=True),
    "daemonsets.apps": Strategy(STATUS, generation=True, born=daemon_set_born, changed=daemon_set_changed),
    "persistentvolumes": Strategy(STATUS, born=_volume_born),
    "persistentvolumeclaims": Strategy(STATUS, born=_claim_born),
    "jobs.batch": Strategy(STATUS, generation=True, born=_job_born),
    REQUESTS: Strategy(_APPROVAL, born=request_born, changed=request_changed),
    "customresourcedefinitions.apiextensions.k8s.io": Strategy(STATUS, generation=True, born=_crd_born),
    "servicecidrs.networking.k8s.io": Strategy(STATUS, born_with_status=True),
})  # fmt: skip
