"""Shared validation of ResourceClaims, their status, DeviceClasses and ResourceSlices: drivers, pools, selectors,
parameters, and lists whose items are not checked if the list is too long.
"""

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from apiserver_stub.common.error_list import NO_VALUE, ErrorList, FieldPath
from apiserver_stub.kinds.rules.combine import (
    ValueRule,
    at_most,
    both,
    duplicates,
    each,
    filled,
    form,
    if_any,
    one_of,
    record,
    shorter,
)
from apiserver_stub.kinds.rules.formats import LABEL, QUALIFIED
from apiserver_stub.kinds.values import names

_LONGEST_DRIVER, _LONGEST_POOL, _LARGEST_PARAMETERS, _LONGEST_EXPRESSION = 63, 253, 10 << 10, 10 << 10
_SELECTORS, _CONFIGS, _BINDING, _LONGEST_NAME = 32, 32, 4, 32
_FAILURE = "bindingFailureConditions"
REQUESTS = 32
"""The maximum number of requests in a claim, and of references to them in one of its parts."""
_OF_REQUESTS = "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'"


def long_name(name: str) -> str:
    """Check a DNS subdomain, ignoring case."""
    return names.subdomain(name.lower())


def pool_name(name: str) -> str:
    """Check a pool name: DNS subdomains separated by slashes."""
    return next(filter(None, map(names.subdomain, name.split("/"))), "")


DRIVER = both(shorter(_LONGEST_DRIVER), form(long_name))
NEEDED_DRIVER = both(filled(), if_any(DRIVER))
POOL = both(filled(), shorter(_LONGEST_POOL), if_any(form(pool_name)))


def few(limit: int, rule: ValueRule) -> ValueRule:
    """Return a rule for each item of a list. If the list is longer than `limit`, only its length is reported."""

    def judge(items: Any, at: FieldPath, errors: ErrorList) -> None:
        (each(rule) if len(items) <= limit else at_most(limit))(items, at, errors)

    return judge


def few_distinct(limit: int, rule: ValueRule, key_of: Callable[[Any], Any] = lambda item: item) -> ValueRule:
    """Return the same rule for a list with unique keys. Empty keys count too."""
    judge_each = few(limit, rule)

    def judge(items: Any, at: FieldPath, errors: ErrorList) -> None:
        judge_each(items, at, errors)
        if len(items) <= limit:
            for index, found in duplicates(map(key_of, items)):
                errors.duplicate((at, index), found)

    return judge


def name_of(part: Any) -> str:
    """Return the name of a part, or an empty string."""
    name: str = part.get("name") or ""
    return name


def in_order(**rows: ValueRule) -> ValueRule:
    """Return a rule for an object of texts that checks the fields in this order. Absent fields are empty texts."""

    def rule(tree: Any, at: FieldPath, errors: ErrorList) -> None:
        for name, row in rows.items():
            row(tree.get(name) or "", (at, name), errors)

    return rule


def json_object(limit: int) -> ValueRule:
    """Return a rule that a value is a JSON object of at most `limit` bytes."""

    def rule(value: Any, at: FieldPath, errors: ErrorList) -> None:
        if len(msgspec.json.encode(value)) > limit:
            errors.too_long(at, limit)
        elif not isinstance(value, dict):
            errors.invalid(at, NO_VALUE, "must be a valid JSON object")

    return rule


_PARAMETERS = json_object(_LARGEST_PARAMETERS)


def _selects(expression: str, at: FieldPath, errors: ErrorList) -> None:
    """Check that an expression can be evaluated on devices, with limited cost for every device (KEP-4381)."""
    if len(expression.encode()) > _LONGEST_EXPRESSION:
        errors.too_long(at, _LONGEST_EXPRESSION)
        return
    from controller_manager.common.cel import devices  # CEL, which is loaded when it is needed

    if problem := devices.problem_of(expression):
        errors.invalid(at, expression, problem)
    elif devices.may_exceed(expression):
        errors.forbidden(at, "too complex, exceeds cost limit")


def _selector(selector: Any, at: FieldPath, errors: ErrorList) -> None:
    if "cel" in selector:
        _selects(selector["cel"].get("expression") or "", ((at, "cel"), "expression"), errors)
    else:
        errors.required((at, "cel"))


SELECTORS = few(_SELECTORS, _selector)


def _attribute(name: str, at: FieldPath, errors: ErrorList) -> None:
    """Check an attribute name without its domain."""
    if len(name) > _LONGEST_NAME:
        errors.too_long(at, _LONGEST_NAME)
    form(names.identifier)(name, at, errors)


def qualified_name(name: str, at: FieldPath, errors: ErrorList) -> None:
    """Check the name of an attribute or capacity with an optional domain."""
    parts = name.split("/")
    if len(parts) == 1:
        _attribute(name, at, errors)
    elif len(parts) == 2:
        for part, what, rule in zip(parts, ("domain", "name"), (DRIVER, _attribute), strict=True):
            if part:
                rule(part, at, errors)
            else:
                errors.invalid(at, part, f"the {what} must not be empty")


def full_name(name: str, at: FieldPath, errors: ErrorList) -> None:
    """Check the name of an attribute or capacity, which must have a domain."""
    qualified_name(name, at, errors)
    if "/" not in name:
        errors.invalid(at, name, "must have a domain, and a slash behind it")


def request_names(requests: Iterable[Any]) -> set[str]:
    """Return the names that parts of a claim may refer to: requests and their subrequests."""
    found = set()
    for request in requests:
        found.add(name_of(request))
        found.update(f"{name_of(request)}/{name_of(one)}" for one in request.get("firstAvailable") or ())
    return found


def known_request(requests: set[str]) -> ValueRule:
    """Return a rule that a text is one of these request names."""

    def rule(name: Any, at: FieldPath, errors: ErrorList) -> None:
        parts = name.split("/")
        if len(parts) <= 2:
            for part in parts:
                LABEL(part, at, errors)
        if name not in requests:
            errors.invalid(at, name, _OF_REQUESTS)

    return rule


def binding(part: Any, at: FieldPath, errors: ErrorList) -> None:
    """Check that binding conditions and binding failure conditions are set together and that no type occurs twice."""
    lists: dict[str, list[str]] = {name: part.get(name) or [] for name in ("bindingConditions", _FAILURE)}
    good, bad = lists.values()
    for name, types in lists.items():
        few(_BINDING, QUALIFIED)(types, (at, name), errors)
        for index, type_ in duplicates(types):
            errors.duplicate(((at, name), index), type_)
    for index, type_ in enumerate(bad):
        if type_ in good:
            errors.invalid(((at, _FAILURE), index), type_, f"{_FAILURE} must not overlap with bindingConditions")
    if bool(good) != bool(bad):
        name, other = sorted(lists, key=lambda each: len(lists[each]))
        errors.invalid((at, name), None, f"{name} are required to use {other}")


def _taint(taint: Any, at: FieldPath, errors: ErrorList) -> None:
    key, effect = taint.get("key") or "", taint.get("effect") or ""
    form(names.qualified)(key, (at, "key"), errors)
    filled()(effect, (at, "effect"), errors)
    if_any(EFFECT)(effect, (at, "effect"), errors)


EFFECT = one_of("NoExecute", "NoSchedule", "None")
TAINT = record({"value": if_any(form(names.label_value))}, _taint)


def opaque(config: Any, at: FieldPath, errors: ErrorList) -> None:
    """Check the configuration for a driver."""
    found, at = config.get("opaque"), (at, "opaque")
    if found is None:
        errors.required(at)
        return
    NEEDED_DRIVER(found.get("driver") or "", (at, "driver"), errors)
    if "parameters" in found:
        _PARAMETERS(found["parameters"], (at, "parameters"), errors)
    else:
        errors.required((at, "parameters"))


CONFIGURATIONS = few(_CONFIGS, opaque)
