"""The default values of the built-in kinds, as rows of field and value."""

from base64 import b64encode
from collections.abc import Mapping
from types import MappingProxyType

from apiserver_stub.kinds.defaults import pods as pod
from apiserver_stub.kinds.defaults.rows import Rows, applying, beside, empty, in_step, listed, under, when
from apiserver_stub.kinds.resource_info import Defaults, ResourceInfo
from apiserver_stub.kinds.values.trees import get_in, put_in
from controller_manager.common.api.timestamps import format_time
from controller_manager.common.api.tree import Tree
from controller_manager.common.base.clock import utc_now

_RBAC = "rbac.authorization.k8s.io"


def _subject_group(subject: Tree) -> str | None:
    return _RBAC if subject.get("kind") in ("User", "Group") else None


def _list_kind(names: Tree) -> str | None:
    return f"{names['kind']}List" if names.get("kind") else None


def _singular(names: Tree) -> str | None:
    return names.get("kind", "").lower() or None


def _now(_taint: Tree) -> str:
    return format_time(utc_now())


def _multipliers(device: Tree) -> None:
    for mapping in device.get("nodeAllocatableResourceMappings", {}).values():
        mapping.setdefault("allocationMultiplier", "1")


_REMOTE: Rows = (("clientConfig", (("service", (("port", 443),)),)),)
VALIDATING_WEBHOOK: Rows = (
    ("failurePolicy", "Fail"), ("matchPolicy", "Equivalent"), ("namespaceSelector", empty), ("objectSelector", empty),
    ("timeoutSeconds", 10), ("rules", (("scope", "*"),)), *_REMOTE,
)  # fmt: skip
MUTATING_WEBHOOK: Rows = (*VALIDATING_WEBHOOK, ("reinvocationPolicy", "Never"))
_MATCH: Rows = (
    ("matchPolicy", "Equivalent"), ("namespaceSelector", empty), ("objectSelector", empty),
    ("resourceRules", (("scope", "*"),)), ("excludeResourceRules", (("scope", "*"),)),
)  # fmt: skip
ADMISSION_POLICY: Rows = (("failurePolicy", "Fail"), ("matchConstraints", _MATCH))
ADMISSION_BINDING: Rows = (("matchResources", _MATCH),)
ROLE_BINDING: Rows = (("roleRef", (("apiGroup", _RBAC),)), ("subjects", (("apiGroup", _subject_group),)))
DEFINITION: Rows = (
    ("conversion", lambda _: {"strategy": "None"}),
    ("conversion", (("webhook", _REMOTE),)),
    ("names", (("listKind", _list_kind), ("singular", _singular))),
)
CSI_DRIVER: Rows = (
    ("attachRequired", True), ("fsGroupPolicy", "ReadWriteOnceWithFSType"), ("podInfoOnMount", False),
    ("requiresRepublish", False), ("seLinuxMount", False), ("storageCapacity", False),
    ("volumeLifecycleModes", listed("Persistent")),
)  # fmt: skip

_CPU_AT_80 = {
    "type": "Resource",
    "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}},
}
_DOUBLE = {"type": "Percent", "value": 100, "periodSeconds": 15}
_FOUR_MORE = {"type": "Pods", "value": 4, "periodSeconds": 15}
AUTOSCALER: Rows = (
    ("minReplicas", 1),
    ("metrics", listed(_CPU_AT_80)),
    ("behavior", (
        ("scaleUp", empty),
        ("scaleUp", (
            ("stabilizationWindowSeconds", 0), ("policies", listed(_FOUR_MORE, _DOUBLE)), ("selectPolicy", "Max"),
        )),
        ("scaleDown", empty),
        ("scaleDown", (("policies", listed(_DOUBLE)), ("selectPolicy", "Max"))),
    )),
)  # fmt: skip


def _default_cpu_target(autoscaler: Tree) -> None:
    """Set the default CPU target of an autoscaling/v1 autoscaler without metrics."""
    if not get_in(autoscaler, ("metadata", "annotations", "autoscaling.alpha.kubernetes.io/metrics")):
        autoscaler["spec"].setdefault("targetCPUUtilizationPercentage", 80)


_EXACTLY: Rows = (("allocationMode", "ExactCount"), ("count", when("allocationMode", ("ExactCount",), 1)))
DEVICE_CLAIM: Rows = under("devices.requests", (("exactly", _EXACTLY), ("firstAvailable", _EXACTLY)))
TAINT_RULE: Rows = under("spec", (("taint", (("timeAdded", _now),)),))
DEVICES: Rows = (("taints", (("timeAdded", _now),)), ("", _multipliers))

_QUEUES: Rows = (("queues", 64), ("handSize", 8), ("queueLengthLimit", 50))
PRIORITY_LEVEL: Rows = (
    ("limited", (
        ("nominalConcurrencyShares", 30), ("lendablePercent", 0), ("limitResponse", (("queuing", _QUEUES),)),
    )),
    ("exempt", (("nominalConcurrencyShares", 0), ("lendablePercent", 0))),
)  # fmt: skip


_EXPOSED = ("NodePort", "LoadBalancer")
_INTERNAL = ("ClusterIP", *_EXPOSED)
_AFFINITY_SECONDS = 10800  # seconds of session affinity to an endpoint


def _target_port(port: Tree) -> None:
    if port.get("targetPort") in (None, 0, ""):
        port["targetPort"] = port.get("port")


def _affinity_timeout(spec: Tree) -> None:
    """Set the timeout of client IP session affinity. Without affinity, remove its configuration."""
    if spec["sessionAffinity"] == "None":
        spec.pop("sessionAffinityConfig", None)
    elif spec["sessionAffinity"] == "ClientIP":
        given = spec.get("sessionAffinityConfig", {}).get("clientIP", {}).get("timeoutSeconds")
        spec["sessionAffinityConfig"] = {"clientIP": {"timeoutSeconds": _AFFINITY_SECONDS if given is None else given}}


def _external_policy(spec: Tree) -> str | None:
    exposed = spec["type"] in _EXPOSED or (spec["type"] == "ClusterIP" and "externalIPs" in spec)
    return "Cluster" if exposed else None


def _address_modes(service: Tree) -> None:
    """Set the IP mode of load balancer addresses to VIP."""
    if service["spec"].get("type") == "LoadBalancer":
        for found in service.get("status", {}).get("loadBalancer", {}).get("ingress", ()):
            if "ip" in found:
                found.setdefault("ipMode", "VIP")


def _policy_types(spec: Tree) -> list[str]:
    return ["Ingress", "Egress"] if spec.get("egress") else ["Ingress"]


_TCP: Rows = (("protocol", "TCP"),)
ENDPOINTS: Rows = under("subsets.ports", _TCP)
ENDPOINT_SLICE: Rows = under("ports", (("name", ""), *_TCP))
INGRESS_CLASS: Rows = under("spec.parameters", (("scope", "Cluster"),))
NETWORK_POLICY: Rows = under("spec", (
    ("policyTypes", _policy_types), ("ingress", (("ports", _TCP),)), ("egress", (("ports", _TCP),)),
))  # fmt: skip
SERVICE: Rows = (
    ("spec", (
        ("type", "ClusterIP"),
        ("sessionAffinity", "None"),
        ("", _affinity_timeout),
        ("ports", (("protocol", "TCP"), ("", _target_port))),
        ("internalTrafficPolicy", when("type", _INTERNAL, "Cluster")),
        ("externalTrafficPolicy", _external_policy),
        ("allocateLoadBalancerNodePorts", when("type", ("LoadBalancer",), True)),
    )),
    ("", _address_modes),
)  # fmt: skip


def apply_defaults(tree: Tree, kind: ResourceInfo) -> None:
    """Set the defaults of a kind, in place. The tree must fit its schema. A second call changes nothing."""
    kind.defaults(tree)


def apply_name_defaults(tree: Tree, kind: ResourceInfo) -> None:
    """Set the defaults that depend on the name of an object whose name has just been generated."""
    if kind.name in _BY_NAME:
        kind.defaults(tree)


def _labels_from_template(owner: Tree) -> None:
    """Copy the labels of the Pod template to a Job or ReplicationController without labels."""
    labels = get_in(owner, ("spec", "template", "metadata", "labels"))
    if labels and not get_in(owner, ("metadata", "labels")):
        put_in(owner, ("metadata", "labels"), dict(labels))


def _selector_from_template(spec: Tree) -> Tree | None:
    labels: Tree | None = get_in(spec, ("template", "metadata", "labels"))
    return dict(labels) if labels else None


def _named_label(namespace: Tree) -> None:
    name = get_in(namespace, ("metadata", "name"))
    if name:
        put_in(namespace, ("metadata", "labels", "kubernetes.io/metadata.name"), name)


def _string_data(secret: Tree) -> None:
    """Encode `stringData` into `data` and remove it."""
    plain = secret.pop("stringData", None)
    if plain:
        encoded = {key: b64encode(text.encode()).decode() for key, text in plain.items()}
        secret["data"] = {**secret.get("data", {}), **encoded}


def _limit_defaults(item: Tree) -> None:
    """Derive the default limits and requests of containers from the minimum and maximum."""
    if item.get("type") != "Container":
        return
    limits = {**item.get("max", {}), **item.get("default", {})}
    requests = {**item.get("min", {}), **limits, **item.get("defaultRequest", {})}
    for name, values in (("default", limits), ("defaultRequest", requests)):
        if values:
            item[name] = values


_BY_NAME = frozenset({"namespaces"})
# By `plural.group`.
DEFAULT_ROWS: Mapping[str, Rows] = MappingProxyType({
    "apiservices.apiregistration.k8s.io": under("spec.service", (("port", 443),)),
    "clusterrolebindings.rbac.authorization.k8s.io": ROLE_BINDING,
    "cronjobs.batch": under("spec", pod.CRON_JOB),
    "csidrivers.storage.k8s.io": under("spec", CSI_DRIVER),
    "customresourcedefinitions.apiextensions.k8s.io": under("spec", DEFINITION),
    "daemonsets.apps": (("metadata", pod.DAEMON_SET_METADATA), ("spec", pod.DAEMON_SET)),
    "deployments.apps": under("spec", pod.DEPLOYMENT),
    "endpoints": ENDPOINTS,
    "endpointslices.discovery.k8s.io": ENDPOINT_SLICE,
    "flowschemas.flowcontrol.apiserver.k8s.io": under("spec", (("matchingPrecedence", 1000),)),
    "horizontalpodautoscalers.autoscaling": under("spec", AUTOSCALER),
    "ingressclasses.networking.k8s.io": INGRESS_CLASS,
    "jobs.batch": (("spec", pod.JOB), ("", _labels_from_template)),
    "limitranges": under("spec.limits", (("", _limit_defaults),)),
    "mutatingadmissionpolicies.admissionregistration.k8s.io": under("spec", ADMISSION_POLICY),
    "mutatingadmissionpolicybindings.admissionregistration.k8s.io": under("spec", ADMISSION_BINDING),
    "mutatingwebhookconfigurations.admissionregistration.k8s.io": under("webhooks", MUTATING_WEBHOOK),
    "namespaces": (("", _named_label), ("status", (("phase", "Active"),))),
    "networkpolicies.networking.k8s.io": NETWORK_POLICY,
    "nodes": (("spec", (("", in_step("podCIDR", "podCIDRs")),)), ("status", (("allocatable", beside("capacity")),))),
    "persistentvolumeclaims": pod.CLAIM,
    "persistentvolumes": (
        ("spec", (
            ("persistentVolumeReclaimPolicy", "Retain"), ("volumeMode", "Filesystem"), ("hostPath", (("type", ""),)),
        )),
        ("status", (("phase", "Pending"),)),
    ),
    "pods": pod.POD,
    "podtemplates": pod.TEMPLATE,
    "priorityclasses.scheduling.k8s.io": (("preemptionPolicy", "PreemptLowerPriority"),),
    "prioritylevelconfigurations.flowcontrol.apiserver.k8s.io": under("spec", PRIORITY_LEVEL),
    "replicasets.apps": under("spec", (("replicas", 1), *pod.TEMPLATE)),
    "replicationcontrollers": (
        ("spec", (("selector", _selector_from_template), ("replicas", 1), *pod.TEMPLATE)),
        ("", _labels_from_template),
    ),
    "devicetaintrules.resource.k8s.io": TAINT_RULE,
    "resourceclaims.resource.k8s.io": under("spec", DEVICE_CLAIM),
    "resourceclaimtemplates.resource.k8s.io": under("spec.spec", DEVICE_CLAIM),
    "resourceslices.resource.k8s.io": under("spec.devices", DEVICES),
    "rolebindings.rbac.authorization.k8s.io": ROLE_BINDING,
    "secrets": (("type", "Opaque"), ("", _string_data)),
    "services": SERVICE,
    "statefulsets.apps": under("spec", pod.STATEFUL_SET),
    "storageclasses.storage.k8s.io": (("reclaimPolicy", "Delete"), ("volumeBindingMode", "Immediate")),
    "validatingadmissionpolicies.admissionregistration.k8s.io": under("spec", ADMISSION_POLICY),
    "validatingadmissionpolicybindings.admissionregistration.k8s.io": under("spec", ADMISSION_BINDING),
    "validatingwebhookconfigurations.admissionregistration.k8s.io": under("webhooks", VALIDATING_WEBHOOK),
})  # fmt: skip
# Defaults of versions that are stored as another version.
VIEW_DEFAULT_ROWS: Mapping[str, Rows] = MappingProxyType({
    "horizontalpodautoscalers.autoscaling": (("spec", (("minReplicas", 1),)), ("", _default_cpu_target)),
})  # fmt: skip
DEFAULTS: Mapping[str, Defaults] = MappingProxyType({name: applying(rows) for name, rows in DEFAULT_ROWS.items()})


def _by_part(rows: Rows) -> Mapping[str, Defaults]:
    parts = dict.fromkeys(name for name, _ in rows)
    return MappingProxyType({part: applying(tuple(row for row in rows if row[0] == part)) for part in parts})


# By kind and top-level field: defaults that depend on that field alone.
PART_DEFAULTS: Mapping[str, Mapping[str, Defaults]] = MappingProxyType({
    name: _by_part(rows)
    for name, rows in DEFAULT_ROWS.items()
    if all(part and not callable(rule) for part, rule in rows)
})  # fmt: skip
VIEW_DEFAULTS: Mapping[str, Defaults] = MappingProxyType({
    name: applying(rows) for name, rows in VIEW_DEFAULT_ROWS.items()
})  # fmt: skip
