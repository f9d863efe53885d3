"""Selectors in access reviews (KEP-4601): validation, parsing, and encoding for webhooks.

Invalid requirements, and those beyond the limit of lists (`MOST_CONDITIONS`), are ignored: requirements only restrict a
request, so without them more permissions are needed, which is safe.
"""

from collections.abc import Mapping, Sequence
from typing import TypeVar

from apiserver_stub.common.error_list import ErrorList, FieldPath, place, render
from apiserver_stub.kinds.rules.formats import QUALIFIED
from apiserver_stub.kinds.values import names
from controller_manager.common.api.errors import BadRequest
from controller_manager.common.api.reviews import ResourceAttributes, SelectorAttributes, SelectorRequirement
from controller_manager.common.api.selectors import (
    MOST_CONDITIONS,
    FieldSelector,
    LabelSelector,
    Operator,
    Requirement,
    Term,
)
from controller_manager.common.api.tree import Tree

S = TypeVar("S", FieldSelector, LabelSelector)

_AT = place("spec.resourceAttributes")
_WITH_VALUES = ("In", "NotIn")
_WITHOUT_VALUES = ("Exists", "DoesNotExist")
_OPERATORS: Mapping[str, Operator] = {"In": "in", "NotIn": "notin", "Exists": "exists", "DoesNotExist": "!"}
_NAMES: Mapping[str, str] = {operator: name for name, operator in _OPERATORS.items()}


def check_selectors(of: ResourceAttributes, errors: ErrorList) -> None:
    """Collect the validation errors of the selectors of a review."""
    _check(of.field_selector, (_AT, "fieldSelector"), errors, by_label=False)
    _check(of.label_selector, (_AT, "labelSelector"), errors, by_label=True)


def read_selectors(of: ResourceAttributes) -> tuple[FieldSelector | None, LabelSelector | None, list[str]]:
    """Return the selectors of a review, None for missing ones, and messages about ignored parts."""
    messages: list[str] = []
    fields = labels = None
    if of.field_selector is not None:
        fields, lost = _fields(of.field_selector)
        _report("fieldSelector", lost, bool(fields and fields.terms), messages)
    if of.label_selector is not None:
        labels, lost = _labels(of.label_selector)
        _report("labelSelector", lost, bool(labels and labels.requirements), messages)
    return fields, labels, messages


def field_requirements(selector: FieldSelector | None) -> list[Tree]:
    """Return the requirements of a selector for a review."""
    terms = () if selector is None else sorted(selector.terms, key=_text)
    return [{"key": term.path, "operator": "In" if term.equal else "NotIn", "values": [term.value]} for term in terms]


def _text(term: Term) -> str:
    return f"{term.path}{'=' if term.equal else '!='}{term.value}"


def label_requirements(selector: LabelSelector | None) -> list[Tree]:
    """Return the requirements of a selector for a review; numeric comparisons cannot be expressed there."""
    found = () if selector is None else sorted(selector.requirements, key=lambda requirement: requirement.key)
    return [
        {"key": each.key, "operator": _NAMES[each.operator], **({"values": list(each.values)} if each.values else {})}
        for each in found
        if each.operator in _NAMES
    ]


def _check(selector: SelectorAttributes | None, at: FieldPath, errors: ErrorList, *, by_label: bool) -> None:
    if selector is None:
        return
    if selector.raw_selector and selector.requirements:
        why = "may not specified at the same time as requirements"
        errors.invalid((at, "rawSelector"), selector.raw_selector, why)
    if not selector.raw_selector and not selector.requirements:
        why = f"when {render(at)} is specified, requirements or rawSelector is required"
        errors.required((at, "requirements"), why)
    for index, requirement in enumerate(selector.requirements):
        _check_requirement(requirement, ((at, "requirements"), index), errors, by_label=by_label)


def _check_requirement(requirement: SelectorRequirement, at: FieldPath, errors: ErrorList, *, by_label: bool) -> None:
    if not by_label and not requirement.key:
        errors.required((at, "key"), "must be specified")
    if requirement.operator in _WITH_VALUES and not requirement.values:
        errors.required((at, "values"), "must be specified when `operator` is 'In' or 'NotIn'")
    if requirement.operator in _WITHOUT_VALUES and requirement.values:
        errors.forbidden((at, "values"), "may not be specified when `operator` is 'Exists' or 'DoesNotExist'")
    if by_label:
        QUALIFIED(requirement.key, (at, "key"), errors)
        for index, value in enumerate(requirement.values):
            if why := names.label_value(value):
                errors.invalid(((at, "values"), index), value, why)


def _fields(of: SelectorAttributes) -> tuple[FieldSelector | None, bool]:
    """Return the valid requirements, and whether any were ignored."""
    if not of.requirements:
        return _parsed(FieldSelector, of.raw_selector)
    known = [each for each in _first(of) if each.operator in _WITH_VALUES and len(each.values) == 1]
    terms = tuple(Term(each.key, each.operator == "In", each.values[0]) for each in known)
    return FieldSelector(terms) if terms else None, len(known) < len(of.requirements)


def _labels(of: SelectorAttributes) -> tuple[LabelSelector | None, bool]:
    if not of.requirements:
        return _parsed(LabelSelector, of.raw_selector)
    known = [each for each in _first(of) if each.operator in _OPERATORS]
    found = tuple(Requirement(each.key, _OPERATORS[each.operator], tuple(sorted(set(each.values)))) for each in known)
    return LabelSelector(found) if found else None, len(known) < len(of.requirements)


def _first(of: SelectorAttributes) -> Sequence[SelectorRequirement]:
    return of.requirements[:MOST_CONDITIONS]


def _parsed(of: type[S], text: str) -> tuple[S | None, bool]:
    """Parse a selector; also return whether it was ignored as invalid."""
    try:
        return of.parse_bounded(text), False
    except BadRequest:
        return None, True


def _report(name: str, lost: bool, some: bool, messages: list[str]) -> None:
    if lost:
        part = "partially ignored" if some else "ignored"
        messages.append(f"spec.resourceAttributes.{name} {part} due to parse error")
