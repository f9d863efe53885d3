"""Validation of CEL admission policies and their bindings. Expressions are checked in `expressions.py`."""

import re
from functools import partial
from typing import Any

import msgspec

from apiserver_stub.common.error_list import ErrorList, FieldPath, place
from apiserver_stub.kinds.rules.admissionregistration import ABOUT, check_conditions
from apiserver_stub.kinds.rules.combine import (
    KindRules,
    both,
    distinct,
    duplicates,
    each,
    form,
    if_any,
    need,
    one_of,
    outcome,
    record,
    within,
)
from apiserver_stub.kinds.rules.conditions import CONDITIONS
from apiserver_stub.kinds.rules.formats import QUALIFIED
from apiserver_stub.kinds.rules.selectors import SELECTOR
from apiserver_stub.kinds.values import names
from apiserver_stub.kinds.values.jsonpath import JSONPath
from apiserver_stub.kinds.values.trees import get_in
from controller_manager.common.api.tree import Tree

_GROUP = "admissionregistration.k8s.io/v1"
_SPEC = place("spec")
_ACTIONS = ("Audit", "Deny", "Warn")
_REASONS = ("Forbidden", "Invalid", "RequestEntityTooLarge")
_MOST_ANNOTATIONS = 20
_MUTABLE = ("*", "CONNECT", "CREATE", "UPDATE")
_PATCHES = {"ApplyConfiguration": "applyConfiguration", "JSONPatch": "jsonPatch"}
_BREAK = re.compile(r"[\n\r]")

_RULE = both(record({"resourceNames": both(each(form(names.path_segment)), distinct())}), ABOUT)
_MATCH = {
    "namespaceSelector": SELECTOR, "objectSelector": SELECTOR, "resourceRules": each(_RULE),
    "excludeResourceRules": each(_RULE), "matchPolicy": one_of("Equivalent", "Exact"),
}  # fmt: skip
_CONSTRAINTS = record(_MATCH, need("resourceRules"))


def _param_kind(kind: Any, at: FieldPath, errors: ErrorList) -> None:
    version, name = kind.get("apiVersion") or "", kind.get("kind") or ""
    if not version:
        errors.required((at, "apiVersion"))
    elif version.count("/") > 1:
        errors.invalid((at, "apiVersion"), version, f"unexpected GroupVersion string: {version}")
    else:
        _group_version(version, (at, "apiVersion"), errors)
    if not name:
        errors.required((at, "kind"))
    elif why := names.old_label(name.lower()):
        errors.invalid((at, "kind"), name, f"may have mixed case, but should otherwise match: {why}")


def _group_version(text: str, at: FieldPath, errors: ErrorList) -> None:
    group, _, version = text.rpartition("/")
    if group and (why := names.subdomain(group)):
        errors.malformed(at, group, why)
    if not version:
        errors.invalid(at, text, "version must be specified")
    elif why := names.old_label(version):
        errors.malformed(at, version, why)


def _message(message: Any, at: FieldPath, errors: ErrorList) -> None:
    if message and not message.strip():
        errors.invalid(at, message, "must be non-empty if specified")
    elif _BREAK.search(message.strip()):
        errors.invalid(at, message, "must not contain line breaks")


_VALIDATION = record({"message": _message, "reason": one_of(*_REASONS)})


def _expressions(policy: Any, _at: FieldPath, errors: ErrorList) -> None:
    """Check the expressions of a validating policy: variables, validations and audit annotations."""
    from apiserver_stub.kinds.rules import expressions

    spec, at = policy.get("spec") or {}, _SPEC
    composition = expressions.check_policy(spec, at, errors)
    validations, annotations = spec.get("validations") or (), spec.get("auditAnnotations") or ()
    if not validations and not annotations:
        why = "validations or auditAnnotations must contain at least one item"
        errors.required((at, "validations"), why)
        errors.required((at, "auditAnnotations"), why)
    for index, validation in enumerate(validations):
        there = (at, "validations"), index
        expressions.check_validation(validation, composition, there, errors)
        _VALIDATION(validation, there, errors)
    if len(annotations) > _MOST_ANNOTATIONS:
        why = f"must not have more than {_MOST_ANNOTATIONS} auditAnnotations"
        annotation_keys = [
            {"Key": each.get("key", ""), "ValueExpression": each.get("valueExpression", "")} for each in annotations
        ]
        errors.invalid((at, "auditAnnotations"), msgspec.Raw(msgspec.json.encode(annotation_keys)), why)
    named = partial(_annotation_key, (policy.get("metadata") or {}).get("name") or "")
    for index, annotation in enumerate(annotations):
        there = (at, "auditAnnotations"), index
        named(annotation.get("key") or "", (there, "key"), errors)
        expressions.check_annotation(annotation, composition, there, errors)
    for index, annotation_keys in duplicates(annotation.get("key") or "" for annotation in annotations):
        errors.duplicate((((at, "auditAnnotations"), index), "key"), annotation_keys)


def _annotation_key(policy: str, key: str, at: FieldPath, errors: ErrorList) -> None:
    if not policy:
        errors.invalid(at, key, "requires metadata.name be non-empty")
    else:
        QUALIFIED(f"{policy}/{key}", at, errors)


_POLICY = record({
    "paramKind": _param_kind, "matchConstraints": _CONSTRAINTS, "failurePolicy": one_of("Fail", "Ignore"),
}, need("matchConstraints"))  # fmt: skip


def _conditions(policy: Any, _at: FieldPath, errors: ErrorList) -> None:
    spec = policy.get("spec") or {}
    check_conditions(spec.get("matchConditions") or (), (_SPEC, "matchConditions"), errors, params="paramKind" in spec)


def _changed_conditions(new: Tree, old: Tree, errors: ErrorList) -> None:
    """Check match conditions if they, or what they may refer to, have changed."""
    if any(get_in(new, path) != get_in(old, path) for path in (("spec", "paramKind"), ("spec", "matchConditions"))):
        _conditions(new, None, errors)


def _field_reference(text: Any, at: FieldPath, errors: ErrorList) -> None:
    if not text.strip():
        errors.required(at)
        return
    try:
        JSONPath(f".{text.strip().removeprefix('.')}")
    except ValueError as error:
        why = str(error).partition(" in '")[0]  # without the path, which the cause already has
        errors.invalid(at, text.strip(), f"invalid JSONPath: {why}")


_WARNING = record({"fieldRef": if_any(_field_reference)}, need("warning", "fieldRef"))
_STATUS = outcome(within("status", record({
    "typeChecking": record({"expressionWarnings": each(_WARNING)}),
    "conditions": CONDITIONS,
})))  # fmt: skip


def _mutable(match: Any, at: FieldPath, errors: ErrorList) -> None:
    """Reject the operation DELETE: a deleted object cannot be mutated."""
    for rule in match.get("resourceRules") or ():
        for operation in rule.get("operations") or ():
            one_of(*_MUTABLE)(operation, ((at, "resourceRules"), "operations"), errors)


_MUTATING = record({
    "paramKind": _param_kind, "matchConstraints": both(_CONSTRAINTS, _mutable),
    "failurePolicy": one_of("Fail", "Ignore"), "reinvocationPolicy": if_any(one_of("IfNeeded", "Never")),
}, need("matchConstraints", "reinvocationPolicy"))  # fmt: skip


def _mutations(policy: Any, _at: FieldPath, errors: ErrorList) -> None:
    """Check the expressions of a mutating policy: variables and mutations."""
    from apiserver_stub.kinds.rules import expressions

    spec, at = policy.get("spec") or {}, _SPEC
    expressions.check_policy(spec, at, errors)
    mutations = spec.get("mutations") or ()
    if not mutations:
        errors.required((at, "mutations"), "mutations must contain at least one item")
    composition = expressions.mutating(spec)
    for index, mutation in enumerate(mutations):
        _mutation(mutation, composition, ((at, "mutations"), index), errors)


def _mutation(mutation: Any, composition: Any, at: FieldPath, errors: ErrorList) -> None:
    from apiserver_stub.kinds.rules import expressions

    kind = mutation.get("patchType")
    if not kind:
        errors.required((at, "patchType"))
    elif kind not in _PATCHES:
        errors.unsupported((at, "patchType"), kind, tuple(_PATCHES))
    for wanted, field in _PATCHES.items():
        patch = mutation.get(field)
        if kind == wanted and patch is None:
            errors.required((at, field), f"must be specified when patchType is {wanted}")
        elif kind == wanted:
            expressions.check_mutation(wanted, patch, composition, (at, field), errors)
        elif kind in _PATCHES and patch is not None:
            errors.invalid((at, field), f"{{{field}}}", f"must not be specified when patchType is {kind}")


def _reference(reference: Any, at: FieldPath, errors: ErrorList) -> None:
    name, selector = reference.get("name"), reference.get("selector")
    if name and selector is not None:
        for field in ("name", "selector"):
            errors.forbidden((at, field), "name and selector are mutually exclusive")
    if not name and selector is None:
        errors.required(at, "one of name or selector must be specified")
    action = reference.get("parameterNotFoundAction")
    if not action:
        errors.required((at, "parameterNotFoundAction"))
    elif action not in ("Deny", "Allow"):
        errors.unsupported((at, "parameterNotFoundAction"), action, ("Deny", "Allow"))


_PARAMETER = record({"name": if_any(form(names.path_segment)), "selector": SELECTOR}, _reference)


def _actions(values: Any, at: FieldPath, errors: ErrorList) -> None:
    if {"Deny", "Warn"} <= set(values):
        why = "(repeating the same validation failure information in the API response and headers serves no purpose)"
        errors.invalid(at, values, f"must not contain both Deny and Warn {why}")


_BOUND = {"policyName": if_any(form(names.subdomain)), "paramRef": _PARAMETER, "matchResources": record(_MATCH)}
_BINDING = record({
    **_BOUND, "validationActions": both(each(one_of(*_ACTIONS)), distinct(empties=True), _actions),
}, need("policyName"), need("validationActions", why="at least one validation action is required"))  # fmt: skip

_MUTATING_BINDING = record({
    **_BOUND, "matchResources": both(record(_MATCH), _mutable),
}, need("policyName"))  # fmt: skip

RULES = {
    f"{_GROUP}/ValidatingAdmissionPolicy": KindRules(
        _expressions, spec=_POLICY, change=_changed_conditions, subresources={"status": _STATUS},
        on_create=_conditions, by_schema=False,
    ),
    f"{_GROUP}/MutatingAdmissionPolicy": KindRules(
        _mutations, spec=_MUTATING, change=_changed_conditions, on_create=_conditions, by_schema=False,
    ),
    f"{_GROUP}/ValidatingAdmissionPolicyBinding": KindRules(spec=_BINDING, by_schema=False),
    f"{_GROUP}/MutatingAdmissionPolicyBinding": KindRules(spec=_MUTATING_BINDING, by_schema=False),
}  # fmt: skip
