"""The containers of a pod and their next stages, updated while stages are applied; no I/O.

A step takes logarithmic time in the number of containers, since pods may have thousands.
"""

import math
from collections.abc import Iterator
from heapq import heappop, heappush, heapreplace
from typing import NamedTuple

from msgspec.structs import replace

from . import containers
from .containers import KILLED, state_of
from .phase import init_has_failed, init_is_done
from .pods import Container, ContainerKind, ContainerStatus, VirtualPod, moment
from .stages import LifecycleStage, Stages


class Step(NamedTuple):
    """A stage of the container at `position` and its time. `killed` means that the grace period ends before that."""

    at: float
    stage: LifecycleStage
    position: int
    killed: bool = False


class PodLife:
    """An admitted pod during one decision: `next` returns the earliest step, `take` applies it.

    Steps wait in a heap. An entry may be too early, since other steps can delay or prevent it; `next` recomputes it. A
    step is queued by a change of its container, a finished init container, or the end of the main containers.
    """

    def __init__(self, pod: VirtualPod, stages: Stages) -> None:
        self._pod = pod
        self._stages = stages.for_pod(pod)
        listed = list(pod.containers())
        self._kinds: list[ContainerKind] = [kind for kind, _ in listed]
        self._containers: list[Container] = [container for _, container in listed]
        self._statuses: list[ContainerStatus] = list(pod.statuses())
        self._inits = len(pod.spec.init_containers)
        self._others = self._inits + len(pod.spec.containers)
        self._started_at = moment(pod.status.start_time)
        self._deadline, self._stop_at = _times_of_deletion(pod)
        # The numbers of unfinished main containers and of failed init containers.
        self._running_mains = sum(map(self._is_unfinished_main, range(len(listed))))
        self._failed_inits = sum(map(self._is_failed_init, range(self._inits)))
        self._last_change = max(map(_done_at, self._statuses), default=0.0)
        # For each leading finished init container: when the last one up to it finished.
        self._done: list[float] = []
        self._held: set[int] = set()  # containers that wait for init containers
        self._heap: list[tuple[float, int]] = []
        self._queued: list[float | None] = [None] * len(listed)
        self._extend_done()
        for index in range(len(listed)):
            self._queue(index)

    @property
    def pod(self) -> VirtualPod:
        """Return the pod after the applied steps."""
        return self._pod.with_statuses(self._statuses)

    def status(self, step: Step) -> ContainerStatus:
        """Return the present status of the container of a step."""
        return self._statuses[step.position]

    def next(self) -> Step | None:
        """Return the earliest step, or None."""
        heap = self._heap
        while heap:
            at, index = heap[0]
            if self._queued[index] != at:  # it was queued again since
                heappop(heap)
                continue
            step = self._step_of(index)
            if step is not None and step.at <= at:
                return step
            self._queued[index] = None if step is None else step.at
            if step is None:
                heappop(heap)
            else:
                heapreplace(heap, (step.at, index))
        return None

    def take(self, step: Step, now: str) -> None:
        """Apply a step."""
        index, stage = step.position, step.stage
        kind, container, status = self._kinds[index], self._containers[index], self._statuses[index]
        match stage.to:
            case "blocked":
                status = containers.blocked(status, stage)
            case "running":
                status = containers.begun(self._pod.metadata.uid, container, status, now)
            case "started":
                status = replace(status, started=True, ready=False)
            case "ready":
                status = replace(status, ready=True)
            case "back-off":
                status = containers.held_back(status)
            case "killed":
                status = containers.ended(status, kind, KILLED, now)
            case _:
                code = KILLED if step.killed else stage.exit_code(self._pod, container)
                status = containers.ended(status, kind, code, now, stage.spec.reason, stage.spec.message)
        self._change(index, status)

    def _change(self, index: int, status: ContainerStatus) -> None:
        were_over = self._are_over()
        self._count(index, -1)
        self._statuses[index] = status
        self._count(index, 1)
        self._last_change = max(self._last_change, _done_at(status))
        self._queue(index)
        if index < self._inits:
            self._follow_init(index)
        if self._are_over() and not were_over:  # sidecars stop
            for one in range(self._inits):
                self._queue(one)

    def _count(self, index: int, by: int) -> None:
        if index < self._inits:
            self._failed_inits += by * self._is_failed_init(index)
        else:
            self._running_mains += by * self._is_unfinished_main(index)

    def _are_over(self) -> bool:
        return not self._running_mains or self._failed_inits > 0

    def _follow_init(self, index: int) -> None:
        """Hold or release the containers that wait for a changed init container."""
        if index < len(self._done):
            if init_is_done(self._kinds[index], self._statuses[index]):
                return
            del self._done[index:]
            return
        before = len(self._done)
        self._extend_done()
        if len(self._done) == before:
            return
        released = range(before, self._others if len(self._done) == self._inits else len(self._done) + 1)
        for one in self._held.intersection(released):
            self._queue(one)

    def _extend_done(self) -> None:
        for index in range(len(self._done), self._inits):
            status = self._statuses[index]
            if not init_is_done(self._kinds[index], status):
                return
            self._done.append(max(self._done[-1] if self._done else 0.0, _done_at(status)))

    def _queue(self, index: int) -> None:
        """Queue the next step of a container."""
        step = self._step_of(index)
        self._queued[index] = None if step is None else step.at
        if step is not None:
            heappush(self._heap, (step.at, index))

    def _step_of(self, index: int) -> Step | None:
        return min(self._steps_of(index), key=lambda step: step.at, default=None)

    def _steps_of(self, index: int) -> Iterator[Step]:
        """Yield the possible next stages of a container."""
        kind, container, status = self._kinds[index], self._containers[index], self._statuses[index]
        stops = self._deadline is not None or (kind == "sidecar" and self._are_over())
        state = state_of(status, stops=stops)
        since = self._since(index, state)
        if since is None or (stops and state != "stopping"):
            return
        if state == "terminated" and not containers.restarts(self._pod, kind, container, status):
            return
        if state == "blocked" and not self._is_blocked(index):
            state = "waiting"
        last = math.inf if self._deadline is None else self._deadline
        for stage in self._stages.of(state, kind, container, status.restart_count):
            if stage.to == "ready" and kind in ("init", "ephemeral"):
                continue
            at = since + stage.seconds(self._pod, container, status)
            yield Step(min(at, last), stage, index, killed=at > last)

    def _is_blocked(self, index: int) -> bool:
        """Return whether a stage still blocks the start of a container; its image may have changed."""
        status = self._statuses[index]
        found = self._stages.of("waiting", self._kinds[index], self._containers[index], status.restart_count)
        return any(stage.to == "blocked" for stage in found)

    def _since(self, index: int, state: str) -> float | None:
        """Return since when a container is in its state, or None without a next stage."""
        status = self._statuses[index]
        if state == "stopping":
            return self._last_change if self._stop_at is None else self._stop_at
        if status.state.running is not None:
            return moment(status.state.running.started_at)
        if status.state.terminated is not None:
            return moment(status.state.terminated.finished_at)
        before = 0 if index >= self._others else min(index, self._inits)  # init containers that it waits for
        if before > len(self._done):
            self._held.add(index)
            return None
        self._held.discard(index)
        if status.last_state.terminated is not None:
            return moment(status.last_state.terminated.finished_at)
        return max(self._started_at, self._done[before - 1] if before else 0.0)

    def _is_unfinished_main(self, index: int) -> bool:
        if not self._inits <= index < self._others:
            return False
        status = self._statuses[index]
        return status.state.terminated is None or containers.restarts(
            self._pod, "main", self._containers[index], status
        )

    def _is_failed_init(self, index: int) -> bool:
        return init_has_failed(self._pod, self._kinds[index], self._containers[index], self._statuses[index])


def _times_of_deletion(pod: VirtualPod) -> tuple[float | None, float | None]:
    """Return the deadline of a pod's containers, and when their stop was requested, or None."""
    meta = pod.metadata
    if meta.deletion_timestamp is None:
        return None, None
    deadline = moment(meta.deletion_timestamp)
    return deadline, deadline - (meta.deletion_grace_period_seconds or 0)


def _done_at(status: ContainerStatus) -> float:
    """Return when a container ended, or started if it still runs."""
    state = status.state
    if state.terminated is not None:
        return moment(state.terminated.finished_at)
    return moment(state.running.started_at) if state.running is not None else 0.0
