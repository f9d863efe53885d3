"""Decides about pending pods one after the other, and dispatches the results."""

import asyncio

from controller_manager.common.base import clock
from controller_manager.framework import Requeue

from .binding_cycle import BindingCycle
from .decide import Unfinished
from .event_handlers import AT_ONCE, EventHandlers
from .failure_handler import FailureHandler
from .keys import Binding, Cycle, Enqueue, Preemption
from .metrics import ERROR, UNSCHEDULABLE, SchedulerMetrics
from .preemption_executor import PreemptionExecutor
from .scheduler import Assigned, Scheduler, Unplaced


class SchedulingCycle:
    """Runs decisions while at most `most` pods are being bound."""

    def __init__(
        self,
        scheduler: Scheduler,
        handlers: EventHandlers,
        after: tuple[BindingCycle, PreemptionExecutor, FailureHandler],
        metrics: SchedulerMetrics,
        enqueue: Enqueue,
        most: int,
    ) -> None:
        self._scheduler = scheduler
        self._handlers = handlers
        self._bindings, self._preemptions, self._failures = after
        self._metrics = metrics
        self._enqueue = enqueue
        self._most = most

    async def run(self) -> Requeue | None:
        """Decide about pods until none is pending or too many are being bound."""
        began: float | None = None
        for _ in range(AT_ONCE):
            await self._handlers.take_in_all()
            if self._bindings.under_way >= self._most:
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
            self._enqueue(Cycle(), "more pods wait")
            return None
        now = clock.monotonic()
        later = self._scheduler.queue.next_time(now)
        if later is None:
            return None
        self._scheduler.queue.wake_forgotten(now)
        return Requeue(max(0.0, later - now))

    def _order(self, step: Assigned | Unplaced, began: float) -> None:
        uid = step.queued.uid
        if isinstance(step, Assigned):
            self._bindings.begin(uid, began)
            self._enqueue(Binding(uid), "a node was found")
        else:
            self._metrics.preemptions.add()
            self._metrics.attempted(ERROR if step.failed else UNSCHEDULABLE, clock.monotonic() - began)
            self._failures.submit(step, "no node was found")
            if step.plan is not None:
                self._preemptions.begin(step)
                self._enqueue(Preemption(uid), "others have to go")
