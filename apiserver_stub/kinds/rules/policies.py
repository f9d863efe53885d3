"""The rules of admission policies and of what binds them."""

from typing import Any

from apiserver_stub.kinds import names
from apiserver_stub.kinds.error_list import ErrorList, FieldPath
from apiserver_stub.kinds.rules.combine import (
    Rules,
    both,
    distinct,
    distinct_by,
    each,
    filled,
    form,
    need,
    one_of,
    record,
    within,
)
from apiserver_stub.kinds.rules.selectors import SELECTOR
from apiserver_stub.kinds.rules.webhooks import ABOUT, CONDITIONS

_ACTIONS = ("Audit", "Deny", "Warn")
_REASONS = ("Forbidden", "Invalid", "RequestEntityTooLarge", "Unauthorized")
_GROUP = "admissionregistration.k8s.io/v1"


_MATCH = {
    "namespaceSelector": SELECTOR, "objectSelector": SELECTOR, "resourceRules": each(ABOUT),
    "excludeResourceRules": each(ABOUT), "matchPolicy": one_of("Equivalent", "Exact"),
}  # fmt: skip
_CONSTRAINTS = record(_MATCH, need("resourceRules"))
_VARIABLES = both(each(record({"name": form(names.identifier)}, need("name", "expression"))), distinct_by("name"))


def _says_something(spec: Any, at: FieldPath, found: ErrorList) -> None:
    if not spec.get("validations") and not spec.get("auditAnnotations"):
        why = "validations or auditAnnotations must contain at least one item"
        found.required((at, "validations"), why)


_POLICY = record({
    "paramKind": need("apiVersion", "kind"), "matchConstraints": _CONSTRAINTS, "matchConditions": CONDITIONS,
    "variables": _VARIABLES, "failurePolicy": one_of("Fail", "Ignore"),
    "validations": each(record({"reason": one_of(*_REASONS)}, need("expression"))),
    "auditAnnotations": both(each(need("key", "valueExpression")), distinct_by("key")),
}, need("matchConstraints"), _says_something)  # fmt: skip


def _mutation(mutation: Any, at: FieldPath, found: ErrorList) -> None:
    kind = mutation.get("patchType")
    for name, wanted in (("applyConfiguration", "ApplyConfiguration"), ("jsonPatch", "JSONPatch")):
        if kind == wanted and name not in mutation:
            found.required((at, name), f"must be specified when patchType is {wanted}")


_MUTATING = record({
    "paramKind": need("apiVersion", "kind"), "matchConstraints": _CONSTRAINTS, "matchConditions": CONDITIONS,
    "variables": _VARIABLES, "failurePolicy": one_of("Fail", "Ignore"),
    "reinvocationPolicy": one_of("IfNeeded", "Never"),
    "mutations": each(record({"patchType": one_of("ApplyConfiguration", "JSONPatch")}, _mutation)),
}, need("matchConstraints", "mutations", "reinvocationPolicy"))  # fmt: skip


def _parameter(reference: Any, at: FieldPath, found: ErrorList) -> None:
    if ("name" in reference) == ("selector" in reference):
        found.required((at, "name"), "exactly one of name or selector is required")


_PARAMETER = record({
    "name": form(names.path_segment), "selector": SELECTOR, "parameterNotFoundAction": one_of("Allow", "Deny"),
}, _parameter)  # fmt: skip


def _actions(values: Any, at: FieldPath, found: ErrorList) -> None:
    if {"Deny", "Warn"} <= set(values):
        found.invalid(at, values, "must not contain both Deny and Warn")


_BOUND = {"policyName": form(names.subdomain), "paramRef": _PARAMETER, "matchResources": record(_MATCH)}
_BINDING = record({
    **_BOUND, "validationActions": both(filled(), each(one_of(*_ACTIONS)), distinct(), _actions),
}, need("policyName", "validationActions"))  # fmt: skip

RULES = {
    f"{_GROUP}/ValidatingAdmissionPolicy": Rules(within("spec", _POLICY)),
    f"{_GROUP}/MutatingAdmissionPolicy": Rules(within("spec", _MUTATING)),
    f"{_GROUP}/ValidatingAdmissionPolicyBinding": Rules(within("spec", _BINDING)),
    f"{_GROUP}/MutatingAdmissionPolicyBinding": Rules(within("spec", record(_BOUND, need("policyName")))),
}
