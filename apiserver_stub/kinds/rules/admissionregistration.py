"""The rules of admission webhooks and of admission policies and their bindings."""

from typing import Any

from apiserver_stub.kinds import names
from apiserver_stub.kinds.error_list import ErrorList, FieldPath
from apiserver_stub.kinds.rules.combine import (
    KindRules,
    Rule,
    at_most,
    between,
    both,
    distinct,
    distinct_by,
    each,
    filled,
    form,
    if_any,
    need,
    one_of,
    record,
    within,
)
from apiserver_stub.kinds.rules.formats import PORT, https_url
from apiserver_stub.kinds.rules.selectors import SELECTOR

_MOST_CONDITIONS = 64
_OPERATIONS = ("*", "CONNECT", "CREATE", "DELETE", "UPDATE")
_SCOPES = ("*", "Cluster", "Namespaced")


def _path(path: str) -> str:
    if not path.startswith("/"):
        return "must start with a '/'"
    if path == "/":
        return ""
    for part in path[1:].removesuffix("/").split("/"):
        if not part:
            return "segment is empty"
        if why := names.subdomain(part):
            return f"segment: {why}"
    return ""


def _one_address(config: Any, at: FieldPath, errors: ErrorList) -> None:
    if ("url" in config) == ("service" in config):
        errors.required((at, "url"), "exactly one of url or service is required")


CLIENT_CONFIG = record({
    "url": form(https_url), "service": record({"path": if_any(form(_path)), "port": PORT}, need("name", "namespace")),
}, _one_address)  # fmt: skip


def _known_version(versions: Any, at: FieldPath, errors: ErrorList) -> None:
    if versions and not {"v1", "v1beta1"} & set(versions):
        errors.invalid(at, versions, "must include at least one of v1, v1beta1")


REVIEW_VERSIONS = both(
    filled("must specify one of v1, v1beta1"), each(form(names.old_label)), distinct(), _known_version
)


def _alone(what: str) -> Rule:
    def rule(values: Any, at: FieldPath, errors: ErrorList) -> None:
        if len(values) > 1 and "*" in values:
            errors.invalid(at, values, f"if '*' is present, must not specify other {what}")

    return rule


def _wildcards(resources: Any, at: FieldPath, errors: ErrorList) -> None:
    """A resource that a wildcard covers is not named as well."""
    if len(resources) > 1 and "*/*" in resources:
        errors.invalid(at, resources, "if '*/*' is present, must not specify other resources")
    given = set(resources)
    for index, name in enumerate(resources):
        plural, slash, subresource = name.partition("/")
        if slash and plural != "*" and f"*/{subresource}" in given:
            errors.invalid((at, index), name, f"if '*/{subresource}' is present, must not specify {name}")
        if slash and subresource != "*" and f"{plural}/*" in given:
            errors.invalid((at, index), name, f"if '{plural}/*' is present, must not specify {name}")
        if not slash and name != "*" and "*" in given:
            errors.invalid(
                (at, index), name, "if '*' is present, must not specify other resources without subresources"
            )


ABOUT = record({
    "operations": both(_alone("operations"), each(one_of(*_OPERATIONS))),
    "apiGroups": _alone("apiGroups"), "apiVersions": _alone("apiVersions"), "resources": _wildcards,
    "scope": one_of(*_SCOPES),
}, need("operations", "apiGroups", "apiVersions", "resources"))  # fmt: skip
CONDITIONS = both(
    at_most(_MOST_CONDITIONS),
    each(record({"name": form(names.qualified)}, need("name", "expression"))),
    distinct_by("name"),
)


def _name(name: str) -> str:
    return names.subdomain(name) or (
        "" if name.count(".") > 1 else "should be a domain with at least three segments separated by dots"
    )


def _stable_effects(webhook: Any, at: FieldPath, errors: ErrorList) -> None:
    if webhook.get("sideEffects") in ("Some", "Unknown"):
        errors.unsupported((at, "sideEffects"), webhook["sideEffects"], ("None", "NoneOnDryRun"))


_WEBHOOK = record({
    "name": form(_name), "clientConfig": CLIENT_CONFIG, "admissionReviewVersions": REVIEW_VERSIONS,
    "rules": each(ABOUT),
    "timeoutSeconds": between(1, 30, "the timeout value must be between 1 and 30 seconds"),
    "namespaceSelector": SELECTOR, "objectSelector": SELECTOR, "matchConditions": CONDITIONS,
}, _stable_effects)  # fmt: skip
_HOOKS = KindRules(record({"webhooks": both(each(_WEBHOOK), distinct_by("name"))}))
_GROUP = "admissionregistration.k8s.io/v1"


_ACTIONS = ("Audit", "Deny", "Warn")
_REASONS = ("Forbidden", "Invalid", "RequestEntityTooLarge", "Unauthorized")


_MATCH = {
    "namespaceSelector": SELECTOR, "objectSelector": SELECTOR, "resourceRules": each(ABOUT),
    "excludeResourceRules": each(ABOUT), "matchPolicy": one_of("Equivalent", "Exact"),
}  # fmt: skip
_CONSTRAINTS = record(_MATCH, need("resourceRules"))
_VARIABLES = both(each(record({"name": form(names.identifier)}, need("name", "expression"))), distinct_by("name"))


def _says_something(spec: Any, at: FieldPath, errors: ErrorList) -> None:
    if not spec.get("validations") and not spec.get("auditAnnotations"):
        why = "validations or auditAnnotations must contain at least one item"
        errors.required((at, "validations"), why)


_POLICY = record({
    "paramKind": need("apiVersion", "kind"), "matchConstraints": _CONSTRAINTS, "matchConditions": CONDITIONS,
    "variables": _VARIABLES, "failurePolicy": one_of("Fail", "Ignore"),
    "validations": each(record({"reason": one_of(*_REASONS)}, need("expression"))),
    "auditAnnotations": both(each(need("key", "valueExpression")), distinct_by("key")),
}, need("matchConstraints"), _says_something)  # fmt: skip


def _mutation(mutation: Any, at: FieldPath, errors: ErrorList) -> None:
    kind = mutation.get("patchType")
    for name, wanted in (("applyConfiguration", "ApplyConfiguration"), ("jsonPatch", "JSONPatch")):
        if kind == wanted and name not in mutation:
            errors.required((at, name), f"must be specified when patchType is {wanted}")


_MUTATING = record({
    "paramKind": need("apiVersion", "kind"), "matchConstraints": _CONSTRAINTS, "matchConditions": CONDITIONS,
    "variables": _VARIABLES, "failurePolicy": one_of("Fail", "Ignore"),
    "reinvocationPolicy": one_of("IfNeeded", "Never"),
    "mutations": each(record({"patchType": one_of("ApplyConfiguration", "JSONPatch")}, _mutation)),
}, need("matchConstraints", "mutations", "reinvocationPolicy"))  # fmt: skip


def _parameter(reference: Any, at: FieldPath, errors: ErrorList) -> None:
    if ("name" in reference) == ("selector" in reference):
        errors.required((at, "name"), "exactly one of name or selector is required")


_PARAMETER = record({
    "name": form(names.path_segment), "selector": SELECTOR, "parameterNotFoundAction": one_of("Allow", "Deny"),
}, _parameter)  # fmt: skip


def _actions(values: Any, at: FieldPath, errors: ErrorList) -> None:
    if {"Deny", "Warn"} <= set(values):
        errors.invalid(at, values, "must not contain both Deny and Warn")


_BOUND = {"policyName": form(names.subdomain), "paramRef": _PARAMETER, "matchResources": record(_MATCH)}
_BINDING = record({
    **_BOUND, "validationActions": both(filled(), each(one_of(*_ACTIONS)), distinct(), _actions),
}, need("policyName", "validationActions"))  # fmt: skip

RULES = {
    f"{_GROUP}/MutatingWebhookConfiguration": _HOOKS,
    f"{_GROUP}/ValidatingWebhookConfiguration": _HOOKS,
    f"{_GROUP}/ValidatingAdmissionPolicy": KindRules(within("spec", _POLICY)),
    f"{_GROUP}/MutatingAdmissionPolicy": KindRules(within("spec", _MUTATING)),
    f"{_GROUP}/ValidatingAdmissionPolicyBinding": KindRules(within("spec", _BINDING)),
    f"{_GROUP}/MutatingAdmissionPolicyBinding": KindRules(within("spec", record(_BOUND, need("policyName")))),
}
