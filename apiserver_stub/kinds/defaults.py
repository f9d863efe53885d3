"""Defaults: the values clients expect to find in fields they left out, as rows of field and value by kind."""

from base64 import b64encode
from collections.abc import Mapping
from types import MappingProxyType

from apiserver_stub.kinds import defaults_config as config
from apiserver_stub.kinds import defaults_network as network
from apiserver_stub.kinds import defaults_pod as pod
from apiserver_stub.kinds.defaulting import Rows, applying, beside, in_step, under
from apiserver_stub.kinds.resource_info import Defaults, ResourceInfo
from apiserver_stub.kinds.schema import Tree
from apiserver_stub.kinds.trees import get_in, put_in


def apply_defaults(tree: Tree, kind: ResourceInfo) -> None:
    """Fill in the defaults of a kind, in place; the tree fits its schema. Doing it twice changes nothing more."""
    kind.defaults(tree)


def _labels_from_template(owner: Tree) -> None:
    """Jobs and ReplicationControllers without labels have those of their Pods."""
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


def _plain_data(secret: Tree) -> None:
    """`stringData` is a way to write `data` without encoding it."""
    plain = secret.pop("stringData", None)
    if plain:
        encoded = {key: b64encode(text.encode()).decode() for key, text in plain.items()}
        secret["data"] = {**secret.get("data", {}), **encoded}


def _limit_defaults(item: Tree) -> None:
    """What a container is limited to, and asks for, when it does not say, follows from the bounds given."""
    if item.get("type") != "Container":
        return
    limits = {**item.get("max", {}), **item.get("default", {})}
    requests = {**item.get("min", {}), **limits, **item.get("defaultRequest", {})}
    for name, values in (("default", limits), ("defaultRequest", requests)):
        if values:
            item[name] = values


# By `plural.group`.
DEFAULT_ROWS: Mapping[str, Rows] = MappingProxyType({
    "apiservices.apiregistration.k8s.io": under("spec.service", (("port", 443),)),
    "clusterrolebindings.rbac.authorization.k8s.io": config.ROLE_BINDING,
    "cronjobs.batch": under("spec", pod.CRON_JOB),
    "csidrivers.storage.k8s.io": under("spec", config.CSI_DRIVER),
    "customresourcedefinitions.apiextensions.k8s.io": under("spec", config.DEFINITION),
    "daemonsets.apps": under("spec", pod.DAEMON_SET),
    "deployments.apps": under("spec", pod.DEPLOYMENT),
    "endpoints": network.ENDPOINTS,
    "endpointslices.discovery.k8s.io": network.ENDPOINT_SLICE,
    "flowschemas.flowcontrol.apiserver.k8s.io": under("spec", (("matchingPrecedence", 1000),)),
    "horizontalpodautoscalers.autoscaling": under("spec", config.AUTOSCALER),
    "ingressclasses.networking.k8s.io": network.INGRESS_CLASS,
    "jobs.batch": (("spec", pod.JOB), ("", _labels_from_template)),
    "limitranges": under("spec.limits", (("", _limit_defaults),)),
    "mutatingadmissionpolicies.admissionregistration.k8s.io": under("spec", config.ADMISSION_POLICY),
    "mutatingadmissionpolicybindings.admissionregistration.k8s.io": under("spec", config.ADMISSION_BINDING),
    "mutatingwebhookconfigurations.admissionregistration.k8s.io": under("webhooks", config.MUTATING_WEBHOOK),
    "namespaces": (("", _named_label), ("status", (("phase", "Active"),))),
    "networkpolicies.networking.k8s.io": network.NETWORK_POLICY,
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
    "prioritylevelconfigurations.flowcontrol.apiserver.k8s.io": under("spec", config.PRIORITY_LEVEL),
    "replicasets.apps": under("spec", (("replicas", 1), *pod.TEMPLATE)),
    "replicationcontrollers": (
        ("spec", (("selector", _selector_from_template), ("replicas", 1), *pod.TEMPLATE)),
        ("", _labels_from_template),
    ),
    "resourceclaims.resource.k8s.io": under("spec", config.DEVICE_CLAIM),
    "resourceclaimtemplates.resource.k8s.io": under("spec.spec", config.DEVICE_CLAIM),
    "resourceslices.resource.k8s.io": under("spec.devices", config.DEVICES),
    "rolebindings.rbac.authorization.k8s.io": config.ROLE_BINDING,
    "secrets": (("type", "Opaque"), ("", _plain_data)),
    "services": network.SERVICE,
    "statefulsets.apps": under("spec", pod.STATEFUL_SET),
    "storageclasses.storage.k8s.io": (("reclaimPolicy", "Delete"), ("volumeBindingMode", "Immediate")),
    "validatingadmissionpolicies.admissionregistration.k8s.io": under("spec", config.ADMISSION_POLICY),
    "validatingadmissionpolicybindings.admissionregistration.k8s.io": under("spec", config.ADMISSION_BINDING),
    "validatingwebhookconfigurations.admissionregistration.k8s.io": under("webhooks", config.VALIDATING_WEBHOOK),
})  # fmt: skip
# Of versions that are a view of what another stores.
VIEW_DEFAULT_ROWS: Mapping[str, Rows] = MappingProxyType(
    {"horizontalpodautoscalers.autoscaling": under("spec", (("minReplicas", 1),))}
)
DEFAULTS: Mapping[str, Defaults] = MappingProxyType({name: applying(rows) for name, rows in DEFAULT_ROWS.items()})
VIEW_DEFAULTS: Mapping[str, Defaults] = MappingProxyType({
    name: applying(rows) for name, rows in VIEW_DEFAULT_ROWS.items()
})  # fmt: skip
