"""Binds a pod to the node found: first its volumes and devices, then the pod.

A binding without a response keeps its resources reserved until the server reports where the pod is.
"""

from collections.abc import Callable

from controller_manager.common.api.core import PODS, Pod
from controller_manager.common.api.errors import ApiError, Conflict, NotFound
from controller_manager.common.api.resource import Key, key_of
from controller_manager.common.base import clock
from controller_manager.framework import Context, Requeue, TransportError

from .binding import bind, nominate
from .device_binding import DeviceBinding, DevicesLostError
from .failure_handler import FailureHandler
from .metrics import ERROR, FAILED, LATE, READY, SCHEDULED, SchedulerMetrics
from .pod_requirements import nominated_node
from .scheduler import Assigned, Scheduler, Unplaced
from .storage import Storage
from .volume_binding import LONGEST as LONGEST_VOLUMES
from .volume_binding import VolumeBinding, VolumesLostError

# The feature gate for nominating the node of a pod that waits for volumes or devices.
EXPECTATION = "NominatedNodeNameForExpectation"
# Seconds between two checks of claims that a pod waits for, without events.
_POLL = 10.0


class BindingCycle:
    """The pods being bound. `go_on` triggers the next scheduling cycle."""

    def __init__(
        self,
        context: Context,
        scheduler: Scheduler,
        storage: Storage,
        failures: FailureHandler,
        metrics: SchedulerMetrics,
        go_on: Callable[[], None],
    ) -> None:
        self._client = context.client
        self._events = context.events
        self._log = context.log
        self._nominates = context.enabled(EXPECTATION)
        self._scheduler = scheduler
        self._storage = storage
        self._failures = failures
        self._metrics = metrics
        self._go_on = go_on
        self._volumes: dict[str, VolumeBinding] = {}
        self._devices: dict[str, DeviceBinding] = {}
        # Start times of attempts by uid, and pods whose binding is being checked on the server.
        self._began: dict[str, float] = {}
        self._asks: set[str] = set()
        # Pods waiting for volumes or devices, and pods whose expected node was written.
        self._waiting: set[str] = set()
        self._expected: set[str] = set()

    @property
    def under_way(self) -> int:
        """Return the number of pods being bound. Those waiting for volumes or devices do not delay others."""
        return len(self._scheduler.binding) - len(self._waiting)

    def begin(self, uid: str, began: float) -> None:
        """Record when the attempt began that found a node for a pod."""
        self._began[uid] = began

    def waiting_for_volume(self, claim: Key) -> list[str]:
        """Return the uids of pods that wait for a volume claim."""
        return [uid for uid, waiting in self._volumes.items() if claim in waiting.plan.claims]

    def waiting_for_devices(self, claim: Key) -> list[str]:
        """Return the uids of pods that wait for a device claim."""
        return [
            uid for uid, waiting in self._devices.items() if any(claim == key_of(one.claim) for one in waiting.plan)
        ]

    async def run(self, uid: str) -> Requeue | None:
        """Bind a pod to the node found."""
        step = self._scheduler.binding.get(uid)
        self._waiting.discard(uid)
        if step is None:
            self._forget(uid)
            return None
        pod = step.queued.pod
        if uid in self._asks and not await self._is_unbound(pod, step.node):
            self._end(step)
            return None
        await self._expect(step)
        if uid not in self._asks and not (await self._has_volumes(step) and await self._has_devices(step)):
            return self._wait(uid) if uid in self._scheduler.binding else None
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
            await self._fail(step, error)
            return None
        self._bound(step)
        return None

    async def _expect(self, step: Assigned) -> None:
        """Write the nominated node of a pod that may have to wait. Errors do not prevent the binding."""
        uid = step.queued.uid
        if not (self._nominates and (step.volumes.claims or step.devices)) or uid in self._expected:
            return
        self._expected.add(uid)
        if nominated_node(step.queued.pod) == step.node:
            return
        try:
            await nominate(self._client, step.queued.pod, step.node)
        except (ApiError, TransportError) as error:
            pod = str(key_of(step.queued.pod))
            self._log.warning("failed to write the nominated node; binding the pod anyway", pod=pod, why=str(error))

    def _wait(self, uid: str) -> Requeue:
        self._waiting.add(uid)
        self._go_on()
        return Requeue(_POLL)

    async def _has_volumes(self, step: Assigned) -> bool:
        """Return whether the volume claims of a pod are bound. The pod is rescheduled if that is impossible."""
        if not step.volumes.claims:
            return True
        uid, now = step.queued.uid, clock.monotonic()
        waiting = self._volumes.get(uid)
        if waiting is None:
            waiting = self._volumes[uid] = VolumeBinding(step.volumes, step.node, now + LONGEST_VOLUMES)
        try:
            return await waiting.go_on(self._client, self._storage, now)
        except (VolumesLostError, Conflict, NotFound) as error:
            await self._fail(step, error)
            return False

    async def _has_devices(self, step: Assigned) -> bool:
        """Return whether the device claims of a pod are reserved and ready. The pod is rescheduled if that is
        impossible.
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
            await self._fail(step, error)
            return False
        if ready:
            self._metrics.devices_ready(step.devices, READY, now - waiting.since)
        elif not waiting.reported:
            waiting.reported = True
            message = f"waiting for binding conditions for device on node {step.node}"
            self._events.event(step.queued.pod, "Normal", "BindingConditionsPending", message, "Scheduling")
        return ready

    async def _is_unbound(self, pod: Pod, node: str) -> bool:
        """Return whether the server has the pod as unbound, after a binding failed or got no response."""
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
        if found.spec.node_name:  # by another client
            self._scheduler.not_bound(uid, now(), again=False)
            self._scheduler.pod_changed(None, found, now())
            return False
        return True

    def _bound(self, step: Assigned) -> None:
        queued, now = step.queued, clock.monotonic()
        self._scheduler.bound(queued.uid)
        self._metrics.attempted(SCHEDULED, now - self._began.get(queued.uid, now))
        self._metrics.scheduled(queued.attempts, now - queued.entered)
        message = f"Successfully assigned {key_of(queued.pod)} to {step.node}"
        self._events.event(queued.pod, "Normal", "Scheduled", message, "Binding")
        self._end(step)

    async def _fail(self, step: Assigned, error: Exception) -> None:
        """Handle a rejected binding: the pod is rescheduled after a backoff."""
        devices = self._devices.get(step.queued.uid)
        if devices is not None:
            await devices.give_up(self._client)
        uid, now = step.queued.uid, clock.monotonic()
        self._metrics.attempted(ERROR, now - self._began.get(uid, now))
        self._scheduler.not_bound(uid, now, again=True)
        nominated = "" if uid in self._expected or step.queued.nominated else None
        step.queued.nominated = ""
        failed = Unplaced(step.queued, f"binding was refused: {error}", nominated=nominated, failed=True)
        self._failures.submit(failed, "its binding failed")
        self._end(step)

    def _end(self, step: Assigned) -> None:
        self._forget(step.queued.uid)
        self._go_on()

    def _forget(self, uid: str) -> None:
        self._began.pop(uid, None)
        self._volumes.pop(uid, None)
        self._devices.pop(uid, None)
        self._asks.discard(uid)
        self._waiting.discard(uid)
        self._expected.discard(uid)
