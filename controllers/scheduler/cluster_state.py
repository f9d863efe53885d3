"""The cluster as pods are placed in it: nodes, the pods on them, and those that are as good as there; kept up with
every change, so that a decision looks at what has changed since the last one.
"""

from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, zip_longest

import msgspec

from controller_manager.common.api.core import REGION, ZONE, Node

from .node_info import NodeInfo, PlacedPod
from .requirements import AffinityTerm, Requirements

_EMPTY: Mapping[str, str] = {}
# Selections of pods that are counted all the time, those that were asked for last.
_COUNTED = 512
# Changes of a count that are kept for who looks at it now and then.
_KEPT = 4096


class PodSelection(msgspec.Struct, frozen=True):
    """Pods that all the terms select; those that are being deleted may not count."""

    terms: tuple[AffinityTerm, ...]
    without_leaving: bool = False


class PodCount:
    """How many pods of a selection there are on each node. `changes` are the last ones, of which the first is the
    number `first`.
    """

    def __init__(self, selection: PodSelection) -> None:
        self.selection = selection
        self.by_node: dict[str, int] = {}
        self.changes: list[tuple[str, int]] = []
        self.first = 0

    def change(self, node: str, by: int) -> None:
        """There are more pods of the selection on a node, or fewer."""
        count = self.by_node.get(node, 0) + by
        if count:
            self.by_node[node] = count
        else:
            self.by_node.pop(node, None)
        self.changes.append((node, by))
        if len(self.changes) > _KEPT:
            del self.changes[: _KEPT // 2]
            self.first += _KEPT // 2


class ClusterState:
    """All nodes and placed pods. `version` is another number after each change, `topology` after each change of which
    nodes there are, of their labels and taints.
    """

    def __init__(self) -> None:
        self.version = 0
        self.topology = 0
        self.nodes: dict[str, NodeInfo] = {}
        self.pods: dict[str, PlacedPod] = {}
        self.priorities: Counter[int] = Counter()
        """How many pods of each priority are placed."""
        self.with_affinity: dict[Requirements, dict[str, int]] = {}
        """How many pods that are looked at for pods of others are on each node, by what they ask for."""
        self.nominated: dict[str, dict[str, Requirements]] = {}
        """Pods that wait for room on a node, by node and uid."""
        self.claims: Counter[tuple[str, str]] = Counter()
        """How many placed pods use a claim to a volume."""
        self._nominated_to: dict[str, str] = {}
        self._namespaces: dict[str, Mapping[str, str]] = {}
        self._counts: OrderedDict[PodSelection, PodCount] = OrderedDict()
        self._order: list[NodeInfo] | None = None
        self._images: Counter[str] = Counter()
        # How many pods that ask for the same are on each node; of them those that are being deleted, by uid.
        self._kinds: dict[Requirements, dict[str, int]] = {}
        self._leaving: dict[str, PlacedPod] = {}

    # Nodes.

    @property
    def order(self) -> Sequence[NodeInfo]:
        """The nodes there are, a node of each zone after the other."""
        if self._order is None:
            zones: dict[tuple[str, str], list[NodeInfo]] = {}
            for node in self.nodes.values():
                if node.node is not None:
                    zones.setdefault((node.labels.get(REGION, ""), node.labels.get(ZONE, "")), []).append(node)
            self._order = [one for one in chain.from_iterable(zip_longest(*zones.values())) if one is not None]
        return self._order

    def set_node(self, node: Node) -> bool:
        """A node is there, or as it is now; return whether that may matter to pods."""
        info = self._node(node.metadata.name)
        was_there, labels, taints = info.node is not None, info.labels, info.taints
        for image in info.images:
            self._images[image] -= 1
        matters = info.describe(node)
        self._images.update(info.images.keys())
        if matters:
            self._touch(info)
        if not was_there or labels != info.labels or taints != info.taints:
            self._order, self.topology = None, self.topology + 1
        return matters

    def remove_node(self, name: str) -> None:
        """A node is gone. Its pods are known as long as they are there."""
        info = self.nodes.get(name)
        if info is None:
            return
        self._images.subtract(info.images.keys())
        gone = NodeInfo(name)
        for placed in info.pods.values():
            gone.add(placed)
        self.nodes[name] = gone
        self._order, self.topology = None, self.topology + 1
        self._touch(gone)
        self._drop_if_empty(gone)

    def nodes_with_image(self, image: str) -> int:
        """Return how many nodes have an image of that name."""
        return self._images[image]

    # Pods.

    def place(self, placed: PlacedPod) -> None:
        """A pod is on a node, or as it is there now."""
        known = self.pods.get(placed.uid)
        if known is not None:
            same = known.node == placed.node and known.requirements is placed.requirements
            if same and known.is_leaving == placed.is_leaving:
                known.pod, known.assumed = placed.pod, placed.assumed
                return
            self.remove(placed.uid)
        self.forget_nomination(placed.uid)
        info = self._node(placed.node)
        info.add(placed)
        self.pods[placed.uid] = placed
        self._tally(placed, 1)
        self._touch(info)

    def remove(self, uid: str) -> PlacedPod | None:
        """A pod is on no node any more; return how it was there."""
        placed = self.pods.pop(uid, None)
        if placed is None:
            return None
        info = self.nodes[placed.node]
        info.remove(placed)
        self._tally(placed, -1)
        self._touch(info)
        self._drop_if_empty(info)
        return placed

    def nominate(self, uid: str, asked: Requirements, node: str) -> None:
        """A pod waits for room on that node, and takes it meanwhile from those of lower priority."""
        if self._nominated_to.get(uid) == node and self.nominated[node][uid] is asked:
            return
        self.forget_nomination(uid)
        self._nominated_to[uid] = node
        self.nominated.setdefault(node, {})[uid] = asked
        self.version += 1

    def forget_nomination(self, uid: str) -> None:
        """A pod waits for no node in particular."""
        node = self._nominated_to.pop(uid, None)
        if node is not None:
            del self.nominated[node][uid]
            if not self.nominated[node]:
                del self.nominated[node]
            self.version += 1

    # Pods by what they are selected by.

    def labels_of(self, namespace: str) -> Mapping[str, str]:
        """Return the labels of a namespace."""
        return self._namespaces.get(namespace, _EMPTY)

    def set_namespace(self, name: str, labels: Mapping[str, str] | None) -> bool:
        """A namespace has these labels; return whether it had others."""
        if self._namespaces.get(name, _EMPTY) == (labels or _EMPTY):
            return False
        self._namespaces[name] = labels or _EMPTY
        for selection in [one for one in self._counts if any(term.of_namespaces for term in one.terms)]:
            del self._counts[selection]
        self.version += 1
        return True

    def remove_namespace(self, name: str) -> None:
        """A namespace is gone."""
        self._namespaces.pop(name, None)

    def count(self, selection: PodSelection) -> PodCount:
        """Return how many pods of a selection are on each node; it goes on being true while it is asked for."""
        found = self._counts.get(selection)
        if found is None:
            found = self._counts[selection] = PodCount(selection)
            counts: Counter[str] = Counter()
            for asked, there in self._kinds.items():
                if self._is_selected(asked, selection):
                    counts.update(there)
            for placed in self._leaving.values() if selection.without_leaving else ():
                if self._is_selected(placed.requirements, selection):
                    counts[placed.node] -= 1
            found.by_node.update((node, count) for node, count in counts.items() if count)
            if len(self._counts) > _COUNTED:
                self._counts.popitem(last=False)
        self._counts.move_to_end(selection)
        return found

    def selects(self, term: AffinityTerm, asked: Requirements) -> bool:
        """Return whether a term means pods that ask for this."""
        return term.matches(asked.namespace, self.labels_of(asked.namespace), asked.labels)

    def _is_selected(self, asked: Requirements, selection: PodSelection) -> bool:
        return all(self.selects(term, asked) for term in selection.terms)

    def _tally(self, placed: PlacedPod, sign: int) -> None:
        asked, node = placed.requirements, placed.node
        self.priorities[asked.priority] += sign
        if not self.priorities[asked.priority]:
            del self.priorities[asked.priority]
        for claim in placed.claims:
            self.claims[claim] += sign
            if not self.claims[claim]:
                del self.claims[claim]
        self._tally_kind(asked, node, sign)
        if placed.is_leaving:
            if sign > 0:
                self._leaving[placed.uid] = placed
            else:
                del self._leaving[placed.uid]
        for count in self._counts.values():
            if placed.is_leaving and count.selection.without_leaving:
                continue
            if self._is_selected(asked, count.selection):
                count.change(node, sign)

    def _tally_kind(self, asked: Requirements, node: str, sign: int) -> None:
        there = self._kinds.get(asked)
        if there is None:
            there = self._kinds[asked] = {}
            if asked.has_affinity:
                self.with_affinity[asked] = there
        there[node] = there.get(node, 0) + sign
        if not there[node]:
            del there[node]
        if not there:
            del self._kinds[asked]
            self.with_affinity.pop(asked, None)

    def _node(self, name: str) -> NodeInfo:
        found = self.nodes.get(name)
        if found is None:
            found = self.nodes[name] = NodeInfo(name)
        return found

    def _touch(self, info: NodeInfo) -> None:
        self.version += 1
        info.generation = self.version

    def _drop_if_empty(self, info: NodeInfo) -> None:
        if info.node is None and not info.pods:
            del self.nodes[info.name]


def topology_values(nodes: Iterable[NodeInfo], key: str) -> Iterator[tuple[NodeInfo, str]]:
    """The nodes that have a label, with its value."""
    for node in nodes:
        value = node.labels.get(key)
        if value is not None:
            yield node, value
