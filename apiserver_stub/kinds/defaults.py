"""Defaults: the values clients expect to find in fields they left out, as rows of field and value by kind."""

from base64 import b64encode
from collections.abc import Mapping
from types import MappingProxyType

from apiserver_stub.kinds.defaults_pod import (
    CRON_JOB,
    DAEMON_SET,
    DEPLOYMENT,
    JOB,
    POD,
    PVC_SPEC,
    STATEFUL_SET,
    TEMPLATE,
)
from apiserver_stub.kinds.kind import Kind
from apiserver_stub.kinds.rows import Rows, beside, empty, fill, listed, under, when
from apiserver_stub.kinds.schema import Tree
from apiserver_stub.kinds.trees import get_in, put_in

_RBAC = "rbac.authorization.k8s.io"
_EXPOSED = ("NodePort", "LoadBalancer")
_INTERNAL = ("ClusterIP", "NodePort", "LoadBalancer")


def apply_defaults(tree: Tree, kind: Kind) -> None:
    """Fill in the defaults of a kind, in place. Doing it twice changes nothing more."""
    rows = KIND_DEFAULTS.get(kind.name) if kind.to_storage is None else VIEW_DEFAULTS.get(kind.name)
    if rows is not None:
        fill(tree, rows)


def _labels_from_template(controller: Tree) -> None:
    """What only a ReplicationController does: its selector and labels are those of its Pods when left out."""
    labels = get_in(controller, ("spec", "template", "metadata", "labels"))
    if not labels:
        return
    if not get_in(controller, ("spec", "selector")):
        put_in(controller, ("spec", "selector"), dict(labels))
    if not get_in(controller, ("metadata", "labels")):
        put_in(controller, ("metadata", "labels"), dict(labels))


def _named_label(namespace: Tree) -> None:
    name = get_in(namespace, ("metadata", "name"))
    if name:
        put_in(namespace, ("metadata", "labels", "kubernetes.io/metadata.name"), name)


def _plain_data(secret: Tree) -> None:
    """`stringData` is a way to write `data` without encoding it."""
    plain = secret.pop("stringData", None)
    if plain:
        encoded = {key: b64encode(text.encode()).decode() for key, text in plain.items()}
        secret["data"] = {**secret.get("data", {}), **encoded}


def _target_port(port: Tree) -> None:
    if port.get("targetPort") in (None, 0, ""):
        port["targetPort"] = port.get("port")


def _policy_types(spec: Tree) -> list[str]:
    return ["Ingress", "Egress"] if spec.get("egress") else ["Ingress"]


def _subject_group(subject: Tree) -> str | None:
    return _RBAC if subject.get("kind") in ("User", "Group") else None


def _limit_defaults(item: Tree) -> None:
    """What a container is limited to, and asks for, when it does not say, follows from the bounds given."""
    if item.get("type") != "Container":
        return
    limits = {**item.get("max", {}), **item.get("default", {})}
    requests = {**item.get("min", {}), **limits, **item.get("defaultRequest", {})}
    for name, values in (("default", limits), ("defaultRequest", requests)):
        if values:
            item[name] = values


def _list_kind(names: Tree) -> str | None:
    return f"{names['kind']}List" if names.get("kind") else None


def _singular(names: Tree) -> str | None:
    return names.get("kind", "").lower() or None


def _behavior(window: int | None, *policies: Tree) -> Rows:
    rows: Rows = (("policies", listed(*policies)), ("selectPolicy", "Max"))
    return rows if window is None else (("stabilizationWindowSeconds", window), *rows)


def _scaling_rules(behavior: Tree) -> None:
    fill(behavior, (("scaleUp", empty), ("scaleDown", empty)))


_AFFINITY: Rows = (("timeoutSeconds", 10800),)
_SERVICE: Rows = (
    ("type", "ClusterIP"),
    ("sessionAffinity", "None"),
    ("sessionAffinityConfig", when("sessionAffinity", ("ClientIP",), lambda _: {"clientIP": {}})),
    ("sessionAffinityConfig", (("clientIP", _AFFINITY),)),
    ("ports", (("protocol", "TCP"), ("", _target_port))),
    ("internalTrafficPolicy", when("type", _INTERNAL, "Cluster")),
    ("externalTrafficPolicy", when("type", _EXPOSED, "Cluster")),
    ("allocateLoadBalancerNodePorts", when("type", ("LoadBalancer",), True)),
)
_TCP: Rows = (("protocol", "TCP"),)
_REMOTE: Rows = (("clientConfig", (("service", (("port", 443),)),)),)
_WEBHOOK: Rows = (
    ("failurePolicy", "Fail"), ("matchPolicy", "Equivalent"), ("namespaceSelector", empty), ("objectSelector", empty),
    ("timeoutSeconds", 10), ("rules", (("scope", "*"),)), *_REMOTE,
)  # fmt: skip
_MATCH: Rows = (
    ("matchPolicy", "Equivalent"), ("namespaceSelector", empty), ("objectSelector", empty),
    ("resourceRules", (("scope", "*"),)), ("excludeResourceRules", (("scope", "*"),)),
)  # fmt: skip
_ADMISSION: Rows = (("failurePolicy", "Fail"), ("matchConstraints", _MATCH))
_BINDING: Rows = (("matchResources", _MATCH),)
_ROLE_REF: Rows = (("roleRef", (("apiGroup", _RBAC),)), ("subjects", (("apiGroup", _subject_group),)))
_CPU_AT_80 = {
    "type": "Resource",
    "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}},
}
_DOUBLE = {"type": "Percent", "value": 100, "periodSeconds": 15}
_AUTOSCALER: Rows = (
    ("minReplicas", 1),
    ("metrics", listed(_CPU_AT_80)),
    ("behavior", (
        ("", _scaling_rules),
        ("scaleUp", _behavior(0, {"type": "Pods", "value": 4, "periodSeconds": 15}, _DOUBLE)),
        ("scaleDown", _behavior(None, _DOUBLE)),
    )),
)  # fmt: skip
_DEVICE: Rows = (("allocationMode", "ExactCount"), ("count", when("allocationMode", ("ExactCount",), 1)))
_CLAIM: Rows = (("devices", (("requests", (("exactly", _DEVICE), ("firstAvailable", _DEVICE))),)),)
_QUEUES: Rows = (("queues", 64), ("handSize", 8), ("queueLengthLimit", 50))
_PRIORITY_LEVEL: Rows = (
    ("limited", (
        ("nominalConcurrencyShares", 30), ("lendablePercent", 0), ("limitResponse", (("queuing", _QUEUES),)),
    )),
    ("exempt", (("nominalConcurrencyShares", 0), ("lendablePercent", 0))),
)  # fmt: skip

# By `plural.group`.
KIND_DEFAULTS: Mapping[str, Rows] = MappingProxyType({
    "cronjobs.batch": under("spec", CRON_JOB),
    "csidrivers.storage.k8s.io": under("spec", (
        ("attachRequired", True), ("fsGroupPolicy", "ReadWriteOnceWithFSType"), ("podInfoOnMount", False),
        ("requiresRepublish", False), ("seLinuxMount", False), ("storageCapacity", False),
        ("volumeLifecycleModes", listed("Persistent")),
    )),
    "customresourcedefinitions.apiextensions.k8s.io": under("spec", (
        ("conversion", lambda _: {"strategy": "None"}),
        ("conversion", (("webhook", _REMOTE),)),
        ("names", (("listKind", _list_kind), ("singular", _singular))),
    )),
    "apiservices.apiregistration.k8s.io": under("spec.service", (("port", 443),)),
    "clusterrolebindings.rbac.authorization.k8s.io": _ROLE_REF,
    "daemonsets.apps": under("spec", DAEMON_SET),
    "deployments.apps": under("spec", DEPLOYMENT),
    "endpoints": under("subsets.ports", _TCP),
    "endpointslices.discovery.k8s.io": under("ports", (("name", ""), *_TCP)),
    "flowschemas.flowcontrol.apiserver.k8s.io": under("spec", (("matchingPrecedence", 1000),)),
    "horizontalpodautoscalers.autoscaling": under("spec", _AUTOSCALER),
    "jobs.batch": under("spec", JOB),
    "limitranges": under("spec.limits", (("", _limit_defaults),)),
    "mutatingadmissionpolicies.admissionregistration.k8s.io": under("spec", _ADMISSION),
    "mutatingadmissionpolicybindings.admissionregistration.k8s.io": under("spec", _BINDING),
    "mutatingwebhookconfigurations.admissionregistration.k8s.io": under("webhooks", (
        *_WEBHOOK, ("reinvocationPolicy", "Never"),
    )),
    "namespaces": (("", _named_label), ("spec", empty)),
    "networkpolicies.networking.k8s.io": under("spec", (
        ("policyTypes", _policy_types), ("ingress", (("ports", _TCP),)), ("egress", (("ports", _TCP),)),
    )),
    "nodes": (("spec", empty), ("status", (("allocatable", beside("capacity")),))),
    "persistentvolumeclaims": (("spec", PVC_SPEC),),
    "persistentvolumes": under("spec", (
        ("persistentVolumeReclaimPolicy", "Retain"), ("volumeMode", "Filesystem"), ("hostPath", (("type", ""),)),
    )),
    "pods": POD,
    "podtemplates": TEMPLATE,
    "priorityclasses.scheduling.k8s.io": (("preemptionPolicy", "PreemptLowerPriority"),),
    "prioritylevelconfigurations.flowcontrol.apiserver.k8s.io": under("spec", _PRIORITY_LEVEL),
    "replicasets.apps": under("spec", (("replicas", 1), *TEMPLATE)),
    "replicationcontrollers": (("", _labels_from_template), ("spec", (("replicas", 1), *TEMPLATE))),
    "resourceclaims.resource.k8s.io": under("spec", _CLAIM),
    "resourceclaimtemplates.resource.k8s.io": under("spec.spec", _CLAIM),
    "rolebindings.rbac.authorization.k8s.io": _ROLE_REF,
    "secrets": (("type", "Opaque"), ("", _plain_data)),
    "services": under("spec", _SERVICE),
    "statefulsets.apps": under("spec", STATEFUL_SET),
    "storageclasses.storage.k8s.io": (("reclaimPolicy", "Delete"), ("volumeBindingMode", "Immediate")),
    "validatingadmissionpolicies.admissionregistration.k8s.io": under("spec", _ADMISSION),
    "validatingadmissionpolicybindings.admissionregistration.k8s.io": under("spec", _BINDING),
    "validatingwebhookconfigurations.admissionregistration.k8s.io": under("webhooks", _WEBHOOK),
})  # fmt: skip
# Of versions that are a view of what another stores.
VIEW_DEFAULTS: Mapping[str, Rows] = MappingProxyType(
    {"horizontalpodautoscalers.autoscaling": under("spec", (("minReplicas", 1),))}
)
