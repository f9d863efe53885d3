"""What a pod asks of a node and of the pods beside it; pure.

`pod_requirements.py` reads it from pods.
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
    """Resources as whole numbers: thousandths of CPUs, bytes, and units of the `others`."""

    cpu: int = 0
    memory: int = 0
    storage: int = 0
    others: Mapping[str, int] = {}

    @classmethod
    def of(cls, found: Mapping[str, Quantity]) -> "Amounts":
        """Return quantities as whole numbers, rounded up."""
        numbers = {name: _whole(one, 1000 if name == "cpu" else 1) for name, one in found.items() if name != "pods"}
        cpu, memory, storage = (numbers.pop(name, 0) for name in ("cpu", "memory", "ephemeral-storage"))
        return cls(cpu, memory, storage, {name: number for name, number in numbers.items() if number})


class HostPort(NamedTuple):
    """A port of the node itself: an address (`0.0.0.0` for all), a protocol and a number."""

    address: str
    protocol: str
    number: int


class AffinityTerm(msgspec.Struct, frozen=True):
    """Other pods, by namespace and labels, and the label of nodes by which a pod is to be near them, or far."""

    namespaces: frozenset[str]
    of_namespaces: LabelSelector | None
    selector: LabelSelector | None
    topology_key: str
    weight: int = 0

    def matches(self, namespace: str, namespace_labels: Mapping[str, str], labels: Mapping[str, str]) -> bool:
        """Return whether a pod of a namespace with these labels is meant."""
        of_these = self.of_namespaces
        if namespace in self.namespaces or (of_these is not None and of_these.matches(namespace_labels)):
            return self.selector is not None and self.selector.matches(labels)
        return False


class SpreadConstraint(msgspec.Struct, frozen=True):
    """How evenly pods of a selection are to be spread over the values of a label of nodes (KEP-895)."""

    topology_key: str
    max_skew: int
    selector: LabelSelector | None
    min_domains: int = 1
    honors_affinity: bool = True
    honors_taints: bool = False


class PreferredNodes(NamedTuple):
    """Nodes that are liked better, by so much; without a term it is for none."""

    weight: int
    term: NodeTerm | None


class Requirements(msgspec.Struct, frozen=True, eq=False):
    """All that equal pods ask for. `requests` is what is reserved for a pod; `weight` is the same where what no
    container requested is assumed. `constraints` are the spread constraints that must hold, `preferred_spread` those
    that are kept if possible; `spreads_itself` says that the pod has some of its own, so that none are assumed.
    `only_nodes` are those that its affinity names, as that of daemon sets' pods does; None where it names none.
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
    """Extended resources that nodes give by devices if they have none of them themselves."""

    @property
    def has_affinity(self) -> bool:
        """Return whether pods of others are looked at for it, or it is looked at for pods of others."""
        return bool(self.affinity or self.anti_affinity or self.preferred_affinity)


@lru_cache(_REMEMBERED)
def with_devices(asked: Requirements, resources: frozenset[str]) -> Requirements:
    """Return the same requirements where classes of devices stand for these extended resources."""
    return replace(asked, by_devices=resources)


def _whole(quantity: Quantity, factor: int) -> int:
    return int((quantity.number * factor).to_integral_value(ROUND_CEILING))
