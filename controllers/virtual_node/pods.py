"""Models of pods for virtual nodes: the relevant spec, and the complete status that a node writes."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Literal

import msgspec

from controller_manager.common.api.conditions import Condition
from controller_manager.common.api.core import PodIP
from controller_manager.common.api.decode import Decoder
from controller_manager.common.api.model import EMPTY_RAW, Model, ObjectMeta
from controller_manager.common.api.timestamps import time_of

ContainerKind = Literal["init", "sidecar", "main", "ephemeral"]


class ExecAction(Model):
    command: tuple[str, ...] = ()


class Probe(Model):
    initial_delay_seconds: int = 0
    period_seconds: int = 10
    failure_threshold: int = 3
    exec: ExecAction | None = None


class ExitCodes(Model):
    operator: str = ""
    values: tuple[int, ...] = ()


class RestartRule(Model):
    """An action of a container by its exit code (KEP-5307)."""

    action: str = ""
    exit_codes: ExitCodes | None = None


class Resources(Model):
    """The requests and limits of a container, complete."""

    claims: msgspec.Raw = EMPTY_RAW
    limits: Mapping[str, str] | None = None
    requests: Mapping[str, str] | None = None


class VolumeMount(Model):
    name: str = ""
    mount_path: str = ""
    read_only: bool = False


class Container(Model):
    name: str = ""
    image: str = ""
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    restart_policy: str = ""
    restart_policy_rules: tuple[RestartRule, ...] = ()
    startup_probe: Probe | None = None
    readiness_probe: Probe | None = None
    liveness_probe: Probe | None = None
    resources: Resources = Resources()
    volume_mounts: tuple[VolumeMount, ...] = ()

    @property
    def init_kind(self) -> ContainerKind:
        """Its kind among the init containers."""
        return "sidecar" if self.restart_policy == "Always" else "init"


class ReadinessGate(Model):
    condition_type: str = ""


class PodSpec(Model):
    node_name: str = ""
    host_network: bool = False
    restart_policy: str = "Always"
    active_deadline_seconds: int | None = None
    init_containers: tuple[Container, ...] = ()
    containers: tuple[Container, ...] = ()
    ephemeral_containers: tuple[Container, ...] = ()
    readiness_gates: tuple[ReadinessGate, ...] = ()


class Waiting(Model):
    reason: str = ""
    message: str = ""


class Running(Model):
    started_at: str | None = None


class Terminated(Model):
    """How a container ended, complete."""

    exit_code: int
    signal: int = 0
    reason: str = ""
    message: str = ""
    started_at: str | None = None
    finished_at: str | None = None
    container_id: str = msgspec.field(default="", name="containerID")

    @property
    def seconds(self) -> float:
        """The duration of its run in seconds."""
        start, end = time_of(self.started_at), time_of(self.finished_at)
        return (end - start).total_seconds() if start is not None and end is not None else 0.0


class ContainerState(Model):
    """The state of a container, complete."""

    waiting: Waiting | None = None
    running: Running | None = None
    terminated: Terminated | None = None


class ContainerStatus(Model):
    """An entry of `containerStatuses` and similar lists, complete, including fields of other writers."""

    name: str
    ready: bool
    restart_count: int
    image: str
    image_id: str = msgspec.field(name="imageID")
    state: ContainerState = ContainerState()
    last_state: ContainerState = ContainerState()
    container_id: str = msgspec.field(default="", name="containerID")
    started: bool | None = None
    allocated_resources: Mapping[str, str] | None = None
    resources: Resources | None = None
    volume_mounts: msgspec.Raw = EMPTY_RAW
    user: msgspec.Raw = EMPTY_RAW
    allocated_resources_status: msgspec.Raw = EMPTY_RAW
    stop_signal: msgspec.Raw = EMPTY_RAW


class PodStatus(Model):
    """The fields of the status that a node writes."""

    observed_generation: int = 0
    phase: str = ""
    conditions: tuple[Condition, ...] = ()
    message: str = ""
    reason: str = ""
    host_ip: str = msgspec.field(default="", name="hostIP")
    host_ips: tuple[PodIP, ...] = msgspec.field(default=(), name="hostIPs")
    pod_ip: str = msgspec.field(default="", name="podIP")
    pod_ips: tuple[PodIP, ...] = msgspec.field(default=(), name="podIPs")
    start_time: str | None = None
    init_container_statuses: tuple[ContainerStatus, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()
    ephemeral_container_statuses: tuple[ContainerStatus, ...] = ()


class VirtualPod(Model):
    """A pod of a virtual node."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def is_over(self) -> bool:
        """Whether it has ended."""
        return self.status.phase in ("Succeeded", "Failed")

    def containers(self) -> Iterator[tuple[ContainerKind, Container]]:
        """Return the containers with their kinds; init containers come first."""
        for one in self.spec.init_containers:
            yield one.init_kind, one
        for one in self.spec.containers:
            yield "main", one
        for one in self.spec.ephemeral_containers:
            yield "ephemeral", one

    def statuses(self) -> Iterator[ContainerStatus]:
        """Return the statuses of all containers in the same order, once each has one."""
        yield from self.status.init_container_statuses
        yield from self.status.container_statuses
        yield from self.status.ephemeral_container_statuses

    def with_statuses(self, statuses: Sequence[ContainerStatus]) -> "VirtualPod":
        """Return the pod with these container statuses, in the order of `containers`."""
        inits = len(self.spec.init_containers)
        others = inits + len(self.spec.containers)
        status = msgspec.structs.replace(
            self.status,
            init_container_statuses=tuple(statuses[:inits]),
            container_statuses=tuple(statuses[inits:others]),
            ephemeral_container_statuses=tuple(statuses[others:]),
        )
        return msgspec.structs.replace(self, status=status)


POD = Decoder(VirtualPod)


def moment(text: str | None) -> float:
    """Return an API time in seconds since the epoch; 0 if it is missing."""
    found: datetime | None = time_of(text)
    return found.timestamp() if found is not None else 0.0
