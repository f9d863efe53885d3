"""Topology hints, which keep traffic within a zone unless endpoints would be overloaded; pure (KEP-2433).

Each zone is due a share of the endpoints equal to its share of the CPU of ready nodes. An endpoint is first hinted for
its own zone. Zones with a surplus then give some to zones with a deficit.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from controller_manager.common.api import quantity
from controller_manager.common.api.conditions import is_condition_true
from controller_manager.common.api.core import ZONE, Node
from controller_manager.common.api.discovery import Endpoint, EndpointHints, ForZone
from controller_manager.common.api.platform import PLATFORM_DOMAIN

# Maximum relative overload of an endpoint due to hints.
OVERLOAD = 0.2
# Nodes without user traffic.
_EXCLUDED = (f"node-role.{PLATFORM_DOMAIN}/control-plane", f"node-role.{PLATFORM_DOMAIN}/master")

NO_NODE_INFORMATION = "Insufficient Node information: a ready node lacks its zone or its allocatable CPU"
ONE_ZONE = "All ready nodes are in one zone"
TOO_FEW_ENDPOINTS = "Insufficient number of endpoints for every zone to have one"
OVERLOADED = "The overload threshold would be exceeded, whichever zones the endpoints were for"
NO_ZONE = "Some endpoints are in no known zone"


class Refused(Exception):
    """Hints are not possible; the message says why."""


class Share(NamedTuple):
    """Numbers of endpoints of a zone: minimum, maximum and due."""

    minimum: int
    maximum: int
    due: float


# The share of a zone without capacity.
_NOTHING = Share(0, 0, 0.0)


class Capacity:
    """The CPU of ready nodes by zone, updated node by node."""

    def __init__(self) -> None:
        # Zone and CPU of each counted node; CPU per zone of nodes that report both; number of nodes that do not.
        self._nodes: dict[str, tuple[str, int]] = {}
        self._zones: Counter[str] = Counter()
        self._silent = 0

    def take(self, before: Node | None, after: Node | None) -> bool:
        """Apply a changed, new or deleted node. Return whether the capacity has changed."""
        name = (after or before or Node()).metadata.name
        counts = _counts(after) if after is not None else None
        known = self._nodes.get(name)
        if counts == known:
            return False
        if known is not None:
            del self._nodes[name]
            self._add(*known, -1)
        if counts is not None:
            self._nodes[name] = counts
            self._add(*counts, 1)
        return True

    def ratios(self) -> dict[str, float]:
        """Return the share of each zone; raises `Refused` if it is unknown."""
        if self._silent or not self._zones:
            raise Refused(NO_NODE_INFORMATION)
        if len(self._zones) < 2:
            raise Refused(ONE_ZONE)
        total = self._zones.total()
        return {zone: self._zones[zone] / total for zone in sorted(self._zones)}

    def _add(self, zone: str, cpu: int, nodes: int) -> None:
        if not zone or cpu <= 0:
            self._silent += nodes
            return
        self._zones[zone] += nodes * cpu
        if not self._zones[zone]:
            del self._zones[zone]


def _counts(node: Node) -> tuple[str, int] | None:
    """Return zone and milli-CPU of a node that counts. The zone is empty and the CPU 0 if missing."""
    labels = node.metadata.labels or {}
    ready = is_condition_true(node.status.conditions, "Ready")
    if not ready or any(name in labels for name in _EXCLUDED):
        return None
    try:
        cpu = int(quantity.parse((node.status.allocatable or {}).get("cpu", "0")).number * 1000)
    except ValueError:
        cpu = 0
    return labels.get(ZONE, ""), cpu


def shares(ratios: Mapping[str, float], endpoints: int) -> dict[str, Share]:
    """Return the share of each zone in the endpoints; raises `Refused` if a zone would always be overloaded."""
    counted = f"({endpoints} endpoints, {len(ratios)} zones)"
    if endpoints < len(ratios):
        raise Refused(f"{TOO_FEW_ENDPOINTS} {counted}")
    minima = {zone: math.ceil(ratio * endpoints / (1 + OVERLOAD)) for zone, ratio in ratios.items()}
    slack = endpoints - sum(minima.values())
    if slack < 0:
        raise Refused(f"{OVERLOADED} {counted}")
    return {
        zone: Share(minimum, minimum + slack, max(ratios[zone] * endpoints, minimum))
        for zone, minimum in minima.items()
    }


def hinted(
    slices: Sequence[Sequence[Endpoint]], fixed: Iterable[int], ratios: Mapping[str, float]
) -> list[tuple[Endpoint, ...]]:
    """Return the endpoints of slices with hints. Slices in `fixed` keep their hints if possible.

    Raises `Refused` if hints are not possible.
    """
    ready = [endpoint for endpoints in slices for endpoint in endpoints if endpoint.conditions.ready]
    due = shares(ratios, len(ready))
    if not all(endpoint.zone for endpoint in ready):
        raise Refused(NO_ZONE)
    kept: set[int] = set()
    given: Counter[str] = Counter()
    for index in fixed:
        zones = [_zone_hinted(endpoint) for endpoint in slices[index] if endpoint.conditions.ready]
        together = given + Counter(zones)
        stray = any(endpoint.hints for endpoint in slices[index] if not endpoint.conditions.ready)
        if not stray and all(zone in due and together[zone] <= due[zone].maximum for zone in zones):
            kept.add(index)
            given = together
    found = _spread(slices, kept, given, due)
    if kept and not _is_fair(found, due):
        found = _spread(slices, set(), Counter(), due)
    return found


def without_hints(endpoints: Iterable[Endpoint]) -> tuple[Endpoint, ...]:
    """Return the same endpoints without hints."""
    return tuple(replace(endpoint, hints=None) if endpoint.hints else endpoint for endpoint in endpoints)


def _spread(
    slices: Sequence[Sequence[Endpoint]], kept: set[int], given: Counter[str], due: Mapping[str, Share]
) -> list[tuple[Endpoint, ...]]:
    """Hint free ready endpoints for their own zone first, then for zones with a deficit."""
    free = [e for index, endpoints in enumerate(slices) if index not in kept for e in endpoints if e.conditions.ready]
    giving, receiving = _exchange(given + Counter(endpoint.zone or "" for endpoint in free), due)

    def hint(endpoint: Endpoint) -> Endpoint:
        if not endpoint.conditions.ready:
            return replace(endpoint, hints=None) if endpoint.hints else endpoint
        zone = endpoint.zone or ""
        if giving[zone] and receiving:
            giving[zone] -= 1
            zone = receiving.pop()
        return replace(endpoint, hints=EndpointHints(for_zones=(ForZone(name=zone),)))

    return [
        tuple(endpoints) if index in kept else tuple(hint(endpoint) for endpoint in endpoints)
        for index, endpoints in enumerate(slices)
    ]


def _exchange(counts: Mapping[str, int], due: Mapping[str, Share]) -> tuple[Counter[str], list[str]]:
    """Return how many endpoints each zone gives away, and the receiving zones, repeated per endpoint.

    Less than half an endpoint is not moved, unless a zone would fall below its minimum.
    """
    have = Counter(counts)
    giving: Counter[str] = Counter()
    receiving: list[str] = []

    def surplus(zone: str) -> float:
        return have[zone] - due.get(zone, _NOTHING).due

    while givers := sorted(zone for zone in have if have[zone] > due.get(zone, _NOTHING).minimum):
        starved = [zone for zone in due if have[zone] < due[zone].minimum]
        giver, taker = max(givers, key=surplus), min(sorted(starved or due), key=surplus)
        more, less = surplus(giver), -surplus(taker)
        if not starved and (min(more, less) < 0.5 or max(more, less) < 1.0):
            break
        have[giver] -= 1
        have[taker] += 1
        giving[giver] += 1
        receiving.append(taker)
    return giving, receiving[::-1]


def _is_fair(slices: Iterable[Iterable[Endpoint]], due: Mapping[str, Share]) -> bool:
    """Return whether every zone has its minimum."""
    counts = Counter(_zone_hinted(e) for endpoints in slices for e in endpoints if e.conditions.ready)
    return all(counts[zone] >= share.minimum for zone, share in due.items())


def _zone_hinted(endpoint: Endpoint) -> str:
    zones = endpoint.hints.for_zones if endpoint.hints else ()
    return zones[0].name if len(zones) == 1 else ""
