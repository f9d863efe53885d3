"""Pods: containers, volumes, resource requests and status."""

from collections.abc import Mapping

import msgspec

from controller_manager.common.api.conditions import Condition, is_condition_true
from controller_manager.common.api.core.services import TCP
from controller_manager.common.api.model import EMPTY_RAW, Model, Object, ObjectMeta
from controller_manager.common.api.resource import Resource
from controller_manager.common.api.selectors import SelectorRequirement


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
    """`spec.tolerations[]`, complete; no `key` means every taint, no `toleration_seconds` means forever."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class NodeSelectorTerm(Model):
    """`nodeSelectorTerms[]`, complete: requirements for labels and fields of a node."""

    match_expressions: tuple[SelectorRequirement, ...] = ()
    match_fields: tuple[SelectorRequirement, ...] = ()


class NodeSelector(Model):
    """Selects the nodes that match one of the terms."""

    node_selector_terms: tuple[NodeSelectorTerm, ...] = ()


class NodeAffinity(Model):
    required: NodeSelector | None = msgspec.field(default=None, name="requiredDuringSchedulingIgnoredDuringExecution")


class Affinity(Model):
    node_affinity: NodeAffinity | None = None


class PersistentVolumeClaimVolumeSource(Model):
    claim_name: str = ""
    read_only: bool = False


class PersistentVolumeClaimTemplate(Model):
    """The claim template of an ephemeral volume: metadata, and the spec as JSON, so that no field is lost."""

    metadata: ObjectMeta = ObjectMeta()
    spec: msgspec.Raw = EMPTY_RAW


class EphemeralVolumeSource(Model):
    volume_claim_template: PersistentVolumeClaimTemplate | None = None


class VolumeSources(Model):
    """The sources that volumes of pods and persistent volumes share, as JSON; exactly one is set."""

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
    """A reference to a device claim: an object, or a template for one."""

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
    """A pod template: metadata, and the spec as JSON, so that no field is lost."""

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
    """The claim created for an entry; None if none is needed."""

    name: str = ""
    resource_claim_name: str | None = None


class ContainerExtendedResourceRequest(Model):
    """`requestMappings[]`, complete: the claim request that provides an extended resource to a container."""

    container_name: str = ""
    resource_name: str = ""
    request_name: str = ""


class ExtendedResourceClaimStatus(Model):
    """The claim that the scheduler created for the extended resources of a pod."""

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
    """Containers that run together on one node."""

    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


PODS = Resource("", "v1", "pods", "Pod", True, Pod)


def is_pod_ready(pod: Pod) -> bool:
    """Return whether the condition Ready of a pod is True."""
    return is_condition_true(pod.status.conditions, "Ready")


def is_pod_terminal(pod: Pod) -> bool:
    """Return whether all containers of a pod have ended permanently: its phase is Succeeded or Failed."""
    return pod.status.phase in ("Succeeded", "Failed")
