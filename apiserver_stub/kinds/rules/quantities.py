"""Validation of quantities, resource names, requests and limits, ResourceQuotas and LimitRanges."""

import math
from collections.abc import Callable, Collection, Mapping
from decimal import Decimal
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from apiserver_stub.common.error_list import IMMUTABLE, ErrorList, FieldPath, key, place
from apiserver_stub.kinds.rules.combine import (
    KindRules,
    NameRule,
    ValueRule,
    both,
    distinct_by,
    each,
    form,
    never,
    outcome,
    record,
    within,
)
from apiserver_stub.kinds.rules.formats import NOT_NEGATIVE
from apiserver_stub.kinds.values import names
from apiserver_stub.kinds.values.trees import get_in
from controller_manager.common.api.quantity import parse
from controller_manager.common.api.tree import Tree

_WHOLE = "must be an integer"
_OF_CONTAINERS = frozenset({"cpu", "memory", "ephemeral-storage"})
_STANDARD = _OF_CONTAINERS | {
    "storage", "pods", "services", "replicationcontrollers", "resourcequotas", "secrets", "configmaps",
    "persistentvolumeclaims", "services.nodeports", "services.loadbalancers", "requests.cpu", "requests.memory",
    "requests.storage", "requests.ephemeral-storage", "limits.cpu", "limits.memory", "limits.ephemeral-storage",
}  # fmt: skip
_COUNTED = frozenset({
    "pods", "services", "replicationcontrollers", "resourcequotas", "secrets", "configmaps", "persistentvolumeclaims",
    "services.nodeports", "services.loadbalancers",
})  # fmt: skip
HUGE = "hugepages-"
_NATIVE_DOMAIN = "kubernetes.io/"


@lru_cache(maxsize=1024)
def number(text: str) -> Decimal | None:
    """Return the value of a quantity. None if it is invalid."""
    try:
        return parse(text).number
    except ValueError:
        return None


def compares(one: Any, other: Any, holds: Callable[[Decimal, Decimal], bool]) -> bool:
    """Return whether a comparison of two quantities holds. True if one is absent or invalid."""
    first, second = _number(one), _number(other)
    return first is None or second is None or holds(first, second)


def _number(value: Any) -> Decimal | None:
    return number(value) if isinstance(value, str) else None


def not_negative(value: Any, at: FieldPath, errors: ErrorList) -> None:
    """Check that a quantity is not negative."""
    found_number = _number(value)
    if found_number is not None and found_number < 0:
        errors.invalid(at, value, NOT_NEGATIVE)


def positive(value: Any, at: FieldPath, errors: ErrorList) -> None:
    """Check that a quantity is positive."""
    found_number = _number(value)
    if found_number is not None and found_number <= 0:
        errors.invalid(at, value, "must be greater than zero")


def _is_extended(name: str) -> bool:
    """Return whether a resource has a domain outside Kubernetes."""
    return "/" in name and _NATIVE_DOMAIN not in name and not name.startswith("requests.")


def is_extended_resource(name: str) -> bool:
    """Return whether a resource is an extended resource, which nodes advertise and quotas may limit."""
    return _is_extended(name) and not names.qualified(f"requests.{name}")


def counted(name: str, value: Any, at: FieldPath, errors: ErrorList) -> None:
    """Check the quantity of a resource: not negative, and an integer if the resource is counted."""
    exact = _number(value)
    if exact is None:
        return
    if exact < 0:
        errors.invalid(at, value, NOT_NEGATIVE)
    if (name in _COUNTED or is_extended_resource(name)) and exact != exact.to_integral_value():
        errors.invalid(at, value, _WHOLE)


def resource_name(name: str) -> str:
    """Check a resource name."""
    if name in _STANDARD:
        return ""
    if why := names.qualified(name):
        return why
    return "" if "/" in name or _is_huge(name) else "must be a standard resource type or fully qualified"


def container_resource(name: str) -> str:
    """Check the name of a resource that a container may request."""
    if name in _OF_CONTAINERS:
        return ""
    why = resource_name(name)
    if "/" in name:
        is_known = _NATIVE_DOMAIN in name or is_extended_resource(name)
        return names.problems(why, not is_known and "must be the name of an extended resource")
    return names.problems(why, not name.startswith(HUGE) and "must be a standard resource for containers")


def amounts(check: NameRule) -> ValueRule:
    """Return a rule for a map of resource names to quantities, with a check for the names."""
    return named_amounts(form(check))


def named_amounts(judge: ValueRule) -> ValueRule:
    """Return a rule for a map of resource names to quantities, with a rule for the names."""

    def rule(values: Any, at: FieldPath, errors: ErrorList) -> None:
        for name, value in values.items():
            judge(name, (at, key(name)), errors)
            counted(name, value, (at, key(name)), errors)

    return rule


def _pages(values: Any, at: FieldPath, errors: ErrorList) -> None:
    """Check that huge pages are requested in whole pages."""
    for name, value in values.items():
        if not name.startswith(HUGE):
            continue
        size, asked = number(name.removeprefix(HUGE)), _number(value)
        if asked is not None and (not size or size < 0 or size % 1 or math.ceil(asked) % size):
            errors.invalid((at, key(name)), value, f"must be a multiple of the size of a page of {name}")


def _requests_fit(resources: Any, at: FieldPath, errors: ErrorList) -> None:
    requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
    if not requests and not limits:
        return
    for name, value in requests.items():
        limit = limits.get(name)
        rigid = _cannot_overcommit(name)
        if rigid and limit is None:
            errors.required((at, "limits"), f"must be set for {name}, which cannot be overcommitted")
        elif rigid and not compares(value, limit, Decimal.__eq__):
            errors.invalid((at, "requests"), value, f"must be equal to {name} limit of {limit}")
        elif not rigid and not compares(value, limit, Decimal.__le__):
            errors.invalid((at, "requests"), value, f"must be less than or equal to {name} limit of {limit}")
    _huge_pages(requests.keys() | limits.keys(), at, errors)


def _cannot_overcommit(name: str) -> bool:
    """Return whether a resource cannot be overcommitted."""
    return name not in _OF_CONTAINERS and (_is_extended(name) or name.startswith(HUGE))


def _huge_pages(asked: Collection[str], at: FieldPath, errors: ErrorList) -> None:
    if any(name.startswith(HUGE) for name in asked) and not {"cpu", "memory"} & set(asked):
        errors.forbidden(at, "HugePages require cpu or memory")


def _claims(claims: Any, at: FieldPath, errors: ErrorList) -> None:
    seen: set[tuple[str, str]] = set()
    for index, claim in enumerate(claims):
        pair = claim.get("name", ""), claim.get("request", "")
        if not pair[0]:
            errors.required((at, index))
        elif pair in seen:
            errors.duplicate((at, index), "/".join(filter(None, pair)))
        seen.add(pair)
        if pair[0] and pair[1] and (why := names.label(pair[1])):
            errors.malformed(((at, index), "request"), pair[1], why)


def _requirements(judge: ValueRule) -> ValueRule:
    """Return a rule for requests, limits and claims, with a rule for resource names."""
    asked = both(named_amounts(judge), _pages)
    return record({"limits": asked, "requests": asked, "claims": _claims}, _requests_fit)


_OF_WHOLE_PODS = ("cpu", HUGE, "memory")


def _pod_resource(name: Any, at: FieldPath, errors: ErrorList) -> None:
    """Check the name of a Pod-level resource (KEP-2837)."""
    if why := resource_name(name):
        errors.malformed(at, name, why)
    elif name not in ("cpu", "memory") and not name.startswith(HUGE):
        errors.unsupported(at, name, _OF_WHOLE_PODS)


RESOURCES = _requirements(form(container_resource))
POD_RESOURCES = _requirements(_pod_resource)


_PODS, _PER_POD = frozenset({"pods"}), frozenset({
    "pods", "cpu", "memory", "limits.cpu", "limits.memory", "requests.cpu", "requests.memory",
})  # fmt: skip
_OF_QUOTAS = _STANDARD - {"storage"}
# The resources that a quota with a scope may limit.
_SCOPED: Mapping[str, frozenset[str]] = MappingProxyType({
    "BestEffort": _PODS,
    **dict.fromkeys(
        ("CrossNamespacePodAffinity", "NotBestEffort", "NotTerminating", "PriorityClass", "Terminating"), _PER_POD
    ),
    "VolumeAttributesClass": frozenset({"persistentvolumeclaims", "requests.storage"}),
})  # fmt: skip
_EXCLUSIVE = (frozenset({"BestEffort", "NotBestEffort"}), frozenset({"Terminating", "NotTerminating"}))
_BARE_SCOPES = _SCOPED.keys() - {"PriorityClass", "VolumeAttributesClass"}
_NOT_OF_PODS = ("default", "defaultRequest")
_SIDES = ("max", "min", "default", "defaultRequest", "maxLimitRequestRatio")
# (a, b, field): in a limit range a must not exceed b. The error is reported at the field.
_ORDER = (
    ("min", "max", "min"),
    ("min", "defaultRequest", "defaultRequest"),
    ("defaultRequest", "max", "defaultRequest"),
    ("defaultRequest", "default", "defaultRequest"),
    ("min", "default", "default"),
    ("default", "max", "default"),
)


def _quota_name(name: str) -> str:
    is_known = "/" in name or name in _OF_QUOTAS or _is_huge(name)
    return names.problems(resource_name(name), not is_known and "must be a standard resource for quota")


def _scopes(spec: Any, at: FieldPath, errors: ErrorList) -> None:
    scopes, here = spec.get("scopes") or [], (at, "scopes")
    for scope in scopes:
        if scope not in _SCOPED:
            errors.invalid(here, scopes, "unsupported scope")
    _fit_scopes(scopes, spec.get("hard") or (), scopes, here, errors)


def _fit_scopes(scopes: Any, hard: Collection[str], value: Any, at: FieldPath, errors: ErrorList) -> None:
    """Check that each scope covers all limited resources and that no two scopes exclude each other."""
    limited = {name for name in hard if name in _OF_QUOTAS or _is_huge(name)}
    for scope in scopes:
        for name in sorted(limited - _SCOPED.get(scope, limited)):
            errors.invalid(at, value, f"the scope {scope} does not apply to {name}")
    for pair in _EXCLUSIVE:
        if pair <= set(scopes):
            errors.invalid(at, value, "conflicting scopes")


def _is_huge(name: str) -> bool:
    return name.removeprefix("requests.").startswith(HUGE)


def _scope_selector(spec: Any, at: FieldPath, errors: ErrorList) -> None:
    """Check a scope selector. Errors of an expression have no index."""
    selector, here = spec.get("scopeSelector") or {}, ((at, "scopeSelector"), "matchExpressions")
    expressions = selector.get("matchExpressions") or ()
    for expression in expressions:
        _scope_expression(expression, here, errors)
    _fit_scopes([one.get("scopeName") for one in expressions], spec.get("hard") or (), selector, here, errors)


def _scope_expression(expression: Any, at: FieldPath, errors: ErrorList) -> None:
    operator, values, scope = (expression.get(name) for name in ("operator", "values", "scopeName"))
    if scope not in _SCOPED:
        errors.invalid((at, "scopeName"), scope, "unsupported scope")
    if scope in _BARE_SCOPES and operator != "Exists":
        errors.invalid((at, "operator"), operator, f"must be 'Exists' when scope is {scope}")
    if operator in ("In", "NotIn"):
        if not values:
            errors.required((at, "values"), "must be at least one value when `operator` is 'In' or 'NotIn'")
    elif operator not in ("Exists", "DoesNotExist"):
        errors.invalid((at, "operator"), operator, "not a valid selector operator")
    elif values:
        errors.invalid((at, "values"), values, "must be no value when `operator` is 'Exists' or 'DoesNotExist'")


def _same_scopes(new: Tree, old: Tree, errors: ErrorList) -> None:
    now, before = (get_in(tree, ("spec", "scopes")) or [] for tree in (new, old))
    if set(now) != set(before):
        errors.invalid(place("spec.scopes"), now, IMMUTABLE)


_HARD = amounts(_quota_name)
_QUOTA_SPEC = record({"hard": _HARD}, _scopes, _scope_selector)
_QUOTA_STATUS = outcome(within("status", record({"hard": _HARD, "used": _HARD})))


def _limit(item: Any, at: FieldPath, errors: ErrorList) -> None:
    kind = item.get("type", "")
    if why := _limit_type(kind):
        errors.malformed((at, "type"), kind, why)
    check = container_resource if kind in ("Container", "Pod") else resource_name
    judged = [side for side in _SIDES if kind != "Pod" or side not in _NOT_OF_PODS]
    for side in judged:
        for name in item.get(side) or ():
            if why := check(name):
                errors.malformed(((at, side), key(name)), name, why)
    if kind == "Pod":
        never(*_NOT_OF_PODS, why="may not be specified when `type` is 'Pod'")(item, at, errors)
    if kind == "PersistentVolumeClaim" and not any("storage" in (item.get(side) or ()) for side in ("min", "max")):
        errors.required((at, "limits"), "needs `storage` in `min` or in `max`")
    _bounds({side: item.get(side) or {} for side in judged}, at, errors)


def _bounds(sides: Mapping[str, Any], at: FieldPath, errors: ErrorList) -> None:
    """Check that the bounds of a limit range agree."""
    nothing: Mapping[str, Any] = {}
    for low, high, field in _ORDER:
        lows, highs = sides.get(low, nothing), sides.get(high, nothing)
        for name in sorted(lows.keys() & highs.keys()):
            if not compares(lows[name], highs[name], Decimal.__le__):
                errors.invalid(((at, field), key(name)), sides[field][name], f"{low} is greater than {high}")
    limits, requests = sides.get("default", nothing), sides.get("defaultRequest", nothing)
    for name in sorted(limits.keys() & requests.keys()):
        if _cannot_overcommit(name) and not compares(limits[name], requests[name], Decimal.__eq__):
            errors.invalid(((at, "defaultRequest"), key(name)), requests[name], "must be equal to the default limit")
    for name, ratio in sides["maxLimitRequestRatio"].items():
        here = ((at, "maxLimitRequestRatio"), key(name))
        if not compares(ratio, "1", Decimal.__ge__):
            errors.invalid(here, ratio, f"ratio {ratio} is less than 1")
        if not _is_possible_ratio(ratio, sides["min"].get(name), sides["max"].get(name)):
            errors.invalid(here, ratio, f"ratio {ratio} is greater than max/min")


def _is_possible_ratio(ratio: Any, low: Any, high: Any) -> bool:
    """Return whether the ratio of two values within these bounds can be `ratio`."""
    most, least, times = _number(high), _number(low), _number(ratio)
    return most is None or not least or times is None or times <= most / least


def _limit_type(name: str) -> str:
    why = names.qualified(name)
    if why or "/" in name or name in ("Container", "PersistentVolumeClaim", "Pod"):
        return why
    return "must be a standard limit type or fully qualified"


_LIMITS = both(each(_limit), distinct_by("type", empties=True))

RULES = {
    "v1/LimitRange": KindRules(within("spec.limits", _LIMITS), by_schema=False),
    "v1/ResourceQuota": KindRules(
        change=_same_scopes, subresources={"status": _QUOTA_STATUS}, spec=_QUOTA_SPEC, by_schema=False,
    ),
}  # fmt: skip
