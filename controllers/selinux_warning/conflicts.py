"""Who uses which volume with which SELinux label, and who is in whose way; pure."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from controller_manager.framework.controller import Key

from .labels import conflict


class Use(NamedTuple):
    """The label that a pod wants for a volume, and how the volume gets it."""

    label: str
    change_policy: str


class Conflict(NamedTuple):
    """A property of a pod that another one has otherwise, so that both cannot have a volume on one node."""

    what: str
    pod: Key
    value: str
    other: Key
    other_value: str

    @property
    def reason(self) -> str:
        """Return the reason of the event about it."""
        return f"{self.what}Conflict"

    @property
    def message(self) -> str:
        """Return what is told of it; pods of other namespaces are not named."""
        told = f'{self.what} "{self.value}" cannot be had together with'
        what = "for the same volume: on one node, only one of the pods can use it"
        if self.pod.namespace != self.other.namespace:
            return f"{told} what a pod of another namespace wants {what}"
        return f'{told} the "{self.other_value}" of the pod {self.other.name} {what}'


class VolumeUses:
    """The uses of all volumes by pods that have not ended."""

    def __init__(self) -> None:
        self._uses: dict[str, dict[Key, Use]] = {}
        self._drivers: dict[str, str] = {}
        self._volumes: dict[Key, set[str]] = {}
        # The conflicts of each volume, each seen from both sides.
        self._conflicts: dict[str, list[Conflict]] = {}

    def add(self, volume: str, driver: str, pod: Key, use: Use) -> list[Conflict]:
        """A pod uses a volume so; return the conflicts that are new by that."""
        uses = self._uses.setdefault(volume, {})
        self._drivers[volume] = driver
        self._volumes.setdefault(pod, set()).add(volume)
        if uses.get(pod) == use:
            return []
        uses[pod] = use
        found = [one for other, its in uses.items() for one in _between(pod, use, other, its)]
        self._keep(volume, (*_without(self._conflicts.get(volume, ()), pod), *found))
        return found

    def remove(self, pod: Key) -> None:
        """A pod uses nothing any more."""
        for volume in self._volumes.pop(pod, ()):
            self._keep(volume, _without(self._conflicts.get(volume, ()), pod))
            uses = self._uses[volume]
            del uses[pod]
            if not uses:
                del self._uses[volume], self._drivers[volume]

    def pods_of_driver(self, driver: str) -> Iterator[Key]:
        """Yield the pods that use volumes of a driver."""
        for volume, its in self._drivers.items():
            if its == driver:
                yield from self._uses[volume]

    def has(self, conflict: Conflict) -> bool:
        """Return whether there is a conflict."""
        return any(conflict in self._conflicts.get(volume, ()) for volume in self._volumes.get(conflict.pod, ()))

    def conflicts(self) -> set[Conflict]:
        """Return all conflicts that there are."""
        return {one for found in self._conflicts.values() for one in found}

    def _keep(self, volume: str, conflicts: Iterable[Conflict]) -> None:
        kept = list(conflicts)
        if kept:
            self._conflicts[volume] = kept
        else:
            self._conflicts.pop(volume, None)


def _without(conflicts: Iterable[Conflict], pod: Key) -> list[Conflict]:
    return [one for one in conflicts if pod not in (one.pod, one.other)]


def _between(pod: Key, use: Use, other: Key, its: Use) -> Iterator[Conflict]:
    """Yield the conflicts of two uses of one volume, from both sides."""
    if use.change_policy != its.change_policy:
        yield Conflict("SELinuxChangePolicy", pod, use.change_policy, other, its.change_policy)
        yield Conflict("SELinuxChangePolicy", other, its.change_policy, pod, use.change_policy)
    if conflict(use.label, its.label):
        yield Conflict("SELinuxLabel", pod, use.label, other, its.label)
        yield Conflict("SELinuxLabel", other, its.label, pod, use.label)
