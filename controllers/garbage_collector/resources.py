"""Which resources are watched for owners and dependents, and where an owner of some kind is found; pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field

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


@dataclass(frozen=True, slots=True)
class Known:
    """What one discovery after the other told: the resources to watch, and where each kind is read."""

    watched: Mapping[Name, Resource[PartialObject]] = field(default_factory=dict)
    kinds: Mapping[Kind, Resource[PartialObject]] = field(default_factory=dict)

    def after(self, found: Discovery) -> "Known":
        """What is known now. What could not be asked for is as it was; a version in use is kept while it is served."""
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
        return Known(watched, kinds)


def _kinds(found: Discovery) -> dict[Kind, Resource[PartialObject]]:
    """Where each kind is read. One that several resources have, each with objects of its own, is left out: who is not
    in one of them may be in another.
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
