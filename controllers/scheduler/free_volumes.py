"""The available volumes for an unbound claim, by the nodes that can access them; pure.

All volumes are examined once, in time slices. Those of a node are then found without scanning the others.
"""

from bisect import insort
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from typing import NamedTuple

from controller_manager.common.api.core import HOSTNAME
from controller_manager.common.api.resource import Key, key_of
from controller_manager.common.api.scheduling import NodeMatcher
from controller_manager.common.api.storage import AVAILABLE, PersistentVolume, PersistentVolumeClaim, class_of

from ..persistent_volume_binder.volumes import is_bound_to, mismatch
from ..shared.claims import size_of
from .node_info import NodeInfo
from .time_slice import TimeSlice

# Cost of examining a volume, and of matching a node, in units of a filter check.
_JUDGE, _REACH = 0.8, 0.3


class _Offer(NamedTuple):
    """A volume with its sort key: reserved for the claim first, then the smallest."""

    is_other: bool
    size: Decimal
    name: str
    volume: PersistentVolume


_Offers = list[_Offer]


class FreeVolumes:
    """The matching volumes for a claim, of those that existed at the start. `taken` are being bound to claims."""

    def __init__(
        self, claim: PersistentVolumeClaim, volumes: Iterable[PersistentVolume], taken: Mapping[str, Key]
    ) -> None:
        self._claim = claim
        self._taken = taken
        self._to_judge: Iterator[PersistentVolume] = iter(tuple(volumes))
        self._by_matcher: dict[NodeMatcher | None, _Offers] = {}
        # Volumes restricted to hosts by name, and all others.
        self._by_host: dict[str, list[tuple[NodeMatcher, _Offers]]] = {}
        self._elsewhere: list[tuple[NodeMatcher | None, _Offers]] = []

    def gather(self, time: TimeSlice) -> bool:
        """Examine volumes. Return whether all are done."""
        while not time.is_over:
            volume = next(self._to_judge, None)
            if volume is None:
                return True
            time.spend(_JUDGE)
            if self._fits(volume):
                time.spend(_JUDGE)
                self._add(volume)
        return False

    def best(self, node: NodeInfo, used: Iterable[str]) -> PersistentVolume | None:
        """Return the best volume that a node can access, except used ones."""
        firsts = (
            next((one for one in offers if one.name not in used), None)
            for matcher, offers in self._groups(node)
            if matcher is None or (node.node is not None and matcher.matches(node.node))
        )
        best = min(filter(None, firsts), default=None)
        return best.volume if best is not None else None

    def cost(self, node: NodeInfo) -> float:
        """Return the cost of finding the best volume of a node."""
        return _REACH * (1 + len(self._groups(node)))

    def _groups(self, node: NodeInfo) -> list[tuple[NodeMatcher | None, _Offers]]:
        of_host = self._by_host.get(node.labels.get(HOSTNAME, ""))
        return [*self._elsewhere, *of_host] if of_host else self._elsewhere

    def _fits(self, one: PersistentVolume) -> bool:
        claim = self._claim
        key = key_of(claim)
        return (
            class_of(one) == class_of(claim)
            and not mismatch(one, claim)
            and _selected(claim, one)
            and (is_bound_to(one, claim) or (one.spec.claim_ref is None and one.status.phase == AVAILABLE))
            and self._taken.get(one.metadata.name, key) == key
        )

    def _add(self, volume: PersistentVolume) -> None:
        matcher = matcher_of(volume)
        offers = self._by_matcher.get(matcher)
        if offers is None:
            offers = self._by_matcher[matcher] = []
            hosts = _hosts(matcher) if matcher is not None else None
            if matcher is None or hosts is None:
                self._elsewhere.append((matcher, offers))
            else:
                for host in hosts:
                    self._by_host.setdefault(host, []).append((matcher, offers))
        is_other = not is_bound_to(volume, self._claim)
        insort(offers, _Offer(is_other, size_of(volume.spec.capacity), volume.metadata.name, volume))


def matcher_of(volume: PersistentVolume) -> NodeMatcher | None:
    """Return the matcher of nodes that can access a volume; None for all nodes."""
    affinity = volume.spec.node_affinity
    return NodeMatcher.of(affinity.required) if affinity is not None and affinity.required is not None else None


def _hosts(matcher: NodeMatcher) -> frozenset[str] | None:
    """Return the required values of the hostname label; None if any node may match."""
    found: set[str] = set()
    for term in matcher.terms:
        named = (one.values for one in term.labels.requirements if (one.key, one.operator) == (HOSTNAME, "in"))
        values = next(named, None)
        if values is None:
            return None
        found.update(values)
    return frozenset(found)


def _selected(claim: PersistentVolumeClaim, volume: PersistentVolume) -> bool:
    if claim.spec.selector is None:
        return True
    try:
        return claim.spec.selector.selector().matches(volume.metadata.labels)
    except KeyError:
        return False
