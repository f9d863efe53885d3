"""Tracks which pods use which volumes with which SELinux label, and the conflicts between them; pure."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from controller_manager.framework import Key

from .labels import conflict


class Use(NamedTuple):
    """The label that a pod wants for a volume, and its change policy."""

    label: str
    change_policy: str


class Conflict(NamedTuple):
    """A property in which two pods differ, so that they cannot use a volume on the same node."""

    what: str
    pod: Key
    value: str
    other: Key
    other_value: str

    @property
    def reason(self) -> str:
        """Return the reason of the event."""
        return f"{self.what}Conflict"

    @property
    def message(self) -> str:
        """Return the message of the event. Pods of other namespaces are not named."""
        prefix = f'{self.what} "{self.value}" conflicts with'
        what = "for the same volume: on one node, only one of the pods can use it"
        if self.pod.namespace != self.other.namespace:
            return f"{prefix} what a pod of another namespace wants {what}"
        return f'{prefix} the "{self.other_value}" of the pod {self.other.name} {what}'


class VolumeUses:
    """The uses of all volumes by pods that have not ended."""

    def __init__(self) -> None:
        self._uses: dict[str, dict[Key, Use]] = {}
        self._drivers: dict[str, str] = {}
        self._volumes: dict[Key, set[str]] = {}
        # The conflicts of each volume, in both directions.
        self._conflicts: dict[str, list[Conflict]] = {}

    def add(self, volume: str, driver: str, pod: Key, use: Use) -> list[Conflict]:
        """Record that a pod uses a volume. Return the new conflicts."""
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
        """Remove all uses of a pod."""
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
        """Return whether a conflict still exists."""
        return any(conflict in self._conflicts.get(volume, ()) for volume in self._volumes.get(conflict.pod, ()))

    def conflicts(self) -> set[Conflict]:
        """Return all conflicts."""
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
    """Yield the conflicts of two uses of a volume, in both directions."""
    if use.change_policy != its.change_policy:
        yield Conflict("SELinuxChangePolicy", pod, use.change_policy, other, its.change_policy)
        yield Conflict("SELinuxChangePolicy", other, its.change_policy, pod, use.change_policy)
    if conflict(use.label, its.label):
        yield Conflict("SELinuxLabel", pod, use.label, other, its.label)
        yield Conflict("SELinuxLabel", other, its.label, pod, use.label)
