"""An overview of the cluster as plain data: nodes, workloads, pods and events, worst first; pure."""

from collections import Counter
from collections.abc import Iterable, Mapping
from heapq import nsmallest

import msgspec

from controller_manager.app.state import Severity
from controller_manager.common.api.apps import DaemonSet, Deployment, ReplicaSet, ReplicationController, StatefulSet
from controller_manager.common.api.batch import CronJob, Job
from controller_manager.common.api.conditions import Condition, condition_of
from controller_manager.common.api.core import ContainerStatus, Event, Node, Pod, is_pod_ready
from controller_manager.common.api.model import Object

MOST_ROWS = 200
"""Maximum number of rows of a section; its counts are of all objects."""

Workload = Deployment | ReplicaSet | ReplicationController | StatefulSet | DaemonSet | Job | CronJob
_NO_COLUMNS: Mapping[str, str] = {}


class OverviewRow(msgspec.Struct, frozen=True):
    """One object with a short `state`, and the reason (`why`) if it is relevant.

    `kind` is the kind of a workload, or of the object of an event. `since` is when it was created or happened (RFC
    3339). `columns` are further texts by column head; all rows of a section have the same heads.
    """

    severity: Severity
    kind: str
    namespace: str
    name: str
    state: str
    why: str = ""
    since: str = ""
    columns: Mapping[str, str] = {}

    def has(self, words: str) -> bool:
        """Return whether a text in lower case occurs in the row."""
        texts = (self.kind, f"{self.namespace}/{self.name}", self.state, self.why, *self.columns.values())
        return any(words in one.lower() for one in texts)


class Section(msgspec.Struct, frozen=True):
    """A section: the number of objects, counts by state, and the first of the `found` rows that match the filter."""

    count: int
    states: tuple["StateCount", ...]
    found: int
    rows: tuple[OverviewRow, ...]


class StateCount(msgspec.Struct, frozen=True):
    """The number of objects in a state, and the worst severity among them."""

    state: str
    count: int
    severity: Severity


class SectionBuilder:
    """Counts rows, and keeps the worst, or the `newest`, of those that contain `words`."""

    def __init__(self, words: str = "", *, newest: bool = False) -> None:
        self._words = words.lower()
        self._newest = newest
        self._states: Counter[str] = Counter()
        self._severities: dict[str, Severity] = {}
        self._count = self._found = 0
        self._rows: list[OverviewRow] = []

    def add(self, rows: Iterable[OverviewRow]) -> None:
        """Add rows."""
        for row in rows:
            self._count += 1
            self._states[row.state] += 1
            self._severities[row.state] = min(row.severity, self._severities.get(row.state, Severity.WELL))
            if not self._words or row.has(self._words):
                self._found += 1
                self._rows.append(row)
        if self._newest:
            self._rows = sorted(self._rows, key=lambda row: row.since, reverse=True)[:MOST_ROWS]
        else:
            self._rows = nsmallest(MOST_ROWS, self._rows, key=_by_severity)

    def section(self) -> Section:
        """Return the section of all added rows."""
        states = sorted(self._states.items(), key=lambda one: (self._severities[one[0]], -one[1], one[0]))
        counts = tuple(StateCount(state, count, self._severities[state]) for state, count in states)
        return Section(self._count, counts, self._found, tuple(self._rows))


def of_node(node: Node, pods: int | None) -> OverviewRow:
    """Return the row of a node with this number of pods; None to hide the number.

    | its condition Ready | severity | state |
    |--|--|--|
    | True, and it is schedulable | well | Ready |
    | True, and it is not | waiting | SchedulingDisabled |
    | anything else | broken | NotReady, or Unknown |
    """
    ready = condition_of(node.status.conditions, "Ready")
    allocatable = node.status.allocatable or {}
    columns = {
        "Pods": _pods_of_node(pods, allocatable.get("pods", "")),
        "CPU": allocatable.get("cpu", ""),
        "Memory": allocatable.get("memory", ""),
        "Zone": (node.metadata.labels or {}).get("topology.kubernetes.io/zone", ""),
        "Taints": ", ".join(f"{taint.key}:{taint.effect}" for taint in node.spec.taints),
    }
    if ready is None or ready.status != "True":
        state = "Unknown" if ready is not None and ready.status == "Unknown" else "NotReady"
        return _row(node, Severity.BROKEN, state, _why(ready), columns)
    if node.spec.unschedulable:
        return _row(node, Severity.WAITING, "SchedulingDisabled", "", columns)
    return _row(node, Severity.WELL, "Ready", "", columns)


def of_pod(pod: Pod) -> OverviewRow:
    """Return the row of a pod; its state is like the STATUS of kubectl.

    | finding | severity |
    |--|--|
    | failed, or a container waits after a failure or for an image that cannot be pulled | broken |
    | unschedulable, or running but not ready | struggling |
    | pending, gated or being deleted | waiting |
    | ready, or succeeded | well |
    """
    containers = (*pod.status.init_container_statuses, *pod.status.container_statuses)
    restarts = sum(one.restart_count for one in containers)
    columns = {"Node": pod.spec.node_name, "Restarts": str(restarts) if restarts else "", "IP": pod.status.pod_ip}
    severity, state, why = _fate(pod, containers)
    return _row(pod, severity, state, why, columns)


def of_workload(workload: Workload) -> OverviewRow:
    """Return the row of a workload: ready and desired pods, and the reason if it is not complete."""
    match workload:
        case Deployment():
            return _of_deployment(workload)
        case Job():
            return _of_job(workload)
        case CronJob():
            return _of_cron_job(workload)
        case DaemonSet(status=numbers):
            wanted, updated = numbers.desired_number_scheduled, numbers.updated_number_scheduled
            return _of_pods(workload, numbers.number_ready, wanted, updated)
        case StatefulSet(status=of_set):
            return _of_pods(workload, of_set.ready_replicas, workload.spec.replicas, of_set.updated_replicas)
        case _:
            return _of_pods(workload, workload.status.ready_replicas, workload.spec.replicas)


def of_event(event: Event) -> OverviewRow:
    """Return the row of an event; its state is its reason."""
    about = event.involved_object
    series = event.series
    last = (series and series.last_observed_time) or event.last_timestamp or event.event_time
    count = series.count if series else event.count
    columns = {
        "From": event.reporting_component or event.source.component,
        "Times": str(count) if count > 1 else "",
    }
    severity = Severity.STRUGGLING if event.type == "Warning" else Severity.WELL
    since = last or event.metadata.creation_timestamp or ""
    return OverviewRow(severity, about.kind, about.namespace, about.name, event.reason, event.message, since, columns)


def _pods_of_node(pods: int | None, most: str) -> str:
    if pods is None:
        return ""
    return f"{pods} of {most}" if most else str(pods)


def is_owned(obj: Object) -> bool:
    """Return whether an object has a controller, which is shown instead of it."""
    return any(reference.controller for reference in obj.metadata.owner_references)


def _by_severity(row: OverviewRow) -> tuple[int, str, str, str]:
    return row.severity, row.namespace, row.kind, row.name


def _row(
    obj: Object, severity: Severity, state: str, why: str, columns: Mapping[str, str] = _NO_COLUMNS
) -> OverviewRow:
    meta = obj.metadata
    return OverviewRow(
        severity, type(obj).__name__, meta.namespace, meta.name, state, why, meta.creation_timestamp or "", columns
    )


def _why(condition: Condition | None) -> str:
    if condition is None:
        return ""
    return f"{condition.reason}: {condition.message}" if condition.message else condition.reason


def _fate(pod: Pod, containers: Iterable[ContainerStatus]) -> tuple[Severity, str, str]:
    status = pod.status
    waiting = next((one for one in containers if one.state.waiting and one.state.waiting.reason), None)
    reason = waiting.state.waiting.reason if waiting is not None and waiting.state.waiting is not None else ""
    about = f"container {waiting.name}" if waiting is not None else ""
    ready = condition_of(status.conditions, "Ready")
    scheduled = condition_of(status.conditions, "PodScheduled")
    if pod.metadata.deletion_timestamp is not None:
        return Severity.WAITING, "Terminating", ""
    if status.phase == "Succeeded":
        return Severity.WELL, "Completed", ""
    if status.phase == "Failed":
        return Severity.BROKEN, status.reason or "Error", status.message
    if reason.endswith(("BackOff", "Error", "ErrImageNeverPull", "ErrImagePull", "InvalidImageName")):
        return Severity.BROKEN, reason, about
    if status.phase == "Running":
        if is_pod_ready(pod):
            return Severity.WELL, "Running", ""
        return Severity.STRUGGLING, "NotReady", _why(ready)
    if scheduled is not None and scheduled.status == "False":
        gated = scheduled.reason == "SchedulingGated"
        return Severity.WAITING if gated else Severity.STRUGGLING, scheduled.reason, scheduled.message
    return Severity.WAITING, reason or status.phase or "Pending", ""


def _of_pods(workload: Workload, ready: int, wanted: int, updated: int | None = None) -> OverviewRow:
    current = f"{updated} of {wanted}" if updated is not None else ""
    columns = {"Ready": f"{ready} of {wanted}", "Up to date": current}
    if ready >= wanted and (updated is None or updated >= wanted):
        return _row(workload, Severity.WELL, "Available", "", columns)
    return _row(workload, Severity.STRUGGLING, "Progressing", "", columns)


def _of_deployment(it: Deployment) -> OverviewRow:
    wanted, numbers = it.spec.replicas, it.status
    columns = {
        "Ready": f"{numbers.ready_replicas} of {wanted}",
        "Up to date": f"{numbers.updated_replicas} of {wanted}",
    }
    progress = condition_of(numbers.conditions, "Progressing")
    failure = condition_of(numbers.conditions, "ReplicaFailure")
    if failure is not None and failure.status == "True":
        return _row(it, Severity.BROKEN, failure.reason, failure.message, columns)
    if progress is not None and progress.status == "False":
        return _row(it, Severity.BROKEN, progress.reason, progress.message, columns)
    if it.spec.paused:
        return _row(it, Severity.WAITING, "Paused", "", columns)
    seen = numbers.observed_generation >= it.metadata.generation
    done = min(numbers.updated_replicas, numbers.available_replicas) >= wanted and numbers.replicas <= wanted
    if seen and done:
        return _row(it, Severity.WELL, "Available", "", columns)
    return _row(it, Severity.STRUGGLING, "Progressing", progress.message if progress is not None else "", columns)


def _of_job(it: Job) -> OverviewRow:
    numbers = it.status
    wanted = f" of {it.spec.completions}" if it.spec.completions is not None else ""
    columns = {"Ready": f"{numbers.ready or 0} of {numbers.active}", "Up to date": f"{numbers.succeeded}{wanted}"}
    for kind, severity in (("Failed", Severity.BROKEN), ("Complete", Severity.WELL), ("Suspended", Severity.WAITING)):
        found = condition_of(numbers.conditions, kind)
        if found is not None and found.status == "True":
            return _row(it, severity, kind, found.message if severity is Severity.BROKEN else "", columns)
    return _row(it, Severity.STRUGGLING if numbers.failed else Severity.WAITING, "Running", "", columns)


def _of_cron_job(it: CronJob) -> OverviewRow:
    columns = {"Ready": f"{len(it.status.active)} active", "Up to date": it.spec.schedule}
    last = it.status.last_schedule_time
    why = f"last at {last}" if last else ""
    if it.spec.suspend:
        return _row(it, Severity.WAITING, "Suspended", why, columns)
    return _row(it, Severity.WELL, "Scheduled", why, columns)
