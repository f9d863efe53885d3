"""A simulated scheduler and kubelet in one, for tests of workload controllers: it binds, runs and removes pods."""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

import msgspec

from apiserver_stub.watch_cache.row import Change, Row
from controller_manager.common.api.core import NODES, PODS, Pod, is_pod_terminal
from controller_manager.common.api.errors import ApiError
from controller_manager.common.api.resource import Key, key_of
from controller_manager.common.api.scheduling import node_of_name
from controller_manager.common.api.timestamps import format_time
from controller_manager.common.base.clock import utc_now
from controller_manager.common.base.tasks import Tasks
from controller_manager.common.transport.transport import TransportError
from controller_manager.framework.client.rest_client import Call
from controller_manager.testing.cluster import Cluster

_MISSED = (ApiError, TransportError)
_KILLED = 137


def _always(_: Pod) -> bool:
    return True


def _never(_: Pod) -> int | None:
    return None


class PodAgent:
    """Runs the pods of a cluster on `nodes`: `async with PodAgent(cluster):`.

    A pod is bound at once, to the node that its affinity names if this node exists. Without `binds`, a scheduler must
    bind pods. A bound pod is running and ready after `start` seconds if `runs(pod)`, which is checked once. A running
    pod ends after `work` seconds with the exit code `ends(pod)`, or never if that is None. A deleted pod is removed
    after `stop` seconds.
    """

    def __init__(
        self,
        cluster: Cluster,
        *,
        nodes: Sequence[str] = ("node-1",),
        binds: bool = True,
        start: float = 1.0,
        stop: float = 1.0,
        work: float = 1.0,
        runs: Callable[[Pod], bool] = _always,
        ends: Callable[[Pod], int | None] = _never,
    ) -> None:
        self.start = start
        self.stop = stop
        self.work = work
        self.runs = runs
        self.ends = ends
        self._cluster = cluster
        self._nodes = nodes
        self._binds = binds
        self._bound = 0
        self._changed: asyncio.Queue[Key] = asyncio.Queue()
        self._busy: dict[tuple[str, str], asyncio.Task[None]] = {}
        self._tasks = Tasks()
        cluster.follow(self)

    def note(self, changes: Sequence[Change]) -> None:
        """Queue the changed pods."""
        for change in changes:
            if change.row.resource == PODS.name:
                self._look_at(change.row)

    def restart(self) -> None:
        """Start over with all existing pods."""
        for task in self._busy.values():
            task.cancel()
        self._busy.clear()
        for row in self._cluster.api.store.snapshot(PODS.name).items():
            self._look_at(row)

    def _look_at(self, row: Row) -> None:
        self._changed.put_nowait(Key(row.namespace, row.name))

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        self.restart()
        self._tasks.start(self._run(), name="pod agent")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._tasks.__aexit__(kind, error, trace)

    async def _run(self) -> None:
        """Process each changed pod."""
        while True:
            key = await self._changed.get()
            row = self._cluster.api.store.get(PODS.name, str(key))
            pod = Pod.decode(row.data) if row is not None else None
            step = self._step(pod) if pod is not None else None
            if pod is not None and step is not None and (pod.metadata.uid, step) not in self._busy:
                taken = self._tasks.start(self._take(step, pod), name=f"{step} {key}")
                self._busy[pod.metadata.uid, step] = taken

    def _step(self, pod: Pod) -> str | None:
        """Return the next step for a pod; None if there is nothing to do."""
        if pod.metadata.deletion_timestamp is not None:
            return "stop"
        if not pod.spec.node_name:
            return "bind" if self._binds else None
        if pod.status.phase == "Running":
            return "end" if self.ends(pod) is not None else None
        return "start" if pod.status.phase == "Pending" and self.runs(pod) else None

    async def _take(self, step: str, pod: Pod) -> None:
        with contextlib.suppress(*_MISSED):
            match step:
                case "bind":
                    node = self._choose(pod)
                    if node:
                        await self.bind(pod, node)
                case "start":
                    await asyncio.sleep(self.start)
                    await self.begin(pod)
                case "end":
                    await asyncio.sleep(self.work)
                    if not self._is_going(pod):
                        await self.end(pod, self.ends(pod) or 0)
                case "stop":
                    if not is_pod_terminal(pod):
                        await asyncio.sleep(self.stop)
                        await self.end(pod, _KILLED)
                    await self._cluster.client.delete(PODS, key_of(pod), grace=0, uid=pod.metadata.uid)

    def _choose(self, pod: Pod) -> str:
        """Return a node for a pod; empty if there is no suitable one."""
        wanted = node_of_name(pod.spec.affinity)
        if wanted:
            return wanted if self._cluster.api.store.get(NODES.name, wanted) is not None else ""
        self._bound += 1
        return self._nodes[self._bound % len(self._nodes)]

    def _is_going(self, pod: Pod) -> bool:
        """Return whether a pod is gone or being deleted."""
        now = self._current(pod)
        return now is None or now.metadata.deletion_timestamp is not None

    def _current(self, pod: Pod) -> Pod | None:
        row = self._cluster.api.store.get(PODS.name, str(key_of(pod)))
        return Pod.decode(row.data) if row is not None else None

    async def bind(self, pod: Pod, node: str) -> None:
        """Bind a pod to a node, as the scheduler does."""
        name, target = pod.metadata.name, {"kind": "Node", "name": node}
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
        path = PODS.path(pod.metadata.namespace, name, "binding")
        await self._cluster.client.raw(Call("POST", path, body=msgspec.json.encode(body)))

    async def begin(self, pod: Pod) -> None:
        """Set the status of a pod to Running and ready."""
        change = {"metadata": {"uid": pod.metadata.uid}, "status": running()}
        await self._cluster.client.patch(PODS, key_of(pod), change, subresource="status")

    async def end(self, pod: Pod, code: int) -> None:
        """End the containers of a pod with that exit code, unless they have already ended."""
        now = self._current(pod)
        if now is None or is_pod_terminal(now):
            return
        change = {"metadata": {"uid": pod.metadata.uid}, "status": ended(pod, code)}
        await self._cluster.client.patch(PODS, key_of(pod), change, subresource="status")


def ended(pod: Pod, code: int) -> dict[str, object]:
    """Return the status of a pod whose containers have just ended with that exit code."""
    now = format_time(utc_now())
    state = {"terminated": {"exitCode": code, "finishedAt": now, "startedAt": now}}
    statuses = [
        {"name": one.name, "state": state, "image": "i", "imageID": "", "ready": False, "restartCount": 0}
        for one in pod.spec.containers
    ]
    condition = {"type": "Ready", "status": "False", "lastTransitionTime": now}
    phase = "Failed" if code else "Succeeded"
    return {"phase": phase, "conditions": [condition], "containerStatuses": statuses}


def running(*, ready: bool = True) -> dict[str, object]:
    """Return the status of a pod that has just started."""
    now = format_time(utc_now())
    condition = {"type": "Ready", "status": str(ready), "lastTransitionTime": now}
    return {"phase": "Running", "startTime": now, "conditions": [condition]}
