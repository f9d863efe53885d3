"""The rules of leases."""

from typing import Any

from apiserver_stub.kinds.error_list import ErrorList, FieldPath
from apiserver_stub.kinds.rules.combine import Rules, at_least, record, within
from apiserver_stub.kinds.rules.formats import QUALIFIED


def _preferred(spec: Any, at: FieldPath, found: ErrorList) -> None:
    if spec.get("preferredHolder") and not spec.get("strategy"):
        found.forbidden((at, "preferredHolder"), "may only be specified when `strategy` is defined")


_SPEC = record({
    "leaseDurationSeconds": at_least(1, "must be greater than 0"), "leaseTransitions": at_least(0),
    "strategy": QUALIFIED,
}, _preferred)  # fmt: skip
RULES = {"coordination.k8s.io/v1/Lease": Rules(within("spec", _SPEC))}
