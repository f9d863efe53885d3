"""Default rows of what configures a cluster: admission, flow control, roles, definitions, storage, scaling, devices."""

from apiserver_stub.kinds.defaulting import Rows, empty, listed, under, when
from apiserver_stub.kinds.schema import Tree
from controller_manager.api.timestamps import format_time
from controller_manager.base.clock import utc_now

_RBAC = "rbac.authorization.k8s.io"


def _subject_group(subject: Tree) -> str | None:
    return _RBAC if subject.get("kind") in ("User", "Group") else None


def _list_kind(names: Tree) -> str | None:
    return f"{names['kind']}List" if names.get("kind") else None


def _singular(names: Tree) -> str | None:
    return names.get("kind", "").lower() or None


def _now(_taint: Tree) -> str:
    return format_time(utc_now())


def _multipliers(device: Tree) -> None:
    for mapping in device.get("nodeAllocatableResourceMappings", {}).values():
        mapping.setdefault("allocationMultiplier", "1")


_REMOTE: Rows = (("clientConfig", (("service", (("port", 443),)),)),)
VALIDATING_WEBHOOK: Rows = (
    ("failurePolicy", "Fail"), ("matchPolicy", "Equivalent"), ("namespaceSelector", empty), ("objectSelector", empty),
    ("timeoutSeconds", 10), ("rules", (("scope", "*"),)), *_REMOTE,
)  # fmt: skip
MUTATING_WEBHOOK: Rows = (*VALIDATING_WEBHOOK, ("reinvocationPolicy", "Never"))
_MATCH: Rows = (
    ("matchPolicy", "Equivalent"), ("namespaceSelector", empty), ("objectSelector", empty),
    ("resourceRules", (("scope", "*"),)), ("excludeResourceRules", (("scope", "*"),)),
)  # fmt: skip
ADMISSION_POLICY: Rows = (("failurePolicy", "Fail"), ("matchConstraints", _MATCH))
ADMISSION_BINDING: Rows = (("matchResources", _MATCH),)
ROLE_BINDING: Rows = (("roleRef", (("apiGroup", _RBAC),)), ("subjects", (("apiGroup", _subject_group),)))
DEFINITION: Rows = (
    ("conversion", lambda _: {"strategy": "None"}),
    ("conversion", (("webhook", _REMOTE),)),
    ("names", (("listKind", _list_kind), ("singular", _singular))),
)
CSI_DRIVER: Rows = (
    ("attachRequired", True), ("fsGroupPolicy", "ReadWriteOnceWithFSType"), ("podInfoOnMount", False),
    ("requiresRepublish", False), ("seLinuxMount", False), ("storageCapacity", False),
    ("volumeLifecycleModes", listed("Persistent")),
)  # fmt: skip

_CPU_AT_80 = {
    "type": "Resource",
    "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}},
}
_DOUBLE = {"type": "Percent", "value": 100, "periodSeconds": 15}
_FOUR_MORE = {"type": "Pods", "value": 4, "periodSeconds": 15}
AUTOSCALER: Rows = (
    ("minReplicas", 1),
    ("metrics", listed(_CPU_AT_80)),
    ("behavior", (
        ("scaleUp", empty),
        ("scaleUp", (
            ("stabilizationWindowSeconds", 0), ("policies", listed(_FOUR_MORE, _DOUBLE)), ("selectPolicy", "Max"),
        )),
        ("scaleDown", empty),
        ("scaleDown", (("policies", listed(_DOUBLE)), ("selectPolicy", "Max"))),
    )),
)  # fmt: skip

_EXACTLY: Rows = (("allocationMode", "ExactCount"), ("count", when("allocationMode", ("ExactCount",), 1)))
DEVICE_CLAIM: Rows = under("devices.requests", (("exactly", _EXACTLY), ("firstAvailable", _EXACTLY)))
DEVICES: Rows = (("taints", (("timeAdded", _now),)), ("", _multipliers))

_QUEUES: Rows = (("queues", 64), ("handSize", 8), ("queueLengthLimit", 50))
PRIORITY_LEVEL: Rows = (
    ("limited", (
        ("nominalConcurrencyShares", 30), ("lendablePercent", 0), ("limitResponse", (("queuing", _QUEUES),)),
    )),
    ("exempt", (("nominalConcurrencyShares", 0), ("lendablePercent", 0))),
)  # fmt: skip
