"""Topology spread constraints (KEP-895, KEP-3022, KEP-3094, KEP-3243).

A pod may be placed in a domain if its pods, including the new one, exceed the domain with the fewest by at most
`max_skew`. With fewer domains than `min_domains` that minimum is 0. Preferred constraints score nodes by the pods in
their domains. A pod counts more with more domains.
"""

from collections.abc import Callable, Iterable, Sequence

from controller_manager.common.api.core import HOSTNAME, ZONE
from controller_manager.common.api.scheduling import NO_EXECUTE, NO_SCHEDULE, untolerated
from controller_manager.common.api.selectors import LabelSelector

from .cluster_state import ClusterState, PodCount, PodSelection
from .filters import SPREAD, Rejection, Rejections
from .node_info import NodeInfo, PlacedPod
from .requirements import AffinityTerm, Requirements, SpreadConstraint
from .scores import MOST, domain_weight

_IS_UNEVEN = (Rejection(SPREAD, "node(s) didn't match pod topology spread constraints"),)
_IS_NOWHERE = (
    Rejection(SPREAD, "node(s) didn't match pod topology spread constraints (missing required label)", final=True),
)


def default_constraints(selector: LabelSelector) -> tuple[SpreadConstraint, ...]:
    """Return the default constraints for pods of a service or workload."""
    return (SpreadConstraint(HOSTNAME, 3, selector), SpreadConstraint(ZONE, 5, selector))


class Domains:
    """The number of pods per domain for one constraint, updated incrementally.

    Domains are those of nodes with all `keys` that the pod may use according to the constraint's policies.
    """

    def __init__(
        self, constraint: SpreadConstraint, asked: Requirements, keys: Sequence[str], state: ClusterState
    ) -> None:
        self.constraint = constraint
        self._asked = asked
        self._keys = keys
        self._state = state
        selector = constraint.selector
        self.own = int(selector is not None and selector.matches(asked.labels))
        """1 if the constraint selects the pod itself."""
        # As in kube-scheduler, an empty selector selects the pod itself but counts no pods.
        counted = None if selector is None or selector.empty else selector
        term = AffinityTerm(frozenset({asked.namespace}), None, counted, "")
        self.selection = PodSelection((term,), without_leaving=True)
        self.count = state.count(self.selection)
        self._values: dict[str, str] = {}
        self.pods: dict[str, int] = {}
        self._topology, self._seen = -1, 0

    def refresh(self, *, compares: bool) -> None:
        """Apply changes of the state."""
        count, state = self._state.count(self.selection), self._state
        if count is not self.count or self._topology != state.topology or self._seen < count.first:
            self.count, self._topology = count, state.topology
            self._begin(compares)
        else:
            for node, by in count.changes[self._seen - count.first :]:
                self.change(node, by)
        self._seen = count.first + len(count.changes)

    def change(self, node: str, by: int) -> None:
        """Add to the number of pods on a node."""
        value = self._values.get(node)
        if value is not None:
            self.pods[value] += by

    def fewest(self) -> int:
        """Return the number of pods in the domain with the fewest."""
        return 0 if len(self.pods) < self.constraint.min_domains else min(self.pods.values(), default=0)

    def _begin(self, compares: bool) -> None:
        key, by_node = self.constraint.topology_key, self.count.by_node
        self._values = {
            node.name: node.labels.get(key, "") for node in self._state.order if self._counts(node, compares)
        }
        self.pods = dict.fromkeys(self._values.values(), 0)
        for name, number in by_node.items():
            self.change(name, number)

    def _counts(self, node: NodeInfo, compares: bool) -> bool:
        asked, constraint = self._asked, self.constraint
        if not all(key in node.labels for key in self._keys):
            return False
        honors = constraint.honors_affinity and asked.selects_nodes
        if honors and (node.node is None or not asked.node_affinity.matches(node.node)):
            return False
        if not (constraint.honors_taints and node.taints):
            return True
        return untolerated(node.taints, asked.tolerations, (NO_SCHEDULE, NO_EXECUTE), compares=compares) is None


class Spread:
    """The required constraints of equal pods."""

    def __init__(self, asked: Requirements, state: ClusterState) -> None:
        keys = [one.topology_key for one in asked.constraints]
        self._domains = [Domains(one, asked, keys, state) for one in asked.constraints]
        self._selects = state.selects

    def refresh(self, *, compares: bool) -> None:
        """Apply changes of the state."""
        for domains in self._domains:
            domains.refresh(compares=compares)

    def change(self, placed: PlacedPod, by: int) -> None:
        """Add (1) or remove (-1) a pod on its node hypothetically."""
        for domains in self._domains:
            counts = not placed.is_leaving and self._selects(domains.selection.terms[0], placed.requirements)
            if counts:
                domains.change(placed.node, by)

    def rejecting(self) -> Callable[[NodeInfo], Rejections]:
        """Return a check that rejects nodes in the present state."""
        limits = [
            (one.constraint.topology_key, one.pods, one.constraint.max_skew + one.fewest() - one.own)
            for one in self._domains
        ]

        def rejects(node: NodeInfo) -> Rejections:
            labels = node.labels
            for key, pods, most in limits:
                value = labels.get(key)
                if value is None:
                    return _IS_NOWHERE
                if pods.get(value, 0) > most:
                    return _IS_UNEVEN
            return ()

        return rejects


class PreferredSpread:
    """The preferred constraints of equal pods. With `requires_keys` nodes without all labels are ignored."""

    def __init__(
        self, asked: Requirements, constraints: Iterable[SpreadConstraint], state: ClusterState, *, requires_keys: bool
    ) -> None:
        wanted = tuple(constraints)
        self._keys = [one.topology_key for one in wanted] if requires_keys else []
        self._domains = [Domains(one, asked, self._keys, state) for one in wanted]

    def scores(self, nodes: Sequence[NodeInfo], *, compares: bool) -> list[int]:
        """Return the score of each node, 0 to 100."""
        keys = self._keys
        counted = [all(key in node.labels for key in keys) for node in nodes] if keys else [True] * len(nodes)
        raw = [0.0] * len(nodes)
        for domains in self._domains:
            self._add(domains, nodes, counted, raw, compares)
        rounded = [int(value + 0.5) for value in raw]
        some = [value for value, counts in zip(rounded, counted, strict=True) if counts]
        largest, least = max(some, default=0), min(some, default=0)
        if not largest:
            return [MOST if counts else 0 for counts in counted]
        return [
            MOST * (largest + least - value) // largest if counts else 0
            for value, counts in zip(rounded, counted, strict=True)
        ]

    @staticmethod
    def _add(
        domains: Domains, nodes: Sequence[NodeInfo], counted: Sequence[bool], raw: list[float], compares: bool
    ) -> None:
        """Add the raw scores of one constraint."""
        domains.refresh(compares=compares)
        key, more = domains.constraint.topology_key, float(domains.constraint.max_skew - 1)
        by_node: PodCount | None = domains.count if key == HOSTNAME else None
        if by_node is not None:
            weight, counts = domain_weight(sum(counted)), by_node.by_node
            for place, node in enumerate(nodes):
                if key in node.labels:
                    raw[place] += counts.get(node.name, 0) * weight + more
            return
        values = {node.labels.get(key, "") for node, counts in zip(nodes, counted, strict=True) if counts}
        weight, pods = domain_weight(len(values)), domains.pods
        for place, node in enumerate(nodes):
            value = node.labels.get(key)
            if value is not None:
                raw[place] += pods.get(value, 0) * weight + more
