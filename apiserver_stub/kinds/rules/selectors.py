"""The rules of label selectors and node selectors, and whether a selector matches labels."""

from collections.abc import Collection
from functools import partial
from typing import Any

from apiserver_stub.kinds import names
from apiserver_stub.kinds.error_list import ErrorList, FieldPath
from apiserver_stub.kinds.rules.combine import each, filled, form, record
from apiserver_stub.kinds.rules.formats import QUALIFIED
from apiserver_stub.kinds.rules.metadata import labels
from apiserver_stub.kinds.scale import selector_text
from controller_manager.api.errors import BadRequest
from controller_manager.api.selectors import LabelSelector

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
# What is only preferred may name values no node could have.
LOOSE_NODE_TERM = record({
    "matchExpressions": each(record({"key": QUALIFIED}, _OF_NODES)), "matchFields": each(_NODE_FIELD),
})  # fmt: skip


def _terms(terms: Any, at: FieldPath, errors: ErrorList) -> None:
    filled("must have at least one node selector term")(terms, at, errors)
    each(_NODE_TERM)(terms, at, errors)


NODE_SELECTOR = record({"nodeSelectorTerms": _terms})


def is_empty(selector: Any) -> bool:
    """Tell whether a LabelSelector selects everything."""
    return not selector.get("matchLabels") and not selector.get("matchExpressions")


def is_readable(selector: Any) -> bool:
    """Tell whether a LabelSelector (or map) could match anything."""
    try:
        LabelSelector.parse(selector_text(selector))
    except BadRequest:
        return False
    return True


def selects(selector: Any, values: Any) -> bool:
    """Tell whether a LabelSelector (or map) matches labels; one that can't be read matches nothing."""
    try:
        return LabelSelector.parse(selector_text(selector)).matches(values)
    except BadRequest:
        return False
