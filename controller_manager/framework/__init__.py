"""The public API for authors of controllers; see docs/controllers.md. Other modules of this package are internal."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from controller_manager._moved_modules import moved_names
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
from controller_manager.common.options.flag import Options, flag
from controller_manager.common.options.types import Duration, Int32, Quantity, StringList, StringMap
from controller_manager.common.transport.transport import ConfigError, TransportError
from controller_manager.framework.cache.change import Change
from controller_manager.framework.cache.informer import Informer
from controller_manager.framework.cache.informers import Informers
from controller_manager.framework.client.client import STRATEGIC_MERGE_PATCH, Client
from controller_manager.framework.client.codec import WatchEvent
from controller_manager.framework.client.events import Recorder
from controller_manager.framework.controller.history import ControllerHistory
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
from controller_manager.framework.controller.writes import in_parallel, slow_start, try_write, update_status
from controller_manager.framework.work.loop import STALE_CACHE, Requeue, TerminalError
from controller_manager.framework.work.queue import Priority

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
    "STALE_CACHE",
    "STRATEGIC_MERGE_PATCH",
    "Add",
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
    "Recorder",
    "Requeue",
    "Resource",
    "Service",
    "ServiceAccount",
    "Source",
    "StringList",
    "StringMap",
    "TerminalError",
    "TransportError",
    "Watch",
    "WatchEvent",
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
    "main",
    "pod_from_template",
    "recheck_owner",
    "slow_start",
    "try_write",
    "update_status",
    "with_condition",
    "with_conditions",
]

if not TYPE_CHECKING:  # a type checker would take any name for one of this module
    __getattr__ = moved_names(__name__)


def main(specs: Sequence[ControllerSpec[Any]], *, name: str, builtins: bool = False) -> None:
    """Run the controllers `specs` as a program, and all installed controllers too if `builtins` is set.

    `name` is the name of the program and of its lease; logs, user agent, metrics and certificates use it. Its flags are
    those of the controller manager and of its controllers. Never returns. Raises `ValueError` if `name` is not valid as
    the name of a lease, or if two controllers have the same name.
    """
    from controller_manager.app.main import main as run  # the process is a layer above

    run(specs, name=name, builtins=builtins)
