"""Decides whether a node admits a pod that was bound to it, as the kubelet does; pure.

condition (the first match counts)                                reason of the failed pod
node has disk or PID pressure                                     Evicted, except critical pods
memory pressure, and a best-effort pod without toleration         Evicted, except critical pods
pod is for another OS, by its label or its field `os`             PodOSSelectorNodeLabelDoesNotMatch,
                                                                  PodOSNotSupported
pods, CPU, memory or another resource exhausted                   OutOfpods, OutOfcpu, OutOfmemory, OutOf…
node selector or affinity does not match                          NodeAffinity
a host port is taken                                              NodePorts
a NoExecute taint is not tolerated                                TaintToleration

If a critical pod only lacks resources, other pods are preempted (`critical_pods.py`). Extended resources that the node
does not declare, or that are provided by devices, are ignored.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from controller_manager.common.api.conditions import is_condition_true
from controller_manager.common.api.core import Node, Pod, Taint, is_pod_terminal
from controller_manager.common.api.decode import Decoder
from controller_manager.common.api.model import Model
from controller_manager.common.api.platform import PLATFORM_DOMAIN
from controller_manager.common.api.resource import Key, key_of
from controller_manager.common.api.scheduling import NO_EXECUTE, NO_SCHEDULE, tolerates, untolerated

from ..scheduler.node_info import Room, conflicts
from ..scheduler.pod_requirements import requirements_of
from ..scheduler.requirements import HostPort, Requirements
from .critical_pods import CRITICAL, Occupant

_OS = f"{PLATFORM_DOMAIN}/os"
_SYSTEM = "linux"
_MEMORY = "MemoryPressure"
_PRESSURES = (_MEMORY, "DiskPressure", "PIDPressure")
_SHORT_OF_MEMORY = Taint(key=f"node.{PLATFORM_DOMAIN}/memory-pressure", effect=NO_SCHEDULE)


class _System(Model):
    name: str = ""


class _Spec(Model):
    os: _System | None = None


class _Status(Model):
    qos_class: str = ""


class _Details(Model):
    spec: _Spec = _Spec()
    status: _Status = _Status()


_DETAILS = Decoder(_Details)


class Refusal(NamedTuple):
    """Why a node rejects a pod: reason and message. `lacking` are the missing resources, if nothing else is wrong."""

    reason: str
    message: str
    lacking: Mapping[str, int] = {}


class _Shortage(NamedTuple):
    """A resource whose free amount is less than a pod requests."""

    resource: str
    wanted: int
    taken: int
    most: int

    @property
    def refusal(self) -> Refusal:
        """Return the rejection for this shortage."""
        name, unit = self.resource, " thousandths" if self.resource == "cpu" else ""
        message = f"the pod asks for {self.wanted}{unit} of {name}, and {self.taken} of {self.most} are taken"
        return Refusal(f"OutOf{name}", message)


def refusal_of(
    pod: Pod, node: Node, room: Room, others: Sequence[Requirements], *, compares: bool = False
) -> Refusal | None:
    """Return why a node with that room and these pods rejects another pod, or None.

    `compares` enables numeric comparison in tolerations.
    """
    asked, details = requirements_of(pod), _DETAILS.decode(pod.raw)
    is_best_effort = details.status.qos_class == "BestEffort"
    refusals = (
        *_pressed(asked, node, is_best_effort=is_best_effort),
        *_for_others(asked, details.spec.os),
    )
    shortages = list(_lacking(asked, room, others, _by_devices(pod)))
    misplaced = tuple(_misplaced(asked, node, others, compares=compares))
    if asked.priority >= CRITICAL and shortages and not refusals and not misplaced:
        lacking = {one.resource: one.wanted + one.taken - one.most for one in shortages}
        return shortages[0].refusal._replace(lacking=lacking)
    if asked.priority >= CRITICAL:
        shortages = []
    return next(iter((*refusals, *(one.refusal for one in shortages), *misplaced)), None)


class AdmittedPods:
    """The requirements of admitted pods, even if the cache does not show the admission yet."""

    def __init__(self) -> None:
        self._known: dict[str, Requirements] = {}
        self._uids: dict[Key, str] = {}
        # The uids of preempted pods.
        self._ended: set[str] = set()

    def has(self, pod: Pod) -> bool:
        """Return whether a pod was admitted."""
        return bool(pod.status.start_time) or pod.metadata.uid in self._known

    def add(self, pod: Pod) -> Requirements:
        """Record an admitted pod, or its new requirements."""
        key, uid = key_of(pod), pod.metadata.uid
        if self._uids.get(key) != uid:
            self.forget(key)
            self._uids[key] = uid
        found = self._known[uid] = requirements_of(pod)
        return found

    def forget(self, key: Key) -> None:
        """Drop a deleted pod."""
        uid = self._uids.pop(key, "")
        self._known.pop(uid, None)
        self._ended.discard(uid)

    def end(self, pod: Pod) -> None:
        """Record that a pod is preempted."""
        self._ended.add(pod.metadata.uid)

    def ends(self, pod: Pod) -> bool:
        """Return whether a pod is being preempted and has not ended."""
        return pod.metadata.uid in self._ended and not is_pod_terminal(pod)

    def taken(self, pods: Iterable[Pod]) -> list[Pod]:
        """Return the admitted pods that have not ended."""
        known, ended = self._known, self._ended
        return [
            pod
            for pod in pods
            if (pod.metadata.uid in known or pod.status.start_time)
            and not is_pod_terminal(pod)
            and pod.metadata.uid not in ended
        ]

    def requirements(self, pods: Iterable[Pod]) -> list[Requirements]:
        """Return the requirements of the admitted pods that have not ended."""
        known = self._known
        return [known.get(pod.metadata.uid) or self.add(pod) for pod in self.taken(pods)]

    def occupants(self, pods: Iterable[Pod]) -> list[Occupant]:
        """Return the same pods with their requirements."""
        taken = self.taken(pods)
        return [Occupant(*one) for one in zip(taken, self.requirements(taken), strict=True)]


def _pressed(asked: Requirements, node: Node, *, is_best_effort: bool) -> Iterator[Refusal]:
    pressures = [one for one in _PRESSURES if is_condition_true(node.status.conditions, one)]
    if not pressures or asked.priority >= CRITICAL:
        return
    minds = is_best_effort and not any(tolerates(one, _SHORT_OF_MEMORY) for one in asked.tolerations)
    if pressures != [_MEMORY] or minds:
        yield Refusal("Evicted", f"The node had condition: [{' '.join(pressures)}].")


def _for_others(asked: Requirements, system: _System | None) -> Iterator[Refusal]:
    labelled = asked.labels.get(_OS, _SYSTEM)
    if labelled != _SYSTEM:
        yield Refusal("PodOSSelectorNodeLabelDoesNotMatch", f"the label {_OS} of the pod is {labelled}, not {_SYSTEM}")
    if system is not None and system.name != _SYSTEM:
        yield Refusal("PodOSNotSupported", f"the pod is for {system.name}, not for {_SYSTEM}")


def _lacking(
    asked: Requirements, room: Room, others: Sequence[Requirements], by_devices: Collection[str]
) -> Iterator[_Shortage]:
    requests, there = asked.requests, room.allocatable
    cpu = memory = storage = 0
    for one in others:
        taken_by_one = one.requests
        cpu += taken_by_one.cpu
        memory += taken_by_one.memory
        storage += taken_by_one.storage
    amounts: list[tuple[str, int, int, int]] = [
        ("pods", 1, len(others), room.most_pods),
        ("cpu", requests.cpu, cpu, there.cpu),
        ("memory", requests.memory, memory, there.memory),
        ("ephemeral-storage", requests.storage, storage, there.storage),
    ]
    for name, amount in requests.others.items():
        if name not in by_devices and (name in there.others or not _is_extended(name)):
            taken = sum(one.requests.others.get(name, 0) for one in others)
            amounts.append((name, amount, taken, there.others.get(name, 0)))
    for name, amount, taken, most in amounts:
        if amount and amount > most - taken:
            yield _Shortage(name, amount, taken, most)


def _ports_of(others: Iterable[Requirements]) -> Mapping[HostPort, int]:
    return dict.fromkeys((port for one in others for port in one.ports), 1)


def _by_devices(pod: Pod) -> Collection[str]:
    """Return the extended resources that are provided by devices."""
    status = pod.status.extended_resource_claim_status
    return {one.resource_name for one in status.request_mappings} if status is not None else ()


def _misplaced(asked: Requirements, node: Node, others: Sequence[Requirements], *, compares: bool) -> Iterator[Refusal]:
    if asked.selects_nodes and not asked.node_affinity.matches(node):
        yield Refusal("NodeAffinity", "the node is not one of those that the pod selects")
    if asked.ports and conflicts(asked.ports, _ports_of(others)):
        yield Refusal("NodePorts", "a port of the host that the pod asks for is taken")
    taint = untolerated(node.spec.taints, asked.tolerations, (NO_EXECUTE,), compares=compares)
    if taint is not None:
        yield Refusal("TaintToleration", f"the pod does not tolerate the taint {taint.key}")


def _is_extended(name: str) -> bool:
    """Return whether a resource is an extended resource."""
    return "/" in name and f"{PLATFORM_DOMAIN}/" not in name
