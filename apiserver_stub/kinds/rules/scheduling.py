"""The rules of where Pods may run: affinity, tolerations, spreading, gates."""

from typing import Any

from apiserver_stub.kinds import names
from apiserver_stub.kinds.error_list import ErrorList, FieldPath
from apiserver_stub.kinds.rules.combine import at_least, between, both, distinct, each, form, one_of, record
from apiserver_stub.kinds.rules.formats import LABEL, QUALIFIED
from apiserver_stub.kinds.rules.selectors import LOOSE_NODE_TERM, NODE_SELECTOR, SELECTOR

_WEIGHT = between(1, 100, "must be in the range 1-100")
_EFFECT = one_of("NoSchedule", "PreferNoSchedule", "NoExecute")


def _label_keys(term: Any, at: FieldPath, errors: ErrorList) -> None:
    matched, mismatched = term.get("matchLabelKeys") or (), term.get("mismatchLabelKeys") or ()
    for name, keys in (("matchLabelKeys", matched), ("mismatchLabelKeys", mismatched)):
        if keys and "labelSelector" not in term:
            errors.forbidden((at, name), "must not be specified when labelSelector is not set")
    excluded = set(mismatched)
    for index, name in enumerate(matched):
        if name in excluded:
            why = "exists in both matchLabelKeys and mismatchLabelKeys"
            errors.invalid(((at, "matchLabelKeys"), index), name, why)


_POD_TERM = record({
    "labelSelector": SELECTOR, "namespaceSelector": SELECTOR, "namespaces": each(LABEL), "topologyKey": QUALIFIED,
    "matchLabelKeys": each(QUALIFIED), "mismatchLabelKeys": each(QUALIFIED),
}, _label_keys)  # fmt: skip
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


def _toleration(toleration: Any, at: FieldPath, errors: ErrorList) -> None:
    operator, value, effect = (toleration.get(name, "") for name in ("operator", "value", "effect"))
    if not toleration.get("key") and operator != "Exists":
        errors.invalid((at, "operator"), operator, "must be 'Exists' when `key` is empty")
    if "tolerationSeconds" in toleration and effect != "NoExecute":
        errors.invalid((at, "effect"), effect, "effect must be 'NoExecute' when `tolerationSeconds` is set")
    if operator == "Exists" and value:
        errors.invalid((at, "operator"), value, "value must be empty when `operator` is 'Exists'")
    elif operator in ("", "Equal") and (why := names.label_value(value)):
        errors.invalid((at, "operator"), value, why)


TOLERATIONS = each(record({"key": QUALIFIED, "effect": _EFFECT}, _toleration))


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
    "labelSelector": SELECTOR, "matchLabelKeys": each(QUALIFIED),
}, _spreads)), _once_each)  # fmt: skip
GATES = both(each(record({"name": QUALIFIED})), distinct(lambda gate: gate.get("name")))
READINESS_GATES = each(record({"conditionType": QUALIFIED}))


def taints(values: Any, at: FieldPath, errors: ErrorList) -> None:
    """The taints of a node, unique by key and effect."""
    seen: set[tuple[Any, Any]] = set()
    for index, taint in enumerate(values):
        _TAINT(taint, (at, index), errors)
        pair = (taint.get("key"), taint.get("effect"))
        if pair in seen:
            errors.duplicate((at, index), taint, "taints must be unique by key and effect pair")
        seen.add(pair)


_TAINT = record({"key": QUALIFIED, "value": form(names.label_value), "effect": _EFFECT})
