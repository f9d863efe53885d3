"""The state of volumes and nodes: which pods want which volumes where, and where volumes are or may be attached; pure.

An attachment exists from the first attempt until the driver has detached the volume:

confirmed   operation   meaning
no          attach      being attached
yes         none        attached
no          none        possibly attached: an operation failed, or a previous process left it so
any         detach      being detached
"""

from collections.abc import Collection, Iterator, Mapping
from enum import StrEnum
from typing import NamedTuple

import msgspec

from controller_manager.framework import Key

from ..shared.volume_specs import VolumeSpec

FIRST_PAUSE, LONGEST_PAUSE = 0.5, 122.0
"""Seconds of the first backoff, which doubles with each failure, and the maximum."""


class Verb(StrEnum):
    """The operation on a volume, with the name of its metric label."""

    ATTACH = "volume_attach"
    DETACH = "volume_detach"


class OperationResult(NamedTuple):
    """The result of an operation. While it is in progress, `done` is false and `problem` is empty.

    `device` is the path that some drivers report.
    """

    done: bool = False
    problem: str = ""
    device: str = ""


NO_OUTCOME = OperationResult()


class VolumeOperation(msgspec.Struct):
    """An operation in progress since a time (seconds of the loop).

    An attach operation has the `uid` of its VolumeAttachment; `seen` means that the cache has shown it. A detach
    operation first removes the volume from the node's status (`unlisted`), then asks the driver (`asked`). `verify`
    means that the node must not use the volume, unless the operation is `late` and the node is not ready. `outcome` is
    the response of a FlexVolume driver.
    """

    verb: Verb
    since: float
    uid: str = ""
    seen: bool = False
    unlisted: bool = False
    asked: bool = False
    verify: bool = True
    late: bool = False
    outcome: OperationResult = NO_OUTCOME


class Attachment(msgspec.Struct):
    """A volume at a node.

    `reported` means that the node's status has to list it, with its `device` if known. `unwanted` is the time (seconds
    of the loop) since when no pod wants it there.
    """

    node: str
    confirmed: bool = False
    reported: bool = False
    device: str = ""
    unwanted: float | None = None
    operation: VolumeOperation | None = None


class Pause(NamedTuple):
    """The backoff of an operation: its number of failures and the end of the wait."""

    verb: Verb
    failures: int
    until: float


class AttachableVolume(msgspec.Struct):
    """A volume and its attachments by node. `places` are the names of all volumes at each node."""

    spec: VolumeSpec
    places: dict[str, set[str]] = {}
    attachments: dict[str, Attachment] = {}
    # By node. An exclusive volume has one backoff for all nodes.
    pauses: dict[str, Pause] = {}
    # The nodes whose pods have an event that the volume is attached elsewhere.
    refused: set[str] = set()

    @property
    def is_busy(self) -> bool:
        """Return whether an exclusive volume has an operation in progress, which excludes others."""
        return self.spec.exclusive and any(one.operation is not None for one in self.attachments.values())

    def paused(self, node: str, verb: Verb, now: float) -> float:
        """Return the end of an operation's backoff at a node, or 0. Failures of the other operation do not matter."""
        pause = self.pauses.get(self._scope(node))
        return pause.until if pause is not None and pause.verb is verb and pause.until > now else 0.0

    def begin(self, node: str, verb: Verb, now: float) -> VolumeOperation:
        """Start an operation."""
        pause = self.pauses.get(self._scope(node))
        if pause is not None and pause.verb is not verb:
            del self.pauses[self._scope(node)]
        operation = self.place(node).operation = VolumeOperation(verb, now)
        return operation

    def place(self, node: str) -> Attachment:
        """Return the attachment to a node, created without confirmation if it is new."""
        self.places.setdefault(node, set()).add(self.spec.name)
        return self.attachments.setdefault(node, Attachment(node))

    def resume(self, node: str, verb: Verb) -> None:
        """Clear the backoff of an operation, because it succeeded meanwhile."""
        pause = self.pauses.get(self._scope(node))
        if pause is not None and pause.verb is verb:
            del self.pauses[self._scope(node)]

    def fail(self, node: str, now: float) -> None:
        """Record a failed operation. It is unknown whether the volume is attached."""
        attachment = self.attachments[node]
        operation, attachment.operation = attachment.operation, None
        attachment.confirmed = attachment.reported = False
        if operation is not None:
            before = self.pauses.get(self._scope(node))
            failures = (before.failures if before is not None else 0) + 1
            pause = min(FIRST_PAUSE * 2.0 ** min(failures - 1, 60), LONGEST_PAUSE)
            self.pauses[self._scope(node)] = Pause(operation.verb, failures, now + pause)

    def attach(self, node: str, device: str = "") -> None:
        """Record that the volume is attached to the node, with its device if known."""
        attachment = self.place(node)
        attachment.device = device
        attachment.operation = None
        attachment.confirmed = attachment.reported = True
        self.pauses.pop(self._scope(node), None)

    def detach(self, node: str) -> None:
        """Record that the volume is not attached to the node."""
        self.attachments.pop(node, None)
        self.places.get(node, set()).discard(self.spec.name)
        self.pauses.pop(self._scope(node), None)

    def _scope(self, node: str) -> str:
        return "" if self.spec.exclusive else node


class ActualState:
    """Where volumes are attached, and which volumes nodes report as in use."""

    def __init__(self) -> None:
        self.volumes: dict[str, AttachableVolume] = {}
        # The names of the volumes at each node.
        self._places: dict[str, set[str]] = {}
        # The volumesInUse of nodes, including the last ones of nodes that are gone.
        self._used: dict[str, set[str]] = {}
        # Listed volumes of unknown plugins. They stay listed.
        self._foreign: dict[str, set[str]] = {}
        # Nodes whose list of attached volumes this controller maintains.
        self._listed: set[str] = set()

    def known(self, spec: VolumeSpec) -> AttachableVolume:
        """Return a volume. Its spec is replaced if more than its name is known now."""
        found = self.volumes.setdefault(spec.name, AttachableVolume(spec, self._places))
        if spec.title != spec.name:
            found.spec = spec
        return found

    def found_listed(self, spec: VolumeSpec, node: str) -> None:
        """Record a volume that a node lists as attached."""
        self.known(spec).attach(node)
        self.will_list(node)

    def found_foreign(self, name: str, node: str) -> None:
        """Record a listed volume of an unknown plugin."""
        self._foreign.setdefault(node, set()).add(name)

    def found_attachment(self, spec: VolumeSpec, node: str) -> bool:
        """Record a VolumeAttachment. Return whether its volume was not known at the node, so that it may be
        attached.
        """
        volume = self.known(spec)
        if node in volume.attachments:
            return False
        volume.place(node)
        self.will_list(node)
        return True

    def recognize(self, name: str, node: str) -> None:
        """Remove a listed volume whose plugin has become known from the unknown ones."""
        self._foreign[node].discard(name)

    def foreign(self) -> list[tuple[str, str]]:
        """Return the listed volumes of unknown plugins, with their nodes."""
        return [(name, node) for node, names in self._foreign.items() for name in sorted(names)]

    def will_list(self, node: str) -> None:
        """Start to maintain the list of attached volumes of a node."""
        self._listed.add(node)

    def node_uses(self, node: str, names: Collection[str]) -> None:
        """Record the volumesInUse of a node."""
        self._used[node] = set(names)

    def is_used(self, name: str, node: str) -> bool:
        """Return whether a node uses a volume. A node that never reported is assumed to use it."""
        return node not in self._used or name in self._used[node]

    def to_list(self, node: str) -> Mapping[str, str] | None:
        """Return the volumes that the status of a node should list, with known device paths, or None if not
        maintained here.
        """
        if node not in self._listed:
            return None
        ours = {volume.spec.name: attachment.device for volume, attachment in self.at(node) if attachment.reported}
        return ours | dict.fromkeys(self._foreign.get(node, ()), "")

    def at(self, node: str) -> Iterator[tuple[AttachableVolume, Attachment]]:
        """Yield the volumes that are or may be attached to a node."""
        for name in sorted(self._places.get(node, ())):
            volume = self.volumes[name]
            yield volume, volume.attachments[node]

    def nodes(self) -> list[str]:
        """Return the nodes with volumes that are or may be attached."""
        return [node for node, names in self._places.items() if names]

    def forget_node(self, node: str) -> None:
        """Drop a deleted node that has no attachments."""
        self._used.pop(node, None)
        self._foreign.pop(node, None)
        self._places.pop(node, None)
        self._listed.discard(node)

    def forget(self, name: str) -> None:
        """Drop a volume that is attached to no node."""
        self.volumes.pop(name, None)


class PodVolumes(NamedTuple):
    """A pod on a node and the volumes that it needs there, by name.

    If it is not `managed`, another component attaches them.
    """

    uid: str
    node: str
    volumes: Mapping[str, VolumeSpec]
    managed: bool


class DesiredState:
    """The volumes that pods need, by node."""

    def __init__(self) -> None:
        self._pods: dict[Key, PodVolumes] = {}
        # Pods by volume and node.
        self._wanted: dict[str, dict[str, set[Key]]] = {}

    def volumes_of(self, pod: Key, uid: str) -> Mapping[str, VolumeSpec]:
        """Return the volumes that a pod needed when last recorded."""
        found = self._pods.get(pod)
        return found.volumes if found is not None and found.uid == uid else {}

    def want(
        self, pod: Key, uid: str, node: str, volumes: Mapping[str, VolumeSpec], *, managed: bool = True
    ) -> set[str]:
        """Set the volumes that a pod needs. Return the names of those that it newly needs or needs no more."""
        before = self._pods.get(pod)
        same = before is not None and (before.uid, before.node, before.managed) == (uid, node, managed)
        released = set() if same else self.release(pod)
        if not volumes:
            return released | self.release(pod)
        self._pods[pod] = PodVolumes(uid, node, volumes, managed)
        if not managed:
            return released
        changed = set(before.volumes) ^ set(volumes) if before is not None and same else set(volumes)
        for name in changed:
            self._note(pod, name, node, wanted=name in volumes)
        return changed | released

    def release(self, pod: Key) -> set[str]:
        """Remove a pod. Return the names of the volumes that it needed."""
        before = self._pods.pop(pod, None)
        if before is None or not before.managed:
            return set()
        for name in before.volumes:
            self._note(pod, name, before.node, wanted=False)
        return set(before.volumes)

    def _note(self, pod: Key, name: str, node: str, *, wanted: bool) -> None:
        nodes = self._wanted.setdefault(name, {})
        pods = nodes.setdefault(node, set())
        if wanted:
            pods.add(pod)
        else:
            pods.discard(pod)
        if not pods:
            del nodes[node]
        if not nodes:
            del self._wanted[name]

    def nodes_for(self, name: str) -> Mapping[str, Collection[Key]]:
        """Return the nodes where a volume is needed, with the pods that need it there."""
        return self._wanted.get(name, {})

    def is_empty(self, node: str) -> bool:
        """Return whether no pod needs a volume on a node."""
        return not any(node in nodes for nodes in self._wanted.values())

    def spec_of(self, name: str) -> VolumeSpec | None:
        """Return the spec of a volume that a pod needs, or None."""
        pods = next(iter(self._wanted.get(name, {}).values()), None)
        return self._pods[next(iter(pods))].volumes[name] if pods else None

    def uses(self) -> Iterator[tuple[str, VolumeSpec]]:
        """Yield the node and the spec of each volume of a pod."""
        for its in self._pods.values():
            yield from ((its.node, spec) for spec in its.volumes.values())

    def volumes(self) -> Iterator[tuple[str, VolumeSpec]]:
        """Yield each volume once per node where it is needed."""
        for name, nodes in self._wanted.items():
            spec = self.spec_of(name)
            if spec is not None:
                yield from ((node, spec) for node in nodes)
