"""The public API for authors of controllers. Everything else in this package is private.

`controller_manager.framework` exports the same names, and `main` to run your own program.
"""

from typing import TYPE_CHECKING, Any
from warnings import warn

from controller_manager.common.api import errors
from controller_manager.common.api.apps import CONTROLLER_REVISIONS, DEPLOYMENTS, ControllerRevision, Deployment
from controller_manager.common.api.autoscaling import HORIZONTAL_POD_AUTOSCALERS, HorizontalPodAutoscaler
from controller_manager.common.api.certificates import REQUESTS as CERTIFICATE_SIGNING_REQUESTS
from controller_manager.common.api.certificates import CertificateSigningRequest
from controller_manager.common.api.conditions import (
    Condition,
    condition_of,
    is_condition_true,
    with_condition,
    with_conditions,
)
from controller_manager.common.api.coordination import LEASES, Lease
from controller_manager.common.api.core import (
    CONFIG_MAPS,
    ENDPOINTS,
    EVENTS,
    NAMESPACES,
    NODES,
    PODS,
    SERVICE_ACCOUNTS,
    SERVICES,
    ConfigMap,
    Endpoints,
    Event,
    Namespace,
    Node,
    Pod,
    PodTemplateSpec,
    Service,
    ServiceAccount,
    is_pod_ready,
    is_pod_terminal,
)
from controller_manager.common.api.discovery import ENDPOINT_SLICES, EndpointSlice
from controller_manager.common.api.model import Model, Object, ObjectMeta, OwnerReference, PartialObject, controller_of
from controller_manager.common.api.resource import Key, Resource, key_of
from controller_manager.common.api.selectors import LabelSelector
from controller_manager.common.base.log import Logger
from controller_manager.common.base.metrics import Counters, Family, Gauges, Histograms
from controller_manager.common.options import Duration, Int32, Options, Quantity, StringList, StringMap, flag
from controller_manager.framework.cache import Change, Informer, Informers
from controller_manager.framework.client import Client, ConfigError
from controller_manager.framework.client.events import Recorder
from controller_manager.framework.controller.history import ControllerHistory, RecordedRevision
from controller_manager.framework.controller.pod_control import PodControl, pod_from_template
from controller_manager.framework.controller.references import (
    ControllerRefManager,
    controller_key,
    controller_ref,
    recheck_owner,
)
from controller_manager.framework.controller.spec import (
    Add,
    Context,
    ControllerSpec,
    For,
    Mapped,
    Owned,
    PolicyRule,
    Reconciler,
    Source,
    Watch,
)
from controller_manager.framework.controller.writes import Batched, in_parallel, slow_start, try_write, update_status
from controller_manager.framework.work import SHORTEST_REQUEUE, STALE_CACHE, Priority, Requeue, TerminalError

__all__ = [
    "CERTIFICATE_SIGNING_REQUESTS",
    "CONFIG_MAPS",
    "CONTROLLER_REVISIONS",
    "DEPLOYMENTS",
    "ENDPOINTS",
    "ENDPOINT_SLICES",
    "EVENTS",
    "HORIZONTAL_POD_AUTOSCALERS",
    "LEASES",
    "NAMESPACES",
    "NODES",
    "PODS",
    "SERVICES",
    "SERVICE_ACCOUNTS",
    "SHORTEST_REQUEUE",
    "STALE_CACHE",
    "Add",
    "Batched",
    "CertificateSigningRequest",
    "Change",
    "Client",
    "Condition",
    "ConfigError",
    "ConfigMap",
    "Context",
    "ControllerHistory",
    "ControllerRefManager",
    "ControllerRevision",
    "ControllerSpec",
    "Counters",
    "Deployment",
    "Duration",
    "EndpointSlice",
    "Endpoints",
    "Event",
    "Family",
    "For",
    "Gauges",
    "Histograms",
    "HorizontalPodAutoscaler",
    "Informer",
    "Informers",
    "Int32",
    "Key",
    "LabelSelector",
    "Lease",
    "Logger",
    "Mapped",
    "Model",
    "Namespace",
    "Node",
    "Object",
    "ObjectMeta",
    "Options",
    "Owned",
    "OwnerReference",
    "PartialObject",
    "Pod",
    "PodControl",
    "PodTemplateSpec",
    "PolicyRule",
    "Priority",
    "Quantity",
    "Reconciler",
    "RecordedRevision",
    "Recorder",
    "Requeue",
    "Resource",
    "Service",
    "ServiceAccount",
    "Source",
    "StringList",
    "StringMap",
    "TerminalError",
    "Watch",
    "condition_of",
    "controller_key",
    "controller_of",
    "controller_ref",
    "errors",
    "flag",
    "in_parallel",
    "is_condition_true",
    "is_pod_ready",
    "is_pod_terminal",
    "key_of",
    "pod_from_template",
    "recheck_owner",
    "slow_start",
    "try_write",
    "update_status",
    "with_condition",
    "with_conditions",
]

if not TYPE_CHECKING:  # a type checker would take any name for one of this module
    # Former names, kept until the next release.
    _RENAMED = {"GiveUp": TerminalError, "Rule": PolicyRule, "Spec": ControllerSpec}

    def __getattr__(name: str) -> Any:
        found = _RENAMED.get(name)
        if found is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        warn(f"{name} is now called {found.__name__}", DeprecationWarning, stacklevel=2)
        return found
