"""The core of the scheduler, without clock and requests: applies events and returns the next action."""

from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

from msgspec.structs import replace

from controller_manager.common.api.core import Node, Pod, is_pod_terminal
from controller_manager.common.api.devices import DEVICE_CLASSES, RESOURCE_CLAIMS, DeviceClass, ResourceClaim
from controller_manager.common.api.policy import PodDisruptionBudget
from controller_manager.common.api.resource import Key

from ..shared.device_claims import known_claims
from . import filters
from .attempt import SchedulingAttempt
from .cluster_state import ClusterState
from .decide import Attached, Choice, Decider, NoFit, Unfinished, Wanted
from .devices import DEVICES, DevicePlan, Devices
from .events import Event, NodeEvent, OtherEvent, PodEvent, label_of, may_help, node_change
from .extended_resources import resources_of
from .node_info import PlacedPod
from .pod_requirements import are_alike, nominated_node, requirements_of
from .preemption import IS_WAITING, NEVER, PreemptionPlan, make_room
from .queue import QueuedPod, SchedulingQueue
from .requirements import Requirements, SpreadConstraint
from .reservations import Reservations
from .storage import Storage
from .time_slice import TimeSlice
from .volumes import VolumePlan, claims_of, disks_of


class Assigned(NamedTuple):
    """A node was found: prepare volumes and devices, then bind the pod."""

    queued: QueuedPod
    node: str
    volumes: VolumePlan = VolumePlan()
    devices: DevicePlan = ()


class Unplaced(NamedTuple):
    """No node was found for a pod.

    `message` is reported, and `plan` preempts pods. `nominated` is the new nominated node (empty to clear it, None for
    no change). `unusable` is a claim whose devices should be released. `failed` means that the search failed.
    """

    queued: QueuedPod
    message: str
    plan: PreemptionPlan | None = None
    nominated: str | None = None
    unusable: ResourceClaim | None = None
    failed: bool = False


SchedulingResult = Assigned | Unplaced | Unfinished
SpreadOf = Callable[[Pod, Requirements], tuple[SpreadConstraint, ...]]


# The work per time slice, and the maximum pauses of an attempt, since a changed node is examined again each time.
_LOOKS, _MOST_PAUSES = 800, 500
# Plugins whose rejections depend on placed or pending pods.
_BY_PODS = frozenset({filters.PORTS, filters.RESOURCES, filters.SPREAD, filters.POD_AFFINITY})
_NO_LONGER_WAITING = OtherEvent(_BY_PODS, "UnschedulablePodDelete")
_DEVICES_FREED = OtherEvent(frozenset({DEVICES}), "AssignedPodDelete")


def _assume_none(_: Pod, __: Requirements) -> tuple[SpreadConstraint, ...]:
    return ()


class Scheduler:
    """The state of the scheduler.

    `names` are the handled scheduler names. `spread_of` returns the default constraints of a pod, `budgets` the
    disruption budgets. Times are seconds of one clock.
    """

    def __init__(
        self,
        decider: Decider,
        names: Collection[str],
        spread_of: SpreadOf = _assume_none,
        budgets: Callable[[], Iterable[PodDisruptionBudget]] = tuple,
        storage: Storage | None = None,
        devices: Devices | None = None,
    ) -> None:
        self.decider = decider
        self.state: ClusterState = decider.state
        self.queue = SchedulingQueue()
        self.binding: dict[str, Assigned] = {}
        """Pods being bound, by uid."""
        self._names = frozenset(names)
        self._spread_of = spread_of
        self._budgets = budgets
        self.devices = devices
        self._reservations = Reservations(self.state, storage, devices)
        # The paused attempt.
        self._attempt: SchedulingAttempt | None = None
        # Pod shapes without a node in the present state of the cluster.
        self._hopeless: dict[Requirements, NoFit] = {}
        self._hopeless_at = -1

    # Events

    def pod_changed(self, before: Pod | None, after: Pod | None, now: float) -> None:
        """Add, update or remove a pod. Raises `msgspec.ValidationError` for an invalid one."""
        if after is None or is_pod_terminal(after):
            gone = before or after
            if gone is not None:
                self._pod_gone(gone.metadata.uid, now)
        elif after.spec.node_name:
            self._pod_placed(before, after, now)
        elif after.metadata.deletion_timestamp is not None:
            self._forget_waiting(after.metadata.uid, now)
        elif after.metadata.uid in self.state.pods:
            self.state.pods[after.metadata.uid].pod = after  # on its way
        else:
            self._pod_waits(before, after, now)

    def node_changed(self, after: Node, now: float) -> None:
        """Add or update a node."""
        known = self.state.nodes.get(after.metadata.name)
        is_new = known is None or known.node is None
        change = node_change(known, after) if known is not None and not is_new else ""
        if self.state.set_node(after):
            self._happened(NodeEvent(self.state.nodes[after.metadata.name], is_new=is_new, change=change), now)

    def node_gone(self, name: str, now: float) -> None:
        """Remove a node. Pods nominated to it may be retried."""
        node = self.state.nodes.get(name)
        for uid in self.state.nominated.get(name, ()):
            queued = self.queue.pods.get(uid)
            if queued is not None and not queued.held:
                self.queue.retry(queued, "NodeDelete", now)
        if node is not None:
            self.state.remove_node(name)
            if self.devices is not None:
                self.devices.pools.forget_node(name)
            self._happened(NodeEvent(node, gone=True), now)

    def namespace_changed(self, name: str, labels: Collection[tuple[str, str]], now: float, by: str) -> None:
        """Set the labels of a namespace. `by` is the plugin that depends on them."""
        if self.state.set_namespace(name, dict(labels)):
            self._happened(OtherEvent(frozenset({by}), "NamespaceUpdate"), now)

    def claim_changed(self, key: Key, before: ResourceClaim | None, after: ResourceClaim | None, now: float) -> None:
        """Update a device claim.

        If devices were released or the claim is new, all pods waiting for devices may be helped, otherwise only its
        users.
        """
        if self.devices is None:
            return
        self.devices.usage.set_claim(key, after)
        if before is not None and after is not None and before.status == after.status:
            return
        label = label_of(RESOURCE_CLAIMS, before, after)
        if after is None or before is None or after.status.allocation is None:
            self.happened((DEVICES,), label, now)
            return
        if self._attempt is not None and key in device_claims_of(self._attempt.pod):
            self._attempt.note(OtherEvent(frozenset({DEVICES}), label), self.state)
        for queued in self.queue.parked():
            if DEVICES in queued.by and not queued.held and key in device_claims_of(queued.pod):
                self.queue.retry(queued, label, now)

    def device_class_changed(self, before: DeviceClass | None, after: DeviceClass, now: float) -> None:
        """Update a device class. It may be requested, and may provide extended resources."""
        label = label_of(DEVICE_CLASSES, before, after)
        self.happened((DEVICES,), label, now)
        resources = resources_of(after)
        if before is not None and resources == resources_of(before):
            return
        for queued in self.queue.parked():
            if not queued.held and not resources.isdisjoint(queued.requirements.requests.others):
                self.queue.retry(queued, label, now)

    def happened(self, concerns: Collection[str], label: str, now: float) -> None:
        """Handle an event that may help pods rejected by these plugins."""
        self._happened(OtherEvent(frozenset(concerns), label), now)

    # Actions

    def step(self, now: float) -> SchedulingResult | None:
        """Decide about the next pod; None without one. A long attempt continues with the next call."""
        queued = self.queue.peek(now)
        if queued is None:
            return None
        attempt = self._attempt_at(queued)
        found = self._go_on(attempt, TimeSlice(_LOOKS) if attempt.pauses < _MOST_PAUSES else TimeSlice())
        if isinstance(found, Unfinished):
            attempt.pauses += 1
            return found
        self._attempt = None
        self.queue.take(now)
        return self._assign(attempt, found.node, now) if isinstance(found, Choice) else self._park(attempt, found, now)

    def bound(self, uid: str) -> None:
        """Record that a pod was bound."""
        self._release(self.binding.pop(uid, None))

    def not_bound(self, uid: str, now: float, *, again: bool) -> None:
        """Record that a pod was not bound. If it still exists, it is retried as `again`."""
        step = self.binding.pop(uid, None)
        self._release(step)
        if step is not None and step.devices:
            self._happened(_DEVICES_FREED, now)
        placed = self.state.pods.get(uid)
        if step is None or placed is None or not placed.assumed:
            return
        self.state.remove(uid)
        self._happened(PodEvent(placed, went=True), now)
        if again:
            step.queued.pod = placed.pod
            self.queue.fail(step.queued, now)

    def room_made(self, queued: QueuedPod, plan: PreemptionPlan, now: float, *, succeeded: bool) -> None:
        """Record the result of a preemption. After a failure the pod is no longer nominated."""
        queued.held = False
        if succeeded:
            for victim in plan.victims:
                victim.doomed = True
        else:
            self._nominate(queued, "")
            self._happened(_NO_LONGER_WAITING, now)
        if self.queue.pods.get(queued.uid) is queued:
            self.queue.retry(queued, "ForceActivate", now)

    def _attempt_at(self, queued: QueuedPod) -> SchedulingAttempt:
        """Return the attempt in progress for a pod, or a new one. Without volumes, devices and preemption all results
        are cached elsewhere.
        """
        known = self._attempt
        if known is None or not known.is_of(queued):
            self._attempt = self._begin(queued)
        elif not known.wanted.attached and known.why is None:
            self._attempt = self._begin(queued, pauses=known.pauses)
        assert self._attempt is not None
        return self._attempt

    def _go_on(self, attempt: SchedulingAttempt, time: TimeSlice) -> Choice | PreemptionPlan | str | Unfinished:
        """Return the node of a pod, its preemption plan, or why preemption would not help."""
        if attempt.why is None:
            found = self._decide(attempt, time)
            if not isinstance(found, NoFit):
                return self._confirmed(attempt, found)
            attempt.found_none(found)
            if found.rejections:
                attempt.room = make_room(self.decider, attempt.wanted, found, self._budgets())
        if isinstance(attempt.room, str):
            return attempt.room
        plan = attempt.room.go_on(time)
        if plan is None:
            return Unfinished()
        if isinstance(plan, PreemptionPlan) and attempt.room.began != self.state.version:
            found = self._decide(attempt, time)  # there may be a node by now
            if not isinstance(found, NoFit):
                return self._confirmed(attempt, found)
        return plan

    def _confirmed(self, attempt: SchedulingAttempt, found: Choice | Unfinished) -> Choice | Unfinished:
        """Return the result, or restart the attempt if the objects it depends on have changed."""
        if isinstance(found, Choice) and attempt.is_outdated:
            self._attempt = self._begin(attempt.queued, found.node, attempt.pauses + 1)
            return Unfinished()
        return found

    def _assign(self, attempt: SchedulingAttempt, node: str, now: float) -> Assigned:
        queued, info, reservations = attempt.queued, self.state.nodes[node], self._reservations
        volumes = reservations.reserve_volumes(attempt.volumes, info)
        step = Assigned(queued, node, volumes, reservations.reserve_devices(attempt.devices, info))
        self.binding[queued.uid] = step
        elsewhere = queued.nominated not in ("", node)
        self._place(queued.pod, node, queued.requirements, assumed=True)
        if elsewhere:
            self._happened(_NO_LONGER_WAITING, now)
        return step

    def _park(self, attempt: SchedulingAttempt, plan: PreemptionPlan | str, now: float) -> Unplaced:
        queued, why, devices = attempt.queued, attempt.why, attempt.devices
        assert why is not None
        queued.by = why.by
        self.queue.park(queued, now)
        unusable = devices.unusable if devices is not None else None
        unplaced = self._without_node(queued, why, plan)._replace(failed=why.failed, unusable=unusable)
        if attempt.helped and not queued.held:
            self.queue.retry(queued, attempt.helped, now)
        return unplaced

    def _without_node(self, queued: QueuedPod, why: NoFit, plan: PreemptionPlan | str) -> Unplaced:
        if isinstance(plan, PreemptionPlan):
            queued.held = True
            self._nominate(queued, plan.node)
            return Unplaced(queued, why.message, plan, plan.node)
        message = f"{why.message} preemption: {plan}" if plan else why.message
        if not queued.nominated or plan in (NEVER, IS_WAITING):
            return Unplaced(queued, message)
        self._nominate(queued, "")
        return Unplaced(queued, message, None, "")

    def _nominate(self, queued: QueuedPod, node: str) -> None:
        queued.nominated = node
        if not node:
            self.state.forget_nomination(queued.uid)
            return
        for uid, asked in tuple(self.state.nominated.get(node, {}).items()):
            if asked.priority < queued.requirements.priority:  # it will not fit beside
                self.state.forget_nomination(uid)
                other = self.queue.pods.get(uid)
                if other is not None:
                    other.nominated = ""
        self.state.nominate(queued.uid, queued.requirements, node)

    def _begin(self, queued: QueuedPod, first: str = "", pauses: int = 0) -> SchedulingAttempt:
        asked, pod = self._reservations.with_devices(queued.requirements), queued.pod
        spread = () if asked.spreads_itself else self._spread_of(pod, asked)
        volumes, devices = self._reservations.volumes_of(pod), self._reservations.devices_of(pod, asked)
        attached: list[Attached] = [one for one in (volumes, devices) if one is not None]
        hindrances = (one.hindrance for one in (volumes, devices) if one is not None)
        hindrance = next(filter(None, hindrances), None)
        wanted = Wanted(queued.uid, asked, spread, tuple(attached), queued.nominated, hindrance)
        if devices is not None:
            wanted.preference, wanted.failure = devices.preference, lambda: devices.failure
        return SchedulingAttempt(queued, pod, wanted, volumes, devices, first, pauses)

    def _release(self, step: Assigned | None) -> None:
        if step is not None:
            self._reservations.release(step.volumes, step.devices)

    def _decide(self, attempt: SchedulingAttempt, time: TimeSlice) -> Choice | NoFit | Unfinished:
        wanted, state = attempt.wanted, self.state
        if attempt.first:
            return self.decider.decide(replace(wanted, nominated=attempt.first), time)
        if wanted.nominated or wanted.attached or wanted.hindrance:
            return self.decider.decide(wanted, time)
        if self._hopeless_at != state.version:
            self._hopeless.clear()
            self._hopeless_at = state.version
        known = self._hopeless.get(wanted.requirements)
        if known is not None:
            return known
        found = self.decider.decide(wanted, time)
        if isinstance(found, NoFit):
            self._hopeless[wanted.requirements] = found
        return found

    def _pod_waits(self, before: Pod | None, pod: Pod, now: float) -> None:
        known = self.queue.pods.get(pod.metadata.uid)
        if known is not None and before is not None:
            self._renominated(known, nominated_node(before), nominated_node(pod), now)
        if known is not None and before is not None and are_alike(before, pod):
            known.pod = pod
            if pod.status.resource_claim_statuses != before.status.resource_claim_statuses and not known.held:
                self.queue.retry(known, "UnschedulablePodUpdatePodGeneratedResourceClaim", now)
            return
        asked = requirements_of(pod)
        if known is None:
            if asked.scheduler in self._names:
                queued = QueuedPod(pod, asked, now, now, nominated=nominated_node(pod))
                self.queue.add(queued)
                if queued.nominated:
                    self.state.nominate(queued.uid, asked, queued.nominated)
        elif known.requirements is asked:
            known.pod = pod
        else:
            self.queue.change(known, pod, asked, now)

    def _renominated(self, queued: QueuedPod, before: str, after: str, now: float) -> None:
        """Apply the nominated node in the pod's status, from any writer."""
        if before == after or after == queued.nominated:
            return
        queued.nominated = after
        if after:
            self.state.nominate(queued.uid, queued.requirements, after)
        else:
            self.state.forget_nomination(queued.uid)
        self._happened(_NO_LONGER_WAITING, now)

    def _pod_placed(self, before: Pod | None, pod: Pod, now: float) -> None:
        uid = pod.metadata.uid
        self.queue.remove(uid)
        known = self.state.pods.get(uid)
        if known is not None and before is not None and not known.assumed and are_alike(before, pod):
            asked = known.requirements
        else:
            asked = requirements_of(pod)
        came = known is None or known.assumed
        changed = known is None or known.requirements is not asked or known.node != pod.spec.node_name
        self._place(pod, pod.spec.node_name, asked, assumed=False)
        if changed:
            self._happened(PodEvent(self.state.pods[uid], came=came), now)

    def _pod_gone(self, uid: str, now: float) -> None:
        self._forget_waiting(uid, now)
        step = self.binding.pop(uid, None)
        self._release(step)
        if step is not None and step.devices:
            self._happened(_DEVICES_FREED, now)
        placed = self.state.remove(uid)
        if placed is not None:
            self._happened(PodEvent(placed, went=True), now)

    def _forget_waiting(self, uid: str, now: float) -> None:
        queued = self.queue.remove(uid)
        self.state.forget_nomination(uid)
        if queued is not None and queued.nominated:
            self._happened(_NO_LONGER_WAITING, now)

    def _place(self, pod: Pod, node: str, asked: Requirements, *, assumed: bool) -> None:
        self.state.place(PlacedPod(pod, node, asked, claims_of(pod), disks_of(pod), assumed))

    def _happened(self, event: Event, now: float) -> None:
        state, asked = self.state, self._reservations.with_devices
        if self._attempt is not None:
            self._attempt.note(event, state)
        self.queue.wake(lambda queued: may_help(queued.by, asked(queued.requirements), event, state), event.label, now)


def device_claims_of(pod: Pod) -> tuple[Key, ...]:
    """Return the existing device claims of a pod."""
    return tuple(Key(pod.metadata.namespace, name) for _, name in known_claims(pod))
