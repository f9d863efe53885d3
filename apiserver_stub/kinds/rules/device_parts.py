"""The rules of what claims to devices, their status and their classes have in common: drivers, pools, parameters."""

from typing import Any

import msgspec

from apiserver_stub.kinds import names
from apiserver_stub.kinds.error_list import NO_VALUE, ErrorList, FieldPath
from apiserver_stub.kinds.rules.combine import Rule, both, filled, form, if_any, shorter

_LONGEST_DRIVER, _LONGEST_POOL, _LARGEST_PARAMETERS = 63, 253, 10 << 10


def long_name(name: str) -> str:
    """Check a subdomain in whatever case."""
    return names.subdomain(name.lower())


def pool_name(name: str) -> str:
    """Check the name of a pool: subdomains, divided by slashes."""
    return next(filter(None, map(names.subdomain, name.split("/"))), "")


DRIVER = both(shorter(_LONGEST_DRIVER), form(long_name))
NEEDED_DRIVER = both(filled(), if_any(DRIVER))
POOL = both(filled(), shorter(_LONGEST_POOL), if_any(form(pool_name)))


def in_order(**rows: Rule) -> Rule:
    """Return a rule for an object of texts: each field in turn, as an empty one where it is absent."""

    def rule(tree: Any, at: FieldPath, errors: ErrorList) -> None:
        for name, row in rows.items():
            row(tree.get(name) or "", (at, name), errors)

    return rule


def json_object(limit: int) -> Rule:
    """Return the rule that a value of whatever type is an object, and not larger than so many bytes."""

    def rule(value: Any, at: FieldPath, errors: ErrorList) -> None:
        if len(msgspec.json.encode(value)) > limit:
            errors.too_long(at, limit)
        elif not isinstance(value, dict):
            errors.invalid(at, NO_VALUE, "must be a valid JSON object")

    return rule


_PARAMETERS = json_object(_LARGEST_PARAMETERS)


def opaque(config: Any, at: FieldPath, errors: ErrorList) -> None:
    """Check a configuration that only its driver understands."""
    found, at = config.get("opaque"), (at, "opaque")
    if found is None:
        errors.required(at)
        return
    NEEDED_DRIVER(found.get("driver") or "", (at, "driver"), errors)
    if "parameters" in found:
        _PARAMETERS(found["parameters"], (at, "parameters"), errors)
    else:
        errors.required((at, "parameters"))
