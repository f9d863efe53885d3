"""Identities of objects, the resources that are watched, and those that owners of a kind are found in; pure."""

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from controller_manager.api.model import PartialObject
from controller_manager.api.resource import Resource
from controller_manager.client.discovery import Discovery, ServedResource

Kind = tuple[str, str]
"""Group and kind."""
Name = tuple[str, str]
"""Group and plural."""

# Nobody owns anything through events, and they end by themselves.
IGNORED: frozenset[Name] = frozenset({("", "events"), ("events.k8s.io", "events")})
_WATCHED = {"delete", "list", "watch"}
MOST_ABSENT = 500


class ObjectIdentity(NamedTuple):
    """An object, or what a reference says of one; in a claim the namespace is that of the dependent."""

    group: str
    kind: str
    namespace: str
    name: str
    uid: str

    def agrees_with(self, claim: "ObjectIdentity") -> bool:
        """Return whether a claim means this very object; one without a namespace may be owned from everywhere."""
        return claim == self or (not self.namespace and claim._replace(namespace="") == self)


class Absent:
    """Owners known not to be there, the latest so many: a uid is never given again, so they will not come back."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: OrderedDict[ObjectIdentity, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def add(self, owner: ObjectIdentity) -> None:
        """Remember one; without a namespace if its kind has none."""
        self._kept[owner] = None
        self._kept.move_to_end(owner)
        if len(self._kept) > self._most:
            self._kept.popitem(last=False)

    def has(self, claim: ObjectIdentity) -> bool:
        """Return whether what a claim says is known not to be there."""
        for owner in (claim, claim._replace(namespace="")):
            if owner in self._kept:
                self._kept.move_to_end(owner)
                return True
        return False


@dataclass(frozen=True, slots=True)
class KnownResources:
    """The result of one discovery after the other: the resources to watch, and where each kind is read."""

    watched: Mapping[Name, Resource[PartialObject]] = field(default_factory=dict)
    kinds: Mapping[Kind, Resource[PartialObject]] = field(default_factory=dict)

    def after(self, found: Discovery) -> "KnownResources":
        """Return what is known after a discovery. What it could not ask for is as it was; a version in use is kept
        while it is served.
        """
        served = {one.resource for one in found.resources}
        kinds = _kinds(found)
        watched: dict[Name, Resource[PartialObject]] = {}
        for one in found.preferred():
            name = one.resource.group, one.resource.plural
            if _is_watched(one):
                before = self.watched.get(name)
                watched[name] = before if before in served and before is not None else one.resource
        for name, resource in self.watched.items():
            if name not in watched and found.may_lack(resource):
                watched[name] = resource
        for kind, resource in self.kinds.items():
            if kind not in kinds and found.may_lack(resource):
                kinds[kind] = resource
        return KnownResources(watched, kinds)


def _kinds(found: Discovery) -> dict[Kind, Resource[PartialObject]]:
    """Return the resource that each kind is read from. A kind of several resources, each with objects of its own, is
    left out: who is not in one of them may be in another.
    """
    candidates: dict[Kind, list[ServedResource]] = {}
    for one in found.preferred():
        if "get" in one.verbs:
            candidates.setdefault((one.resource.group, one.resource.kind), []).append(one)
    kinds: dict[Kind, Resource[PartialObject]] = {}
    for kind, served in candidates.items():
        stored = [one for one in served if _is_watched(one)] or served
        if len(stored) == 1:
            kinds[kind] = stored[0].resource
    return kinds


def _is_watched(one: ServedResource) -> bool:
    return one.verbs >= _WATCHED and (one.resource.group, one.resource.plural) not in IGNORED
