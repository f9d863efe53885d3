"""The pods of a target by whether they count, and what each requests; pure."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from controller_manager.api.conditions import condition_of
from controller_manager.api.core import Container, Pod, ResourceRequirements, is_pod_ready
from controller_manager.api.timestamps import nonzero_time, time_of
from controller_manager.options.types import parse_duration

from .amounts import milli

CPU = "cpu"


class CannotCompute(Exception):
    """A metric gives no number of replicas; says why."""


class PodMetric(NamedTuple):
    """The metric of one pod, in thousandths, on average over the `window` (such as "30s") that ended at `at`.

    Only for pods that start up it matters when that was, so that for all others nobody reads it.
    """

    value: int
    at: str = ""
    window: str = "0s"


class Startup(NamedTuple):
    """Seconds after a pod's start in which its CPU use may be left out, and in which it may first become ready."""

    initialization: float
    readiness_delay: float


class Groups(NamedTuple):
    """The pods of a target by what is known of them: `ready` counts, the others are names."""

    ready: int
    unready: Collection[str]
    missing: Collection[str]
    ignored: Collection[str]


# A pod, looked at in this order                                   is
#   being deleted, or failed                                       ignored
#   pending                                                        unready
#   without a sample                                               missing
#   for a metric other than CPU                                    ready
#   without a start, or without a Ready condition                  unready
#   within the initialization period of its start:
#       not ready, or sampled before a window of readiness         unready
#   later: not ready, and never ready since it started             unready
#   else                                                           ready
def group(
    pods: Iterable[Pod], samples: Mapping[str, PodMetric], startup: Startup, now: float, *, resource: str = ""
) -> Groups:
    """Sort pods by what their samples are worth at a wall time."""
    unready: list[str] = []
    missing: list[str] = []
    ignored: list[str] = []
    ready = 0
    for pod in pods:
        name = pod.metadata.name
        if pod.metadata.deletion_timestamp is not None or pod.status.phase == "Failed":
            ignored.append(name)
        elif pod.status.phase == "Pending":
            unready.append(name)
        elif name not in samples:
            missing.append(name)
        elif resource == CPU and _starts_up(pod, samples[name], startup, now):
            unready.append(name)
        else:
            ready += 1
    return Groups(ready, unready, missing, ignored)


def ready_pods(pods: Collection[Pod]) -> int:
    """Return how many run and are ready. Raises CannotCompute when there are none at all."""
    if not pods:
        raise CannotCompute("the selector of the target finds no pods")
    return sum(pod.status.phase == "Running" and is_pod_ready(pod) for pod in pods)


def requests(pods: Iterable[Pod], resource: str, container: str = "") -> dict[str, int]:
    """Return what each pod, or one container of each, requests of a resource, in thousandths.

    Raises CannotCompute when one of them requests none: its use would be a part of nothing. What a pod requests as a
    whole counts before what its containers do; of a pod that does so for any resource, not every container has to.
    """
    return {pod.metadata.name: _request(pod, resource, container) for pod in pods}


def _request(pod: Pod, resource: str, container: str) -> int:
    whole = _requested(pod.spec.resources, resource)
    if whole is not None and not container:
        return milli(whole)
    chosen = [each for each in _long_running(pod) if container in ("", each.name)]
    if container and not chosen:
        raise CannotCompute(f"there is no container {container} in pod {pod.metadata.name}")
    asked = {each.name: _requested(each.resources, resource) for each in chosen}
    given = [milli(requested) for requested in asked.values() if requested is not None]
    as_a_whole = not container and pod.spec.resources is not None and bool(pod.spec.resources.requests)
    if len(given) < (1 if as_a_whole else len(asked)):
        silent = next(name for name, requested in asked.items() if requested is None)
        raise CannotCompute(f"missing request for {resource}: container {silent} of pod {pod.metadata.name}")
    return sum(given)


def _long_running(pod: Pod) -> Iterator[Container]:
    yield from pod.spec.containers
    yield from (each for each in pod.spec.init_containers if each.restart_policy == "Always")


def _requested(resources: ResourceRequirements | None, resource: str) -> str | None:
    return (resources.requests or {}).get(resource) if resources is not None else None


def _starts_up(pod: Pod, sample: PodMetric, startup: Startup, now: float) -> bool:
    condition = condition_of(pod.status.conditions, "Ready")
    if condition is None or not nonzero_time(pod.status.start_time):
        return True
    started, turned = seconds_of(pod.status.start_time), seconds_of(condition.last_transition_time)
    if started + startup.initialization > now:
        return condition.status == "False" or seconds_of(sample.at) < turned + parse_duration(sample.window)
    return condition.status == "False" and started + startup.readiness_delay > turned


def seconds_of(time: str | None) -> float:
    """A time of the API as seconds since the epoch; 0 without one that can be read."""
    try:
        moment = time_of(time)
        return moment.timestamp() if moment else 0.0
    except ValueError:
        return 0.0
