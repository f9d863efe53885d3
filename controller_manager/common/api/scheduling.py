"""Scheduling rules: node selectors and affinity, taints and tolerations. They are pure."""

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
    """The fields of a pod's spec that restrict its nodes."""

    node_name: str = ""
    node_selector: Mapping[str, str] | None = None
    affinity: Affinity | None = None
    tolerations: tuple[Toleration, ...] = ()
    host_network: bool = False


# Node selectors.


class NodeTerm(msgspec.Struct, frozen=True):
    """A node selector term: requirements for labels and fields; all must match."""

    labels: LabelSelector
    fields: FieldSelector

    def matches(self, node: Node) -> bool:
        """Return whether a node matches the term."""
        name = node.metadata.name
        return self.labels.matches(node.metadata.labels) and self.fields.matches(
            lambda path: name if path == _NAME else ""
        )


class NodeMatcher(msgspec.Struct, frozen=True):
    """A parsed node selector: a node must match one of the terms; without terms, no node matches."""

    terms: tuple[NodeTerm, ...]

    @classmethod
    def of(cls, selector: NodeSelector) -> Self:
        """Parse a selector. An empty term, or one with an invalid requirement, matches no node."""
        return cls(tuple(filter(None, map(_node_term, selector.node_selector_terms))))

    def matches(self, node: Node) -> bool:
        """Return whether a node matches."""
        return any(term.matches(node) for term in self.terms)


class RequiredNodeAffinity(msgspec.Struct, frozen=True):
    """The nodes that a pod allows with its `nodeSelector` and its required node affinity."""

    labels: LabelSelector
    affinity: NodeMatcher | None

    @classmethod
    def of(cls, directives: SchedulingDirectives) -> Self:
        """Parse the fields of a pod's spec."""
        wanted = (directives.node_selector or {}).items()
        labels = LabelSelector(tuple(Requirement(key, "in", (value,)) for key, value in wanted))
        required = required_nodes(directives.affinity)
        return cls(labels, NodeMatcher.of(required) if required is not None else None)

    def matches(self, node: Node) -> bool:
        """Return whether a pod may run on a node."""
        return self.labels.matches(node.metadata.labels) and (self.affinity is None or self.affinity.matches(node))


def required_nodes(affinity: Affinity | None) -> NodeSelector | None:
    """Return the required node selector of an affinity, or None."""
    nodes = affinity.node_affinity if affinity is not None else None
    return nodes.required if nodes is not None else None


def node_of_name(affinity: Affinity | None) -> str:
    """Return the single node name that an affinity requires by field, as in pods of daemon sets; empty for none or
    several.
    """
    required = required_nodes(affinity)
    for term in required.node_selector_terms if required is not None else ():
        for one in term.match_fields:
            if (one.key, one.operator) == (_NAME, "In"):
                return one.values[0] if len(one.values) == 1 else ""
    return ""


def affinity_to(node: str) -> NodeSelector:
    """Return a selector for one node by name; `node_of_name` reads it."""
    return NodeSelector(
        node_selector_terms=(
            NodeSelectorTerm(match_fields=(SelectorRequirement(key=_NAME, operator="In", values=(node,)),)),
        )
    )


def _node_term(term: NodeSelectorTerm) -> NodeTerm | None:
    """Return the requirements of a term; None if no node can match it."""
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


# Taints, and how long a pod may stay on a tainted node.


def untolerated(
    taints: Iterable[Taint], tolerations: Iterable[Toleration], effects: Iterable[str], *, compares: bool = False
) -> Taint | None:
    """Return the first taint with one of these effects that no toleration matches, or None.
    For `compares` see `tolerates`.
    """
    counted = (taint for taint in taints if taint.effect in effects)
    return next((t for t in counted if not any(tolerates(one, t, compares=compares) for one in tolerations)), None)


def no_execute(node: Node | None) -> tuple[Taint, ...]:
    """Return the NoExecute taints of a node; empty for None."""
    return tuple(taint for taint in node.spec.taints if taint.effect == NO_EXECUTE) if node is not None else ()


def patience(taint: Taint, tolerations: Iterable[Toleration], *, compares: bool = False) -> float:
    """Return the seconds a pod may stay despite the taint: `FOR_GOOD`, or 0 if it does not tolerate the taint.

    The first matching toleration decides, as in the scheduler. `compares` allows numeric comparisons.
    """
    matching = (one for one in tolerations if tolerates(one, taint, compares=compares))
    first = next(matching, None)
    if first is None:
        return 0.0
    return FOR_GOOD if first.toleration_seconds is None else max(0.0, float(first.toleration_seconds))


def by_key(tolerations: Iterable[Toleration]) -> Callable[[str], list[Toleration]]:
    """Return a function that finds the few tolerations that may match a NoExecute taint with a key, in order."""
    found: dict[str, list[tuple[int, Toleration]]] = {}
    for place, one in enumerate(tolerations):
        if one.effect in ("", NO_EXECUTE):
            found.setdefault(one.key, []).append((place, one))
            if not one.key and one.operator == "Exists":
                break  # later tolerations are never used
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
    """Return whether both are canonical 64-bit integers and the left one is less."""
    if not (_INTEGER.fullmatch(left) and _INTEGER.fullmatch(right)):
        return False
    return -_LIMIT <= int(left) < int(right) < _LIMIT
