"""The scheduler's view of the cluster: nodes, bound and assumed pods, updated incrementally by events."""

from collections import Counter, OrderedDict
from collections.abc import Mapping, Sequence
from itertools import chain, zip_longest

import msgspec

from controller_manager.common.api.core import REGION, ZONE, Node

from .node_info import NodeInfo, PlacedPod
from .requirements import AffinityTerm, Requirements

_EMPTY: Mapping[str, str] = {}
# Maximum number of selections whose counts are maintained (LRU).
_COUNTED = 512
# Maximum number of recorded changes of a count.
_KEPT = 4096


class PodSelection(msgspec.Struct, frozen=True):
    """Pods selected by all terms. Pods being deleted can be excluded."""

    terms: tuple[AffinityTerm, ...]
    without_leaving: bool = False


class PodCount:
    """The number of selected pods per node. `changes` are the last changes, starting with number `first`."""

    def __init__(self, selection: PodSelection) -> None:
        self.selection = selection
        self.by_node: dict[str, int] = {}
        self.changes: list[tuple[str, int]] = []
        self.first = 0

    def change(self, node: str, by: int) -> None:
        """Add to the number of pods on a node."""
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
    """All nodes and placed pods.

    `version` changes with each change, `topology` with changes of the set of nodes, their labels or taints.
    """

    def __init__(self) -> None:
        self.version = 0
        self.topology = 0
        self.nodes: dict[str, NodeInfo] = {}
        self.pods: dict[str, PlacedPod] = {}
        self.priorities: Counter[int] = Counter()
        """The number of placed pods by priority."""
        self.with_affinity: dict[Requirements, dict[str, int]] = {}
        """The number of pods with affinity per node, by requirements."""
        self.nominated: dict[str, dict[str, Requirements]] = {}
        """Nominated pods, by node and uid."""
        self.claims: Counter[tuple[str, str]] = Counter()
        """The number of placed pods per volume claim."""
        self._nominated_to: dict[str, str] = {}
        self._namespaces: dict[str, Mapping[str, str]] = {}
        self._counts: OrderedDict[PodSelection, PodCount] = OrderedDict()
        self._order: list[NodeInfo] | None = None
        self._images: Counter[str] = Counter()
        # The number of pods per node by requirements, and pods being deleted by uid.
        self._kinds: dict[Requirements, dict[str, int]] = {}
        self._leaving: dict[str, PlacedPod] = {}

    # Nodes

    @property
    def order(self) -> Sequence[NodeInfo]:
        """Return the nodes, alternating between zones."""
        if self._order is None:
            zones: dict[tuple[str, str], list[NodeInfo]] = {}
            for node in self.nodes.values():
                if node.node is not None:
                    zones.setdefault((node.labels.get(REGION, ""), node.labels.get(ZONE, "")), []).append(node)
            self._order = [one for one in chain.from_iterable(zip_longest(*zones.values())) if one is not None]
        return self._order

    def set_node(self, node: Node) -> bool:
        """Add or update a node. Return whether that may affect pods."""
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
        """Remove a node. Its pods stay until they are deleted."""
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
        """Return the number of nodes that have an image."""
        return self._images[image]

    # Pods

    def place(self, placed: PlacedPod) -> None:
        """Add or update a pod on a node."""
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
        """Remove a pod. Return its last state, or None."""
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
        """Nominate a pod to a node. It reserves resources there against pods of lower priority."""
        if self._nominated_to.get(uid) == node and self.nominated[node][uid] is asked:
            return
        self.forget_nomination(uid)
        self._nominated_to[uid] = node
        self.nominated.setdefault(node, {})[uid] = asked
        self.version += 1

    def forget_nomination(self, uid: str) -> None:
        """Remove the nomination of a pod."""
        node = self._nominated_to.pop(uid, None)
        if node is not None:
            del self.nominated[node][uid]
            if not self.nominated[node]:
                del self.nominated[node]
            self.version += 1

    # Selections

    def labels_of(self, namespace: str) -> Mapping[str, str]:
        """Return the labels of a namespace."""
        return self._namespaces.get(namespace, _EMPTY)

    def set_namespace(self, name: str, labels: Mapping[str, str] | None) -> bool:
        """Set the labels of a namespace. Return whether they have changed."""
        if self._namespaces.get(name, _EMPTY) == (labels or _EMPTY):
            return False
        if labels:
            self._namespaces[name] = labels
        else:
            del self._namespaces[name]
        for selection in [one for one in self._counts if any(term.of_namespaces for term in one.terms)]:
            del self._counts[selection]
        self.version += 1
        return True

    def count(self, selection: PodSelection) -> PodCount:
        """Return the count of selected pods per node. It is kept up to date while it is requested."""
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
        """Return whether a term selects pods with these requirements."""
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
