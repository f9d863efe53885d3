"""Where a pod may be because of its volumes, and what has to be done for them there; pure.

claim of a volume                        nodes
is not there, is lost, is being deleted  none
is not bound, and need not wait          none: it is bound without a pod
is bound                                 those that its volume can be reached from
waits for a pod                          those where a free volume fits that is there, or where one can be made

Beside that a node rejects a pod whose claim may be used by one pod only and is, one whose disks may not be shared and
are there, and one with more volumes of a driver than the driver can attach there (`volume_limits.py`).
"""

from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import NamedTuple

import msgspec

from controller_manager.common.api.core import REGION, ZONE, Pod
from controller_manager.common.api.platform import PLATFORM_DOMAIN
from controller_manager.common.api.quantity import parse
from controller_manager.common.api.resource import Key, key_of
from controller_manager.common.api.scheduling import NodeMatcher
from controller_manager.common.api.storage import (
    LOST,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    class_of,
)

from ..shared.claims import claim_name, is_for_pod, size_of
from .cluster_state import ClusterState
from .filters import Rejection, Rejections
from .free_volumes import FreeVolumes, matcher_of
from .node_info import Disk, NodeInfo
from .storage import Storage
from .time_slice import TimeSlice
from .volume_limits import exceeds, handles_of

RESTRICTIONS, LIMITS, BINDING, VOLUME_ZONE = "VolumeRestrictions", "NodeVolumeLimits", "VolumeBinding", "VolumeZone"
BY_VOLUMES = frozenset({RESTRICTIONS, LIMITS, BINDING, VOLUME_ZONE})
SELECTED_NODE = f"volume.{PLATFORM_DOMAIN}/selected-node"
BIND_COMPLETED = f"pv.{PLATFORM_DOMAIN}/bind-completed"
_BY_HAND = f"{PLATFORM_DOMAIN}/no-provisioner"
_ONE_POD = "ReadWriteOncePod"
# Cost of matching a volume to a node, and of counting a pod's volumes, in units of a filter check.
_REACH, _COUNT = 0.7, 0.9
_LABELS = (ZONE, REGION, f"failure-domain.beta.{PLATFORM_DOMAIN}/zone", f"failure-domain.beta.{PLATFORM_DOMAIN}/region")
_BETA = {_LABELS[0]: _LABELS[2], _LABELS[1]: _LABELS[3]}
_USED = (Rejection(RESTRICTIONS, "node(s) unavailable due to a ReadWriteOncePod claim that another pod uses"),)
_SHARED = (Rejection(RESTRICTIONS, "node(s) had no available disk"),)
_TOO_MANY = (Rejection(LIMITS, "node(s) exceed max volume count"),)
_OUT_OF_REACH = (Rejection(BINDING, "node(s) had volume node affinity conflict", final=True),)
_NOTHING_FITS = (Rejection(BINDING, "node(s) didn't find available persistent volumes to bind", final=True),)
_NO_SPACE = (Rejection(BINDING, "node(s) did not have enough free storage", final=True),)
_OTHER_ZONE = (Rejection(VOLUME_ZONE, "node(s) had no available volume zone", final=True),)


class VolumePlan(NamedTuple):
    """The actions before a pod is bound: volumes to bind, and claims to provision on the node. `claims` are all that
    must be bound.
    """

    given: tuple[tuple[PersistentVolume, PersistentVolumeClaim], ...] = ()
    made: tuple[PersistentVolumeClaim, ...] = ()
    claims: tuple[Key, ...] = ()


def claims_of(pod: Pod) -> tuple[Key, ...]:
    """Return the claims of a pod."""
    names = (claim_name(pod, volume) for volume in pod.spec.volumes)
    return tuple(Key(pod.metadata.namespace, name) for name in dict.fromkeys(names) if name)


def is_bound(claim: PersistentVolumeClaim) -> bool:
    """Return whether a claim is completely bound."""
    return bool(claim.spec.volume_name) and BIND_COMPLETED in (claim.metadata.annotations or {})


class PodVolumes:
    """The volumes of one pod at present.

    `hindrance` rejects every node. Results of a node are cached until it changes, but not across changes of claims or
    volumes.
    """

    def __init__(self, pod: Pod, storage: Storage, state: ClusterState, disks: tuple[Disk, ...] = ()) -> None:
        self._storage = storage
        self._state = state
        self._disks = disks
        self.hindrance: Rejection | None = None
        self._bound: list[tuple[PersistentVolume, NodeMatcher | None]] = []
        self._waiting: list[tuple[PersistentVolumeClaim, StorageClass, FreeVolumes]] = []
        self._found: dict[str, tuple[int, Rejections]] = {}
        self._exclusive: list[Key] = []
        for volume in pod.spec.volumes:
            name = claim_name(pod, volume)
            if name and self.hindrance is None:
                claim = storage.claim(Key(pod.metadata.namespace, name))
                if claim is not None and volume.ephemeral is not None and not is_for_pod(claim, pod):
                    claim = None
                self._note(name, claim)
        self._handles = handles_of(pod, claims_of(pod), storage) if self.hindrance is None else {}

    def look(self, node: NodeInfo, time: TimeSlice) -> Rejections | None:
        """Return why the pod does not fit on a node; None if the time slice ends before that is known."""
        if self._is_used(node):
            return _USED
        known = self._found.get(node.name)
        if known is not None and known[0] == node.generation:
            return known[1]
        if time.is_over or not self._gather(time):
            return None
        time.spend(self._cost(node))
        found = self._against(node)
        self._found[node.name] = node.generation, found
        return found

    def rejects(self, node: NodeInfo) -> Rejections:
        """Return why the pod does not fit on a node, which may be hypothetical; empty if it fits."""
        return _USED if self._is_used(node) else self._against(node)

    def _is_used(self, node: NodeInfo) -> bool:
        return any(self._users(claim, node) > 0 for claim in self._exclusive)

    def _gather(self, time: TimeSlice) -> bool:
        """Examine the volumes for unbound claims. Return whether that is done."""
        return all(free.gather(time) for _, _, free in self._waiting)

    def _cost(self, node: NodeInfo) -> float:
        """Return the cost of checking a node."""
        counted = _COUNT * len(node.pods) if self._handles else 0.0
        return counted + _REACH * len(self._bound) + sum(free.cost(node) for _, _, free in self._waiting)

    def _against(self, node: NodeInfo) -> Rejections:
        if self._disks and any(_clash(self._disks, other.disks) for other in node.pods.values() if other.disks):
            return _SHARED
        if self._handles and exceeds(self._handles, node, self._storage):
            return _TOO_MANY
        return self._unreachable(node) or self._unbindable(node)[0]

    def plan(self, node: NodeInfo) -> VolumePlan:
        """Return the volume plan for a feasible node."""
        _, given, made = self._unbindable(node)
        every = [key_of(claim) for claim, _, _ in self._waiting]
        return VolumePlan(tuple(given), tuple(made), tuple(every))

    def _users(self, claim: Key, node: NodeInfo) -> int:
        """Return the number of pods that use a claim, given a possibly hypothetical node."""
        there, users = self._state.nodes.get(node.name), self._state.claims[claim]
        if there is None or there is node:
            return users
        return users + _using(claim, node) - _using(claim, there)

    def _note(self, name: str, claim: PersistentVolumeClaim | None) -> None:
        if claim is None:
            self._hinder(f'persistentvolumeclaim "{name}" not found')
        elif claim.metadata.deletion_timestamp is not None:
            self._hinder(f'persistentvolumeclaim "{name}" is being deleted')
        elif claim.status.phase == LOST:
            self._hinder(f'persistentvolumeclaim "{name}" bound to non-existent persistentvolume')
        elif is_bound(claim):
            self._note_bound(name, claim)
        else:
            self._note_unbound(claim)
        if claim is not None and _ONE_POD in claim.spec.access_modes:
            self._exclusive.append(key_of(claim))

    def _note_bound(self, name: str, claim: PersistentVolumeClaim) -> None:
        volume = self._storage.volume(claim.spec.volume_name)
        if volume is None:
            self._hinder(f'the persistentvolume of persistentvolumeclaim "{name}" is not there')
        else:
            self._bound.append((volume, matcher_of(volume)))

    def _note_unbound(self, claim: PersistentVolumeClaim) -> None:
        found = self._storage.storage_class(class_of(claim))
        if found is None or found.volume_binding_mode != "WaitForFirstConsumer" or claim.spec.volume_name:
            self._hinder("pod has unbound immediate PersistentVolumeClaims")
            return
        self._waiting.append((claim, found, FreeVolumes(claim, self._storage.volumes(), self._storage.taken)))

    def _hinder(self, reason: str) -> None:
        self.hindrance = Rejection(BINDING, reason, final=True)

    def _unreachable(self, node: NodeInfo) -> Rejections:
        for volume, nodes in self._bound:
            if nodes is not None and (node.node is None or not nodes.matches(node.node)):
                return _OUT_OF_REACH
            for label in _LABELS:
                zones = (volume.metadata.labels or {}).get(label)
                if zones is not None and not _is_in(node.labels, label, zones.split("__")):
                    return _OTHER_ZONE
        return ()

    def _unbindable(
        self, node: NodeInfo
    ) -> tuple[Rejections, list[tuple[PersistentVolume, PersistentVolumeClaim]], list[PersistentVolumeClaim]]:
        """Return why unbound claims cannot be bound on a node, the volumes to bind, and the claims to provision."""
        self._gather(TimeSlice())
        given: list[tuple[PersistentVolume, PersistentVolumeClaim]] = []
        made: list[PersistentVolumeClaim] = []
        used: set[str] = set()
        for claim, storage_class, free in self._waiting:
            wanted = (claim.metadata.annotations or {}).get(SELECTED_NODE, node.name)
            if wanted != node.name:
                return _OUT_OF_REACH, [], []
            found = free.best(node, used)
            if found is not None:
                used.add(found.metadata.name)
                given.append((found, claim))
                continue
            why = self._unmakeable(claim, storage_class, node)
            if why:
                return why, [], []
            made.append(claim)
        return (), given, made

    def _unmakeable(self, claim: PersistentVolumeClaim, found: StorageClass, node: NodeInfo) -> Rejections:
        if found.provisioner in ("", _BY_HAND):
            return _NOTHING_FITS
        terms = found.allowed_topologies
        if terms and not any(
            all(node.labels.get(one.key) in one.values for one in term.match_label_expressions) for term in terms
        ):
            return _NOTHING_FITS
        driver = self._storage.csi_driver(found.provisioner)
        if driver is None or not driver.spec.storage_capacity:
            return ()
        size = size_of(claim.spec.resources.requests)
        offers = (one for one in self._storage.capacities() if one.storage_class_name == found.metadata.name)
        return () if any(_offers(one, node, size) for one in offers) else _NO_SPACE


def disks_of(pod: Pod) -> tuple[Disk, ...]:
    """Return the inline disks of a pod. A Ceph image is listed per monitor, since pods share it by any of them."""
    found = []
    for volume in pod.spec.volumes:
        for kind, raw, field_name in (
            ("gce", volume.gce_persistent_disk, "pdName"),
            ("aws", volume.aws_elastic_block_store, "volumeID"),
            ("iscsi", volume.iscsi, "iqn"),
            ("rbd", volume.rbd, "image"),
        ):
            if bytes(raw):
                source = msgspec.json.decode(raw)
                only_read = kind != "aws" and bool(source.get("readOnly"))
                name = str(source.get(field_name, ""))
                named = [f"{one}/{source.get('pool', 'rbd')}/{name}" for one in source.get("monitors") or ()]
                found += [Disk(kind, one, only_read) for one in (named if kind == "rbd" else [name])]
    return tuple(found)


def _clash(ours: Iterable[Disk], theirs: Iterable[Disk]) -> bool:
    return any(
        (one.kind, one.identity) == (other.kind, other.identity) and not (one.only_read and other.only_read)
        for one in ours
        for other in theirs
    )


def _using(claim: Key, node: NodeInfo) -> int:
    return sum(claim in one.claims for one in node.pods.values())


def _is_in(labels: Mapping[str, str], label: str, values: Iterable[str]) -> bool:
    """Return whether a node is in one of these zones, by the present or the deprecated label."""
    other = _BETA.get(label) or next((new for new, old in _BETA.items() if old == label), label)
    if not any(one in labels for one in _LABELS):
        return True  # it says nothing of zones
    return labels.get(label, labels.get(other, "")) in values


def _offers(offer: CSIStorageCapacity, node: NodeInfo, size: Decimal) -> bool:
    """Return whether a capacity can provision that size for a node."""
    limit = offer.maximum_volume_size or offer.capacity
    if limit is None or offer.node_topology is None:
        return False
    try:
        return parse(limit).number >= size and offer.node_topology.selector().matches(node.labels)
    except (ValueError, KeyError):
        return False
