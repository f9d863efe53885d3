"""The table of admission plugins by name, in the order of execution."""

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

from apiserver_stub.admission.chain import ALL, AdmissionPlugin, Attributes, Rule, Rules
from apiserver_stub.admission.own_plugins import MakePlugin, installed, own_plugin
from apiserver_stub.admission.parts import AdmissionParts, BuildPlugin
from apiserver_stub.admission.plugins.always import (
    always_admit,
    always_deny,
    always_pull_images,
    deny_service_external_ips,
)
from apiserver_stub.admission.plugins.certificates import (
    certificate_approval,
    certificate_requests,
    certificate_signing,
    certificate_subject_restriction,
    cluster_trust_bundle_attest,
    pod_certificate_requests,
)
from apiserver_stub.admission.plugins.default_classes import default_ingress_class, default_storage_class
from apiserver_stub.admission.plugins.device_claims import device_claims
from apiserver_stub.admission.plugins.escalation import escalation_check
from apiserver_stub.admission.plugins.event_rate_limit import event_rate_limit
from apiserver_stub.admission.plugins.limit_ranges import limit_ranger
from apiserver_stub.admission.plugins.namespaces import namespace_auto_provision, namespace_exists, namespace_lifecycle
from apiserver_stub.admission.plugins.node_restriction import node_restriction
from apiserver_stub.admission.plugins.nodes import (
    node_declared_feature_validator,
    pod_resize_validator,
    pod_topology_labels,
    taint_nodes_by_condition,
)
from apiserver_stub.admission.plugins.owner_references import owner_references_permission_enforcement
from apiserver_stub.admission.plugins.placement import (
    extended_resource_toleration,
    limit_pod_hard_anti_affinity_topology,
    pod_node_selector,
    pod_toleration_restriction,
)
from apiserver_stub.admission.plugins.pod_security import pod_security
from apiserver_stub.admission.plugins.pods import default_toleration_seconds, priority, runtime_class
from apiserver_stub.admission.plugins.quotas import resource_quota
from apiserver_stub.admission.plugins.service_accounts import service_account
from apiserver_stub.admission.plugins.storage import persistent_volume_claim_resize, storage_object_in_use_protection
from apiserver_stub.admission.policies.mutating import mutating_admission_policy
from apiserver_stub.admission.policies.permission import parameter_permission
from apiserver_stub.admission.policies.validating import validating_admission_policy
from apiserver_stub.admission.webhooks import mutating_admission_webhook, validating_admission_webhook
from apiserver_stub.common.flags.admission import ORDERED, AdmissionOptions
from apiserver_stub.common.flags.features import SCALE_TO_ZERO, ServerFeatureOptions
from apiserver_stub.kinds.values.trees import get_in
from controller_manager.common.api.errors import Cause, invalid

# An HPA may not set minReplicas to zero without the feature gate (KEP-2021).

_LOWEST = ("spec", "minReplicas")
_WHY = "Invalid value: 0: must be greater than or equal to 1"


async def refuse_scale_to_zero(attributes: Attributes) -> None:
    """Reject an HPA that would scale to zero; one that already may can still be changed."""
    kind, old = attributes.kind, attributes.old_object
    if get_in(attributes.object, _LOWEST) == 0 and (old is None or get_in(old, _LOWEST) != 0):
        cause = Cause(reason="FieldValueInvalid", message=_WHY, field="spec.minReplicas")
        raise invalid(kind.group, kind.kind, attributes.name, [cause])


def least_replicas(parts: AdmissionParts) -> AdmissionPlugin:
    """Return the plugin of HPAs."""
    rule = Rule(refuse_scale_to_zero, ("create", "update"), ("horizontalpodautoscalers.autoscaling",))
    rules: Rules = () if parts.options[ServerFeatureOptions].enabled(SCALE_TO_ZERO) else (rule,)
    return AdmissionPlugin("", validating=rules)


def service_addresses(parts: AdmissionParts) -> AdmissionPlugin:
    """Return the plugin of services: cluster IPs and node ports."""
    allocate = parts.addresses.allocate
    rules = (
        Rule(allocate, ("create", "update"), ("services",)),
        Rule(allocate, ("delete",), ("services",), (ALL,)),
    )
    return AdmissionPlugin("", allocation=rules)


def image_policy_webhook(parts: AdmissionParts) -> AdmissionPlugin:
    """Return the plugin ImagePolicyWebhook."""
    from apiserver_stub.admission.plugins import image_policy

    return image_policy.image_policy_webhook(parts)


def idle(name: str) -> BuildPlugin:
    """Return the builder of a plugin without effect: its kinds belong to features that are off by default in this
    version, and are not served.
    """
    return lambda _parts: AdmissionPlugin(name)


_FIRST: Sequence[tuple[str, BuildPlugin]] = (
    ("", certificate_requests),
    ("", pod_certificate_requests),
    ("", least_replicas),
    ("", device_claims),
    ("AlwaysAdmit", always_admit),
    ("NamespaceAutoProvision", namespace_auto_provision),
    ("NamespaceLifecycle", namespace_lifecycle),
    ("NamespaceExists", namespace_exists),
    ("LimitPodHardAntiAffinityTopology", limit_pod_hard_anti_affinity_topology),
    ("LimitRanger", limit_ranger),
    ("ServiceAccount", service_account),
    ("NodeRestriction", node_restriction),
    ("TaintNodesByCondition", taint_nodes_by_condition),
    ("AlwaysPullImages", always_pull_images),
    ("ImagePolicyWebhook", image_policy_webhook),
    ("PodSecurity", pod_security),
    ("PodNodeSelector", pod_node_selector),
    ("Priority", priority),
    ("DefaultTolerationSeconds", default_toleration_seconds),
    ("PodTolerationRestriction", pod_toleration_restriction),
    ("EventRateLimit", event_rate_limit),
    ("ExtendedResourceToleration", extended_resource_toleration),
    ("DefaultStorageClass", default_storage_class),
    ("StorageObjectInUseProtection", storage_object_in_use_protection),
    ("PodGroupProtection", idle("PodGroupProtection")),
    ("OwnerReferencesPermissionEnforcement", owner_references_permission_enforcement),
    ("PersistentVolumeClaimResize", persistent_volume_claim_resize),
    ("RuntimeClass", runtime_class),
    ("CertificateApproval", certificate_approval),
    ("CertificateSigning", certificate_signing),
    ("ClusterTrustBundleAttest", cluster_trust_bundle_attest),
    ("CertificateSubjectRestriction", certificate_subject_restriction),
    ("DefaultIngressClass", default_ingress_class),
    ("DenyServiceExternalIPs", deny_service_external_ips),
    ("PodTopologyLabels", pod_topology_labels),
    ("PodGroupWorkloadExists", idle("PodGroupWorkloadExists")),
    ("NodeDeclaredFeatureValidator", node_declared_feature_validator),
    ("JobValidation", idle("JobValidation")),
    ("PodResizeValidator", pod_resize_validator),
)
# Plugins of other packages are inserted here.
_LAST: Sequence[tuple[str, BuildPlugin]] = (
    ("MutatingAdmissionPolicy", mutating_admission_policy),
    ("MutatingAdmissionWebhook", mutating_admission_webhook),
    ("ValidatingAdmissionPolicy", validating_admission_policy),
    ("ValidatingAdmissionWebhook", validating_admission_webhook),
    ("ResourceQuota", resource_quota),
    ("AlwaysDeny", always_deny),
    ("", parameter_permission),
    ("", escalation_check),  # after the other mutating plugins, because it checks the final object
    ("", service_addresses),
)


def enabled(parts: AdmissionParts, given: Mapping[str, MakePlugin] = MappingProxyType({})) -> Sequence[AdmissionPlugin]:
    """Return the enabled plugins, those that are part of kinds, and those of other packages: the `given` ones, which
    are always enabled, and installed ones that flags name. Raises `ValueError` for a plugin that is missing or cannot
    be created.
    """
    options = parts.options[AdmissionOptions]
    if options.admission_control is not None:
        instead = "--enable-admission-plugins and --disable-admission-plugins"
        parts.runtime.log("admission").warning("a flag is deprecated", flag="--admission-control", instead=instead)
    wanted = options.enabled
    own = {**{name: installed(name) for name in sorted(wanted - {*ORDERED, *given})}, **given}

    def built(table: Sequence[tuple[str, BuildPlugin]]) -> Iterator[AdmissionPlugin]:
        yield from (build(parts) for name, build in table if not name or name in wanted)

    return [*built(_FIRST), *(own_plugin(name, make, parts) for name, make in own.items()), *built(_LAST)]
