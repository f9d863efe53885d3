"""The rules of devices: their classes, claims for them, and slices that offer them."""

from typing import Any

from apiserver_stub.kinds import names
from apiserver_stub.kinds.error_list import IMMUTABLE, ErrorList, FieldPath, key, place
from apiserver_stub.kinds.rules.combine import (
    KindRules,
    Rule,
    at_least,
    at_most,
    between,
    both,
    distinct,
    distinct_by,
    each,
    filled,
    fixed,
    form,
    if_any,
    need,
    one_of,
    outcome,
    record,
    shorter,
    within,
)
from apiserver_stub.kinds.rules.conditions import CONDITIONS
from apiserver_stub.kinds.rules.device_claim_status import claim_status
from apiserver_stub.kinds.rules.device_parts import DRIVER, NEEDED_DRIVER, POOL, long_name, opaque, pool_name
from apiserver_stub.kinds.rules.formats import LABEL, SUBDOMAIN
from apiserver_stub.kinds.rules.metadata import CLAIM_METADATA
from apiserver_stub.kinds.rules.selectors import NODE_SELECTOR
from apiserver_stub.kinds.schema import Tree

_REQUESTS, _SELECTORS, _CONFIGS, _DEVICES, _ALTERNATIVES, _LONGEST_POOL = 32, 32, 32, 128, 8, 253
_LONGEST_ERROR, _LONGEST_EXPRESSION = 256, 10 << 10
_RULE_CONDITIONS, _STATUS_CONDITIONS, _LARGEST_LIMIT = 8, 10, 1000


def _selects(expression: str, at: FieldPath, errors: ErrorList) -> None:
    """Check that an expression can be evaluated on devices, and is cheap on any of them (KEP-4381)."""
    if len(expression.encode()) > _LONGEST_EXPRESSION:
        errors.too_long(at, _LONGEST_EXPRESSION)
        return
    from controller_manager.cel import devices  # CEL, which is loaded when it is needed

    if problem := devices.problem_of(expression):
        errors.invalid(at, expression, problem)
    elif devices.may_exceed(expression):
        errors.forbidden(at, "too complex, exceeds cost limit")


_CEL = both(at_most(_SELECTORS), each(record({"cel": record({"expression": _selects})}, need("cel"))))
_CONFIG = both(at_most(_CONFIGS), each(opaque))


def _counted(request: Any, at: FieldPath, errors: ErrorList) -> None:
    mode, count = request.get("allocationMode"), request.get("count", 0)
    if mode == "ExactCount" and "count" in request and count <= 0:
        errors.invalid((at, "count"), count, "must be greater than zero")
    elif mode == "All" and count:
        errors.invalid((at, "count"), count, "must not be specified when allocationMode is 'All'")


_EXACT: dict[str, Rule] = {
    "deviceClassName": SUBDOMAIN, "selectors": _CEL, "allocationMode": one_of("All", "ExactCount"),
}  # fmt: skip
_ALTERNATIVE = record({"name": LABEL, **_EXACT}, _counted, need("name", "deviceClassName"))


def _one_way(request: Any, at: FieldPath, errors: ErrorList) -> None:
    given = [name for name in ("exactly", "firstAvailable") if request.get(name)]
    if not given:
        errors.required(at, "exactly one of `exactly` or `firstAvailable` is required")
    elif len(given) > 1:
        errors.invalid(
            at,
            request.get("name"),
            "exactly one of `exactly` or `firstAvailable` is required, but multiple fields are set",
        )


_REQUEST = record({
    "name": LABEL, "exactly": record(_EXACT, _counted, need("deviceClassName")),
    "firstAvailable": both(at_most(_ALTERNATIVES), each(_ALTERNATIVE), distinct_by("name")),
}, need("name"), _one_way)  # fmt: skip


def _known_requests(devices: Any, at: FieldPath, errors: ErrorList) -> None:
    known = {request.get("name") for request in devices.get("requests") or ()}
    for field in ("constraints", "config"):
        for index, item in enumerate(devices.get(field) or ()):
            for number, name in enumerate(item.get("requests") or ()):
                if name.partition("/")[0] not in known:
                    why = "must be the name of a request in the claim"
                    errors.invalid(((((at, field), index), "requests"), number), name, why)


_CLAIM = record({"devices": record({
    "requests": both(at_most(_REQUESTS), each(_REQUEST), distinct_by("name")), "config": _CONFIG,
}, _known_requests)})  # fmt: skip


def _one_place(spec: Any, at: FieldPath, errors: ErrorList) -> None:
    given = [name for name in ("nodeName", "nodeSelector", "allNodes", "perDeviceNodeSelection") if spec.get(name)]
    if len(given) != 1:
        why = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required"
        (errors.invalid(at, given, why) if given else errors.required(at, why))


_VALUES = ("bool", "int", "string", "version", "bools", "ints", "strings", "versions")


def _attributes(attributes: Any, at: FieldPath, errors: ErrorList) -> None:
    for name, attribute in attributes.items():
        if len(given := [value for value in _VALUES if value in attribute]) != 1:
            errors.invalid((at, key(name)), attribute if given else "", "exactly one value must be specified")


_DEVICE = record({"name": LABEL, "attributes": _attributes}, need("name"))
_SLICE = record({
    "driver": DRIVER, "nodeName": SUBDOMAIN, "nodeSelector": NODE_SELECTOR,
    "pool": record(
        {"generation": at_least(0), "resourceSliceCount": at_least(1, "must be greater than zero")}, need("name"),
    ),
    "devices": both(at_most(_DEVICES), each(_DEVICE), distinct_by("name")),
}, need("driver", "pool"), _one_place)  # fmt: skip
_CLASS = record({"selectors": _CEL, "config": _CONFIG, "extendedResourceName": form(names.qualified)})


def _taint(taint: Any, at: FieldPath, errors: ErrorList) -> None:
    key, effect = taint.get("key") or "", taint.get("effect") or ""
    if not key:
        errors.invalid((at, "key"), key, names.qualified(key))
    form(names.qualified)(key or " ", (at, "key"), errors)
    filled()(effect, (at, "effect"), errors)
    if_any(one_of("NoExecute", "NoSchedule", "None"))(effect, (at, "effect"), errors)


_TAINT = record({"value": if_any(form(names.label_value))}, _taint)
_TAINT_RULE = record({
    "deviceSelector": record({"driver": NEEDED_DRIVER, "pool": POOL, "device": LABEL}),
    "taint": _TAINT,
})  # fmt: skip
_NOT_NEGATIVE = at_least(0, "must be greater than or equal to 0")
_POOL_STATUS = record({
    "driver": form(long_name), "poolName": both(shorter(_LONGEST_POOL), form(pool_name)), "nodeName": SUBDOMAIN,
    "generation": _NOT_NEGATIVE, "resourceSliceCount": at_least(1, "must be greater than or equal to 1"),
    "totalDevices": _NOT_NEGATIVE, "allocatedDevices": _NOT_NEGATIVE, "availableDevices": _NOT_NEGATIVE,
    "unavailableDevices": _NOT_NEGATIVE, "validationError": shorter(_LONGEST_ERROR),
}, need("driver", "poolName"))  # fmt: skip
_STATUS_OF_POOLS = record({
    "poolCount": _NOT_NEGATIVE, "pools": both(at_most(_LARGEST_LIMIT), each(_POOL_STATUS)),
    # A type that is there twice is told of by two rules: of conditions, and of lists with keys.
    "conditions": both(at_most(_STATUS_CONDITIONS), CONDITIONS, distinct(lambda one: one.get("type"))),
}, need("poolCount"))  # fmt: skip


def _status_of_pools(new: Tree, old: Tree, errors: ErrorList) -> None:
    """What a status says is said once."""
    before, after, at = old.get("status"), new.get("status"), place("status")
    if before is not None and before != after:
        errors.invalid(at, after, IMMUTABLE)
    elif after is not None:
        _STATUS_OF_POOLS(after, at, errors)


RULES = {
    "resource.k8s.io/v1/DeviceClass": KindRules(within("spec", _CLASS)),
    "resource.k8s.io/v1/ResourceClaim": KindRules(
        within("spec", _CLAIM), fixed("spec"), {"status": claim_status},
    ),
    "resource.k8s.io/v1/ResourceClaimTemplate": KindRules(
        within("spec", record({"metadata": CLAIM_METADATA, "spec": _CLAIM})), fixed("spec"),
    ),
    **dict.fromkeys(("resource.k8s.io/v1alpha3/DeviceTaintRule", "resource.k8s.io/v1beta2/DeviceTaintRule"), KindRules(
        within("spec", _TAINT_RULE),
        subresources={"status": outcome(within("status", record({
            "conditions": both(at_most(_RULE_CONDITIONS), CONDITIONS),
        })))},
    )),
    "resource.k8s.io/v1alpha3/ResourcePoolStatusRequest": KindRules(
        within("spec", record({
            "driver": form(long_name), "poolName": both(shorter(_LONGEST_POOL), form(pool_name)),
            "limit": between(1, _LARGEST_LIMIT),
        }, need("driver"))),
        fixed("spec"), {"status": _status_of_pools},
    ),
    "resource.k8s.io/v1/ResourceSlice": KindRules(
        within("spec", _SLICE),
        fixed("spec.driver", "spec.pool.name", "spec.nodeName", "spec.nodeSelector", "spec.allNodes"),
    ),
}  # fmt: skip
