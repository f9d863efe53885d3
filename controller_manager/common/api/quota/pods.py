"""Quota usage of pods: by number, and until they have ended by their requests and
limits.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

from controller_manager.common.api.platform import PLATFORM_DOMAIN
from controller_manager.common.api.pod_resources import (
    HUGE_PAGES,
    Amounts,
    has_whole_resources,
    pod_limits,
    pod_requests,
    quality_of_service,
)
from controller_manager.common.api.quota.evaluator import ONE, Evaluator, Measured
from controller_manager.common.api.timestamps import time_of
from controller_manager.common.api.tree import FrozenTree

REQUESTS, LIMITS = "requests.", "limits."
DEVICE_CLASS = f"deviceclass.resource.{PLATFORM_DOMAIN}/"
"""Prefix of the resource for the devices of a class (KEP-5004)."""
_PLAIN = ("cpu", "memory", "ephemeral-storage")
_PAGES = (HUGE_PAGES, REQUESTS + HUGE_PAGES)
_REQUIRED = frozenset({"cpu", "memory"})  # required for every container if a quota limits them
_ENDED = frozenset({"Succeeded", "Failed"})
_AFFINITIES = ("podAffinity", "podAntiAffinity")


class PodEvaluator(Evaluator):
    """Evaluates pods; scopes depend on deadline, QoS class, priority class and affinity."""

    has_scopes = True

    def __init__(self) -> None:
        super().__init__("pods", "pods", *(f"{of}{name}" for name in _PLAIN for of in ("", REQUESTS, LIMITS)))

    def counts(self, name: str) -> bool:
        return super().counts(name) or name.startswith(_PAGES) or is_extended_request(name)

    def measure(self, obj: FrozenTree) -> Measured:
        spec, status, metadata = (obj.get(part) or {} for part in ("spec", "status", "metadata"))
        number = {self.object_count: ONE}
        ended = status.get("phase") in _ENDED
        return Measured(
            number if ended else {**number, **_compute(obj)},
            _scopes(spec, status),
            {"PriorityClass": frozenset(filter(None, (spec.get("priorityClassName"),)))},
            until=_end(metadata),
            afterwards=number,
        )

    def unsaid(self, obj: FrozenTree, names: Sequence[str]) -> str:
        """See `Evaluator.unsaid`: each container must set limited CPU and memory, unless the pod has pod-level
        resources.
        """
        spec = obj.get("spec") or {}
        if has_whole_resources(spec):
            return ""
        containers = (*(spec.get("containers") or ()), *(spec.get("initContainers") or ()))
        found = []
        for name in sorted(names):
            field, _, bare = name.rpartition(".")
            if bare in _REQUIRED:
                silent = {one["name"] for one in containers if not _sets(one, field or "requests", bare)}
                found += [f"{name} for: {','.join(sorted(silent))}"] if silent else []
        return f"must specify {'; '.join(found)}" if found else ""


def is_extended_request(name: str) -> bool:
    """Return whether a quota resource is the request of an extended resource, or of the devices of a class."""
    return name.startswith(REQUESTS + DEVICE_CLASS) or (name.startswith(REQUESTS) and _is_extended(name))


def is_terminating(pod: FrozenTree) -> bool:
    """Return whether a pod has a deadline (scope Terminating)."""
    seconds = (pod.get("spec") or {}).get("activeDeadlineSeconds")
    return seconds is not None and seconds >= 0


def _is_extended(name: str) -> bool:
    return "/" in name and f"{PLATFORM_DOMAIN}/" not in name


def _compute(pod: FrozenTree) -> Amounts:
    counted = {"pods": ONE}
    for name, amount in pod_requests(pod).items():
        if name in _PLAIN or name.startswith(HUGE_PAGES):
            counted[name] = counted[REQUESTS + name] = amount
        elif (_is_extended(name) and not name.startswith(REQUESTS)) or name.startswith(DEVICE_CLASS):
            counted[REQUESTS + name] = amount
    limits = pod_limits(pod)
    counted.update((LIMITS + name, limits[name]) for name in _PLAIN if name in limits)
    return counted


def _end(metadata: FrozenTree) -> datetime | None:
    """Return the time from which a pod that is still being deleted is not counted."""
    deleted, grace = time_of(metadata.get("deletionTimestamp")), metadata.get("deletionGracePeriodSeconds")
    return None if deleted is None or grace is None else deleted + timedelta(seconds=grace)


def _scopes(spec: FrozenTree, status: FrozenTree) -> frozenset[str]:
    best_effort = (status.get("qosClass") or quality_of_service(spec)) == "BestEffort"
    found = {
        "BestEffort" if best_effort else "NotBestEffort",
        "Terminating" if is_terminating({"spec": spec}) else "NotTerminating",
    }
    if any(term.get("namespaces") or term.get("namespaceSelector") is not None for term in _affinity_terms(spec)):
        found.add("CrossNamespacePodAffinity")
    return frozenset(found)


def _affinity_terms(spec: FrozenTree) -> Iterator[FrozenTree]:
    affinity = spec.get("affinity") or {}
    for sort in _AFFINITIES:
        terms = affinity.get(sort) or {}
        yield from terms.get("requiredDuringSchedulingIgnoredDuringExecution") or ()
        for weighted in terms.get("preferredDuringSchedulingIgnoredDuringExecution") or ():
            yield weighted.get("podAffinityTerm") or {}


def _sets(container: FrozenTree, field: str, name: str) -> bool:
    return name in ((container.get("resources") or {}).get(field) or {})
