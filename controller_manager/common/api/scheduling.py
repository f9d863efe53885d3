"""Where pods may run, as schedulers decide it: node selectors and affinity, taints and tolerations; pure."""

import math
import re
from collections.abc import Callable, Iterable, Mapping
from operator import itemgetter
from typing import Self

import msgspec

from controller_manager.common.api.core import Affinity, Node, NodeSelector, NodeSelectorTerm, Taint, Toleration
from controller_manager.common.api.model import Model
from controller_manager.common.api.selectors import FieldSelector, LabelSelector, Requirement, SelectorRequirement, Term

NO_SCHEDULE = "NoSchedule"
NO_EXECUTE = "NoExecute"
FOR_GOOD = math.inf
_INTEGER = re.compile(r"0|-?[1-9][0-9]*", re.ASCII)
_LIMIT = 1 << 63

_NAME = "metadata.name"


class SchedulingDirectives(Model):
    """What of the spec of a pod says on which nodes it may be."""

    node_name: str = ""
    node_selector: Mapping[str, str] | None = None
    affinity: Affinity | None = None
    tolerations: tuple[Toleration, ...] = ()
    host_network: bool = False


# Nodes by labels and fields.


class NodeTerm(msgspec.Struct, frozen=True):
    """One term of a node selector: conditions on labels and on fields, of which each must hold."""

    labels: LabelSelector
    fields: FieldSelector

    def matches(self, node: Node) -> bool:
        """Return whether a node meets the term."""
        name = node.metadata.name
        return self.labels.matches(node.metadata.labels) and self.fields.matches(
            lambda path: name if path == _NAME else ""
        )


class NodeMatcher(msgspec.Struct, frozen=True):
    """A node selector, read once for many nodes: a node must meet one of the terms; without any, none does."""

    terms: tuple[NodeTerm, ...]

    @classmethod
    def of(cls, selector: NodeSelector) -> Self:
        """Read a selector. A term that is empty, or has a condition that there cannot be, is met by no node."""
        return cls(tuple(filter(None, map(_node_term, selector.node_selector_terms))))

    def matches(self, node: Node) -> bool:
        """Return whether a node is selected."""
        return any(term.matches(node) for term in self.terms)


class RequiredNodeAffinity(msgspec.Struct, frozen=True):
    """The nodes on which a pod may be by its `nodeSelector` and by what its affinity requires."""

    labels: LabelSelector
    affinity: NodeMatcher | None

    @classmethod
    def of(cls, directives: SchedulingDirectives) -> Self:
        """Read what the spec of a pod says."""
        wanted = (directives.node_selector or {}).items()
        labels = LabelSelector(tuple(Requirement(key, "in", (value,)) for key, value in wanted))
        required = required_nodes(directives.affinity)
        return cls(labels, NodeMatcher.of(required) if required is not None else None)

    def matches(self, node: Node) -> bool:
        """Return whether a pod may be on a node."""
        return self.labels.matches(node.metadata.labels) and (self.affinity is None or self.affinity.matches(node))


def required_nodes(affinity: Affinity | None) -> NodeSelector | None:
    """Return the nodes that an affinity requires; None if it requires nothing."""
    nodes = affinity.node_affinity if affinity is not None else None
    return nodes.required if nodes is not None else None


def node_of_name(affinity: Affinity | None) -> str:
    """Return the name of the one node that an affinity asks for by its field, as pods of daemon sets do; empty if it
    names none, or several.
    """
    required = required_nodes(affinity)
    for term in required.node_selector_terms if required is not None else ():
        for one in term.match_fields:
            if (one.key, one.operator) == (_NAME, "In"):
                return one.values[0] if len(one.values) == 1 else ""
    return ""


def affinity_to(node: str) -> NodeSelector:
    """Return what selects the node of that name alone; `node_of_name` reads it."""
    return NodeSelector(
        node_selector_terms=(
            NodeSelectorTerm(match_fields=(SelectorRequirement(key=_NAME, operator="In", values=(node,)),)),
        )
    )


def _node_term(term: NodeSelectorTerm) -> NodeTerm | None:
    """Return the conditions of a term; None if no node can meet it."""
    labels = [one.requirement() for one in term.match_expressions]
    fields = [_field_term(one) for one in term.match_fields]
    if not (labels or fields):
        return None
    requirements = tuple(one for one in labels if one is not None)
    terms = tuple(one for one in fields if one is not None)
    if len(requirements) < len(labels) or len(terms) < len(fields):
        return None
    return NodeTerm(LabelSelector(requirements), FieldSelector(terms))


def _field_term(one: SelectorRequirement) -> Term | None:
    if one.operator not in ("In", "NotIn") or len(one.values) != 1:
        return None
    return Term(one.key, one.operator == "In", one.values[0])


# Taints, and how long a pod may stay on a node that has them.


def untolerated(
    taints: Iterable[Taint], tolerations: Iterable[Toleration], effects: Iterable[str], *, compares: bool = False
) -> Taint | None:
    """Return the first of the taints with one of these effects that none of `tolerations` matches; None if there is
    none. `compares` is as in `tolerates`.
    """
    counted = (taint for taint in taints if taint.effect in effects)
    return next((t for t in counted if not any(tolerates(one, t, compares=compares) for one in tolerations)), None)


def no_execute(node: Node | None) -> tuple[Taint, ...]:
    """The taints by which a node drives pods away; none if there is no such node."""
    return tuple(taint for taint in node.spec.taints if taint.effect == NO_EXECUTE) if node is not None else ()


def patience(taint: Taint, tolerations: Iterable[Toleration], *, compares: bool = False) -> float:
    """Seconds a pod stays despite the taint: `FOR_GOOD`, or 0 where it does not tolerate it at all.

    The first toleration that matches decides, as the scheduler's does. `compares` lets tolerations compare numbers.
    """
    matching = (one for one in tolerations if tolerates(one, taint, compares=compares))
    first = next(matching, None)
    if first is None:
        return 0.0
    return FOR_GOOD if first.toleration_seconds is None else max(0.0, float(first.toleration_seconds))


def by_key(tolerations: Iterable[Toleration]) -> Callable[[str], list[Toleration]]:
    """Finds the tolerations that may decide about a NoExecute taint of some key, in order: a few, of however many."""
    found: dict[str, list[tuple[int, Toleration]]] = {}
    for place, one in enumerate(tolerations):
        if one.effect in ("", NO_EXECUTE):
            found.setdefault(one.key, []).append((place, one))
            if not one.key and one.operator == "Exists":
                break  # nobody asks those after it
    of_all_keys = found.pop("", [])
    return lambda key: [one for _, one in sorted((*found.get(key, ()), *of_all_keys), key=itemgetter(0))]


def tolerates(toleration: Toleration, taint: Taint, *, compares: bool = False) -> bool:
    """Return whether the toleration matches the taint (core/v1 Toleration; KEP-5471 for `Lt` and `Gt`)."""
    if toleration.effect not in ("", taint.effect) or toleration.key not in ("", taint.key):
        return False
    match toleration.operator:
        case "" | "Equal":
            return toleration.value == taint.value
        case "Exists":
            return True
        case "Lt" if compares:
            return _is_less(taint.value, toleration.value)
        case "Gt" if compares:
            return _is_less(toleration.value, taint.value)
    return False


def _is_less(left: str, right: str) -> bool:
    """Return whether both are integers of 64 bits in their one usual form, and the left one is less."""
    if not (_INTEGER.fullmatch(left) and _INTEGER.fullmatch(right)):
        return False
    return -_LIMIT <= int(left) < int(right) < _LIMIT
