"""The requirements of a pod on nodes and on other pods; pure.

`pod_requirements.py` reads them from pods.
"""

from collections.abc import Mapping
from decimal import ROUND_CEILING
from functools import lru_cache
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from controller_manager.common.api.core import Toleration
from controller_manager.common.api.quantity import Quantity
from controller_manager.common.api.scheduling import NodeTerm, RequiredNodeAffinity
from controller_manager.common.api.selectors import LabelSelector

_REMEMBERED = 10_000


class Amounts(NamedTuple):
    """Resources as integers: milli-CPU, bytes, and units of the `others`."""

    cpu: int = 0
    memory: int = 0
    storage: int = 0
    others: Mapping[str, int] = {}

    @classmethod
    def of(cls, found: Mapping[str, Quantity]) -> "Amounts":
        """Return quantities as integers, rounded up."""
        numbers = {name: _whole(one, 1000 if name == "cpu" else 1) for name, one in found.items() if name != "pods"}
        cpu, memory, storage = (numbers.pop(name, 0) for name in ("cpu", "memory", "ephemeral-storage"))
        return cls(cpu, memory, storage, {name: number for name, number in numbers.items() if number})


class HostPort(NamedTuple):
    """A host port: address (`0.0.0.0` for all), protocol and number."""

    address: str
    protocol: str
    number: int


class AffinityTerm(msgspec.Struct, frozen=True):
    """An affinity term: selectors of other pods, and the topology key."""

    namespaces: frozenset[str]
    of_namespaces: LabelSelector | None
    selector: LabelSelector | None
    topology_key: str
    weight: int = 0

    def matches(self, namespace: str, namespace_labels: Mapping[str, str], labels: Mapping[str, str]) -> bool:
        """Return whether the term selects a pod with these labels in a namespace with these labels."""
        of_these = self.of_namespaces
        if namespace in self.namespaces or (of_these is not None and of_these.matches(namespace_labels)):
            return self.selector is not None and self.selector.matches(labels)
        return False


class SpreadConstraint(msgspec.Struct, frozen=True):
    """A topology spread constraint (KEP-895)."""

    topology_key: str
    max_skew: int
    selector: LabelSelector | None
    min_domains: int = 1
    honors_affinity: bool = True
    honors_taints: bool = False


class PreferredNodes(NamedTuple):
    """A weighted node preference. A term of None matches no node."""

    weight: int
    term: NodeTerm | None


class Requirements(msgspec.Struct, frozen=True, eq=False):
    """The requirements that equal pods share.

    `requests` are the reserved resources; `weight` includes assumed requests for scores. `constraints` are required
    spread constraints, `preferred_spread` the others. `spreads_itself` means that no default constraints apply.
    `only_nodes` are the nodes named by its affinity, as for daemon pods, or None.
    """

    namespace: str
    labels: Mapping[str, str]
    scheduler: str
    gates: tuple[str, ...]
    priority: int
    preempts: bool
    requests: Amounts
    weight: Amounts
    ports: tuple[HostPort, ...]
    images: tuple[str, ...]
    tolerations: tuple[Toleration, ...]
    node_affinity: RequiredNodeAffinity
    selects_nodes: bool
    only_nodes: frozenset[str] | None
    preferred_nodes: tuple[PreferredNodes, ...]
    constraints: tuple[SpreadConstraint, ...]
    preferred_spread: tuple[SpreadConstraint, ...]
    spreads_itself: bool
    affinity: tuple[AffinityTerm, ...]
    anti_affinity: tuple[AffinityTerm, ...]
    preferred_affinity: tuple[AffinityTerm, ...]
    node_features: frozenset[str] = frozenset()
    """Features that a node must declare (KEP-5328)."""
    by_devices: frozenset[str] = frozenset()
    """Extended resources provided by devices on nodes without them."""

    @property
    def has_affinity(self) -> bool:
        """Return whether the pod has affinity or anti-affinity terms."""
        return bool(self.affinity or self.anti_affinity or self.preferred_affinity)


@lru_cache(_REMEMBERED)
def with_devices(asked: Requirements, resources: frozenset[str]) -> Requirements:
    """Return the requirements with these extended resources provided by devices."""
    return replace(asked, by_devices=resources)


def _whole(quantity: Quantity, factor: int) -> int:
    return int((quantity.number * factor).to_integral_value(ROUND_CEILING))
