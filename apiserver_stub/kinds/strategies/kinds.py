"""The strategies of the built-in kinds, one row each."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from apiserver_stub.kinds.strategies.api_services import RESOURCE, api_service_on_create
from apiserver_stub.kinds.strategies.certificate_requests import REQUESTS, request_on_create, request_on_update
from apiserver_stub.kinds.strategies.definitions import CLEANUP_FINALIZER, DELETION_PENDING, with_condition
from apiserver_stub.kinds.strategies.device_claims import device_claim_on_update
from apiserver_stub.kinds.strategies.jobs import label_job
from apiserver_stub.kinds.strategies.pods import pod_grace_period, pod_on_create, pod_on_update, resized, with_ephemeral
from apiserver_stub.kinds.strategies.services import service_on_create, service_on_update
from apiserver_stub.kinds.strategies.strategy import METADATA, NO_PARTS, STATUS, FieldNames, Strategy
from apiserver_stub.kinds.values.trees import dicts, get_in, put_in
from controller_manager.common.api.timestamps import format_time
from controller_manager.common.api.tree import Tree
from controller_manager.common.base.clock import utc_now
from controller_manager.common.base.random import random_source

_COUNT_ANNOTATION = "deprecated.daemonset.template.generation"
_COUNT = ("metadata", "annotations", _COUNT_ANNOTATION)
_TEMPLATE = ("spec", "template")


def _daemon_set_on_create(daemon_set: Tree) -> None:
    """Start the template generation at 1, unless the client sets one."""
    _put_count(daemon_set, max(_count_of(daemon_set), 1))


def _daemon_set_on_update(new: Tree, old: Tree, _part: str) -> None:
    """Increment the template generation when the template changes. Clients cannot set it."""
    changed = get_in(new, _TEMPLATE) != get_in(old, _TEMPLATE)
    _put_count(new, max(_count_of(old), 1) + changed)


def _count_of(daemon_set: Tree) -> int:
    text: Any = get_in(daemon_set, _COUNT) or ""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else 0


def _put_count(daemon_set: Tree, count: int) -> None:
    put_in(daemon_set, _COUNT, str(count))


_FINALIZE: Mapping[str, tuple[FieldNames, ...]] = MappingProxyType({
    "status": (("status",),), "finalize": (("spec", "finalizers"),),
})  # fmt: skip
_APPROVAL: Mapping[str, tuple[FieldNames, ...]] = MappingProxyType({
    "status": (("status",),), "approval": (("status", "conditions"),),
})  # fmt: skip
_PHASE_TIME = "lastPhaseTransitionTime"
_KEYS_OF_PODS = ("pkixPublicKey", "proofOfPossession", "stubPKCS10Request")
_OLD_SOURCES = frozenset({("PersistentVolumeClaim", ""), ("VolumeSnapshot", "snapshot.storage.k8s.io")})
_PLAIN, _PLAIN_WITH_STATUS = Strategy(), Strategy(STATUS)


def strategy_of(name: str, subresources: Iterable[str]) -> Strategy:
    """Return the strategy of the kind `plural.group`."""
    found = STRATEGIES.get(name, _PLAIN)
    if found.subresources is not NO_PARTS or "status" not in subresources:
        return found
    return _PLAIN_WITH_STATUS if found is _PLAIN else replace(found, subresources=STATUS)


def _namespace_on_create(namespace: Tree) -> None:
    namespace["status"] = {"phase": "Active"}
    held = get_in(namespace, ("spec", "finalizers")) or []
    put_in(namespace, ("spec", "finalizers"), held if "kubernetes" in held else [*held, "kubernetes"])


def _namespace_on_delete(namespace: Tree) -> None:
    put_in(namespace, ("status", "phase"), "Terminating")


def _limit_range_on_create(limits: Tree) -> None:
    """Generate a name for a LimitRange without one. Kubernetes does this for no other kind."""
    metadata = limits["metadata"]
    if not metadata.get("name"):
        metadata["name"] = random_source().uid()


def _account_on_create(account: Tree) -> None:
    """Keep only the names of the referenced secrets."""
    if secrets := account.get("secrets"):
        account["secrets"] = [{name: secret[name] for name in ("name",) if name in secret} for secret in secrets]


def _account_on_update(new: Tree, _old: Tree, _part: str) -> None:
    _account_on_create(new)


def _volume_on_create(volume: Tree) -> None:
    volume["status"] = {"phase": "Pending", _PHASE_TIME: volume["metadata"].get("creationTimestamp")}


def _volume_on_update(new: Tree, old: Tree, part: str) -> None:
    """Set the transition time when the phase changes, unless the client sets another time."""
    if part != "status":
        return
    status, before = new.setdefault("status", {}), old.get("status") or {}
    requested, known = status.get(_PHASE_TIME), before.get(_PHASE_TIME)
    if status.get("phase") != before.get("phase") and requested in (None, known):
        status[_PHASE_TIME] = format_time(utc_now())
    elif requested is None and known is not None:
        status[_PHASE_TIME] = known


def _claim_on_create(claim: Tree) -> None:
    claim["status"] = {"phase": "Pending"}
    _fill_from(claim.get("spec") or {}, {})


def _claim_on_update(new: Tree, old: Tree, part: str) -> None:
    if not part:
        _fill_from(new.get("spec") or {}, old.get("spec") or {})


def _fill_from(spec: Tree, old: Tree) -> None:
    """Synchronize `dataSource` and `dataSourceRef` of a claim (KEP-1495).

    Without `dataSourceRef`, a `dataSource` other than a claim or a snapshot is dropped, unless the old claim had a
    source. A reference to another namespace is not copied to `dataSource`, which cannot express it.
    """
    if "dataSourceRef" not in spec and old.keys().isdisjoint(("dataSource", "dataSourceRef")):
        source = spec.get("dataSource") or {}
        if (source.get("kind"), source.get("apiGroup") or "") not in _OLD_SOURCES:
            spec.pop("dataSource", None)
    if "dataSourceRef" not in spec and "dataSource" in spec:
        spec["dataSourceRef"] = dict(spec["dataSource"])
    elif "dataSource" not in spec and "dataSourceRef" in spec and not spec["dataSourceRef"].get("namespace"):
        spec["dataSource"] = dict(spec["dataSourceRef"])


def _pod_request_on_create(request: Tree) -> None:
    """Set absent key fields to null, as Kubernetes encodes them."""
    spec = request.get("spec")
    if isinstance(spec, dict):
        request["spec"] = {**dict.fromkeys(_KEYS_OF_PODS), **spec}


def _pod_request_on_update(new: Tree, _old: Tree, _part: str) -> None:
    _pod_request_on_create(new)


def _definition_on_create(definition: Tree) -> None:
    definition["status"] = {"conditions": None, "acceptedNames": {"plural": "", "kind": ""}}
    _definition_on_update(definition, {}, "")


def _definition_on_update(new: Tree, _old: Tree, _part: str) -> None:
    """Add the current storage version to `storedVersions`."""
    stored: list[str] = get_in(new, ("status", "storedVersions")) or []
    versions = (version for _, version in dicts(get_in(new, ("spec", "versions"))))
    current = next((version.get("name", "") for version in versions if version.get("storage")), None)
    if current is not None and current not in stored:
        put_in(new, ("status", "storedVersions"), [*stored, current])


def _definition_on_delete(definition: Tree) -> None:
    conditions = get_in(definition, ("status", "conditions")) or ()
    put_in(definition, ("status", "conditions"), with_condition(conditions, DELETION_PENDING))


def _without_status(tree: Tree) -> None:
    """Remove the status. An absent status differs from an empty one."""
    tree.pop("status", None)


def _taint_rule_on_update(new: Tree, old: Tree, _part: str) -> None:
    """Set `timeAdded` when the effect of the taint changes, unless the client changed the time too."""
    was, now = (get_in(rule, ("spec", "taint")) or {} for rule in (old, new))
    if was.get("effect") != now.get("effect") and was.get("timeAdded") == now.get("timeAdded"):
        put_in(new, ("spec", "taint", "timeAdded"), format_time(utc_now()))


# Writes of the status do not change the metadata.
_ALL_RESET: Mapping[str, tuple[str, ...]] = MappingProxyType({"status": METADATA})

# By `plural.group`. A kind without a row has the plain strategy. Only the status subresource writes the status.
STRATEGIES: Mapping[str, Strategy] = MappingProxyType({
    RESOURCE: Strategy(
        reset_fields=_ALL_RESET, on_create=api_service_on_create, unconditional_update=False,
    ),
    REQUESTS: Strategy(_APPROVAL, on_create=request_on_create, on_update=request_on_update),
    "clustertrustbundles.certificates.k8s.io": Strategy(unconditional_update=False),
    "clusterrolebindings.rbac.authorization.k8s.io": Strategy(creates_on_update=True),
    "clusterroles.rbac.authorization.k8s.io": Strategy(creates_on_update=True),
    "cronjobs.batch": Strategy(generation=True),
    "csidrivers.storage.k8s.io": Strategy(
        generation=True, first_generation=0, unconditional_update=False, shows_deleted=True,
    ),
    "csinodes.storage.k8s.io": Strategy(unconditional_update=False, shows_deleted=True),
    "csistoragecapacities.storage.k8s.io": Strategy(unconditional_update=False),
    "customresourcedefinitions.apiextensions.k8s.io": Strategy(
        generation=True, on_create=_definition_on_create, on_update=_definition_on_update,
        on_delete=_definition_on_delete, deletion_finalizer=CLEANUP_FINALIZER,
        unconditional_update=False,
    ),
    "daemonsets.apps": Strategy(
        generation=True, on_create=_daemon_set_on_create, on_update=_daemon_set_on_update,
    ),
    "deployments.apps": Strategy(
        generation=True, counted_metadata=frozenset({"annotations"}),
        reset_fields=MappingProxyType({"status": ("labels",)}),
    ),
    "deviceclasses.resource.k8s.io": Strategy(generation=True, shows_deleted=True),
    "devicetaintrules.resource.k8s.io": Strategy(
        generation=True, reset_fields=_ALL_RESET, on_update=_taint_rule_on_update, shows_deleted=True,
    ),
    "endpoints": Strategy(creates_on_update=True),
    "endpointslices.discovery.k8s.io": Strategy(generation=True, counted_metadata=frozenset({"labels"})),
    "events": Strategy(dependents="", creates_on_update=True, lists_deleted=False, has_ttl=True),
    "events.events.k8s.io": Strategy(dependents="", creates_on_update=True, lists_deleted=False, has_ttl=True),
    "flowschemas.flowcontrol.apiserver.k8s.io": Strategy(generation=True, reset_fields=_ALL_RESET),
    "ingressclasses.networking.k8s.io": Strategy(generation=True),
    "ingresses.networking.k8s.io": Strategy(generation=True),
    "jobs.batch": Strategy(generation=True, on_create=label_job, dependents="Orphan"),
    "leases.coordination.k8s.io": Strategy(creates_on_update=True, unconditional_update=False),
    "limitranges": Strategy(on_create=_limit_range_on_create, creates_on_update=True),
    "mutatingadmissionpolicies.admissionregistration.k8s.io": Strategy(generation=True, unconditional_update=False),
    "mutatingadmissionpolicybindings.admissionregistration.k8s.io": Strategy(
        generation=True, unconditional_update=False,
    ),
    "mutatingwebhookconfigurations.admissionregistration.k8s.io": Strategy(generation=True, unconditional_update=False),
    "namespaces": Strategy(
        _FINALIZE, on_create=_namespace_on_create, on_delete=_namespace_on_delete, finalizers=("spec", "finalizers"),
    ),
    "networkpolicies.networking.k8s.io": Strategy(generation=True),
    "nodes": Strategy(status_on_create=True),
    "persistentvolumeclaims": Strategy(
        on_create=_claim_on_create, on_update=_claim_on_update, shows_deleted=True,
    ),
    "persistentvolumes": Strategy(on_create=_volume_on_create, on_update=_volume_on_update, shows_deleted=True),
    "poddisruptionbudgets.policy": Strategy(generation=True, unconditional_update=False),
    "podcertificaterequests.certificates.k8s.io": Strategy(
        reset_fields=_ALL_RESET, on_create=_pod_request_on_create, on_update=_pod_request_on_update,
        unconditional_update=False,
    ),
    "pods": Strategy(
        shared=MappingProxyType({"resize": resized, "ephemeralcontainers": with_ephemeral}), generation=True,
        reset_fields=MappingProxyType({
            "status": ("ownerReferences",), "ephemeralcontainers": METADATA, "resize": METADATA,
        }),
        on_create=pod_on_create, on_update=pod_on_update, grace_period=pod_grace_period, shows_deleted=True,
    ),
    "podtemplates": Strategy(generation=True, shows_deleted=True),
    "priorityclasses.scheduling.k8s.io": Strategy(
        generation=True, uncounted=frozenset({"metadata", "description", "globalDefault", "preemptionPolicy", "value"}),
        undeletable=frozenset({"system-cluster-critical", "system-node-critical"}),
    ),
    "prioritylevelconfigurations.flowcontrol.apiserver.k8s.io": Strategy(generation=True, reset_fields=_ALL_RESET),
    "replicasets.apps": Strategy(generation=True),
    "replicationcontrollers": Strategy(generation=True, dependents="Orphan"),
    "resourceclaims.resource.k8s.io": Strategy(
        reset_fields=_ALL_RESET, on_update=device_claim_on_update, shows_deleted=True,
    ),
    "resourceclaimtemplates.resource.k8s.io": Strategy(shows_deleted=True),
    "resourcepoolstatusrequests.resource.k8s.io": Strategy(
        reset_fields=_ALL_RESET, on_create=_without_status, unconditional_update=False,
    ),
    "resourcequotas": Strategy(shows_deleted=True),
    "resourceslices.resource.k8s.io": Strategy(generation=True, shows_deleted=True),
    "rolebindings.rbac.authorization.k8s.io": Strategy(creates_on_update=True),
    "roles.rbac.authorization.k8s.io": Strategy(creates_on_update=True),
    "runtimeclasses.node.k8s.io": Strategy(creates_on_update=True, unconditional_update=False),
    "serviceaccounts": Strategy(on_create=_account_on_create, on_update=_account_on_update, shows_deleted=True),
    "servicecidrs.networking.k8s.io": Strategy(reset_fields=_ALL_RESET),
    "services": Strategy(
        on_create=service_on_create, on_update=service_on_update, creates_on_update=True, shows_deleted=True,
    ),
    "statefulsets.apps": Strategy(generation=True),
    "storageclasses.storage.k8s.io": Strategy(shows_deleted=True),
    "storageversionmigrations.storagemigration.k8s.io": Strategy(reset_fields=_ALL_RESET, unconditional_update=False),
    "storageversions.internal.apiserver.k8s.io": Strategy(reset_fields=_ALL_RESET, unconditional_update=False),
    "validatingadmissionpolicies.admissionregistration.k8s.io": Strategy(
        generation=True, reset_fields=_ALL_RESET, unconditional_update=False,
    ),
    "validatingadmissionpolicybindings.admissionregistration.k8s.io": Strategy(
        generation=True, unconditional_update=False,
    ),
    "validatingwebhookconfigurations.admissionregistration.k8s.io": Strategy(
        generation=True, unconditional_update=False,
    ),
    "volumeattachments.storage.k8s.io": Strategy(
        reset_fields=_ALL_RESET, unconditional_update=False, shows_deleted=True,
    ),
    "volumeattributesclasses.storage.k8s.io": Strategy(shows_deleted=True),
})  # fmt: skip
