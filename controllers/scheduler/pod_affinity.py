"""Pod affinity and anti-affinity, including the anti-affinity of existing pods."""

from collections.abc import Sequence

from .cluster_state import ClusterState, PodSelection
from .filters import POD_AFFINITY, Rejection, Rejections
from .node_info import NodeInfo, PlacedPod
from .requirements import AffinityTerm, Requirements
from .scores import within_range

_FAR_FROM_LIKED = (Rejection(POD_AFFINITY, "node(s) didn't match pod affinity rules", final=True),)
_NEAR_DISLIKED = (Rejection(POD_AFFINITY, "node(s) didn't match pod anti-affinity rules"),)
_DISLIKED = (Rejection(POD_AFFINITY, "node(s) didn't satisfy existing pods anti-affinity rules"),)
# The weight of an existing pod's required affinity in scores.
_REQUIRED = 1

# Number of pods by domain: a node label and its value.
_Domains = dict[tuple[str, str], int]


class PodAffinity:
    """The domains of pods that match the affinity or anti-affinity of a pod, or whose anti-affinity matches it."""

    def __init__(self, asked: Requirements, state: ClusterState) -> None:
        self._asked = asked
        self._state = state
        self._near_keys = tuple(dict.fromkeys(term.topology_key for term in asked.affinity))
        self._far_keys = tuple(dict.fromkeys(term.topology_key for term in asked.anti_affinity))
        self._first: bool | None = None
        self._near: _Domains = {}
        self._far: _Domains = {}
        self._unwelcome: _Domains = {}
        for name, count in _counted(state, asked.affinity):
            for term in asked.affinity:
                _add(state, self._near, term, name, count)
        for term in asked.anti_affinity:
            for name, count in _counted(state, (term,)):
                _add(state, self._far, term, name, count)
        for other, there in state.with_affinity.items():
            for term in other.anti_affinity:
                if state.selects(term, asked):
                    for name, count in there.items():
                        _add(self._state, self._unwelcome, term, name, count)

    def change(self, placed: PlacedPod, by: int) -> None:
        """Add (1) or remove (-1) a pod on its node hypothetically."""
        asked, other, selects = self._asked, placed.requirements, self._state.selects
        self._first = None
        if asked.affinity and all(selects(term, other) for term in asked.affinity):
            for term in asked.affinity:
                _add(self._state, self._near, term, placed.node, by)
        for term in asked.anti_affinity:
            if selects(term, other):
                _add(self._state, self._far, term, placed.node, by)
        for term in other.anti_affinity:
            if selects(term, asked):
                _add(self._state, self._unwelcome, term, placed.node, by)

    def rejects(self, node: NodeInfo) -> Rejections:
        """Return why the pod does not fit on a node; empty if it fits."""
        if self._near_keys and not self._is_near(node):
            return _FAR_FROM_LIKED
        if self._far:
            labels, far = node.labels, self._far
            for key in self._far_keys:
                if key in labels and far.get((key, labels[key]), 0) > 0:
                    return _NEAR_DISLIKED
        if self._unwelcome and any(self._unwelcome.get(pair, 0) > 0 for pair in node.labels.items()):
            return _DISLIKED
        return ()

    def _is_near(self, node: NodeInfo) -> bool:
        labels, near, are_there = node.labels, self._near, True
        for key in self._near_keys:
            if key not in labels:
                return False
            are_there = are_there and near.get((key, labels[key]), 0) > 0
        return are_there or self._is_first()

    def _is_first(self) -> bool:
        """Return whether the pod is the first of a group with affinity to itself, which may be placed anywhere."""
        if self._first is None:
            alone = not any(count > 0 for count in self._near.values())
            self._first = alone and all(self._state.selects(term, self._asked) for term in self._asked.affinity)
        return self._first


def liking(asked: Requirements, state: ClusterState, nodes: Sequence[NodeInfo]) -> list[int] | None:
    """Return the score of each node (0 to 100) by preferred affinity; None if no preference applies."""
    liked: _Domains = {}
    for term in asked.preferred_affinity:
        for name, count in _counted(state, (term,)):
            _add(state, liked, term, name, count * term.weight)
    for other, there in state.with_affinity.items():
        weighed = [(term, term.weight) for term in other.preferred_affinity]
        for term, weight in [*weighed, *((term, _REQUIRED) for term in other.affinity)]:
            if state.selects(term, asked):
                for name, count in there.items():
                    _add(state, liked, term, name, count * weight)
    if not liked:
        return None
    keys = {key for key, _ in liked}
    return within_range([sum(liked.get((key, node.labels.get(key, "")), 0) for key in keys) for node in nodes])


def _counted(state: ClusterState, terms: tuple[AffinityTerm, ...]) -> list[tuple[str, int]]:
    """Return the number of pods per node that all terms select."""
    return list(state.count(PodSelection(terms)).by_node.items()) if terms else []


def _add(state: ClusterState, domains: _Domains, term: AffinityTerm, node: str, by: int) -> None:
    info = state.nodes.get(node)
    value = info.labels.get(term.topology_key) if info is not None else None
    if value is not None:
        pair = term.topology_key, value
        domains[pair] = domains.get(pair, 0) + by
