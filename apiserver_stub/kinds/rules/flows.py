"""The rules of the flows requests are sorted into, and of the levels that serve them."""

from typing import Any

from apiserver_stub.kinds import names
from apiserver_stub.kinds.error_list import ErrorList, FieldPath
from apiserver_stub.kinds.rules.combine import (
    KindRules,
    at_least,
    between,
    both,
    each,
    form,
    need,
    one_of,
    record,
    within,
)

_GROUP = "flowcontrol.apiserver.k8s.io/v1"


def _subject(subject: Any, at: FieldPath, errors: ErrorList) -> None:
    rows = {"ServiceAccount": "serviceAccount", "User": "user", "Group": "group"}
    kind = subject.get("kind")
    for name, field in rows.items():
        if kind == name and field not in subject:
            errors.required((at, field), f"{field} is required when subject kind is '{name}'")
        elif kind in rows and kind != name and field in subject:
            errors.forbidden((at, field), f"{field} is forbidden when subject kind is not '{name}'")


def _policy_rule(rule: Any, at: FieldPath, errors: ErrorList) -> None:
    if not rule.get("resourceRules") and not rule.get("nonResourceRules"):
        errors.required(at, "needs `resourceRules` or `nonResourceRules`")


def _resource_rule(rule: Any, at: FieldPath, errors: ErrorList) -> None:
    if not rule.get("namespaces") and not rule.get("clusterScope"):
        why = "must name a namespace unless `clusterScope` is set"
        errors.required((at, "namespaces"), why)


_SCHEMA = record({
    "matchingPrecedence": between(1, 10_000),
    "distinguisherMethod": record({"type": one_of("ByNamespace", "ByUser")}),
    "priorityLevelConfiguration": record({"name": form(names.subdomain)}, need("name")),
    "rules": each(record({
        "subjects": each(record({"kind": one_of("Group", "ServiceAccount", "User")}, _subject)),
        "resourceRules": each(both(need("verbs", "apiGroups", "resources"), _resource_rule)),
        "nonResourceRules": each(need("verbs", "nonResourceURLs")),
    }, need("subjects"), _policy_rule)),
})  # fmt: skip
_QUEUING = record({"queues": at_least(1, "must be positive"), "handSize": at_least(1, "must be positive"),
                   "queueLengthLimit": at_least(1, "must be positive")})  # fmt: skip


def _hands(queuing: Any, at: FieldPath, errors: ErrorList) -> None:
    hand, queues = queuing.get("handSize", 0), queuing.get("queues", 0)
    if queues < hand:
        errors.invalid((at, "handSize"), hand, f"should not be greater than queues ({queues})")


def _response(response: Any, at: FieldPath, errors: ErrorList) -> None:
    if response.get("type") == "Reject" and "queuing" in response:
        errors.forbidden((at, "queuing"), "may only be set when `type` is 'Queue'")
    elif response.get("type") == "Queue" and "queuing" not in response:
        errors.required((at, "queuing"), "must be set when `type` is 'Queue'")


def _level(spec: Any, at: FieldPath, errors: ErrorList) -> None:
    kind = spec.get("type")
    if kind == "Exempt" and "limited" in spec:
        errors.forbidden((at, "limited"), "may only be set when `type` is 'Limited'")
    elif kind == "Limited":
        if "limited" not in spec:
            errors.required((at, "limited"), "must be set when `type` is 'Limited'")
        if "exempt" in spec:
            errors.forbidden((at, "exempt"), "may not be set when `type` is 'Limited'")


_LEVEL = record({
    "type": one_of("Exempt", "Limited"),
    "limited": record({
        "nominalConcurrencyShares": at_least(0), "lendablePercent": between(0, 100),
        "borrowingLimitPercent": at_least(0),
        "limitResponse": record({"type": one_of("Queue", "Reject"), "queuing": both(_QUEUING, _hands)}, _response),
    }),
}, _level)  # fmt: skip

RULES = {
    f"{_GROUP}/FlowSchema": KindRules(within("spec", _SCHEMA)),
    f"{_GROUP}/PriorityLevelConfiguration": KindRules(within("spec", _LEVEL)),
}
