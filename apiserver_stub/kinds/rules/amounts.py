"""The rules of quantities, of the names of resources, and of what containers request and are limited to."""

from collections.abc import Callable, Collection
from decimal import Decimal
from functools import lru_cache
from typing import Any

from apiserver_stub.kinds import names
from apiserver_stub.kinds.error_list import ErrorList, FieldPath, key
from apiserver_stub.kinds.rules.combine import Rule, record
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
