"""A node as the scheduler sees it: its resources, and what its pods use."""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import msgspec

from controller_manager.common.api.core import Node, Pod, Taint
from controller_manager.common.api.decode import Decoder
from controller_manager.common.api.model import Model
from controller_manager.common.api.quantity import parse
from controller_manager.common.api.resource import Key, key_of

from .requirements import Amounts, HostPort, Requirements

_EMPTY: Mapping[str, str] = {}
ANY_ADDRESS = "0.0.0.0"  # noqa: S104 - how pods write it


class Disk(NamedTuple):
    """A disk in a pod's volume, by kind and identity. Pods may share it if all use it read-only."""

    kind: str
    identity: str
    only_read: bool


class PlacedPod(msgspec.Struct):
    """A pod on a node; `assumed` until the server confirms the binding.

    `claims` are those of its volumes, `disks` those that may not be shared.
    """

    pod: Pod
    node: str
    requirements: Requirements
    claims: tuple[Key, ...] = ()
    disks: tuple[Disk, ...] = ()
    assumed: bool = False
    doomed: bool = False
    """Whether its deletion was requested but is not observed yet."""

    @property
    def uid(self) -> str:
        """Return the uid of the pod."""
        return self.pod.metadata.uid

    @property
    def key(self) -> Key:
        """Return the key of the pod."""
        return key_of(self.pod)

    @property
    def is_leaving(self) -> bool:
        """Return whether the pod is being deleted."""
        return self.pod.metadata.deletion_timestamp is not None


class Room(NamedTuple):
    """The resources and the number of pods that a node has for pods."""

    allocatable: Amounts = Amounts()
    most_pods: int = 0


class NodeInfo:
    """One node. `generation` changes with each change that matters to pods."""

    __slots__ = (
        *(
            "name",
            "node",
            "labels",
            "taints",
            "features",
            "unschedulable",
            "allocatable",
            "most_pods",
            "images",
            "generation",
        ),
        *("pods", "cpu", "memory", "storage", "others", "weight_cpu", "weight_memory", "ports"),
    )

    def __init__(self, name: str) -> None:
        self.name = name
        self.node: Node | None = None
        """None if only pods of that node are known."""
        self.labels: Mapping[str, str] = _EMPTY
        self.taints: tuple[Taint, ...] = ()
        self.features: frozenset[str] = frozenset()
        """The declared features of the node."""
        self.unschedulable = False
        self.allocatable = Amounts()
        self.most_pods = 0
        self.images: Mapping[str, int] = {}
        """The size in bytes of each image on the node, by all its names."""
        self.generation = 0
        self.pods: dict[str, PlacedPod] = {}
        self.cpu = self.memory = self.storage = self.weight_cpu = self.weight_memory = 0
        self.others: dict[str, int] = {}
        self.ports: dict[HostPort, int] = {}

    def describe(self, node: Node) -> bool:
        """Update from the node object. Return whether relevant fields have changed."""
        before = (self.node is None, self.labels, self.taints, self.unschedulable, self.allocatable, self.most_pods)
        images, features = self.images, self.features
        self.node = node
        self.labels = node.metadata.labels or _EMPTY
        self.taints = node.spec.taints
        self.features = frozenset(node.status.declared_features)
        self.unschedulable = node.spec.unschedulable
        self.allocatable, self.most_pods = room_of(node.status.allocatable)
        self.images = images_of(node)
        after = (False, self.labels, self.taints, self.unschedulable, self.allocatable, self.most_pods)
        return before != after or images != self.images or features != self.features

    def add(self, placed: PlacedPod) -> None:
        """Add a pod and its requests."""
        self.pods[placed.uid] = placed
        self._take(placed.requirements, 1)

    def remove(self, placed: PlacedPod) -> None:
        """Remove a pod and its requests."""
        del self.pods[placed.uid]
        self._take(placed.requirements, -1)

    def copy(self) -> "NodeInfo":
        """Return a copy for hypothetical changes."""
        other = NodeInfo(self.name)
        for name in NodeInfo.__slots__:
            setattr(other, name, getattr(self, name))
        other.pods, other.others, other.ports = dict(self.pods), dict(self.others), dict(self.ports)
        return other

    def _take(self, asked: Requirements, sign: int) -> None:
        requests, weight = asked.requests, asked.weight
        self.cpu += sign * requests.cpu
        self.memory += sign * requests.memory
        self.storage += sign * requests.storage
        self.weight_cpu += sign * weight.cpu
        self.weight_memory += sign * weight.memory
        for name, amount in requests.others.items():
            self.others[name] = self.others.get(name, 0) + sign * amount
        for port in asked.ports:
            count = self.ports.get(port, 0) + sign
            if count:
                self.ports[port] = count
            else:
                del self.ports[port]


def conflicts(wanted: Iterable[HostPort], taken: Mapping[HostPort, int]) -> bool:
    """Return whether one of the ports is taken. The wildcard address conflicts with every address."""
    if not taken:
        return False
    return any(
        one in taken
        or (
            any(o.number == one.number and o.protocol == one.protocol for o in taken)
            if one.address == ANY_ADDRESS
            else HostPort(ANY_ADDRESS, one.protocol, one.number) in taken
        )
        for one in wanted
    )


class _Image(Model):
    names: tuple[str, ...] = ()
    size_bytes: int = 0


class _Status(Model):
    images: tuple[_Image, ...] = ()


class _WithImages(Model):
    status: _Status = _Status()


_IMAGES = Decoder(_WithImages)


def images_of(node: Node) -> Mapping[str, int]:
    """Return the size of each image of a node by its names; empty if they cannot be decoded."""
    if b'"images"' not in node.raw:
        return {}
    try:
        found = _IMAGES.decode(node.raw).status.images
    except msgspec.ValidationError:
        return {}
    return {name: image.size_bytes for image in found for name in image.names}


def room_of(resources: Mapping[str, str] | None) -> Room:
    """Return the room for pods of a node with these allocatable resources."""
    found = {}
    for name, text in (resources or {}).items():
        try:
            found[name] = parse(text)
        except ValueError:  # the server rejects such values
            continue
    pods = found.get("pods")
    return Room(Amounts.of(found), int(pods.number) if pods is not None else 0)


def pods_on(nodes: Iterable[NodeInfo]) -> Iterator[PlacedPod]:
    """Yield the pods of these nodes."""
    for node in nodes:
        yield from node.pods.values()
