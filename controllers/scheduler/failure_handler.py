"""Reports why there is no node for a pod, as condition and event, and releases unusable devices."""

from controller_manager.common.api.core import PODS
from controller_manager.common.api.errors import ApiError, Conflict, NotFound
from controller_manager.common.api.resource import key_of
from controller_manager.common.base import clock
from controller_manager.framework import STRATEGIC_MERGE_PATCH, Context, TransportError

from .binding import ERROR as SCHEDULER_ERROR
from .binding import UNSCHEDULABLE as NO_NODE
from .binding import unscheduled
from .device_binding import take_back
from .keys import Enqueue, Report
from .queue import SchedulingQueue
from .scheduler import Unplaced

# Minimum seconds between two equal events about a pod.
_REPEATED = 60.0


class FailureHandler:
    """The attempts to report by uid of the pod, and the time and text of each pod's last event."""

    def __init__(self, context: Context, queue: SchedulingQueue, enqueue: Enqueue) -> None:
        self._client = context.client
        self._events = context.events
        self._queue = queue
        self._enqueue = enqueue
        self._reports: dict[str, Unplaced] = {}
        self._last_events: dict[str, tuple[str, float]] = {}

    def submit(self, attempt: Unplaced, cause: str) -> None:
        """Enqueue the report of an attempt."""
        self._reports[attempt.queued.uid] = attempt
        self._enqueue(Report(attempt.queued.uid), cause)

    def forget(self, uid: str) -> None:
        """Drop the state of a pod that no longer waits."""
        self._last_events.pop(uid, None)

    async def report(self, uid: str) -> None:
        """Report why there is no node for a pod."""
        attempt = self._reports.pop(uid, None)
        if attempt is None:
            return
        pod, now = attempt.queued.pod, clock.monotonic()
        message, at = self._last_events.get(uid, ("", 0.0))
        if message != attempt.message or now - at >= _REPEATED:
            self._last_events[uid] = attempt.message, now
            self._events.event(pod, "Warning", "FailedScheduling", attempt.message, "Scheduling")
        if attempt.unusable is not None:
            await take_back(self._client, attempt.unusable)
        if uid not in self._queue.pods:
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
