"""What is known of volumes and nodes: which pods want which volume where, and where each is, or may be, attached; pure.

An attachment of a volume to a node is there from the moment something is tried until the driver has given it up:

    confirmed   operation   meaning
    no          attach      it is being attached
    yes         none        it is attached
    no          none        it may be attached: an operation failed, or who was there before us left it so
    any         detach      it is being detached
"""

from collections.abc import Collection, Iterator, Mapping
from enum import StrEnum
from typing import NamedTuple

import msgspec

from controller_manager.framework.controller import Key

from ..shared.volume_specs import VolumeSpec

FIRST_PAUSE, LONGEST_PAUSE = 0.5, 122.0
"""Seconds after the first failure in which nothing is tried again, twice as long after each further one, at most."""


class Verb(StrEnum):
    """What is done to a volume, by the names of metrics."""

    ATTACH = "volume_attach"
    DETACH = "volume_detach"


class OperationResult(NamedTuple):
    """The end of an operation; while it has none, it is not `done` and there is no `problem`. Some drivers tell the
    path of the `device` that was attached.
    """

    done: bool = False
    problem: str = ""
    device: str = ""


NO_OUTCOME = OperationResult()


class VolumeOperation(msgspec.Struct):
    """Something that is being done since a moment (seconds of the loop).

    An attachment is that of the VolumeAttachment with this `uid`; `seen` tells that the local copy has shown it. A
    detachment first takes the volume from the status of its node (`unlisted`), then asks the driver (`asked`); `verify`
    tells that the node must not use the volume, unless it is `late` and not ready. A FlexVolume driver that was asked
    tells the `outcome`.
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
    """A volume at a node. `reported` tells that the status of the node is to list it, with its `device` where that was
    told; `unwanted` since when nobody wants it there (seconds of the loop).
    """

    node: str
    confirmed: bool = False
    reported: bool = False
    device: str = ""
    unwanted: float | None = None
    operation: VolumeOperation | None = None


class Pause(NamedTuple):
    """A time until which a verb is not tried again after so many failures."""

    verb: Verb
    failures: int
    until: float


class AttachableVolume(msgspec.Struct):
    """A volume, and its attachments by node; `places` are the names of all volumes at each node."""

    spec: VolumeSpec
    places: dict[str, set[str]] = {}
    attachments: dict[str, Attachment] = {}
    # By node; of a volume that is at one node at a time there is one pause for all.
    pauses: dict[str, Pause] = {}
    # The nodes whose pods were told that it is elsewhere.
    refused: set[str] = set()

    @property
    def is_busy(self) -> bool:
        """Return whether something is being done that nothing else may be done beside."""
        return self.spec.exclusive and any(one.operation is not None for one in self.attachments.values())

    def paused(self, node: str, verb: Verb, now: float) -> float:
        """Return until when a verb is not tried at a node; 0 if it may be. Another verb failed is no reason to wait."""
        pause = self.pauses.get(self._scope(node))
        return pause.until if pause is not None and pause.verb is verb and pause.until > now else 0.0

    def begin(self, node: str, verb: Verb, now: float) -> VolumeOperation:
        """Something is done from now on."""
        pause = self.pauses.get(self._scope(node))
        if pause is not None and pause.verb is not verb:
            del self.pauses[self._scope(node)]
        operation = self.place(node).operation = VolumeOperation(verb, now)
        return operation

    def place(self, node: str) -> Attachment:
        """Return the attachment to a node, of which nothing is known if it is new."""
        self.places.setdefault(node, set()).add(self.spec.name)
        return self.attachments.setdefault(node, Attachment(node))

    def resume(self, node: str, verb: Verb) -> None:
        """What failed may be tried at once: it turned out well meanwhile."""
        pause = self.pauses.get(self._scope(node))
        if pause is not None and pause.verb is verb:
            del self.pauses[self._scope(node)]

    def fail(self, node: str, now: float) -> None:
        """What was done failed: nobody knows whether the volume is attached."""
        attachment = self.attachments[node]
        operation, attachment.operation = attachment.operation, None
        attachment.confirmed = attachment.reported = False
        if operation is not None:
            before = self.pauses.get(self._scope(node))
            failures = (before.failures if before is not None else 0) + 1
            pause = min(FIRST_PAUSE * 2.0 ** min(failures - 1, 60), LONGEST_PAUSE)
            self.pauses[self._scope(node)] = Pause(operation.verb, failures, now + pause)

    def attach(self, node: str, device: str = "") -> None:
        """The volume is attached to the node, as a device if that is known."""
        attachment = self.place(node)
        attachment.device = device
        attachment.operation = None
        attachment.confirmed = attachment.reported = True
        self.pauses.pop(self._scope(node), None)

    def detach(self, node: str) -> None:
        """The volume is not attached to the node."""
        self.attachments.pop(node, None)
        self.places.get(node, set()).discard(self.spec.name)
        self.pauses.pop(self._scope(node), None)

    def _scope(self, node: str) -> str:
        return "" if self.spec.exclusive else node


class ActualState:
    """Where volumes are attached, and what nodes say that they use."""

    def __init__(self) -> None:
        self.volumes: dict[str, AttachableVolume] = {}
        # The names of the volumes at each node.
        self._places: dict[str, set[str]] = {}
        # What nodes say that they use; of a node that is gone, what it said last.
        self._used: dict[str, set[str]] = {}
        # Volumes of plug-ins that nobody here knows, as nodes list them: they stay listed.
        self._foreign: dict[str, set[str]] = {}
        # Nodes whose list of volumes is ours.
        self._listed: set[str] = set()

    def known(self, spec: VolumeSpec) -> AttachableVolume:
        """Return a volume, of which more may be known by now than its name."""
        found = self.volumes.setdefault(spec.name, AttachableVolume(spec, self._places))
        if spec.title != spec.name:
            found.spec = spec
        return found

    def found_listed(self, spec: VolumeSpec, node: str) -> None:
        """A node lists a volume as attached."""
        self.known(spec).attach(node)
        self.will_list(node)

    def found_foreign(self, name: str, node: str) -> None:
        """A node lists a volume that nobody here can detach."""
        self._foreign.setdefault(node, set()).add(name)

    def found_attachment(self, spec: VolumeSpec, node: str) -> bool:
        """There is a VolumeAttachment; return whether nothing was known of it: then the volume may be attached."""
        volume = self.known(spec)
        if node in volume.attachments:
            return False
        volume.place(node)
        self.will_list(node)
        return True

    def recognize(self, name: str, node: str) -> None:
        """Somebody here can detach a volume now that a node lists, after all."""
        self._foreign[node].discard(name)

    def foreign(self) -> list[tuple[str, str]]:
        """Return the volumes that nodes list and nobody here can detach, with the nodes."""
        return [(name, node) for node, names in self._foreign.items() for name in sorted(names)]

    def will_list(self, node: str) -> None:
        """What a node lists is our matter from now on."""
        self._listed.add(node)

    def node_uses(self, node: str, names: Collection[str]) -> None:
        """A node tells all that it uses."""
        self._used[node] = set(names)

    def is_used(self, name: str, node: str) -> bool:
        """Return whether a node uses a volume, as far as is known; one that never said anything is taken to do so."""
        return node not in self._used or name in self._used[node]

    def to_list(self, node: str) -> Mapping[str, str] | None:
        """Return the names that the status of a node is to list as attached, with the paths of devices that are known;
        None if that is not our matter.
        """
        if node not in self._listed:
            return None
        ours = {volume.spec.name: attachment.device for volume, attachment in self.at(node) if attachment.reported}
        return ours | dict.fromkeys(self._foreign.get(node, ()), "")

    def at(self, node: str) -> Iterator[tuple[AttachableVolume, Attachment]]:
        """Yield the volumes that are, or may be, attached to a node."""
        for name in sorted(self._places.get(node, ())):
            volume = self.volumes[name]
            yield volume, volume.attachments[node]

    def nodes(self) -> list[str]:
        """Return the nodes to which something is, or may be, attached."""
        return [node for node, names in self._places.items() if names]

    def forget_node(self, node: str) -> None:
        """A node is gone, and nothing is attached to it any more."""
        self._used.pop(node, None)
        self._foreign.pop(node, None)
        self._places.pop(node, None)
        self._listed.discard(node)

    def forget(self, name: str) -> None:
        """Nothing is to be known any more of a volume that is attached to no node."""
        self.volumes.pop(name, None)


class PodVolumes(NamedTuple):
    """A pod on a node, and the volumes that it needs there, by name; they are not our matter if it is not `managed`."""

    uid: str
    node: str
    volumes: Mapping[str, VolumeSpec]
    managed: bool


class DesiredState:
    """Which pods need which volumes on which nodes."""

    def __init__(self) -> None:
        self._pods: dict[Key, PodVolumes] = {}
        # By volume and node the pods.
        self._wanted: dict[str, dict[str, set[Key]]] = {}

    def volumes_of(self, pod: Key, uid: str) -> Mapping[str, VolumeSpec]:
        """Return the volumes that a pod was last known to need."""
        found = self._pods.get(pod)
        return found.volumes if found is not None and found.uid == uid else {}

    def want(
        self, pod: Key, uid: str, node: str, volumes: Mapping[str, VolumeSpec], *, managed: bool = True
    ) -> set[str]:
        """A pod needs exactly these volumes now; return the names of those that it did not need before, or no more."""
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
        """A pod needs nothing any more; return the names of what it needed."""
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
        """Return whether no pod needs anything on a node."""
        return not any(node in nodes for nodes in self._wanted.values())

    def spec_of(self, name: str) -> VolumeSpec | None:
        """Return what is behind a volume that some pod needs."""
        pods = next(iter(self._wanted.get(name, {}).values()), None)
        return self._pods[next(iter(pods))].volumes[name] if pods else None

    def uses(self) -> Iterator[tuple[str, VolumeSpec]]:
        """Yield for each volume of a pod the node and what it is."""
        for its in self._pods.values():
            yield from ((its.node, spec) for spec in its.volumes.values())

    def volumes(self) -> Iterator[tuple[str, VolumeSpec]]:
        """Yield each volume once for each node where it is to be."""
        for name, nodes in self._wanted.items():
            spec = self.spec_of(name)
            if spec is not None:
                yield from ((node, spec) for node in nodes)
