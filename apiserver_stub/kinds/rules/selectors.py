"""Validation of label and node selectors, affinity, topology spread constraints and taints."""

from collections.abc import Collection, Sequence
from functools import partial
from typing import Any

from apiserver_stub.common.error_list import ErrorList, FieldPath
from apiserver_stub.kinds.rules.combine import (
    at_least,
    between,
    both,
    distinct,
    each,
    filled,
    form,
    need,
    one_of,
    record,
)
from apiserver_stub.kinds.rules.formats import LABEL, QUALIFIED
from apiserver_stub.kinds.rules.metadata import labels
from apiserver_stub.kinds.strategies.scale import selector_text
from apiserver_stub.kinds.values import names
from controller_manager.common.api.errors import BadRequest
from controller_manager.common.api.selectors import LabelSelector

_WITH_VALUES = frozenset({"In", "NotIn"})
_WITHOUT_VALUES = frozenset({"Exists", "DoesNotExist"})
_COMPARING = frozenset({"Gt", "Lt"})


def _values(expression: Any, at: FieldPath, errors: ErrorList, operators: Collection[str]) -> None:
    operator, values = expression.get("operator", ""), expression.get("values")
    if operator not in operators:
        errors.invalid((at, "operator"), operator, "not a valid selector operator")
    if operator in _WITH_VALUES and not values:
        errors.required((at, "values"), "must be specified when `operator` is 'In' or 'NotIn'")
    elif operator in _WITHOUT_VALUES and values:
        errors.forbidden((at, "values"), "may not be specified when `operator` is 'Exists' or 'DoesNotExist'")
    elif operator in _COMPARING and len(values or ()) != 1:
        errors.required((at, "values"), "must be specified single value when `operator` is 'Lt' or 'Gt'")


def _node_field(requirement: Any, at: FieldPath, errors: ErrorList) -> None:
    if requirement.get("operator") not in _WITH_VALUES:
        errors.invalid((at, "operator"), requirement.get("operator"), "not a valid selector operator")
    elif len(requirement.get("values") or ()) != 1:
        why = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"
        errors.required((at, "values"), why)
    if requirement.get("key") != "metadata.name":
        errors.invalid((at, "key"), requirement.get("key"), "not a valid field selector key")


_OF_LABELS = partial(_values, operators=_WITH_VALUES | _WITHOUT_VALUES)
_OF_NODES = partial(_values, operators=_WITH_VALUES | _WITHOUT_VALUES | _COMPARING)
_EXPRESSION = record({"key": QUALIFIED, "values": each(form(names.label_value))}, _OF_LABELS)
_NODE_EXPRESSION = record({"key": QUALIFIED, "values": each(form(names.label_value))}, _OF_NODES)
SELECTOR = record({"matchLabels": labels, "matchExpressions": each(_EXPRESSION)})

_NODE_FIELD = record({"values": each(form(names.subdomain))}, _node_field)
_NODE_TERM = record({"matchExpressions": each(_NODE_EXPRESSION), "matchFields": each(_NODE_FIELD)})
# A preferred term may have values that no node label can have.
LOOSE_NODE_TERM = record({
    "matchExpressions": each(record({"key": QUALIFIED}, _OF_NODES)), "matchFields": each(_NODE_FIELD),
})  # fmt: skip


def _terms(terms: Any, at: FieldPath, errors: ErrorList) -> None:
    filled("must have at least one node selector term")(terms, at, errors)
    each(_NODE_TERM)(terms, at, errors)


NODE_SELECTOR = record({"nodeSelectorTerms": _terms})


def is_empty(selector: Any) -> bool:
    """Return whether a LabelSelector selects everything."""
    return not selector.get("matchLabels") and not selector.get("matchExpressions")


def is_readable(selector: Any) -> bool:
    """Return whether a LabelSelector is valid."""
    found = ErrorList()
    SELECTOR(selector, None, found)
    return not found.causes


def selects(selector: Any, values: Any) -> bool:
    """Return whether a LabelSelector (or map) matches labels. An invalid one matches nothing."""
    try:
        return LabelSelector.parse(selector_text(selector)).matches(values)
    except BadRequest:
        return False


_WEIGHT = between(1, 100, "must be in the range 1-100")
EFFECT = one_of("NoSchedule", "PreferNoSchedule", "NoExecute")


def _label_keys(term: Any, at: FieldPath, errors: ErrorList) -> None:
    """Check the label keys that are merged into the selector of a term or constraint. For a new pod they are already
    merged. Kubernetes reports a key that the selector has too at the index of the key alone.
    """
    matched, mismatched = term.get("matchLabelKeys") or (), term.get("mismatchLabelKeys") or ()
    if not matched and not mismatched:
        return
    for name, keys in (("matchLabelKeys", matched), ("mismatchLabelKeys", mismatched)):
        if keys and "labelSelector" not in term:
            errors.forbidden((at, name), "must not be specified when labelSelector is not set")
        else:
            each(QUALIFIED)(keys, (at, name), errors)
    _select_once(matched, term.get("labelSelector") or {}, at, errors)
    excluded = set(mismatched)
    for index, name in enumerate(matched):
        if name in excluded:
            why = "exists in both matchLabelKeys and mismatchLabelKeys"
            errors.invalid(((at, "matchLabelKeys"), index), name, why)


def _select_once(matched: Sequence[str], selector: Any, at: FieldPath, errors: ErrorList) -> None:
    """Check that selector expressions do not repeat a key of `matchLabelKeys`."""
    places = {name: index for index, name in enumerate(matched)}
    seen = set(selector.get("matchLabels") or ())
    for expression in selector.get("matchExpressions") or ():
        name = expression.get("key", "")
        if name in seen and name in places:
            errors.invalid((at, places[name]), name, "exists in both matchLabelKeys and labelSelector")
        seen.add(name)


def _namespaces(names_of: Any, at: FieldPath, errors: ErrorList) -> None:
    """Check namespaces. Kubernetes reports an error in the list at the path of a single name."""
    around, _ = at or (None, "")
    for name in names_of:
        LABEL(name, (around, "namespace"), errors)


_POD_TERM = record({
    "labelSelector": SELECTOR, "namespaceSelector": SELECTOR, "namespaces": _namespaces, "topologyKey": QUALIFIED,
}, need("topologyKey", why="says what is near"), _label_keys)  # fmt: skip
_POD_AFFINITY = record({
    "requiredDuringSchedulingIgnoredDuringExecution": each(_POD_TERM),
    "preferredDuringSchedulingIgnoredDuringExecution": each(record({"weight": _WEIGHT, "podAffinityTerm": _POD_TERM})),
})  # fmt: skip
AFFINITY = record({
    "nodeAffinity": record({
        "requiredDuringSchedulingIgnoredDuringExecution": NODE_SELECTOR,
        "preferredDuringSchedulingIgnoredDuringExecution": each(
            record({"weight": _WEIGHT, "preference": LOOSE_NODE_TERM})
        ),
    }),
    "podAffinity": _POD_AFFINITY,
    "podAntiAffinity": _POD_AFFINITY,
})  # fmt: skip


def _spreads(constraint: Any, at: FieldPath, errors: ErrorList) -> None:
    action = constraint.get("whenUnsatisfiable")
    if "minDomains" in constraint and action != "DoNotSchedule":
        why = f"can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}"
        errors.invalid((at, "minDomains"), constraint["minDomains"], why)
    _label_keys(constraint, at, errors)


def _once_each(constraints: Any, at: FieldPath, errors: ErrorList) -> None:
    seen: dict[tuple[Any, Any], int] = {}
    for index, constraint in enumerate(constraints):
        pair = (constraint.get("topologyKey"), constraint.get("whenUnsatisfiable"))
        if pair in seen:
            errors.duplicate(((at, seen[pair]), "{topologyKey, whenUnsatisfiable}"), f"{{{pair[0]}, {pair[1]}}}")
        seen.setdefault(pair, index)


SPREADING = both(each(record({
    "maxSkew": at_least(1, "must be greater than zero"), "minDomains": at_least(1, "must be greater than zero"),
    "labelSelector": SELECTOR,
}, _spreads)), _once_each)  # fmt: skip


def _gate(gate: Any, at: FieldPath, errors: ErrorList) -> None:
    QUALIFIED(gate.get("name", ""), at, errors)


GATES = both(each(_gate), distinct(lambda gate: gate.get("name", ""), empties=True))
READINESS_GATES = each(record({"conditionType": QUALIFIED}))


def taints(values: Any, at: FieldPath, errors: ErrorList) -> None:
    """Check the taints of a node, unique by key and effect."""
    seen: set[tuple[Any, Any]] = set()
    for index, taint in enumerate(values):
        _TAINT(taint, (at, index), errors)
        pair = (taint.get("key"), taint.get("effect"))
        if pair in seen:
            errors.duplicate((at, index), taint, "taints must be unique by key and effect pair")
        seen.add(pair)


def _taint(taint: Any, at: FieldPath, errors: ErrorList) -> None:
    QUALIFIED(taint.get("key", ""), (at, "key"), errors)
    if taint.get("effect"):
        EFFECT(taint["effect"], (at, "effect"), errors)
    else:
        errors.required((at, "effect"))


_TAINT = record({"value": form(names.label_value)}, _taint)
