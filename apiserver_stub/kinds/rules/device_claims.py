"""Validation of ResourceClaims and ResourceClaimTemplates. The status is checked in `device_claim_status.py`."""

from typing import Any

from apiserver_stub.common.error_list import ErrorList, FieldPath
from apiserver_stub.kinds.rules.combine import (
    KindRules,
    ValueRule,
    both,
    each,
    filled,
    fixed,
    form,
    if_any,
    one_of,
    record,
    within,
)
from apiserver_stub.kinds.rules.device_claim_status import claim_status
from apiserver_stub.kinds.rules.device_parts import (
    EFFECT,
    REQUESTS,
    SELECTORS,
    few,
    few_distinct,
    full_name,
    in_order,
    known_request,
    name_of,
    opaque,
    request_names,
)
from apiserver_stub.kinds.rules.formats import LABEL, QUALIFIED, SUBDOMAIN
from apiserver_stub.kinds.rules.metadata import CLAIM_METADATA
from apiserver_stub.kinds.values import names

_ALTERNATIVES, _CONSTRAINTS, _CONFIGS = 8, 32, 32


def _counted(request: Any, at: FieldPath, errors: ErrorList) -> None:
    mode, count = request.get("allocationMode"), request.get("count", 0)
    if mode == "ExactCount" and count <= 0:
        errors.invalid((at, "count"), count, "must be greater than zero")
    elif mode == "All" and count:
        errors.invalid((at, "count"), count, "must not be specified when allocationMode is 'All'")


def _tolerated(toleration: Any, at: FieldPath, errors: ErrorList) -> None:
    operator, value = toleration.get("operator") or "", toleration.get("value") or ""
    if operator == "Exists" and value:
        errors.invalid((at, "value"), value, "must be empty for operator `Exists`")
    elif operator == "Equal":
        _VALUE(value, (at, "value"), errors)


_VALUE = form(names.label_value)
_TOLERATION = both(
    in_order(
        key=if_any(QUALIFIED), operator=both(filled(), if_any(one_of("Equal", "Exists"))),
        effect=if_any(EFFECT),
    ),
    _tolerated,
)  # fmt: skip
_EXACTLY = both(
    in_order(deviceClassName=both(filled(), if_any(SUBDOMAIN)), allocationMode=one_of("All", "ExactCount")),
    record({"selectors": SELECTORS, "tolerations": each(_TOLERATION)}, _counted),
)
_ALTERNATIVE = both(in_order(name=LABEL), _EXACTLY)


def _request(request: Any, at: FieldPath, errors: ErrorList) -> None:
    LABEL(name_of(request), (at, "name"), errors)
    exactly, alternatives = request.get("exactly"), request.get("firstAvailable")
    if exactly is not None and alternatives:
        why = "exactly one of `exactly` or `firstAvailable` is required, but multiple fields are set"
        errors.invalid(at, None, why)
    elif exactly is not None:
        _EXACTLY(exactly, (at, "exactly"), errors)
    elif alternatives:
        few_distinct(_ALTERNATIVES, _ALTERNATIVE, name_of)(alternatives, (at, "firstAvailable"), errors)
    else:
        errors.required(at, "exactly one of `exactly` or `firstAvailable` is required")


def _constraint(constraint: Any, at: FieldPath, errors: ErrorList) -> None:
    """Check a constraint: an attribute that all devices of some requests share, or that no two of them share."""
    for name in ("matchAttribute", "distinctAttribute"):
        if name in constraint:
            full_name(constraint[name], (at, name), errors)
            return
    errors.required(at, "exactly one of `matchAttribute` or `distinctAttribute` is required")


def _devices(devices: Any, at: FieldPath, errors: ErrorList) -> None:
    requests = devices.get("requests") or []
    referring = record({"requests": few_distinct(REQUESTS, known_request(request_names(requests)))})
    few_distinct(REQUESTS, _request, name_of)(requests, (at, "requests"), errors)
    few(_CONSTRAINTS, both(referring, _constraint))(devices.get("constraints") or [], (at, "constraints"), errors)
    few(_CONFIGS, both(referring, opaque))(devices.get("config") or [], (at, "config"), errors)


_CLAIM: ValueRule = within("devices", _devices)

# The spec of a claim is immutable and only checked on create. That of a template is checked on every write.
RULES = {
    "resource.k8s.io/v1/ResourceClaim": KindRules(
        change=fixed("spec"), subresources={"status": claim_status}, on_create=within("spec", _CLAIM), by_schema=False,
    ),
    "resource.k8s.io/v1/ResourceClaimTemplate": KindRules(
        change=fixed("spec"), spec=record({"metadata": CLAIM_METADATA, "spec": _CLAIM}), by_schema=False,
    ),
}  # fmt: skip
