"""Warnings by kind: for a new object, an update, a status, and for deprecated kinds."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from apiserver_stub.common.error_list import place
from apiserver_stub.kinds.resource_info import ResourceInfo, Warn
from apiserver_stub.kinds.values.trees import get_in
from apiserver_stub.kinds.warnings import common, definitions, pods, services
from apiserver_stub.kinds.warnings.common import (
    MOST_ADDRESSES,
    annotation,
    of_address,
    of_expressions,
    of_label,
    of_labels,
    of_range,
    of_term,
    warning_at,
)
from controller_manager.common.api.platform import GROUP_DOMAIN
from controller_manager.common.api.quantity import parse
from controller_manager.common.api.tree import Tree
from controller_manager.common.base.log.formats import quote

_ENFORCED = "kubernetes.io/enforce-mountable-secrets"
_OLD_CLASS, _OLD_OPTIONS = "volume.beta.kubernetes.io/storage-class", "volume.beta.kubernetes.io/mount-options"
_INGRESS_CLASS = "kubernetes.io/ingress.class"
_MANY_COMPLETIONS, _MANY_AT_ONCE = 100_000, 10_000


def warnings_of(kind: ResourceInfo, new: Tree, old: Tree | None, subresource: str = "") -> list[str]:
    """Return the warnings for a new object, or for an update of `old` through `subresource`."""
    found = kind.warnings.get(subresource)
    return found(new, old) if found is not None else []


def deprecated_kind(kind: ResourceInfo) -> str:
    """Return the warning for every request for a deprecated kind. Empty for other kinds."""
    return kind.deprecation


def _templated(path: str, *, named: bool = True) -> Warn:
    """Return a function that warns about a workload: its name, and its pod template if that is new or changed."""
    names = tuple(path.split("."))
    at = place(path)

    def warn(new: Tree, old: Tree | None) -> list[str]:
        if not _is_changed(new, old):
            return []
        messages = pods.of_name(new) if named and old is None else []
        return messages + pods.of_template(get_in(new, names), at)

    return warn


def _is_changed(new: Tree, old: Tree | None) -> bool:
    return old is None or new["metadata"].get("generation") != old["metadata"].get("generation")


def _job(path: str) -> Warn:
    names, at, template = tuple(path.split(".")), place(path), _templated(f"{path}.template")

    def warn(new: Tree, old: Tree | None) -> list[str]:
        spec = get_in(new, names) or {}
        messages = template(new, old)
        many = spec.get("completions", 0) > _MANY_COMPLETIONS and spec.get("parallelism", 0) > _MANY_AT_ONCE
        if many and spec.get("completionMode") == "Indexed" and _is_changed(new, old):
            messages.append(warning_at(at, "too many indexes to track all of them if many fail"))
        return messages

    return warn


_CRON_JOB = _job("spec.jobTemplate.spec")


def _cron_job(new: Tree, old: Tree | None) -> list[str]:
    messages = _CRON_JOB(new, old)
    if old is not None and "TZ" in (get_in(new, ("spec", "schedule")) or ""):
        messages.append(warning_at(place("spec.schedule"), "TZ and CRON_TZ can't be used: use timeZone"))
    return messages


_SET = _templated("spec.template", named=False)


def _stateful_set(new: Tree, old: Tree | None) -> list[str]:
    messages, spec = _SET(new, old), new.get("spec") or {}
    for index, claim in enumerate(spec.get("volumeClaimTemplates") or ()):
        messages += pods.claim_spec(claim.get("spec"), (place("spec.volumeClaimTemplates"), index))
    if (spec.get("revisionHistoryLimit") or 0) < 0:
        messages.append(
            warning_at(place("spec.revisionHistoryLimit"), "a negative limit keeps all revisions: use 0 or more")
        )
    return messages


def _claim(new: Tree, _old: Tree | None) -> list[str]:
    return _annotated(
        new, _OLD_CLASS, 'deprecated since v1.8; use "storageClassName" attribute instead'
    ) + pods.claim_spec(new.get("spec"), place("spec"))


def _volume(new: Tree, _old: Tree | None) -> list[str]:
    spec, at = new.get("spec") or {}, place("spec")
    messages = _annotated(new, _OLD_CLASS, 'deprecated since v1.8; use "storageClassName" attribute instead')
    messages += _annotated(new, _OLD_OPTIONS, 'deprecated since v1.31: use the field "mountOptions"')
    if spec.get("persistentVolumeReclaimPolicy") == "Recycle":
        messages.append(
            warning_at((at, "persistentVolumeReclaimPolicy"), "Recycle is deprecated: use dynamic provisioning")
        )
    required = (get_in(spec, ("nodeAffinity", "required", "nodeSelectorTerms"))) or ()
    for index, term in enumerate(required):
        messages += of_term(term, (place("spec.nodeAffinity.required.nodeSelectorTerms"), index))
    old_sources = ("cephfs", "photonPersistentDisk", "scaleIO", "storageos", "glusterfs", "rbd")
    return messages + [warning_at((at, name), pods.VOLUMES[name]) for name in old_sources if name in spec]


def _annotated(tree: Tree, name: str, why: str) -> list[str]:
    if annotation(tree, name) is None:
        return []
    return [warning_at((place("metadata.annotations"), f"[{name}]"), why)]


def _node(new: Tree, _old: Tree | None) -> list[str]:
    spec, messages = new.get("spec") or {}, []
    if "configSource" in spec:
        messages.append(warning_at(place("spec.configSource"), "ignored: the feature was removed"))
    if spec.get("externalID"):
        messages.append(warning_at(place("spec.externalID"), "deprecated and ignored"))
    for index, text in enumerate((spec.get("podCIDRs") or [])[:MOST_ADDRESSES]):
        messages += of_range(text, (place("spec.podCIDRs"), index))
    return messages


def _runtime_class(new: Tree, _old: Tree | None) -> list[str]:
    return of_labels(get_in(new, ("scheduling", "nodeSelector")), place("scheduling.nodeSelector"))


def _storage_class(new: Tree, _old: Tree | None) -> list[str]:
    messages = []
    for index, term in enumerate(new.get("allowedTopologies") or ()):
        for number, expression in enumerate(term.get("matchLabelExpressions") or ()):
            at = ((place("allowedTopologies"), index), "matchLabelExpressions"), number
            messages += of_label(expression.get("key", ""), (at, "key"))
    return messages


def _capacity(new: Tree, _old: Tree | None) -> list[str]:
    selector, at = new.get("nodeTopology") or {}, place("nodeTopology")
    return of_expressions(selector.get("matchExpressions"), at) + of_labels(
        selector.get("matchLabels"), (at, "matchLabels")
    )


def _csi_driver(new: Tree, old: Tree | None) -> list[str]:
    asked = get_in(new, ("spec", "tokenRequests"))
    if not asked or "serviceAccountTokenInSecrets" in new["spec"]:
        return []
    if old is not None and asked == get_in(old, ("spec", "tokenRequests")):
        return []
    at = place("spec.serviceAccountTokenInSecrets")
    return [warning_at(at, "set it to true if the driver can read tokens from secrets, so that they are not logged")]


def _quota(new: Tree, old: Tree | None) -> list[str]:
    hard = get_in(new, ("spec", "hard")) or {}
    messages = []
    for name in ("cpu", "memory", "ephemeral-storage") if old is None else ():
        asked = f"requests.{name}" if f"requests.{name}" in hard or name == "ephemeral-storage" else name
        limit = f"limits.{name}"
        if asked in hard and limit in hard and parse(hard[asked]).number > parse(hard[limit]).number:
            messages.append(warning_at((place("spec.hard"), f"[{asked}]"), f"is more than {limit}"))
    return messages


def _service_account(new: Tree, old: Tree | None) -> list[str]:
    if old is not None and annotation(old, _ENFORCED) is not None:
        return []
    return _annotated(
        new, _ENFORCED, "deprecated in v1.32+; prefer separate namespaces to isolate access to mounted secrets"
    )


def _ingress(new: Tree, old: Tree | None) -> list[str]:
    if old is not None or "ingressClassName" in (new.get("spec") or {}) or annotation(new, _INGRESS_CLASS) is None:
        return []
    return [f"annotation {quote(_INGRESS_CLASS)} is deprecated, please use 'spec.ingressClassName' instead"]


def _network_policy(new: Tree, _old: Tree | None) -> list[str]:
    messages = []
    for side, peers in (("ingress", "from"), ("egress", "to")):
        for index, rule in enumerate(get_in(new, ("spec", side)) or ()):
            for number, peer in enumerate(rule.get(peers) or ()):
                at = ((((place(f"spec.{side}"), index), peers), number), "ipBlock")
                messages += _block(peer.get("ipBlock") or {}, at)
    return messages


def _block(block: Any, at: Any) -> list[str]:
    messages = of_range(block.get("cidr", ""), (at, "cidr"))
    for index, text in enumerate((block.get("except") or [])[:MOST_ADDRESSES]):
        messages += of_range(text, ((at, "except"), index))
    return messages


def _slice_of_devices(new: Tree, _old: Tree | None) -> list[str]:
    driver: str = get_in(new, ("spec", "driver")) or ""
    return [] if driver == driver.lower() else [warning_at(place("spec.driver"), "use a name in lower case")]


def _balanced(new: Tree, _old: Tree | None) -> list[str]:
    at, messages = place("status.loadBalancer.ingress"), []
    for index, entry in enumerate(get_in(new, ("status", "loadBalancer", "ingress")) or ()):
        messages += of_address(entry.get("ip", ""), ((at, index), "ip"))
    return messages


def _pod_status(new: Tree, _old: Tree | None) -> list[str]:
    messages = []
    for name in ("podIPs", "hostIPs"):
        for index, entry in enumerate(get_in(new, ("status", name)) or ()):
            messages += of_address(entry.get("ip", ""), ((place(f"status.{name}"), index), "ip"))
    return messages


_STATIC = f".static.{GROUP_DOMAIN}"
_RESERVED = (
    f'names ending with "{_STATIC}" are reserved for static manifest-based configurations '
    "and cannot be managed via the API"
)
_ADMISSION = (
    "MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding", "MutatingWebhookConfiguration",
    "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding", "ValidatingWebhookConfiguration",
)  # fmt: skip


def _reserved_name(new: Tree, _old: Tree | None) -> list[str]:
    name = new["metadata"].get("name") or ""
    return [warning_at(place("metadata.name"), _RESERVED)] if name.endswith(_STATIC) else []


_OF_WHOLE: Mapping[str, Warn] = MappingProxyType({
    "v1/Pod": pods.of_pod,
    "v1/PodTemplate": _templated("template", named=False),
    "v1/ReplicationController": _templated("spec.template"),
    "apps/v1/ReplicaSet": _templated("spec.template"),
    "apps/v1/Deployment": _templated("spec.template"),
    "apps/v1/DaemonSet": _templated("spec.template", named=False),
    "apps/v1/StatefulSet": _stateful_set,
    "batch/v1/Job": _job("spec"),
    "batch/v1/CronJob": _cron_job,
    "v1/Service": services.of_service,
    "v1/Endpoints": services.of_endpoints,
    "discovery.k8s.io/v1/EndpointSlice": services.of_slice,
    "networking.k8s.io/v1/Ingress": _ingress,
    "networking.k8s.io/v1/NetworkPolicy": _network_policy,
    "v1/PersistentVolumeClaim": _claim,
    "v1/PersistentVolume": _volume,
    "storage.k8s.io/v1/StorageClass": _storage_class,
    "storage.k8s.io/v1/CSIStorageCapacity": _capacity,
    "storage.k8s.io/v1/CSIDriver": _csi_driver,
    "v1/Node": _node,
    "node.k8s.io/v1/RuntimeClass": _runtime_class,
    "v1/ResourceQuota": _quota,
    "v1/ServiceAccount": _service_account,
    "v1/Secret": common.of_secret,
    "resource.k8s.io/v1/ResourceSlice": _slice_of_devices,
    "apiextensions.k8s.io/v1/CustomResourceDefinition": definitions.unrecognized_formats,
    **{f"admissionregistration.{GROUP_DOMAIN}/v1/{kind}": _reserved_name for kind in _ADMISSION},
})  # fmt: skip
_OF_STATUS: Mapping[str, Warn] = MappingProxyType({
    "v1/Pod": _pod_status, "v1/Service": _balanced, "networking.k8s.io/v1/Ingress": _balanced,
})  # fmt: skip
WARNINGS: Mapping[str, Mapping[str, Warn]] = MappingProxyType({"": _OF_WHOLE, "status": _OF_STATUS})
"""By subresource ("" is the object itself), then by version and kind."""
DEPRECATED: Mapping[str, str] = MappingProxyType({
    "v1/Endpoints": "v1 Endpoints is deprecated in v1.33+: use discovery.k8s.io/v1 EndpointSlice",
    "v1/ComponentStatus": "v1 ComponentStatus is deprecated in v1.19+",
    **{
        name.replace(" ", "/"): f"{name} is deprecated in v1.{since}+, unavailable in v1.{until}+"
        for name, since, until in (
            (f"certificates.{GROUP_DOMAIN}/v1alpha1 ClusterTrustBundle", 34, 37),
            (f"certificates.{GROUP_DOMAIN}/v1beta1 ClusterTrustBundle", 37, 40),
            (f"certificates.{GROUP_DOMAIN}/v1beta1 PodCertificateRequest", 38, 41),
            (f"resource.{GROUP_DOMAIN}/v1alpha3 DeviceTaintRule", 36, 39),
            (f"resource.{GROUP_DOMAIN}/v1alpha3 ResourcePoolStatusRequest", 39, 42),
            (f"resource.{GROUP_DOMAIN}/v1beta2 DeviceTaintRule", 39, 42),
            (f"storagemigration.{GROUP_DOMAIN}/v1beta1 StorageVersionMigration", 38, 41),
        )
    },
})  # fmt: skip
