"""Chooses the node of a pod: filters nodes, limits how many are scored, and takes the best; pure.

The results of a pod shape on a node are cached until the node changes. A pod of the same shape then needs only the
cached results and the checks that depend on other pods: spread, affinity, volumes.
"""

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple, Protocol, TypeVar, overload

import msgspec

from controller_manager.common.api.core import Pod
from controller_manager.common.api.model import ObjectMeta

from . import filters, scores
from .cluster_state import ClusterState
from .filters import Rejection, Rejections
from .node_info import NodeInfo, PlacedPod
from .pod_affinity import PodAffinity, liking
from .requirements import Requirements, SpreadConstraint
from .scores import Suitability, suitability
from .spread import PreferredSpread, Spread
from .time_slice import TimeSlice

# LRU size: pod shapes whose filter results are cached.
_REMEMBERED = 64
# All nodes are scored up to this number; above it, at least this number and this percentage.
_FEW, _LEAST_PERCENT = 100, 5
_ELSEWHERE = (
    filters.Rejection(filters.NODE_AFFINITY, "node(s) didn't match Pod's node affinity/selector", final=True),
)

K = TypeVar("K")
V = TypeVar("V")
Rejects = Callable[[NodeInfo], Rejections]


def _none() -> None:
    return None


class Attached(Protocol):
    """Dependencies of a pod: its volumes or its devices."""

    def look(self, node: NodeInfo, time: TimeSlice) -> Rejections | None:
        """Return why a node is rejected; None if the time slice ends before that is known. Results are cached."""

    def rejects(self, node: NodeInfo) -> Rejections:
        """Return why a node is rejected, which may be hypothetical."""


class Wanted(msgspec.Struct):
    """A pod that needs a node.

    `spread` are default constraints. `attached` are its volumes and devices, `preference` scores nodes by devices.
    `nominated` is its nominated node. `hindrance` rejects all nodes; `failure` returns one found while checking a
    node.
    """

    uid: str
    requirements: Requirements
    spread: tuple[SpreadConstraint, ...] = ()
    attached: tuple[Attached, ...] = ()
    nominated: str = ""
    hindrance: Rejection | None = None
    preference: Callable[[NodeInfo], int] | None = None
    failure: Callable[[], Rejection | None] = _none


class Unfinished(NamedTuple):
    """The search used up its time slice. It continues from cached results."""


class Choice(NamedTuple):
    """The node of a pod, the number of feasible nodes and of evaluated nodes."""

    node: str
    feasible: int
    evaluated: int


class NoFit(msgspec.Struct, frozen=True):
    """Why no node fits, by node, or that the search `failed`."""

    rejections: Mapping[str, Rejections] = {}
    hindrance: Rejection | None = None
    failed: bool = False

    @property
    def by(self) -> frozenset[str]:
        """Return the plugins that rejected nodes."""
        if self.hindrance is not None:
            return frozenset({self.hindrance.by})
        return frozenset(one.by for every in set(self.rejections.values()) for one in every)

    @property
    def message(self) -> str:
        """Return the message: the number of nodes, and how many were rejected for each reason."""
        if self.hindrance is not None:
            return f"0/{len(self.rejections)} nodes are available: {self.hindrance.reason}."
        reasons: Counter[str] = Counter()
        for every, number in Counter(self.rejections.values()).items():
            for one in every:
                reasons[one.reason] += number
        listed = ", ".join(sorted(f"{number} {reason}" for reason, number in reasons.items()))
        known = len(self.rejections)
        return f"0/{known} nodes are available: {listed}." if listed else "no nodes available to schedule pods"


class _Known(msgspec.Struct):
    """The cached results of a pod shape on a node of a generation. Scores are computed on demand."""

    generation: int
    rejections: Rejections
    suits: Suitability | None = None


class _Search(msgspec.Struct):
    """A search over the nodes in order, up to a position. It continues for the same pod if nothing has changed,
    otherwise it restarts with cached results.
    """

    wanted: Wanted
    version: int
    place: int = 0
    found: list[NodeInfo] = []
    rejections: dict[str, Rejections] = {}


class Relations:
    """The constraints on a pod by other pods."""

    def __init__(self, wanted: Wanted, state: ClusterState, spread: Spread | None, *, compares: bool) -> None:
        asked = wanted.requirements
        self._spread = spread
        self._compares = compares
        concerned = asked.affinity or asked.anti_affinity or state.with_affinity
        self._affinity = PodAffinity(asked, state) if concerned else None
        self._attached = wanted.attached
        if spread is not None:
            spread.refresh(compares=compares)

    def rejecting(self, *, attached: bool = True) -> list[Rejects]:
        """Return the checks that may reject a node at present."""
        found: list[Rejects] = [one.rejects for one in self._attached] if attached else []
        if self._spread is not None:
            found.append(self._spread.rejecting())
        if self._affinity is not None:
            found.append(self._affinity.rejects)
        return found

    def change(self, placed: PlacedPod, by: int) -> None:
        """Add or remove a pod on its node hypothetically."""
        if self._spread is not None:
            self._spread.change(placed, by)
        if self._affinity is not None:
            self._affinity.change(placed, by)


class Decider:
    """Chooses nodes for pods, given a maintained state.

    `percentage` of nodes to score is as in kube-scheduler; 0 adapts to the cluster size. `compares` enables numeric
    comparison in tolerations.
    """

    def __init__(self, state: ClusterState, *, percentage: int = 0, compares: bool = False) -> None:
        self.state = state
        self.compares = compares
        self._percentage = percentage
        # The start of the next search in the order of nodes, and the paused search.
        self._next = 0
        self._paused: _Search | None = None
        self._known: OrderedDict[Requirements, dict[str, _Known]] = OrderedDict()
        self._spread: OrderedDict[Requirements, Spread] = OrderedDict()
        self._preferred: OrderedDict[tuple[Requirements, tuple[SpreadConstraint, ...]], PreferredSpread] = OrderedDict()

    @overload
    def decide(self, wanted: Wanted) -> Choice | NoFit: ...

    @overload
    def decide(self, wanted: Wanted, time: TimeSlice) -> Choice | NoFit | Unfinished: ...

    def decide(self, wanted: Wanted, time: TimeSlice | None = None) -> Choice | NoFit | Unfinished:
        """Return the node for a pod, or why there is none. `time` limits the uncached work."""
        if wanted.hindrance is not None:
            return NoFit({node.name: (wanted.hindrance,) for node in self.state.order}, wanted.hindrance)
        asked, known = wanted.requirements, self._known_of(wanted.requirements)
        relations = self.relations(wanted)
        rejects = self._rejecting(wanted, known, relations, time or TimeSlice())
        nominated = self.state.nodes.get(wanted.nominated)
        if nominated is not None and nominated.node is not None:
            why = rejects(nominated)
            if not why:
                return Unfinished() if why is None else Choice(nominated.name, 1, 1)
        nodes, order = self._candidates(asked), self.state.order
        most, start = self.number_to_find(len(nodes)), self._next % (len(nodes) or 1) if nodes is order else 0
        search = self._search_for(wanted)
        found, rejections = search.found, search.rejections
        while search.place < len(nodes) and len(found) < most:
            node = nodes[(start + search.place) % len(nodes)]
            why = rejects(node)
            if why is None:
                self._paused = search
                return Unfinished()
            search.place += 1
            if why:
                rejections[node.name] = why
            else:
                found.append(node)
        evaluated = search.place
        if nodes is order and nodes:
            self._next = (start + evaluated) % len(nodes)
        failure = wanted.failure()
        if failure is not None:
            return NoFit({node.name: (failure,) for node in order}, failure, failed=True)
        if found:
            return Choice(self._best(wanted, found, known), len(found), evaluated)
        if nodes is not order:
            rejections = {**dict.fromkeys((node.name for node in order), _ELSEWHERE), **rejections}
        return NoFit(rejections)

    def _search_for(self, wanted: Wanted) -> _Search:
        """Return the paused search for a pod, or a new one."""
        paused, self._paused = self._paused, None
        if paused is not None and paused.version == self.state.version and paused.wanted == wanted:
            return paused
        return _Search(wanted, self.state.version)

    def number_to_find(self, nodes: int) -> int:
        """Return the number of feasible nodes to find among all nodes."""
        if nodes < _FEW:
            return nodes
        percentage = self._percentage or max(_LEAST_PERCENT, 50 - nodes // 125)
        return max(_FEW, nodes * percentage // 100)

    def relations(self, wanted: Wanted) -> Relations:
        """Return the constraints by other pods, which can be modified hypothetically."""
        asked = wanted.requirements
        spread = None
        if asked.constraints:
            spread = _remembered(self._spread, asked, lambda: Spread(asked, self.state))
        return Relations(wanted, self.state, spread, compares=self.compares)

    def fits(self, wanted: Wanted, node: NodeInfo, relations: Relations) -> bool:
        """Return whether a pod fits on a hypothetical node, also beside pods nominated to it."""
        return not self.rejections_at(wanted, node, relations)

    def rejections_at(self, wanted: Wanted, node: NodeInfo, relations: Relations) -> Rejections:
        """Return why a pod does not fit on a hypothetical node."""
        asked = wanted.requirements

        def reject(there: NodeInfo) -> Rejections:
            why = filters.reject(asked, there, compares=self.compares)
            return why or next(filter(None, (one(there) for one in relations.rejecting())), ())

        return reject(node) or self._rejected_beside(wanted, node, relations, reject)

    def _rejecting(
        self, wanted: Wanted, known: dict[str, _Known], relations: Relations, time: TimeSlice
    ) -> Callable[[NodeInfo], Rejections | None]:
        """Return a check that rejects nodes; its result is None if the time slice ends before that is known."""
        others, nominated = relations.rejecting(attached=False), self.state.nominated
        look, asked, attached = self._look, wanted.requirements, wanted.attached

        def reject(there: NodeInfo) -> Rejections:
            why = filters.reject(asked, there, compares=self.compares)
            return why or next(filter(None, (one(there) for one in relations.rejecting())), ())

        def rejects(node: NodeInfo) -> Rejections | None:
            found = known.get(node.name)
            if found is None or found.generation != node.generation:
                if time.is_over:
                    return None
                found = known[node.name] = look(asked, node)
                time.spend(1)
            if found.rejections:
                return found.rejections
            for one in attached:
                against = one.look(node, time)
                if against is None or against:
                    return against
            for other in others:
                why = other(node)
                if why:
                    return why
            return self._rejected_beside(wanted, node, relations, reject) if node.name in nominated else ()

        return rejects

    def _rejected_beside(self, wanted: Wanted, node: NodeInfo, relations: Relations, reject: Rejects) -> Rejections:
        """Return why a pod does not fit on a node together with nominated pods of the same or higher priority."""
        waiting = self.state.nominated.get(node.name, {})
        least = wanted.requirements.priority
        beside = [(uid, one) for uid, one in waiting.items() if uid != wanted.uid and one.priority >= least]
        if not beside:
            return ()
        imagined = node.copy()
        with _imagined(imagined, [_stand_in(uid, one, node) for uid, one in beside], relations):
            return reject(imagined)

    def _known_of(self, asked: Requirements) -> dict[str, _Known]:
        known: dict[str, _Known] = _remembered(self._known, asked, dict)
        if len(known) > 2 * len(self.state.order) + _FEW:  # of nodes that are gone
            known.clear()
        return known

    def _look(self, asked: Requirements, node: NodeInfo) -> _Known:
        return _Known(node.generation, filters.reject(asked, node, compares=self.compares))

    def _suits(self, asked: Requirements, node: NodeInfo, known: _Known) -> Suitability:
        if known.suits is None:
            known.suits = suitability(asked, node, self.state, compares=self.compares)
        return known.suits

    def _candidates(self, asked: Requirements) -> Sequence[NodeInfo]:
        order, names = self.state.order, asked.only_nodes
        if names is None:
            return order
        found = (self.state.nodes.get(name) for name in sorted(names))
        return [node for node in found if node is not None and node.node is not None]

    def ranked(self, wanted: Wanted) -> Mapping[str, int]:
        """Return the score of each feasible node."""
        known = self._known_of(wanted.requirements)
        rejects = self._rejecting(wanted, known, self.relations(wanted), TimeSlice())
        nodes = [node for node in self._candidates(wanted.requirements) if not rejects(node)]
        return {node.name: score for node, score in zip(nodes, self._totals(wanted, nodes, known), strict=True)}

    def _best(self, wanted: Wanted, nodes: Sequence[NodeInfo], known: Mapping[str, _Known]) -> str:
        """Return the name of the node with the highest score; the first of several."""
        if len(nodes) == 1:
            return nodes[0].name
        totals = self._totals(wanted, nodes, known)
        return nodes[totals.index(max(totals))].name

    def _totals(self, wanted: Wanted, nodes: Sequence[NodeInfo], known: Mapping[str, _Known]) -> list[int]:
        alone = [self._suits(wanted.requirements, node, known[node.name]) for node in nodes]
        totals = [one.score for one in alone]
        if any(one.taints for one in alone):
            _weigh(totals, scores.compared([one.taints for one in alone], fewer=True), scores.TAINTS)
        asked = wanted.requirements
        if asked.preferred_nodes:
            _weigh(totals, scores.compared([one.preferred for one in alone]), scores.NODES)
        spread = asked.preferred_spread if asked.spreads_itself else wanted.spread
        if spread:
            preferred = _remembered(
                self._preferred,
                (asked, spread),
                lambda: PreferredSpread(asked, spread, self.state, requires_keys=asked.spreads_itself),
            )
            _weigh(totals, preferred.scores(nodes, compares=self.compares), scores.SPREAD)
        if asked.preferred_affinity or self.state.with_affinity:
            liked = liking(asked, self.state, nodes)
            if liked is not None:
                _weigh(totals, liked, scores.PODS)
        if wanted.preference is not None:
            _weigh(totals, scores.compared([wanted.preference(node) for node in nodes]), scores.DEVICES)
        return totals


@contextmanager
def _imagined(node: NodeInfo, pods: Sequence[PlacedPod], relations: Relations) -> Iterator[None]:
    """Add pods to a hypothetical node within the context."""
    for one in pods:
        node.add(one)
        relations.change(one, 1)
    try:
        yield
    finally:
        for one in pods:
            node.remove(one)
            relations.change(one, -1)


def _stand_in(uid: str, asked: Requirements, node: NodeInfo) -> PlacedPod:
    """Return a pod as if it were placed on a node."""
    return PlacedPod(Pod(metadata=ObjectMeta(uid=uid, namespace=asked.namespace)), node.name, asked)


def _weigh(totals: list[int], more: Iterable[int], weight: int) -> None:
    for place, score in enumerate(more):
        totals[place] += weight * score


def _remembered(kept: OrderedDict[K, V], key: K, make: Callable[[], V]) -> V:
    """Return the cached value of a key, or create it. The least recently used entry is dropped."""
    found = kept.get(key)
    if found is None:
        found = kept[key] = make()
        if len(kept) > _REMEMBERED:
            kept.popitem(last=False)
    kept.move_to_end(key)
    return found
