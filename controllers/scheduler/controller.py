"""Schedules pods: finds a node for each that has none, binds it there, and says why where there is none."""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import msgspec

from controller_manager.api.apps import REPLICA_SETS, REPLICATION_CONTROLLERS, STATEFUL_SETS
from controller_manager.api.core import NAMESPACES, NODES, PODS, SERVICES, Namespace, Node, Pod
from controller_manager.api.devices import (
    DEVICE_CLASSES,
    DEVICE_TAINT_RULES,
    GROUP,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    DeviceClass,
    ResourceClaim,
    ResourceSlice,
)
from controller_manager.api.errors import ApiError, Conflict, NotFound
from controller_manager.api.policy import POD_DISRUPTION_BUDGETS
from controller_manager.api.resource import Resource
from controller_manager.api.storage import (
    CSI_DRIVERS,
    CSI_NODES,
    CSI_STORAGE_CAPACITIES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    STORAGE_CLASSES,
    VOLUME_ATTACHMENTS,
    PersistentVolumeClaim,
    VolumeAttachment,
)
from controller_manager.base import clock
from controller_manager.client import STRATEGIC_MERGE_PATCH, TransportError
from controller_manager.controller import (
    Add,
    Change,
    Context,
    ControllerSpec,
    Key,
    Mapped,
    PolicyRule,
    Requeue,
    key_of,
)
from controller_manager.options import Int32, Options, StringList, flag

from .._controlled import BY_CONTROLLER, controlled_by
from .._pods import SERVICES_BY_SELECTOR, Eviction, evict
from . import filters
from .binding import ERROR as SCHEDULER_ERROR
from .binding import UNSCHEDULABLE as NO_NODE
from .binding import bind, unscheduled
from .cluster_state import ClusterState
from .decide import Decider, Unfinished
from .device_binding import DeviceBinding, DevicesLostError, take_back
from .devices import DEVICES, Devices
from .events import label_of
from .extended_resources import class_for
from .metrics import ERROR, FAILED, LATE, READY, SCHEDULED, UNSCHEDULABLE, SchedulerMetrics
from .preemption import REASON
from .requirements import DEFAULT_SCHEDULER
from .scheduler import Assigned, Scheduler, Unplaced
from .storage import Storage
from .volume_binding import LONGEST as LONGEST_VOLUMES
from .volume_binding import VolumeBinding, VolumesLostError
from .volumes import BY_VOLUMES, LIMITS
from .workloads import DefaultSpread

COMPARES = "TaintTolerationComparisonOperators"
TAINTS, RULES, EXTENDED = "DRADeviceTaints", "DRADeviceTaintRules", "DRAExtendedResource"
# Seconds between two looks at claims that a pod waits for, if nothing is heard of them.
_POLL = 10.0
_STORAGE: tuple[Resource[Any], ...] = (
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    STORAGE_CLASSES,
    CSI_NODES,
    CSI_DRIVERS,
    CSI_STORAGE_CAPACITIES,
)
# Pods that are decided about before other work has its turn for longer.
_AT_ONCE = 100
# Seconds between two events about a pod that say the same.
_REPEATED = 60.0


class SchedulerOptions(Options):
    """Flags of the scheduler."""

    title: ClassVar[str] = "Scheduler"

    scheduler_names: StringList = flag(
        (DEFAULT_SCHEDULER,), "pods are scheduled whose schedulerName is one of these; others are left alone"
    )
    percentage_of_nodes_to_score: Int32 = flag(
        0,
        "so many percent of the nodes are looked for and ranked for a pod; 0 for what suits their number",
        minimum=0,
        maximum=100,
    )
    concurrent_bindings: Int32 = flag(32, "pods that are bound, or told of, at the same time", minimum=1)


@dataclass(frozen=True, slots=True)
class Cycle:
    """The pods that are next."""


@dataclass(frozen=True, slots=True)
class Binding:
    """A pod for which a node was found, by its uid."""

    uid: str


@dataclass(frozen=True, slots=True)
class Report:
    """A pod for which there is no node, by its uid."""

    uid: str


@dataclass(frozen=True, slots=True)
class Preemption:
    """A pod for which others have to go, by its uid."""

    uid: str


# Observed: nodes, all pods, what else pods depend on; each as the informers tell it, at once.
# Decided (`decide.py`), for one pod after the other, by priority:     Done:
#   a node suits                                                       it takes its room there at once, and is bound
#                                                                      beside whatever is decided meanwhile
#   no node                                                            condition PodScheduled, event; it waits for what
#                                                                      may help (`events.py`)
# A binding that got no answer keeps its room until the server says where the pod is.


class SchedulerController:
    """Reconciles the pods that are next, and what was decided about each."""

    def __init__(self, context: Context, options: SchedulerOptions) -> None:
        self._context = context
        self._client = context.client
        self._events = context.events
        self._spread = DefaultSpread(context)
        decider = Decider(
            ClusterState(), percentage=options.percentage_of_nodes_to_score, compares=context.enabled(COMPARES)
        )
        budgets = context.informers.get(POD_DISRUPTION_BUDGETS)
        self._storage = _storage(context)
        self._scheduler = Scheduler(
            decider,
            options.scheduler_names,
            self._spread.of,
            budgets.list,
            self._storage,
            _devices(context),
        )
        self._volumes: dict[str, VolumeBinding] = {}
        self._devices: dict[str, DeviceBinding] = {}
        self._most_bindings = options.concurrent_bindings
        self._metrics = SchedulerMetrics(context.runtime.registry, self._scheduler)
        self._add: Add | None = None
        self._noted: deque[Callable[[], None]] = deque()
        self._wake = asyncio.Event()
        # What is under way, by uid: when the attempt began, and what is to be told.
        self._began: dict[str, float] = {}
        self._reports: dict[str, Unplaced] = {}
        self._preemptions: dict[str, Unplaced] = {}
        self._asks: set[str] = set()
        # When which message was last an event, by uid of a pod that waits.
        self._said: dict[str, tuple[str, float]] = {}

    async def run(self, add: Add) -> None:
        """Take in what happens, and have pods looked at when there are some to look at."""
        self._add = add
        ends = [self._subscribe(resource, take) for resource, take in self._takers()]
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                while self._noted:
                    self._take_in(_AT_ONCE)
                    await asyncio.sleep(0)
                self._go_on()
        finally:
            for end in ends:
                end()

    async def reconcile(self, key: Cycle | Binding | Report | Preemption) -> Requeue | None:
        """Decide about pods, bind one, tell of one, or have others go for it."""
        match key:
            case Binding(uid):
                return await self._bind(uid)
            case Report(uid):
                await self._report(uid)
                return None
            case Preemption(uid):
                await self._preempt(uid)
                return None
        return await self._cycle()

    # Taking in.

    def _takers(self) -> list[tuple[Any, Callable[[Change[Any]], None]]]:
        """What is watched, and who takes in its changes; nodes come before their pods."""
        workloads = (SERVICES, REPLICA_SETS, REPLICATION_CONTROLLERS, STATEFUL_SETS)
        return [
            (NODES, self._take_node),
            (NAMESPACES, self._take_namespace),
            (PODS, self._take_pod),
            *((resource, self._spread.note) for resource in workloads),
            *((resource, partial(self._take_storage, resource)) for resource in _STORAGE),
            (VOLUME_ATTACHMENTS, self._take_attachment),
            (RESOURCE_CLAIMS, self._take_claim),
            (RESOURCE_SLICES, self._take_slice),
            (DEVICE_CLASSES, self._take_class),
            *(
                ((DEVICE_TAINT_RULES, partial(self._take_devices, DEVICE_TAINT_RULES)),)
                if self._context.enabled(RULES)
                else ()
            ),
        ]

    def _subscribe(self, resource: Any, take: Callable[[Change[Any]], None]) -> Callable[[], None]:
        def note(change: Change[Any]) -> None:
            self._noted.append(partial(take, change))
            self._wake.set()

        return self._context.informers.get(resource).subscribe(note)

    def _take_in(self, most: int) -> None:
        for _ in range(min(len(self._noted), most)):
            self._noted.popleft()()

    def _take_node(self, change: Change[Node]) -> None:
        if change.after is not None:
            self._scheduler.node_changed(change.after, clock.monotonic())
        else:
            self._scheduler.node_gone(change.key.name, clock.monotonic())

    def _take_namespace(self, change: Change[Namespace]) -> None:
        labels = (change.after.metadata.labels if change.after is not None else None) or {}
        self._scheduler.namespace_changed(change.key.name, labels.items(), clock.monotonic(), filters.POD_AFFINITY)

    def _take_storage(self, resource: Resource[Any], change: Change[Any]) -> None:
        """Something of volumes changed: pods may fit now, or those on their way have what they wait for."""
        self._scheduler.happened(BY_VOLUMES, label_of(resource, change.before, change.after), clock.monotonic())
        if self._add is not None and isinstance(change.object, PersistentVolumeClaim):
            for uid, waiting in self._volumes.items():
                if change.key in waiting.plan.claims:
                    self._add(Binding(uid), "its claim changed")

    def _take_attachment(self, change: Change[VolumeAttachment]) -> None:
        if change.after is None:
            label = label_of(VOLUME_ATTACHMENTS, change.before, None)
            self._scheduler.happened((LIMITS,), label, clock.monotonic())

    def _take_claim(self, change: Change[ResourceClaim]) -> None:
        """A claim to devices changed: pods may fit now, or those on their way have what they wait for."""
        self._scheduler.claim_changed(change.key, change.before, change.after, clock.monotonic())
        for uid, waiting in self._devices.items():
            if self._add is not None and any(change.key == key_of(one.claim) for one in waiting.plan):
                self._add(Binding(uid), "its claim changed")

    def _take_slice(self, change: Change[ResourceSlice]) -> None:
        if self._scheduler.devices is not None:
            self._scheduler.devices.pools.set_slice(change.key.name, change.after)
        self._take_devices(RESOURCE_SLICES, change)

    def _take_class(self, change: Change[DeviceClass]) -> None:
        if change.after is not None:
            self._scheduler.device_class_changed(change.before, change.after, clock.monotonic())

    def _take_devices(self, resource: Resource[Any], change: Change[Any]) -> None:
        if change.after is not None:
            label = label_of(resource, change.before, change.after)
            self._scheduler.happened((DEVICES,), label, clock.monotonic())

    def _take_pod(self, change: Change[Pod]) -> None:
        try:
            self._scheduler.pod_changed(change.before, change.after, clock.monotonic())
        except (msgspec.ValidationError, ValueError) as error:
            self._context.log.warning("a pod cannot be read and is left alone", pod=str(change.key), why=str(error))
        if change.after is None or change.after.spec.node_name:
            self._said.pop(change.object.metadata.uid, None)

    # Deciding.

    async def _cycle(self) -> Requeue | None:
        """Decide about pods until there are none, or enough are on their way."""
        assert self._add is not None
        began: float | None = None
        for _ in range(_AT_ONCE):
            self._take_in(len(self._noted))
            if len(self._scheduler.binding) >= 2 * self._most_bindings:
                return None  # the next one that is bound goes on
            now = clock.monotonic()
            began = began or now
            step = self._scheduler.step(now)
            if step is None:
                break
            if not isinstance(step, Unfinished):
                self._metrics.decision.observe(clock.monotonic() - began)
                self._order(step, began)
                began = None
            await asyncio.sleep(0)
        if self._scheduler.queue.has_work:
            return Requeue(0.0)
        now = clock.monotonic()
        later = self._scheduler.queue.next_time(now)
        if later is None:
            return None
        self._scheduler.queue.wake_forgotten(now)
        return Requeue(max(0.0, later - now))

    def _order(self, step: Assigned | Unplaced, began: float) -> None:
        assert self._add is not None
        uid = step.queued.uid
        if isinstance(step, Assigned):
            self._began[uid] = began
            self._add(Binding(uid), "a node was found")
        else:
            self._metrics.preemptions.add()
            self._metrics.attempted(ERROR if step.failed else UNSCHEDULABLE, clock.monotonic() - began)
            self._tell(step, "no node was found")
            if step.plan is not None:
                self._preemptions[uid] = step
                self._add(Preemption(uid), "others have to go")

    def _tell(self, attempt: Unplaced, cause: str) -> None:
        assert self._add is not None
        self._reports[attempt.queued.uid] = attempt
        self._add(Report(attempt.queued.uid), cause)

    def _go_on(self) -> None:
        """Have pods looked at now, or when the first of them has waited long enough."""
        now, queue = clock.monotonic(), self._scheduler.queue
        later = now if queue.has_work else queue.next_time(now)
        if self._add is not None and later is not None:
            self._add(Cycle(), "pods wait", after=max(0.0, later - now))

    # Acting.

    async def _bind(self, uid: str) -> Requeue | None:
        """Bind a pod to the node that was found."""
        step = self._scheduler.binding.get(uid)
        if step is None:
            self._forget(uid)
            return None
        pod = step.queued.pod
        if uid in self._asks and not await self._is_unbound(pod, step.node):
            self._end(step)
            return None
        if uid not in self._asks and not (await self._has_volumes(step) and await self._has_devices(step)):
            return Requeue(_POLL) if uid in self._scheduler.binding else None
        try:
            await bind(self._client, pod, step.node)
        except (Conflict, TransportError):
            self._asks.add(uid)
            raise
        except NotFound:
            self._scheduler.not_bound(uid, clock.monotonic(), again=False)
            self._end(step)
            return None
        except ApiError as error:
            if error.code >= 500 or error.code == 429:
                self._asks.add(uid)
                raise
            await self._failed(step, error)
            return None
        self._bound(step)
        return None

    async def _has_volumes(self, step: Assigned) -> bool:
        """Return whether the claims of a pod that is on its way are bound; it is no longer if that cannot be."""
        if not step.volumes.claims:
            return True
        uid, now = step.queued.uid, clock.monotonic()
        waiting = self._volumes.get(uid)
        if waiting is None:
            waiting = self._volumes[uid] = VolumeBinding(step.volumes, step.node, now + LONGEST_VOLUMES)
        try:
            return await waiting.go_on(self._client, self._storage, now)
        except (VolumesLostError, Conflict, NotFound) as error:
            await self._failed(step, error)
            return False

    async def _has_devices(self, step: Assigned) -> bool:
        """Return whether the claims to devices of a pod that is on its way are its own, and the devices ready; it is on
        its way no longer if that cannot be.
        """
        devices = self._scheduler.devices
        if not step.devices or devices is None:
            return True
        uid, now = step.queued.uid, clock.monotonic()
        waiting = self._devices.get(uid)
        if waiting is None:
            waiting = self._devices[uid] = DeviceBinding(step.queued.pod, step.devices, now, self._metrics.claim_made)
        try:
            ready = await waiting.go_on(self._client, devices, now)
        except (DevicesLostError, ApiError) as error:
            if isinstance(error, ApiError) and (error.code >= 500 or error.code == 429):
                raise
            self._metrics.devices_ready(step.devices, LATE if now >= waiting.until else FAILED, now - waiting.since)
            await self._failed(step, error)
            return False
        if ready:
            self._metrics.devices_ready(step.devices, READY, now - waiting.since)
        elif not waiting.told:
            waiting.told = True
            said = f"waiting for binding conditions for device on node {step.node}"
            self._events.event(step.queued.pod, "Normal", "BindingConditionsPending", said, "Scheduling")
        return ready

    async def _is_unbound(self, pod: Pod, node: str) -> bool:
        """Return whether a pod is still to be bound, by the word of the server, after a binding that failed, or was not
        answered.
        """
        uid, now = pod.metadata.uid, clock.monotonic
        try:
            found = await self._client.get(PODS, key_of(pod))
        except NotFound:
            found = None
        if found is None or found.metadata.uid != uid:
            self._scheduler.not_bound(uid, now(), again=False)
            return False
        if found.spec.node_name == node:
            self._scheduler.bound(uid)
            return False
        if found.spec.node_name:  # by somebody else
            self._scheduler.not_bound(uid, now(), again=False)
            self._scheduler.pod_changed(None, found, now())
            return False
        return True

    def _bound(self, step: Assigned) -> None:
        queued, now = step.queued, clock.monotonic()
        self._scheduler.bound(queued.uid)
        self._metrics.attempted(SCHEDULED, now - self._began.get(queued.uid, now))
        self._metrics.scheduled(queued.attempts, now - queued.entered)
        said = f"Successfully assigned {key_of(queued.pod)} to {step.node}"
        self._events.event(queued.pod, "Normal", "Scheduled", said, "Binding")
        self._end(step)

    async def _failed(self, step: Assigned, error: Exception) -> None:
        """The server refuses to bind a pod: it waits, and is looked at again."""
        devices = self._devices.get(step.queued.uid)
        if devices is not None:
            await devices.give_up(self._client)
        uid, now = step.queued.uid, clock.monotonic()
        self._metrics.attempted(ERROR, now - self._began.get(uid, now))
        self._scheduler.not_bound(uid, now, again=True)
        self._tell(Unplaced(step.queued, f"binding was refused: {error}", failed=True), "its binding failed")
        self._end(step)

    def _end(self, step: Assigned) -> None:
        self._forget(step.queued.uid)
        self._go_on()

    def _forget(self, uid: str) -> None:
        self._began.pop(uid, None)
        self._volumes.pop(uid, None)
        self._devices.pop(uid, None)
        self._asks.discard(uid)

    async def _report(self, uid: str) -> None:
        """Say why there is no node for a pod."""
        attempt = self._reports.pop(uid, None)
        if attempt is None:
            return
        pod, now = attempt.queued.pod, clock.monotonic()
        message, at = self._said.get(uid, ("", 0.0))
        if message != attempt.message or now - at >= _REPEATED:
            self._said[uid] = attempt.message, now
            self._events.event(pod, "Warning", "FailedScheduling", attempt.message, "Scheduling")
        if attempt.unusable is not None:
            await take_back(self._client, attempt.unusable)
        if uid not in self._scheduler.queue.pods:
            return  # it has a node by now, or is gone
        reason = SCHEDULER_ERROR if attempt.failed else NO_NODE
        change = unscheduled(pod, attempt.message, clock.utc_now(), attempt.nominated, reason)
        if change is not None:
            try:
                await self._client.patch(PODS, key_of(pod), change, STRATEGIC_MERGE_PATCH, subresource="status")
            except (NotFound, Conflict):
                return  # it is gone, or another one
            except (ApiError, TransportError):
                self._reports.setdefault(uid, attempt)
                raise

    async def _preempt(self, uid: str) -> None:
        """Have pods go to make room for another one, which waits for that."""
        step = self._preemptions.get(uid)
        if step is None or step.plan is None:
            return
        preemptor, plan = step.queued.pod, step.plan
        message = f"{DEFAULT_SCHEDULER}: preempting to accommodate a higher priority pod"
        try:
            for victim in plan.victims:
                if not (victim.doomed or victim.is_leaving):
                    outcome = await evict(self._client, victim.pod, REASON, message)
                    if outcome is Eviction.CHANGED:
                        raise Conflict(f"pod {victim.key} is not as it was seen")
                    victim.doomed = True
                    said = f"Preempted by pod {preemptor.metadata.uid} on node {plan.node}"
                    self._events.event(victim.pod, "Normal", "Preempted", said, "Preempting")
        except (ApiError, TransportError) as error:
            self._context.log.warning("no room could be made", pod=str(key_of(preemptor)), why=str(error))
            self._end_preemption(step, succeeded=False)
            return
        self._metrics.victims.observe(len(plan.victims))
        self._end_preemption(step, succeeded=True)

    def _end_preemption(self, step: Unplaced, *, succeeded: bool) -> None:
        del self._preemptions[step.queued.uid]
        if step.plan is not None:
            self._scheduler.room_made(step.queued, step.plan, clock.monotonic(), succeeded=succeeded)
        self._go_on()


_BY_NODE = "by-node"
_BY_RESOURCE = "by-resource"


def _node_of(attachment: VolumeAttachment) -> tuple[str, ...]:
    return (attachment.spec.node_name,)


def _resource_of(device_class: DeviceClass) -> tuple[str, ...]:
    name = device_class.spec.extended_resource_name
    return (name,) if name else ()


def _storage(context: Context) -> Storage:
    attachments = context.informers.get(VOLUME_ATTACHMENTS)
    claims, volumes, classes, nodes, drivers, capacities = (context.informers.get(one) for one in _STORAGE)
    return Storage(
        claim=claims.get,
        volume=lambda name: volumes.get(Key("", name)),
        volumes=volumes.list,
        storage_class=lambda name: classes.get(Key("", name)),
        csi_node=lambda name: nodes.get(Key("", name)),
        csi_driver=lambda name: drivers.get(Key("", name)),
        capacities=capacities.list,
        attachments=lambda node: attachments.by_index(_BY_NODE, node),
    )


def _devices(context: Context) -> Devices:
    claims, classes = context.informers.get(RESOURCE_CLAIMS), context.informers.get(DEVICE_CLASSES)
    ruled, extended = context.enabled(RULES), context.enabled(EXTENDED)

    def by_name(name: str) -> DeviceClass | None:
        return classes.get(Key("", name))

    def by_resource(name: str) -> DeviceClass | None:
        return class_for(name, by_name, partial(classes.by_index, _BY_RESOURCE)) if extended else None

    return Devices(
        claim=claims.get,
        device_class=by_name,
        class_for=by_resource,
        claims_of=partial(controlled_by, claims),
        rules=context.informers.get(DEVICE_TAINT_RULES).list if ruled else tuple,
        tainted=context.enabled(TAINTS),
    )


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
            *(Mapped(resource) for resource in _STORAGE),
            Mapped(VOLUME_ATTACHMENTS, indexes={_BY_NODE: _node_of}),
            Mapped(RESOURCE_CLAIMS, indexes=BY_CONTROLLER),
            Mapped(RESOURCE_SLICES),
            Mapped(DEVICE_CLASSES, indexes={_BY_RESOURCE: _resource_of}),
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
