"""Deletes victims to make room for a pod."""

from collections.abc import Callable

from controller_manager.common.api.errors import ApiError, Conflict
from controller_manager.common.api.resource import key_of
from controller_manager.common.base import clock
from controller_manager.framework import Context, TransportError

from ..shared.pods import Eviction, evict
from .metrics import SchedulerMetrics
from .pod_requirements import DEFAULT_SCHEDULER
from .preemption import REASON
from .scheduler import Scheduler, Unplaced


class PreemptionExecutor:
    """The preemptions in progress, by uid of the preemptor. `go_on` triggers the next scheduling cycle."""

    def __init__(
        self, context: Context, scheduler: Scheduler, metrics: SchedulerMetrics, go_on: Callable[[], None]
    ) -> None:
        self._client = context.client
        self._events = context.events
        self._log = context.log
        self._scheduler = scheduler
        self._metrics = metrics
        self._go_on = go_on
        self._under_way: dict[str, Unplaced] = {}

    def begin(self, step: Unplaced) -> None:
        """Record that pods have to be preempted."""
        self._under_way[step.queued.uid] = step

    async def run(self, uid: str) -> None:
        """Delete the victims of a pod."""
        step = self._under_way.get(uid)
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
                    note = f"Preempted by pod {preemptor.metadata.uid} on node {plan.node}"
                    self._events.event(victim.pod, "Normal", "Preempted", note, "Preempting")
        except (ApiError, TransportError) as error:
            self._log.warning("no room could be made", pod=str(key_of(preemptor)), why=str(error))
            self._end(step, succeeded=False)
            return
        self._metrics.victims.observe(len(plan.victims))
        self._end(step, succeeded=True)

    def _end(self, step: Unplaced, *, succeeded: bool) -> None:
        del self._under_way[step.queued.uid]
        if step.plan is not None:
            self._scheduler.room_made(step.queued, step.plan, clock.monotonic(), succeeded=succeeded)
        self._go_on()
