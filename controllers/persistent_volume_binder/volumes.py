"""An index of volumes that finds the smallest match for a claim without scanning all volumes.

A volume that is bound to the claim, or reserved for it by a user, is preferred if it is large enough. Otherwise a
volume must be available and match class, mode, attributes class and selector of the claim. The order is: fewest access
modes, then size, then name.
"""

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Iterator, Mapping
from decimal import Decimal
from math import ceil
from typing import NamedTuple

from controller_manager.common.api.resource import Key, key_of
from controller_manager.common.api.storage import AVAILABLE, PersistentVolume, PersistentVolumeClaim, class_of
from controller_manager.framework import Change

from ..shared.claims import size_of


class Wish(NamedTuple):
    """Properties that a claim and its volume must share."""

    storage_class: str
    mode: str
    attributes_class: str


Modes = frozenset[str]
Sized = tuple[Decimal, str]


def wish_of(one: PersistentVolumeClaim | PersistentVolume) -> Wish:
    """Return the properties of a claim or a volume."""
    return Wish(class_of(one), one.spec.volume_mode, one.spec.volume_attributes_class_name or "")


def is_bound_to(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    """Return whether a volume is bound to a claim, or reserved for one of that name."""
    reference, meta = volume.spec.claim_ref, claim.metadata
    if reference is None or (reference.namespace, reference.name) != (meta.namespace, meta.name):
        return False
    return reference.uid in ("", meta.uid)


def mismatch(volume: PersistentVolume, claim: PersistentVolumeClaim) -> str:
    """Return why a volume does not match the claim that names it, or an empty string."""
    wanted, given = wish_of(claim), wish_of(volume)
    if volume.metadata.deletion_timestamp is not None:
        return "it is being deleted"
    if ceil(size_of(volume.spec.capacity)) < ceil(size_of(claim.spec.resources.requests)):
        return "it is too small"
    if wanted.storage_class != given.storage_class:
        return "it is of another storageClassName"
    if wanted.attributes_class != given.attributes_class:
        return "it is of another volumeAttributesClassName"
    if wanted.mode != given.mode:
        return "it is of another volumeMode"
    return "" if set(claim.spec.access_modes) <= set(volume.spec.access_modes) else "it lacks one of the accessModes"


class VolumeIndex:
    """All volumes, from the watch and from our own writes since."""

    def __init__(self) -> None:
        self._volumes: dict[str, PersistentVolume] = {}
        # Volumes for any claim, by size.
        self._free: dict[Wish, dict[Modes, list[Sized]]] = {}
        # Volumes bound to or reserved for one claim.
        self._claimed: dict[Key, set[str]] = defaultdict(set)
        self._reserved: set[str] = set()

    def __iter__(self) -> Iterator[PersistentVolume]:
        return iter(self._volumes.values())

    def get(self, name: str) -> PersistentVolume | None:
        """Return the volume of that name, or None."""
        return self._volumes.get(name)

    def note(self, change: Change[PersistentVolume]) -> None:
        """Apply a change; a subscriber of the informer."""
        if change.after is not None:
            self._put(change.after)
        elif change.before is not None:
            self._drop(change.before)

    def renew(self, volume: PersistentVolume) -> None:
        """Apply our own write, unless the watch has not shown the volume yet or has shown its deletion."""
        known = self._volumes.get(volume.metadata.name)
        if known is not None and known.metadata.uid == volume.metadata.uid:
            self._put(volume)

    def _put(self, volume: PersistentVolume) -> None:
        """Store a volume, unless a newer version is known."""
        name = volume.metadata.name
        known = self._volumes.get(name)
        if known is not None:
            if known.metadata.uid == volume.metadata.uid and _version(known) > _version(volume):
                return
            self._forget(known)
        self._volumes[name] = volume
        reference = volume.spec.claim_ref
        if volume.metadata.deletion_timestamp is not None:
            return
        if reference is not None:
            self._claimed[Key(reference.namespace, reference.name)].add(name)
        elif volume.status.phase == AVAILABLE:
            of_wish = self._free.setdefault(wish_of(volume), {})
            insort(of_wish.setdefault(frozenset(volume.spec.access_modes), []), _sized(volume))

    def reserve(self, name: str) -> None:
        """Reserve a volume that is being bound. Other claims cannot get it before `release`."""
        self._reserved.add(name)

    def release(self, name: str) -> None:
        """Remove the reservation of a volume."""
        self._reserved.discard(name)

    def match(self, claim: PersistentVolumeClaim, *, bound_only: bool = False) -> PersistentVolume | None:
        """Return the volume for a claim, or None.

        With `bound_only`, for claims whose volume the scheduler chooses, only a volume bound to it or reserved for it.
        """
        wanted = frozenset(claim.spec.access_modes)
        bound = self._bound(claim, wanted)
        free = {} if bound_only else self._free.get(wish_of(claim), {})
        fitting = {modes for modes in (*bound, *free) if wanted <= modes}
        for modes in sorted(fitting, key=lambda one: (len(one), sorted(one))):
            found = bound.get(modes) or self._smallest(free.get(modes, []), claim)
            if found is not None:
                return found
        return None

    def _bound(self, claim: PersistentVolumeClaim, wanted: Modes) -> Mapping[Modes, PersistentVolume]:
        """Return the volumes for this claim alone that are large enough, one per set of access modes."""
        found: dict[Modes, PersistentVolume] = {}
        size = size_of(claim.spec.resources.requests)
        for name in sorted(self._claimed.get(key_of(claim), ()), reverse=True):
            volume = self._volumes[name]
            modes = frozenset(volume.spec.access_modes)
            fits = size_of(volume.spec.capacity) >= size and wish_of(volume)[1:] == wish_of(claim)[1:]
            if fits and wanted <= modes and is_bound_to(volume, claim):
                found[modes] = volume
        return found

    def _smallest(self, free: list[Sized], claim: PersistentVolumeClaim) -> PersistentVolume | None:
        selector = claim.spec.selector.selector() if claim.spec.selector is not None else None
        for index in range(bisect_left(free, (size_of(claim.spec.resources.requests), "")), len(free)):
            name = free[index][1]
            volume = self._volumes[name]
            if name not in self._reserved and (selector is None or selector.matches(volume.metadata.labels)):
                return volume
        return None

    def _drop(self, volume: PersistentVolume) -> None:
        known = self._volumes.get(volume.metadata.name)
        if known is not None and known.metadata.uid == volume.metadata.uid:
            self._forget(known)
            del self._volumes[volume.metadata.name]

    def _forget(self, volume: PersistentVolume) -> None:
        """Remove a volume from the index of matches."""
        name, reference = volume.metadata.name, volume.spec.claim_ref
        if reference is not None:
            key = Key(reference.namespace, reference.name)
            self._claimed[key].discard(name)
            if not self._claimed[key]:
                del self._claimed[key]
            return
        of_wish = self._free.get(wish_of(volume), {})
        sized = of_wish.get(frozenset(volume.spec.access_modes), [])
        at = bisect_left(sized, _sized(volume))
        if at < len(sized) and sized[at] == _sized(volume):
            del sized[at]
            self._prune(volume)

    def _prune(self, volume: PersistentVolume) -> None:
        """Remove empty lists from the index."""
        wish, modes = wish_of(volume), frozenset(volume.spec.access_modes)
        if not self._free[wish][modes]:
            del self._free[wish][modes]
        if not self._free[wish]:
            del self._free[wish]


def _sized(volume: PersistentVolume) -> Sized:
    return size_of(volume.spec.capacity), volume.metadata.name


def _version(volume: PersistentVolume) -> int:
    """Return a resource version as a number. Versions that are not numbers compare as equal."""
    text = volume.metadata.resource_version
    return int(text) if text.isdecimal() else 0
