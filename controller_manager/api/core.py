"""The core group, as far as controllers read it."""

from collections.abc import Mapping

import msgspec

from controller_manager.api.conditions import Condition, is_condition_true
from controller_manager.api.model import EMPTY_RAW, Model, Object, ObjectMeta
from controller_manager.api.platform import GROUP_DOMAIN
from controller_manager.api.resource import Resource
from controller_manager.api.selectors import SelectorRequirement

TCP = "TCP"
"""The protocol of a port that names none."""


class NamespaceSpec(Model):
    finalizers: tuple[str, ...] = ()


class NamespaceStatus(Model):
    phase: str = ""
    conditions: tuple[Condition, ...] = ()


class Namespace(Object):
    spec: NamespaceSpec = NamespaceSpec()
    status: NamespaceStatus = NamespaceStatus()


class ObjectReference(Model):
    """A reference to one object, complete."""

    api_version: str = ""
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    resource_version: str = ""
    field_path: str = ""


class ContainerPort(Model):
    container_port: int
    name: str = ""
    protocol: str = TCP


class ResourceRequirements(Model):
    requests: Mapping[str, str] | None = None


class Container(Model):
    name: str = ""
    ports: tuple[ContainerPort, ...] = ()
    resources: ResourceRequirements | None = None
    restart_policy: str = ""


class Toleration(Model):
    """`spec.tolerations[]`, complete; without a `key` it is for every taint, without `toleration_seconds` for good."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class NodeSelectorTerm(Model):
    """`nodeSelectorTerms[]`, complete: conditions on the labels and on the fields of a node."""

    match_expressions: tuple[SelectorRequirement, ...] = ()
    match_fields: tuple[SelectorRequirement, ...] = ()


class NodeSelector(Model):
    """Nodes that meet one of the terms."""

    node_selector_terms: tuple[NodeSelectorTerm, ...] = ()


class NodeAffinity(Model):
    required: NodeSelector | None = msgspec.field(default=None, name="requiredDuringSchedulingIgnoredDuringExecution")


class Affinity(Model):
    node_affinity: NodeAffinity | None = None


class PersistentVolumeClaimVolumeSource(Model):
    claim_name: str = ""
    read_only: bool = False


class PersistentVolumeClaimTemplate(Model):
    """The claim of a generic ephemeral volume: the metadata it gets, and its spec as JSON, which loses no field."""

    metadata: ObjectMeta = ObjectMeta()
    spec: msgspec.Raw = EMPTY_RAW


class EphemeralVolumeSource(Model):
    volume_claim_template: PersistentVolumeClaimTemplate | None = None


class VolumeSources(Model):
    """The sources that volumes of pods and persistent volumes share, each as JSON; of a volume one is there."""

    aws_elastic_block_store: msgspec.Raw = EMPTY_RAW
    azure_disk: msgspec.Raw = EMPTY_RAW
    azure_file: msgspec.Raw = EMPTY_RAW
    cinder: msgspec.Raw = EMPTY_RAW
    fc: msgspec.Raw = EMPTY_RAW
    flex_volume: msgspec.Raw = EMPTY_RAW
    gce_persistent_disk: msgspec.Raw = EMPTY_RAW
    host_path: msgspec.Raw = EMPTY_RAW
    iscsi: msgspec.Raw = EMPTY_RAW
    nfs: msgspec.Raw = EMPTY_RAW
    portworx_volume: msgspec.Raw = EMPTY_RAW
    vsphere_volume: msgspec.Raw = EMPTY_RAW


class Volume(VolumeSources):
    """`spec.volumes[]`; controllers never change it."""

    name: str = ""
    rbd: msgspec.Raw = EMPTY_RAW
    persistent_volume_claim: PersistentVolumeClaimVolumeSource | None = None
    ephemeral: EphemeralVolumeSource | None = None


class PodResourceClaim(Model):
    """An entry for a claim to devices: an object, or one that is made of a template."""

    name: str = ""
    resource_claim_name: str = ""
    resource_claim_template_name: str = ""


class PodSpec(Model):
    node_name: str = ""
    affinity: Affinity | None = None
    hostname: str = ""
    subdomain: str = ""
    restart_policy: str = "Always"
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    resources: ResourceRequirements | None = None
    tolerations: tuple[Toleration, ...] = ()
    volumes: tuple[Volume, ...] = ()
    resource_claims: tuple[PodResourceClaim, ...] = ()


class PodTemplateSpec(Model):
    """The template of pods: the metadata they get, and their spec as JSON, of which no field is lost."""

    metadata: ObjectMeta = ObjectMeta()
    spec: msgspec.Raw = EMPTY_RAW


class PodIP(Model):
    ip: str = ""


class TerminatedState(Model):
    exit_code: int = 0
    finished_at: str | None = None


class WaitingState(Model):
    reason: str = ""


class ContainerState(Model):
    waiting: WaitingState | None = None
    terminated: TerminatedState | None = None


class ContainerStatus(Model):
    """The state of one container; controllers never change it."""

    name: str = ""
    restart_count: int = 0
    state: ContainerState = ContainerState()


class PodResourceClaimStatus(Model):
    """The claim that was made for an entry; None if none is needed."""

    name: str = ""
    resource_claim_name: str | None = None


class ContainerExtendedResourceRequest(Model):
    """`requestMappings[]`, complete: the request of a claim by which a container is given an extended resource."""

    container_name: str = ""
    resource_name: str = ""
    request_name: str = ""


class ExtendedResourceClaimStatus(Model):
    """The claim that a scheduler made for the extended resources of a pod."""

    request_mappings: tuple[ContainerExtendedResourceRequest, ...] = ()
    resource_claim_name: str = ""


class PodStatus(Model):
    phase: str = ""
    reason: str = ""
    message: str = ""
    start_time: str | None = None
    pod_ip: str = msgspec.field(default="", name="podIP")
    pod_ips: tuple[PodIP, ...] = msgspec.field(default=(), name="podIPs")
    conditions: tuple[Condition, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()
    ephemeral_container_statuses: tuple[ContainerStatus, ...] = ()
    resource_claim_statuses: tuple[PodResourceClaimStatus, ...] = ()
    extended_resource_claim_status: ExtendedResourceClaimStatus | None = None


class Pod(Object):
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


class ServicePort(Model):
    port: int
    name: str = ""
    protocol: str = TCP
    node_port: int = 0
    target_port: int | str | None = None
    app_protocol: str | None = None


class ServiceSpec(Model):
    type: str = "ClusterIP"
    selector: Mapping[str, str] | None = None
    ports: tuple[ServicePort, ...] = ()
    cluster_ip: str = msgspec.field(default="", name="clusterIP")
    external_name: str = ""
    ip_families: tuple[str, ...] = ()
    publish_not_ready_addresses: bool = False
    traffic_distribution: str | None = None
    session_affinity: str = ""
    session_affinity_config: msgspec.Raw = EMPTY_RAW
    external_ips: tuple[str, ...] = msgspec.field(default=(), name="externalIPs")
    external_traffic_policy: str = ""
    health_check_node_port: int = 0
    load_balancer_class: str | None = None
    load_balancer_ip: str = msgspec.field(default="", name="loadBalancerIP")
    load_balancer_source_ranges: tuple[str, ...] = ()


class PortStatus(Model):
    """`status.loadBalancer.ingress[].ports[]`, complete."""

    port: int
    protocol: str = TCP
    error: str | None = None


class LoadBalancerIngress(Model):
    """`status.loadBalancer.ingress[]`, complete: an address or a name at which a service is reached."""

    ip: str = ""
    hostname: str = ""
    ip_mode: str | None = None
    ports: tuple[PortStatus, ...] = ()


class LoadBalancerStatus(Model):
    ingress: tuple[LoadBalancerIngress, ...] = ()


class ServiceStatus(Model):
    load_balancer: LoadBalancerStatus = LoadBalancerStatus()


class Service(Object):
    spec: ServiceSpec = ServiceSpec()
    status: ServiceStatus = ServiceStatus()


class EndpointAddress(Model):
    """`subsets[].addresses[]`, complete."""

    ip: str
    hostname: str = ""
    node_name: str | None = None
    target_ref: ObjectReference | None = None


class EndpointPort(Model):
    """`subsets[].ports[]`, complete."""

    port: int
    name: str = ""
    protocol: str = TCP
    app_protocol: str | None = None


class EndpointSubset(Model):
    """`subsets[]`, complete."""

    addresses: tuple[EndpointAddress, ...] = ()
    not_ready_addresses: tuple[EndpointAddress, ...] = ()
    ports: tuple[EndpointPort, ...] = ()


class Endpoints(Object):
    subsets: tuple[EndpointSubset, ...] = ()


class EventSource(Model):
    component: str = ""
    host: str = ""


class EventSeries(Model):
    count: int = 0
    last_observed_time: str | None = None


class Event(Object):
    """Something that happened, in its core form (API concepts, Event resource: the deprecated fields' names)."""

    involved_object: ObjectReference = ObjectReference()
    type: str = ""
    reason: str = ""
    message: str = ""
    action: str = ""
    count: int = 0
    source: EventSource = EventSource()
    series: EventSeries | None = None
    event_time: str | None = None
    first_timestamp: str | None = None
    last_timestamp: str | None = None
    reporting_component: str = ""
    reporting_instance: str = ""
    related: ObjectReference | None = None


class ConfigMap(Object):
    data: Mapping[str, str] = {}


class Secret(Object):
    """A secret; values are bytes (base64 on the wire)."""

    type: str = ""
    data: Mapping[str, bytes] = {}


NAMESPACES = Resource("", "v1", "namespaces", "Namespace", False, Namespace)
PODS = Resource("", "v1", "pods", "Pod", True, Pod)
SERVICES = Resource("", "v1", "services", "Service", True, Service)
ENDPOINTS = Resource("", "v1", "endpoints", "Endpoints", True, Endpoints)
CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap", True, ConfigMap)
SECRETS = Resource("", "v1", "secrets", "Secret", True, Secret)
EVENTS = Resource("", "v1", "events", "Event", True, Event)


def is_pod_ready(pod: Pod) -> bool:
    """Tell whether the condition Ready of a pod is True."""
    return is_condition_true(pod.status.conditions, "Ready")


def is_pod_terminal(pod: Pod) -> bool:
    """Tell whether all containers of a pod have ended for good: its phase is Succeeded or Failed."""
    return pod.status.phase in ("Succeeded", "Failed")


def reference_to(obj: Object) -> ObjectReference:
    """Return a reference to `obj` as events and endpoints carry it."""
    meta = obj.metadata
    return ObjectReference(
        api_version=obj.api_version,
        kind=obj.kind,
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        resource_version=meta.resource_version,
    )


# Nodes of the core group: what they say of themselves, and what is said of them.

# Labels that place a node.
ZONE = "topology.kubernetes.io/zone"
REGION = "topology.kubernetes.io/region"
HOSTNAME = "kubernetes.io/hostname"
VIRTUAL_POOL = f"virtual-node.x-{GROUP_DOMAIN}/pool"
"""The label of virtual nodes: which of them belong together."""


class Taint(Model):
    """`spec.taints[]`, complete."""

    key: str
    effect: str
    value: str = ""
    time_added: str | None = None


class NodeCondition(Condition):
    """`status.conditions[]`, complete."""

    last_heartbeat_time: str | None = None


class NodeSpec(Model):
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    provider_id: str = msgspec.field(default="", name="providerID")
    pod_cidr: str = msgspec.field(default="", name="podCIDR")
    pod_cidrs: tuple[str, ...] = msgspec.field(default=(), name="podCIDRs")


class NodeAddress(Model):
    """`status.addresses[]`, complete."""

    type: str
    address: str


class AttachedVolume(Model):
    """`status.volumesAttached[]`, complete; the name is a unique one of the volume."""

    name: str
    device_path: str = ""


class DaemonEndpoint(Model):
    """`status.daemonEndpoints.kubeletEndpoint`, complete."""

    port: int = msgspec.field(default=0, name="Port")


class DaemonEndpoints(Model):
    """`status.daemonEndpoints`, complete."""

    kubelet_endpoint: DaemonEndpoint = DaemonEndpoint()


class NodeStatus(Model):
    daemon_endpoints: DaemonEndpoints = DaemonEndpoints()
    volumes_attached: tuple[AttachedVolume, ...] = ()
    volumes_in_use: tuple[str, ...] = ()
    addresses: tuple[NodeAddress, ...] = ()
    conditions: tuple[NodeCondition, ...] = ()
    allocatable: Mapping[str, str] | None = None


class Node(Object):
    """A machine that runs pods."""

    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


NODES = Resource("", "v1", "nodes", "Node", False, Node)


# Quotas.


class ScopeRequirement(Model):
    """`spec.scopeSelector.matchExpressions[]`, complete."""

    scope_name: str
    operator: str
    values: tuple[str, ...] = ()


class ScopeSelector(Model):
    match_expressions: tuple[ScopeRequirement, ...] = ()


class ResourceQuotaSpec(Model):
    hard: Mapping[str, str] | None = None
    scopes: tuple[str, ...] = ()
    scope_selector: ScopeSelector | None = None


class ResourceQuotaStatus(Model):
    hard: Mapping[str, str] | None = None
    used: Mapping[str, str] | None = None


class ResourceQuota(Object):
    """Limits of what the objects of a namespace may take together."""

    spec: ResourceQuotaSpec = ResourceQuotaSpec()
    status: ResourceQuotaStatus = ResourceQuotaStatus()


RESOURCE_QUOTAS = Resource("", "v1", "resourcequotas", "ResourceQuota", True, ResourceQuota)


# Service accounts, and the tokens with which somebody acts as one (`authentication.k8s.io/v1`).


class ServiceAccount(Object):
    """An identity for programs."""

    secrets: tuple[ObjectReference, ...] = ()


class TokenRequestSpec(Model):
    """The requested validity in seconds; the server answers with what it grants, at most so much."""

    expiration_seconds: int = 0


class TokenRequestStatus(Model):
    """The granted token."""

    token: str = ""


class TokenRequest(Object):
    """A token of the account that the path names; sent to its subresource `token`."""

    spec: TokenRequestSpec = TokenRequestSpec()
    status: TokenRequestStatus = TokenRequestStatus()


SERVICE_ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount", True, ServiceAccount)
TOKEN_VERSION = f"authentication.{GROUP_DOMAIN}/v1"
