"""The values that validation allows for a field, by definition and field. `field[]` names the items of an array.

Published enums are in `openapi/definitions.json`. Enums that are missing here are checked by rules.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

_PROTOCOLS = ("SCTP", "TCP", "UDP")
_EFFECTS = ("NoExecute", "NoSchedule", "PreferNoSchedule")
_PREEMPTION = ("PreemptLowerPriority", "Never")
_KEEP_OR_DELETE = ("Delete", "Retain")
_VOLUME_MODES = ("Block", "Filesystem")
_TERMINATION = ("FallbackToLogsOnError", "File")
_PULL = ("Always", "IfNotPresent", "Never")
_WEBHOOK = {
    "failurePolicy": ("Fail", "Ignore"), "matchPolicy": ("Equivalent", "Exact"),
    "sideEffects": ("None", "NoneOnDryRun"), "reinvocationPolicy": ("IfNeeded", "Never"),
}  # fmt: skip

ENUMS: Mapping[str, Mapping[str, tuple[str, ...]]] = MappingProxyType({
    "admissionregistration.v1.MutatingWebhook": _WEBHOOK,
    "admissionregistration.v1.ValidatingWebhook": {k: v for k, v in _WEBHOOK.items() if k != "reinvocationPolicy"},
    "admissionregistration.v1.ValidatingAdmissionPolicySpec": {"failurePolicy": ("Fail", "Ignore")},
    "apiextensions.v1.CustomResourceDefinitionSpec": {"scope": ("Cluster", "Namespaced")},
    "apiextensions.v1.CustomResourceConversion": {"strategy": ("None", "Webhook")},
    "apps.v1.StatefulSetPersistentVolumeClaimRetentionPolicy": {
        "whenDeleted": _KEEP_OR_DELETE, "whenScaled": _KEEP_OR_DELETE,
    },
    "autoscaling.v2.HPAScalingPolicy": {"type": ("Percent", "Pods")},
    "autoscaling.v2.HPAScalingRules": {"selectPolicy": ("Disabled", "Max", "Min")},
    "batch.v1.CronJobSpec": {"concurrencyPolicy": ("Allow", "Forbid", "Replace")},
    "batch.v1.JobSpec": {
        "completionMode": ("Indexed", "NonIndexed"), "podReplacementPolicy": ("Failed", "TerminatingOrFailed"),
    },
    "core.v1.Container": {"imagePullPolicy": _PULL, "terminationMessagePolicy": _TERMINATION},
    "core.v1.ContainerPort": {"protocol": _PROTOCOLS},
    "core.v1.EndpointPort": {"protocol": _PROTOCOLS},
    "core.v1.EphemeralContainer": {"imagePullPolicy": _PULL, "terminationMessagePolicy": _TERMINATION},
    "core.v1.PersistentVolumeClaimSpec": {"volumeMode": _VOLUME_MODES},
    "core.v1.PersistentVolumeSpec": {
        "volumeMode": _VOLUME_MODES, "persistentVolumeReclaimPolicy": ("Delete", "Recycle", "Retain"),
    },
    "core.v1.PodSpec": {
        "dnsPolicy": ("ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"),
        "preemptionPolicy": _PREEMPTION, "restartPolicy": ("Always", "Never", "OnFailure"),
    },
    "core.v1.ServicePort": {"protocol": _PROTOCOLS},
    "core.v1.ServiceSpec": {
        "externalTrafficPolicy": ("Cluster", "Local"), "internalTrafficPolicy": ("Cluster", "Local"),
        "ipFamilies[]": ("IPv4", "IPv6"), "ipFamilyPolicy": ("PreferDualStack", "RequireDualStack", "SingleStack"),
        "sessionAffinity": ("ClientIP", "None"), "type": ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort"),
    },
    "core.v1.Taint": {"effect": _EFFECTS},
    "core.v1.Toleration": {"effect": _EFFECTS},
    "core.v1.TopologySpreadConstraint": {
        "nodeAffinityPolicy": ("Honor", "Ignore"), "nodeTaintsPolicy": ("Honor", "Ignore"),
        "whenUnsatisfiable": ("DoNotSchedule", "ScheduleAnyway"),
    },
    "discovery.v1.EndpointSlice": {"addressType": ("FQDN", "IPv4", "IPv6")},
    "networking.v1.HTTPIngressPath": {"pathType": ("Exact", "ImplementationSpecific", "Prefix")},
    "networking.v1.NetworkPolicyPort": {"protocol": _PROTOCOLS},
    "networking.v1.NetworkPolicySpec": {"policyTypes[]": ("Egress", "Ingress")},
    "policy.v1.PodDisruptionBudgetSpec": {"unhealthyPodEvictionPolicy": ("AlwaysAllow", "IfHealthyBudget")},
    "scheduling.v1.PriorityClass": {"preemptionPolicy": _PREEMPTION},
    "storage.v1.CSIDriverSpec": {"fsGroupPolicy": ("File", "None", "ReadWriteOnceWithFSType")},
    "storage.v1.StorageClass": {"volumeBindingMode": ("Immediate", "WaitForFirstConsumer")},
})  # fmt: skip


def lay_enums(definitions: Mapping[str, Any]) -> None:
    """Add the allowed values to freshly loaded definitions."""
    for name, fields in ENUMS.items():
        for field, allowed in fields.items():
            raw = definitions[name]["fields"][field.removesuffix("[]")]
            (raw["items"] if field.endswith("[]") else raw)["enum"] = allowed
