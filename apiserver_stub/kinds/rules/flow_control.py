"""Validation of FlowSchemas and PriorityLevelConfigurations."""

from collections.abc import Mapping
from typing import Any

from apiserver_stub.common.error_list import ErrorList, FieldPath
from apiserver_stub.kinds.rules.combine import (
    KindRules,
    ValueRule,
    at_least,
    between,
    both,
    distinct_by,
    each,
    form,
    need,
    outcome,
    record,
    within,
)
from apiserver_stub.kinds.strategies.flow_control import MANDATORY, suggested
from apiserver_stub.kinds.values import names

_GROUP = "flowcontrol.apiserver.k8s.io/v1"
_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "proxy", "update", "watch")
_MOST_QUEUES = 10_000_000
_ENTROPY = 60  # bits of the hash that shuffle sharding deals a hand from
_ONE_AT_LEAST = "must contain at least one value"


def _subject(subject: Any, at: FieldPath, errors: ErrorList) -> None:
    """Check the field that the kind of the subject requires, and forbid the others."""
    kind = subject.get("kind", "")
    if kind not in _SUBJECTS:
        errors.unsupported((at, "kind"), kind, tuple(_SUBJECTS))
        return
    for name, (field, rule) in _SUBJECTS.items():
        if name != kind and field in subject:
            errors.forbidden((at, field), f"{field} is forbidden when subject kind is not '{name}'")
        elif name == kind and field not in subject:
            errors.required((at, field), f"{field} is required when subject kind is '{kind}'")
        elif name == kind:
            rule(subject[field], (at, field), errors)


def _account(account: Any, at: FieldPath, errors: ErrorList) -> None:
    name, namespace = account.get("name"), account.get("namespace")
    if name and name != "*" and (why := names.subdomain(name)):
        errors.malformed((at, "name"), name, why)
    if not namespace:
        errors.required((at, "namespace"), "must specify namespace for service account")
    elif why := names.label(namespace):
        errors.malformed((at, "namespace"), namespace, why)


_SUBJECTS: Mapping[str, tuple[str, ValueRule]] = {
    "Group": ("group", need("name")), "ServiceAccount": ("serviceAccount", both(need("name"), _account)),
    "User": ("user", need("name")),
}  # fmt: skip


def _policy_rule(rule: Any, at: FieldPath, errors: ErrorList) -> None:
    if not rule.get("subjects"):
        errors.required((at, "subjects"), f"subjects {_ONE_AT_LEAST}")
    if not rule.get("resourceRules") and not rule.get("nonResourceRules"):
        errors.required(at, "at least one of resourceRules and nonResourceRules has to be non-empty")


def _list(rule: Any, at: FieldPath, errors: ErrorList, none: str, others: str) -> bool:
    """Report a list that is empty or has other items besides `*`. Return whether it lists single items."""
    field = at[1] if at is not None else ""
    values = rule.get(field) or []
    if not values:
        errors.required(at, none)
    elif "*" in values and len(values) > 1:
        errors.invalid(at, values, f"if '*' is present, must not specify other {others}")
    return bool(values) and "*" not in values


def _verbs(rule: Any, at: FieldPath, errors: ErrorList) -> None:
    if _list(rule, (at, "verbs"), errors, f"verbs {_ONE_AT_LEAST}", "verbs") and not set(rule["verbs"]) <= set(_VERBS):
        errors.unsupported((at, "verbs"), rule["verbs"], _VERBS)


def _resource_rule(rule: Any, at: FieldPath, errors: ErrorList) -> None:
    _verbs(rule, at, errors)
    supply = "resource rules must supply at least one"
    _list(rule, (at, "apiGroups"), errors, f"{supply} api group", "api groups")
    _list(rule, (at, "resources"), errors, f"{supply} resource", "resources")
    why = "resource rules that are not cluster scoped must supply at least one namespace"
    if rule.get("namespaces") or not rule.get("clusterScope"):
        path = (at, "namespaces")
        if _list(rule, path, errors, why, "namespaces"):
            for index, namespace in enumerate(rule["namespaces"]):
                if problem := names.label(namespace):
                    why = f"each member of this list must be '*' or a DNS-1123 label; {problem}"
                    errors.malformed((path, index), namespace, why)


def _non_resource_rule(rule: Any, at: FieldPath, errors: ErrorList) -> None:
    _verbs(rule, at, errors)
    paths = (at, "nonResourceURLs")
    if _list(rule, paths, errors, f"nonResourceURLs {_ONE_AT_LEAST}", "non-resource URLs"):
        for index, path in enumerate(rule["nonResourceURLs"]):
            if why := _path(path):
                errors.invalid((paths, index), path, why)


def _path(path: str) -> str:
    """Return the error of a path that may end in a wildcard."""
    if not path:
        return "must not be empty"
    if not path.startswith("/"):
        return "must start with slash"
    if " " in path:
        return "must not contain white-space"
    if "//" in path:
        return "must not contain double slash"
    stars = path.count("*")
    return "wildcard can only do suffix matching" if stars > 1 or (stars and not path.endswith("/*")) else ""


def _schema_spec(spec: Any, at: FieldPath, errors: ErrorList) -> None:
    method = spec.get("distinguisherMethod")
    if method is not None and method.get("type") not in ("ByNamespace", "ByUser"):
        shown = {"Type": method.get("type", "")}
        errors.unsupported(((at, "distinguisherMethod"), "type"), shown, ("ByNamespace", "ByUser"))
    if not spec.get("priorityLevelConfiguration", {}).get("name"):
        errors.required(((at, "priorityLevelConfiguration"), "name"), "must reference a priority level")


def _schema_name(schema: Any, at: FieldPath, errors: ErrorList) -> None:
    name, spec = schema["metadata"].get("name", ""), schema.get("spec", {})
    if spec.get("matchingPrecedence") == 1 and name != "exempt":
        why = "only the schema named 'exempt' may have matchingPrecedence 1"
        errors.invalid(((at, "spec"), "matchingPrecedence"), 1, why)
    if name in MANDATORY and spec != suggested().schemas[name]:
        errors.invalid((at, "spec"), spec, f"spec of '{name}' must equal the fixed value")


def _positive(value: Any, at: FieldPath, errors: ErrorList) -> None:
    if value <= 0:
        errors.invalid(at, value, "must be a positive value")
    if value > 10_000:
        errors.invalid(at, value, "must not be greater than 10000")


_SCHEMA = record({
    "matchingPrecedence": _positive,
    "priorityLevelConfiguration": record({"name": form(lambda name: names.subdomain(name) if name else "")}),
    "rules": each(record({
        "subjects": each(_subject),
        "resourceRules": each(_resource_rule),
        "nonResourceRules": each(_non_resource_rule),
    }, _policy_rule)),
}, _schema_spec)  # fmt: skip


def _queuing(queuing: Any, at: FieldPath, errors: ErrorList) -> None:
    hand, queues = queuing.get("handSize", 0), queuing.get("queues", 0)
    if queuing.get("queueLengthLimit", 0) <= 0:
        errors.invalid((at, "queueLengthLimit"), queuing.get("queueLengthLimit", 0), "must be positive")
    if queues <= 0:
        errors.invalid((at, "queues"), queues, "must be positive")
    elif queues > _MOST_QUEUES:
        errors.invalid((at, "queues"), queues, f"must not be greater than {_MOST_QUEUES}")
    if hand <= 0:
        errors.invalid((at, "handSize"), hand, "must be positive")
    elif hand > queues:
        errors.invalid((at, "handSize"), hand, f"should not be greater than queues ({queues})")
    elif hand > _ENTROPY or (queues**hand - 1).bit_length() > _ENTROPY:
        why = f"required entropy bits of deckSize {queues} and handSize {hand} should not be greater than {_ENTROPY}"
        errors.invalid((at, "handSize"), hand, why)


def _response(response: Any, at: FieldPath, errors: ErrorList) -> None:
    kind, queuing = response.get("type"), response.get("queuing")
    if kind == "Queue" and queuing is None:
        errors.required((at, "queuing"), "must be set when `type` is 'Queue'")
    elif kind == "Queue":
        _queuing(queuing, (at, "queuing"), errors)
    elif kind != "Reject":
        errors.unsupported((at, "type"), kind, ("Queue", "Reject"))
    elif queuing is not None:
        errors.forbidden((at, "queuing"), "may only be set when `type` is 'Queue'")


_SHARES = at_least(0, "must be a non-negative integer")
_LIMITED = record({
    "nominalConcurrencyShares": _SHARES, "lendablePercent": between(0, 100),
    "borrowingLimitPercent": at_least(0, "if specified, must be a non-negative integer"), "limitResponse": _response,
})  # fmt: skip
_EXEMPT = record({"nominalConcurrencyShares": _SHARES, "lendablePercent": between(0, 100)})


def _level(spec: Any, at: FieldPath, errors: ErrorList) -> None:
    """Check the configuration for the type of the level. For other types only the type is reported."""
    kind, limited, exempt = spec.get("type"), spec.get("limited"), spec.get("exempt")
    if kind == "Limited":
        if exempt is not None:
            errors.forbidden((at, "exempt"), "may not be set when `type` is 'Limited'")
        if limited is None:
            errors.required((at, "limited"), "must be set when `type` is 'Limited'")
        else:
            _LIMITED(limited, (at, "limited"), errors)
    elif kind == "Exempt":
        if limited is not None:
            errors.forbidden((at, "limited"), "may only be set when `type` is 'Limited'")
        if exempt is not None:
            _EXEMPT(exempt, (at, "exempt"), errors)
    else:
        errors.unsupported((at, "type"), kind, ("Exempt", "Limited"))


def _level_name(level: Any, at: FieldPath, errors: ErrorList) -> None:
    name, spec = level["metadata"].get("name", ""), level.get("spec", {})
    if (name == "exempt") != (spec.get("type") == "Exempt"):
        errors.invalid(
            ((at, "spec"), "type"), spec.get("type", ""), "must be 'Exempt' if and only if `name` is 'exempt'"
        )
    if name == "exempt" and {**spec, "exempt": None} != {**suggested().levels[name], "exempt": None}:
        errors.invalid((at, "spec"), spec, "spec of 'exempt' except the 'spec.exempt' field must equal the fixed value")
    elif name in MANDATORY and name != "exempt" and spec != suggested().levels[name]:
        errors.invalid((at, "spec"), spec, f"spec of '{name}' must equal the fixed value")


_STATUS = {"status": outcome(within("status.conditions", both(each(need("type")), distinct_by("type"))))}
RULES = {
    f"{_GROUP}/FlowSchema": KindRules(_schema_name, spec=_SCHEMA, subresources=_STATUS, by_schema=False),
    f"{_GROUP}/PriorityLevelConfiguration": KindRules(_level_name, spec=_level, subresources=_STATUS, by_schema=False),
}
