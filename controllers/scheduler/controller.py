"""Scheduler: binds each unscheduled pod to a node, or reports why there is none."""

from typing import ClassVar

from controller_manager.common.api.apps import REPLICA_SETS, REPLICATION_CONTROLLERS, STATEFUL_SETS
from controller_manager.common.api.core import NAMESPACES, NODES, PODS, SERVICES
from controller_manager.common.api.devices import (
    DEVICE_CLASSES,
    DEVICE_TAINT_RULES,
    GROUP,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
)
from controller_manager.common.api.policy import POD_DISRUPTION_BUDGETS
from controller_manager.common.api.storage import STORAGE_CLASSES, VOLUME_ATTACHMENTS
from controller_manager.common.base import clock
from controller_manager.framework import (
    Add,
    Context,
    ControllerSpec,
    Int32,
    Mapped,
    Options,
    PolicyRule,
    Requeue,
    StringList,
    flag,
)

from ..shared.controlled import BY_CONTROLLER
from ..shared.pods import SERVICES_BY_SELECTOR
from .binding_cycle import BindingCycle
from .cluster_state import ClusterState
from .decide import Decider
from .event_handlers import EventHandlers
from .failure_handler import FailureHandler
from .keys import Binding, Cycle, Preemption, Report, SchedulerKey
from .metrics import SchedulerMetrics
from .pod_requirements import DEFAULT_SCHEDULER
from .preemption_executor import PreemptionExecutor
from .scheduler import Scheduler
from .scheduling_cycle import SchedulingCycle
from .sources import BY_NODE, BY_RESOURCE, EXTENDED, RULES, STORAGE, devices, node_of, resource_of, storage
from .workloads import DefaultSpread

COMPARES = "TaintTolerationComparisonOperators"


class SchedulerOptions(Options):
    """Flags of the scheduler."""

    title: ClassVar[str] = "Scheduler"

    scheduler_names: StringList = flag(
        (DEFAULT_SCHEDULER,), "pods are scheduled whose schedulerName is one of these; others are left alone"
    )
    percentage_of_nodes_to_score: Int32 = flag(
        0,
        "percentage of nodes to find and score for each pod; 0 adapts it to the number of nodes",
        minimum=0,
        maximum=100,
    )
    concurrent_bindings: Int32 = flag(32, "number of bindings and failure reports that run concurrently", minimum=1)


# Observed: nodes, all pods and other dependencies, directly from informers.
# Decided (`decide.py`), one pod at a time, by priority:  Done:
#   a node is found                                       reserve its resources at once, and bind the pod
#                                                         concurrently with further decisions
#   no node                                               condition PodScheduled, event; the pod waits for
#                                                         events that may help (`events.py`)


class SchedulerController:
    """Processes the next pods, and the result of each decision."""

    def __init__(self, context: Context, options: SchedulerOptions) -> None:
        self._add: Add | None = None
        spread, volumes = DefaultSpread(context), storage(context)
        decider = Decider(
            ClusterState(), percentage=options.percentage_of_nodes_to_score, compares=context.enabled(COMPARES)
        )
        budgets = context.informers.get(POD_DISRUPTION_BUDGETS)
        self._scheduler = Scheduler(
            decider, options.scheduler_names, spread.of, budgets.list, volumes, devices(context)
        )
        metrics = SchedulerMetrics(context.runtime.registry, self._scheduler)
        self._failures = FailureHandler(context, self._scheduler.queue, self._enqueue)
        self._bindings = BindingCycle(context, self._scheduler, volumes, self._failures, metrics, self._go_on)
        self._preemptions = PreemptionExecutor(context, self._scheduler, metrics, self._go_on)
        self._handlers = EventHandlers(context, self._scheduler, spread, self._bindings, self._failures, self._enqueue)
        after = self._bindings, self._preemptions, self._failures
        most = 2 * options.concurrent_bindings
        self._cycle = SchedulingCycle(self._scheduler, self._handlers, after, metrics, self._enqueue, most)

    async def run(self, add: Add) -> None:
        """Apply events, and trigger scheduling cycles while pods are pending."""
        self._add = add
        await self._handlers.run(self._go_on)

    async def reconcile(self, key: SchedulerKey) -> Requeue | None:
        """Run a scheduling cycle, bind a pod, report a failure, or preempt pods."""
        match key:
            case Binding(uid):
                return await self._bindings.run(uid)
            case Report(uid):
                await self._failures.report(uid)
                return None
            case Preemption(uid):
                await self._preemptions.run(uid)
                return None
        return await self._cycle.run()

    def _go_on(self) -> None:
        """Trigger a scheduling cycle now, or when the first backoff ends."""
        now, queue = clock.monotonic(), self._scheduler.queue
        later = now if queue.has_work else queue.next_time(now)
        if later is not None:
            self._enqueue(Cycle(), "pods wait", after=max(0.0, later - now))

    def _enqueue(self, key: SchedulerKey, cause: str, after: float = 0.0) -> None:
        assert self._add is not None
        self._add(key, cause, after=after)


NAME = "scheduler"
SPECS = (
    ControllerSpec(
        name=NAME,
        aliases=("kube-scheduler",),
        service_account="kube-scheduler",
        reporter=DEFAULT_SCHEDULER,
        reconciler=SchedulerController,
        options=SchedulerOptions,
        default_on=False,
        workers=lambda options: options.concurrent_bindings + 1,
        retry_delays=(0.1, 10.0),
        qps_factor=5,
        watches=(
            Mapped(NODES),
            Mapped(PODS),
            Mapped(NAMESPACES),
            Mapped(SERVICES, indexes=SERVICES_BY_SELECTOR),
            Mapped(REPLICATION_CONTROLLERS),
            Mapped(REPLICA_SETS),
            Mapped(STATEFUL_SETS),
            Mapped(POD_DISRUPTION_BUDGETS),
            *(Mapped(resource) for resource in STORAGE),
            Mapped(VOLUME_ATTACHMENTS, indexes={BY_NODE: node_of}),
            Mapped(RESOURCE_CLAIMS, indexes=BY_CONTROLLER),
            Mapped(RESOURCE_SLICES),
            Mapped(DEVICE_CLASSES, indexes={BY_RESOURCE: resource_of}),
            Mapped(DEVICE_TAINT_RULES, gate=RULES),
        ),
        rbac=(
            PolicyRule(groups=("",), resources=("nodes", "namespaces", "services"), verbs=("list", "watch")),
            PolicyRule(groups=("",), resources=("replicationcontrollers",), verbs=("list", "watch")),
            PolicyRule(groups=("apps",), resources=("replicasets", "statefulsets"), verbs=("list", "watch")),
            PolicyRule(groups=("",), resources=("pods",), verbs=("get", "list", "watch", "delete")),
            PolicyRule(
                groups=("",),
                resources=("persistentvolumes", "persistentvolumeclaims"),
                verbs=("list", "watch", "patch"),
            ),
            PolicyRule(
                groups=(STORAGE_CLASSES.group,),
                resources=("storageclasses", "csinodes", "csidrivers", "csistoragecapacities", "volumeattachments"),
                verbs=("list", "watch"),
            ),
            PolicyRule(groups=(GROUP,), resources=("resourceclaims",), verbs=("get", "list", "watch", "update")),
            PolicyRule(groups=(GROUP,), resources=("resourceclaims",), verbs=("create", "delete"), gate=EXTENDED),
            PolicyRule(groups=(GROUP,), resources=("resourceclaims/status",), verbs=("patch", "update")),
            PolicyRule(groups=(GROUP,), resources=("resourceclaims/binding",), verbs=("patch", "update")),
            PolicyRule(groups=(GROUP,), resources=("resourceslices", "deviceclasses"), verbs=("list", "watch")),
            PolicyRule(groups=(GROUP,), resources=("devicetaintrules",), verbs=("list", "watch"), gate=RULES),
            PolicyRule(groups=("policy",), resources=("poddisruptionbudgets",), verbs=("list", "watch")),
            PolicyRule(groups=("",), resources=("pods/binding",), verbs=("create",)),
            PolicyRule(groups=("",), resources=("pods/status",), verbs=("patch",)),
        ),
    ),
)
