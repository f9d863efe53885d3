"""The rules of quantities and names of resources, of requests and limits of containers, of quotas and limit ranges."""

from collections.abc import Callable, Collection
from decimal import Decimal
from functools import lru_cache
from typing import Any

from apiserver_stub.kinds import names
from apiserver_stub.kinds.error_list import ErrorList, FieldPath, key
from apiserver_stub.kinds.rules.combine import (
    KindRules,
    Rule,
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
from apiserver_stub.kinds.rules.formats import NOT_NEGATIVE
from controller_manager.api.quantity import parse

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
    """Return the number a quantity stands for, None when it is none."""
    try:
        return parse(text).number
    except ValueError:
        return None


def compares(one: Any, other: Any, holds: Callable[[Decimal, Decimal], bool]) -> bool:
    """Tell whether two quantities compare so; true when one is absent or no quantity."""
    first, second = _number(one), _number(other)
    return first is None or second is None or holds(first, second)


def _number(value: Any) -> Decimal | None:
    return number(value) if isinstance(value, str) else None


def not_negative(value: Any, at: FieldPath, errors: ErrorList) -> None:
    """A quantity is zero or more."""
    found_number = _number(value)
    if found_number is not None and found_number < 0:
        errors.invalid(at, value, NOT_NEGATIVE)


def positive(value: Any, at: FieldPath, errors: ErrorList) -> None:
    """A quantity is more than zero."""
    found_number = _number(value)
    if found_number is not None and found_number <= 0:
        errors.invalid(at, value, "must be greater than zero")


def _is_extended(name: str) -> bool:
    """Tell whether a resource belongs to somebody's domain rather than to the platform."""
    return "/" in name and _NATIVE_DOMAIN not in name and not name.startswith("requests.")


def is_extended_resource(name: str) -> bool:
    """Return whether a resource is one that nodes advertise under somebody's domain, and that quotas can have."""
    return _is_extended(name) and not names.qualified(f"requests.{name}")


def counted(name: str, value: Any, at: FieldPath, errors: ErrorList) -> None:
    """The quantity of a resource: not negative, and whole where it is counted in pieces."""
    exact = _number(value)
    if exact is None:
        return
    if exact < 0:
        errors.invalid(at, value, NOT_NEGATIVE)
    if (name in _COUNTED or _is_extended(name)) and exact != exact.to_integral_value():
        errors.invalid(at, value, _WHOLE)


def resource_name(name: str) -> str:
    """Check the name of a resource anywhere."""
    if name in _STANDARD:
        return ""
    if why := names.qualified(name):
        return why
    return "" if "/" in name or name.startswith(HUGE) else "must be a standard resource type or fully qualified"


def container_resource(name: str) -> str:
    """Check the name of a resource a container may ask for."""
    if name in _OF_CONTAINERS:
        return ""
    if why := resource_name(name):
        return why
    if "/" in name:
        plain = _NATIVE_DOMAIN in name or not names.qualified(f"requests.{name}")
        return "" if plain else "must be the name of an extended resource"
    return "" if name.startswith(HUGE) else "must be a standard resource for containers"


def amounts(form: Callable[[str], str]) -> Rule:
    """Return the rule of a map of resources to quantities."""

    def rule(values: Any, at: FieldPath, errors: ErrorList) -> None:
        for name, value in values.items():
            if why := form(name):
                errors.invalid((at, key(name)), name, why)
            counted(name, value, (at, key(name)), errors)

    return rule


_CONTAINER_AMOUNTS = amounts(container_resource)


def _requests_fit(resources: Any, at: FieldPath, errors: ErrorList) -> None:
    requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
    if not requests and not limits:
        return
    for name, value in requests.items():
        limit = limits.get(name)
        rigid = name not in _OF_CONTAINERS and (_is_extended(name) or name.startswith(HUGE))
        if rigid and limit is None:
            errors.required((at, "limits"), "must be set where nothing can be promised twice")
        elif rigid and not compares(value, limit, Decimal.__eq__):
            errors.invalid((at, "requests"), value, f"must be equal to {name} limit of {limit}")
        elif not rigid and not compares(value, limit, Decimal.__le__):
            errors.invalid((at, "requests"), value, f"must be less than or equal to {name} limit of {limit}")
    _huge_pages(requests.keys() | limits.keys(), at, errors)


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
        if "request" in claim and (why := names.label(pair[1])):
            errors.invalid(((at, index), "request"), pair[1], why)


RESOURCES = record({"limits": _CONTAINER_AMOUNTS, "requests": _CONTAINER_AMOUNTS, "claims": _claims},
                   _requests_fit)  # fmt: skip


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
        for name in sorted(lows.keys() & highs.keys()):
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
