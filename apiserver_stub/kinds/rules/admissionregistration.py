"""Validation of admission webhooks, and the parts shared with admission policies."""

from functools import partial
from typing import Any

from apiserver_stub.common.error_list import ErrorList, FieldPath
from apiserver_stub.kinds.rules.combine import (
    KindRules,
    ValueRule,
    at_most,
    between,
    both,
    distinct_by,
    each,
    filled,
    form,
    if_any,
    need,
    one_of,
    record,
)
from apiserver_stub.kinds.rules.selectors import SELECTOR
from apiserver_stub.kinds.rules.webhook_client_config import KNOWN_REVIEW_VERSIONS, check_place, check_review_versions
from apiserver_stub.kinds.values import names

_MOST_CONDITIONS = 64
_OPERATIONS = ("*", "CONNECT", "CREATE", "DELETE", "UPDATE")
_NO_EFFECTS = ("None", "NoneOnDryRun")
_SCOPES = ("*", "Cluster", "Namespaced")


def _alone(what: str) -> ValueRule:
    def rule(values: Any, at: FieldPath, errors: ErrorList) -> None:
        if len(values) > 1 and "*" in values:
            errors.invalid(at, values, f"if '*' is present, must not specify other {what}")

    return rule


def _wildcards(resources: Any, at: FieldPath, errors: ErrorList) -> None:
    """Reject a resource that a wildcard in the same list already covers."""
    of_all, all_of, single, last = set(), set(), False, False
    for index, name in enumerate(resources):
        plural, slash, subresource = name.partition("/")
        single = single or name == "*"
        if not name:
            errors.required((at, index))
        if not slash:
            last = name != "*" if name else last
            continue
        if plural in all_of:
            errors.invalid((at, index), name, f"if '{plural}/*' is present, must not specify {name}")
        if subresource in of_all:
            errors.invalid((at, index), name, f"if '*/{subresource}' is present, must not specify {name}")
        all_of |= {plural} if subresource == "*" else set()
        of_all |= {subresource} if plural == "*" else set()
    if len(resources) > 1 and "*/*" in resources:
        errors.invalid(at, resources, "if '*/*' is present, must not specify other resources")
    if single and last:
        errors.invalid(at, resources, "if '*' is present, must not specify other resources without subresources")


ABOUT = record({
    "operations": both(_alone("operations"), each(one_of(*_OPERATIONS))), "apiGroups": _alone("API groups"),
    "apiVersions": both(_alone("API versions"), each(filled())), "resources": _wildcards, "scope": one_of(*_SCOPES),
}, need("operations", "apiGroups", "apiVersions", "resources"))  # fmt: skip
_NAMED = record({"name": if_any(form(names.qualified))}, need("name"))


def check_conditions(conditions: Any, at: FieldPath, errors: ErrorList, *, params: bool = False) -> None:
    """Report errors in match conditions. They may refer to `params` if the policy has parameters."""
    at_most(_MOST_CONDITIONS)(conditions, at, errors)
    if conditions:
        from apiserver_stub.kinds.rules.expressions import check_condition  # loads CEL only when needed

        each(both(partial(check_condition, params=params), _NAMED))(conditions, at, errors)
    distinct_by("name")(conditions, at, errors)


def _name(name: str) -> str:
    return names.subdomain(name) or (
        "" if name.count(".") > 1 else "should be a domain with at least three segments separated by dots"
    )


def _review_versions(webhook: Any, at: FieldPath, errors: ErrorList) -> None:
    versions, at = webhook.get("admissionReviewVersions"), (at, "admissionReviewVersions")
    if not versions:
        errors.required(at, f"must specify one of {', '.join(KNOWN_REVIEW_VERSIONS)}")
    else:
        check_review_versions(versions, at, errors)


def _effects(webhook: Any, at: FieldPath, errors: ErrorList) -> None:
    effects = webhook.get("sideEffects")
    if effects is None:
        errors.required((at, "sideEffects"), f"must specify one of {', '.join(_NO_EFFECTS)}")
    elif effects not in _NO_EFFECTS:
        errors.unsupported((at, "sideEffects"), effects, _NO_EFFECTS)


_WEBHOOK = record({
    "name": both(filled(), if_any(form(_name))), "clientConfig": check_place, "rules": each(ABOUT),
    "failurePolicy": one_of("Fail", "Ignore"), "matchPolicy": one_of("Equivalent", "Exact"),
    "reinvocationPolicy": one_of("IfNeeded", "Never"),
    "timeoutSeconds": between(1, 30, "the timeout value must be between 1 and 30 seconds"),
    "namespaceSelector": SELECTOR, "objectSelector": SELECTOR, "matchConditions": check_conditions,
}, _effects, _review_versions)  # fmt: skip
_HOOKS = KindRules(record({"webhooks": both(each(_WEBHOOK), distinct_by("name"))}), by_schema=False)
_GROUP = "admissionregistration.k8s.io/v1"

RULES = {
    f"{_GROUP}/MutatingWebhookConfiguration": _HOOKS,
    f"{_GROUP}/ValidatingWebhookConfiguration": _HOOKS,
}
