"""The rules of quotas of resources and of limits on them."""

from decimal import Decimal
from typing import Any

from apiserver_stub.kinds import names
from apiserver_stub.kinds.error_list import ErrorList, FieldPath, key
from apiserver_stub.kinds.rules.amounts import HUGE, amounts, compares, resource_name
from apiserver_stub.kinds.rules.combine import (
    KindRules,
    both,
    distinct_by,
    each,
    fixed,
    form,
    need,
    one_of,
    outcome,
    record,
    within,
)

_SCOPES = (
    "BestEffort", "CrossNamespacePodAffinity", "NotBestEffort", "NotTerminating", "PriorityClass", "Terminating",
    "VolumeAttributesClass",
)  # fmt: skip
_EXCLUSIVE = (frozenset({"BestEffort", "NotBestEffort"}), frozenset({"Terminating", "NotTerminating"}))
_BARE_SCOPES = frozenset(_SCOPES) - {"PriorityClass", "VolumeAttributesClass"}
_QUOTA = frozenset({
    "cpu", "memory", "ephemeral-storage", "storage", "pods", "services", "replicationcontrollers", "resourcequotas",
    "secrets", "configmaps", "persistentvolumeclaims", "services.nodeports", "services.loadbalancers",
})  # fmt: skip
_SIDES = ("max", "min", "default", "defaultRequest", "maxLimitRequestRatio")
# What must not be more than what, where a limit range gives both.
_ORDER = (
    ("min", "max", "min value {0} is greater than max value {1}"),
    ("min", "defaultRequest", "min value {0} is greater than default request value {1}"),
    ("defaultRequest", "max", "default request value {0} is greater than max value {1}"),
    ("defaultRequest", "default", "default request value {0} is greater than default limit value {1}"),
    ("min", "default", "min value {0} is greater than default value {1}"),
    ("default", "max", "default value {0} is greater than max value {1}"),
)


def _quota_name(name: str) -> str:
    bare = name.removeprefix("requests.").removeprefix("limits.")
    if name in _QUOTA or bare in _QUOTA or bare.startswith(HUGE):
        return ""
    if why := names.qualified(name):
        return why
    return "" if "/" in name else "must be a standard resource for quota"


def _scopes(scopes: Any, at: FieldPath, errors: ErrorList) -> None:
    for pair in _EXCLUSIVE:
        if pair <= set(scopes):
            errors.invalid(at, scopes, "conflicting scopes")


def _scope_expression(expression: Any, at: FieldPath, errors: ErrorList) -> None:
    operator, values, scope = (expression.get(name) for name in ("operator", "values", "scopeName"))
    if operator in ("In", "NotIn") and not values:
        errors.required((at, "values"), "must be at least one value when `operator` is 'In' or 'NotIn'")
    elif operator in ("Exists", "DoesNotExist") and values:
        errors.invalid((at, "values"), values, "must be no value when `operator` is 'Exists' or 'DoesNotExist'")
    if scope in _BARE_SCOPES and operator != "Exists":
        errors.invalid((at, "operator"), operator, f"must be 'Exists' when scope is {scope}")


_SELECTOR = each(record({
    "scopeName": one_of(*_SCOPES), "operator": one_of("DoesNotExist", "Exists", "In", "NotIn"),
}, _scope_expression))  # fmt: skip
_HARD = amounts(_quota_name)
_QUOTA_SPEC = record({
    "hard": _HARD, "scopes": both(each(one_of(*_SCOPES)), _scopes),
    "scopeSelector": record({"matchExpressions": _SELECTOR}),
})  # fmt: skip
_QUOTA_STATUS = outcome(within("status", record({"hard": _HARD, "used": _HARD})))


def _limit(item: Any, at: FieldPath, errors: ErrorList) -> None:
    kind = item.get("type")
    if kind == "Pod":
        for name in ("default", "defaultRequest"):
            if item.get(name):
                errors.forbidden((at, name), "may not be specified when `type` is 'Pod'")
    if kind == "PersistentVolumeClaim" and not any((item.get(side) or {}).get("storage") for side in ("min", "max")):
        why = "needs `storage` in `min` or in `max`"
        errors.required((at, "limits"), why)
    for low, high, why in _ORDER:
        lows, highs = item.get(low) or {}, item.get(high) or {}
        for name in lows.keys() & highs.keys():
            if not compares(lows[name], highs[name], Decimal.__le__):
                errors.invalid(((at, low), key(name)), lows[name], why.format(lows[name], highs[name]))
    for name, ratio in (item.get("maxLimitRequestRatio") or {}).items():
        if not compares(ratio, "1", Decimal.__ge__):
            errors.invalid(((at, "maxLimitRequestRatio"), key(name)), ratio, f"ratio {ratio} is less than 1")


def _limit_type(name: str) -> str:
    why = names.qualified(name)
    if why or "/" in name or name in ("Container", "PersistentVolumeClaim", "Pod"):
        return why
    return "must be a standard limit type or fully qualified"


_LIMITS = both(
    each(record({"type": form(_limit_type), **dict.fromkeys(_SIDES, amounts(resource_name))}, _limit, need("type"))),
    distinct_by("type"),
)

RULES = {
    "v1/LimitRange": KindRules(within("spec.limits", _LIMITS)),
    "v1/ResourceQuota": KindRules(
        within("spec", _QUOTA_SPEC), fixed("spec.scopes", "spec.scopeSelector"), {"status": _QUOTA_STATUS},
    ),
}  # fmt: skip
