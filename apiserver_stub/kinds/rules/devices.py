"""Validation of DeviceClasses, DeviceTaintRules and ResourcePoolStatusRequests. See `device_claims.py` for claims and
`resource_slices.py` for slices.
"""

from apiserver_stub.common.error_list import IMMUTABLE, ErrorList, place
from apiserver_stub.kinds.rules.combine import (
    KindRules,
    at_least,
    at_most,
    between,
    both,
    distinct,
    each,
    fixed,
    form,
    need,
    outcome,
    record,
    shorter,
    within,
)
from apiserver_stub.kinds.rules.conditions import CONDITIONS
from apiserver_stub.kinds.rules.device_parts import (
    CONFIGURATIONS,
    NEEDED_DRIVER,
    POOL,
    SELECTORS,
    TAINT,
    long_name,
    pool_name,
)
from apiserver_stub.kinds.rules.formats import LABEL, SUBDOMAIN
from apiserver_stub.kinds.rules.quantities import is_extended_resource
from controller_manager.common.api.tree import Tree

_LONGEST_POOL, _LONGEST_ERROR = 253, 256
_RULE_CONDITIONS, _STATUS_CONDITIONS, _LARGEST_LIMIT = 8, 10, 1000


def _extended_resource(name: str) -> str:
    """Check the name of an extended resource that pods may request instead of devices of a class."""
    return "" if is_extended_resource(name) else "must be the name of an extended resource"


_CLASS = record({
    "selectors": SELECTORS, "config": CONFIGURATIONS, "extendedResourceName": form(_extended_resource),
})  # fmt: skip
_TAINT_RULE = record({
    "deviceSelector": record({"driver": NEEDED_DRIVER, "pool": POOL, "device": LABEL}),
    "taint": TAINT,
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
    # Two rules report a duplicate type: that of conditions and that of lists with keys.
    "conditions": both(at_most(_STATUS_CONDITIONS), CONDITIONS, distinct(lambda one: one.get("type"))),
}, need("poolCount"))  # fmt: skip


def _status_of_pools(new: Tree, old: Tree, errors: ErrorList) -> None:
    """Check that the status, once set, does not change."""
    before, after, at = old.get("status"), new.get("status"), place("status")
    if before is not None and before != after:
        errors.invalid(at, after, IMMUTABLE)
    elif after is not None:
        _STATUS_OF_POOLS(after, at, errors)


RULES = {
    "resource.k8s.io/v1/DeviceClass": KindRules(spec=_CLASS, by_schema=False),
    **dict.fromkeys(("resource.k8s.io/v1alpha3/DeviceTaintRule", "resource.k8s.io/v1beta2/DeviceTaintRule"), KindRules(
        spec=_TAINT_RULE,
        subresources={"status": outcome(within("status", record({
            "conditions": both(at_most(_RULE_CONDITIONS), CONDITIONS),
        })))},
    )),
    "resource.k8s.io/v1alpha3/ResourcePoolStatusRequest": KindRules(
        spec=record({
            "driver": form(long_name), "poolName": both(shorter(_LONGEST_POOL), form(pool_name)),
            "limit": between(1, _LARGEST_LIMIT),
        }, need("driver")),
        change=fixed("spec"), subresources={"status": _status_of_pools},
    ),
}  # fmt: skip
