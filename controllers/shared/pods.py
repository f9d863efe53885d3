"""Pods as several controllers see them: by index, by their readiness, addresses, ports and names behind a service, and
with the condition of disruption.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from enum import Enum, auto
from functools import partial
from types import MappingProxyType
from typing import Any

import msgspec

from controller_manager.common.api.conditions import Condition, condition_of, with_condition
from controller_manager.common.api.core import (
    PODS,
    SERVICES,
    TCP,
    Pod,
    Service,
    ServicePort,
    is_pod_ready,
    is_pod_terminal,
)
from controller_manager.common.api.errors import Conflict, NotFound
from controller_manager.common.api.platform import PLATFORM_DOMAIN
from controller_manager.common.api.resource import Resource, key_of
from controller_manager.common.api.timestamps import format_time, nonzero_time, time_of
from controller_manager.common.base import clock
from controller_manager.framework.client import STRATEGIC_MERGE_PATCH, Client
from controller_manager.framework.controller import Change, Informer, Informers, Key

# The condition that a pod is given before it is deleted, so that its owner learns why; pure.

DISRUPTED = "DisruptionTarget"


def disruption(pod: Pod, reason: str, message: str, now: datetime) -> Condition | None:
    """The condition that says why the pod is deleted (KEP-3329); None if it says so already."""
    new = Condition(
        type=DISRUPTED,
        status="True",
        observed_generation=pod.metadata.generation or None,
        last_transition_time=format_time(now),
        reason=reason,
        message=message,
    )
    known = pod.status.conditions
    if any((c.type, c.status, c.reason) == (new.type, new.status, new.reason) for c in known):
        return None
    return next(c for c in with_condition(known, new) if c.type == DISRUPTED)


def status_patch(pod: Pod, **status: object) -> Mapping[str, Any]:
    """A strategic merge patch of the pod's status that is refused (409) unless the pod is still as it was seen."""
    seen = {"uid": pod.metadata.uid, "resourceVersion": pod.metadata.resource_version}
    changes = {name: msgspec.to_builtins(value) for name, value in status.items() if value}
    return {"metadata": seen, "status": changes}


class Eviction(Enum):
    """The outcome of an attempt to evict a pod."""

    DONE = auto()
    GONE = auto()
    """Somebody else was faster."""
    CHANGED = auto()
    """The pod is not as it was seen any more."""


async def evict(client: Client, pod: Pod, reason: str, message: str) -> Eviction:
    """Tell a pod why and delete it, if it is still as it was seen."""
    key, why = key_of(pod), disruption(pod, reason, message, clock.utc_now())
    try:
        if why is not None:
            patch = status_patch(pod, conditions=(why,))
            pod = await client.patch(PODS, key, patch, STRATEGIC_MERGE_PATCH, subresource="status")
        meta = pod.metadata
        await client.delete(PODS, key, uid=meta.uid, resource_version=meta.resource_version)
    except Conflict:
        return Eviction.CHANGED
    except NotFound:
        return Eviction.GONE
    return Eviction.DONE


# Pods as the controllers of workloads count them; pure.


def is_active(pod: Pod) -> bool:
    """Return whether a pod counts as one of its owner: it has not ended, and is not being deleted."""
    return pod.metadata.deletion_timestamp is None and not is_pod_terminal(pod)


def is_terminating(pod: Pod) -> bool:
    """Return whether a pod is being deleted and has not ended yet."""
    return pod.metadata.deletion_timestamp is not None and not is_pod_terminal(pod)


def is_available(pod: Pod, min_ready: int, now: datetime) -> bool:
    """Return whether a pod has been ready for at least `min_ready` seconds."""
    return is_pod_ready(pod) and (min_ready <= 0 or until_available(pod, min_ready, now) == 0.0)


def until_available(pod: Pod, min_ready: int, now: datetime) -> float:
    """Return the seconds until a pod has been ready for so many; 0 if it has, infinite while it is not ready."""
    ready = condition_of(pod.status.conditions, "Ready")
    since = time_of(nonzero_time(ready.last_transition_time)) if ready is not None and ready.status == "True" else None
    return math.inf if since is None else max(0.0, min_ready - (now - since).total_seconds())


def until_next_available(pods: Iterable[Pod], min_ready: int, now: datetime) -> float | None:
    """Return the seconds until the next of these pods has been ready for so many; None if no ready one has yet to.

    Whose clock is ahead is looked at no later for that.
    """
    if min_ready <= 0:
        return None
    left = (until_available(pod, min_ready, now) for pod in pods)
    return min((min(seconds, float(min_ready)) for seconds in left if 0 < seconds < math.inf), default=None)


def workload_facts(pod: Pod) -> object:
    """Return what of a pod the controller of a workload looks at, but for what merely ranks it."""
    meta = pod.metadata
    ready = condition_of(pod.status.conditions, "Ready")
    since = (ready.status, ready.last_transition_time) if ready is not None else None
    return meta.uid, meta.labels, meta.owner_references, meta.deletion_timestamp, pod.status.phase, since


# Pods by index: which ones a service selects, which services one concerns, which are bound to a node.

_LABEL = "label"
_SELECTOR = "selector"
_NODE = "node"


_MOST_LABELS = 100  # that a pod is found by


def _labels_of(pod: Pod) -> Iterable[str]:
    """Return the values of a pod in the index by labels; the namespace alone if it has too many labels."""
    space, labels = pod.metadata.namespace, pod.metadata.labels or {}
    if len(labels) > _MOST_LABELS:
        return (f"{space}/",)
    return (f"{space}/{name}={value}" for name, value in labels.items())


def _selector_of(service: Service) -> tuple[str, ...]:
    """One label of the selector stands for it: the one whose value says most."""
    selector = service.spec.selector
    if not selector:
        return ()
    name, value = max(selector.items(), key=lambda label: (len(label[1]), label))
    return (f"{service.metadata.namespace}/{name}={value}",)


# What a controller that uses the functions below declares of its watches.
PODS_BY_LABEL: Mapping[str, Callable[[Pod], Iterable[str]]] = MappingProxyType({_LABEL: _labels_of})
SERVICES_BY_SELECTOR: Mapping[str, Callable[[Service], Iterable[str]]] = MappingProxyType({_SELECTOR: _selector_of})


def pods_with_label(pods: Informer[Pod], namespace: str, name: str, value: str) -> list[Pod]:
    """Return the pods of a namespace that have a label; the informer has the index `PODS_BY_LABEL`."""
    found = pods.by_index(_LABEL, f"{namespace}/{name}={value}")
    crowded = pods.by_index(_LABEL, f"{namespace}/")
    return [*found, *(pod for pod in crowded if (pod.metadata.labels or {}).get(name) == value)] if crowded else found


def pods_of(pods: Informer[Pod], service: Service) -> list[Pod]:
    """The pods that a service with a selector selects."""
    selector, space = service.spec.selector or {}, service.metadata.namespace
    few = min((pods_with_label(pods, space, name, value) for name, value in selector.items()), key=len)
    return few if len(selector) == 1 else [pod for pod in few if _selects(selector, pod.metadata.labels)]


def services_for(services: Informer[Service], pod: Pod) -> Iterator[Key]:
    """The services that select a pod."""
    if len(pod.metadata.labels or ()) > _MOST_LABELS:
        for service in services.list(pod.metadata.namespace):
            if service.spec.selector and _selects(service.spec.selector, pod.metadata.labels):
                yield key_of(service)
        return
    for value in _labels_of(pod):
        for service in services.by_index(_SELECTOR, value):
            if _selects(service.spec.selector or {}, pod.metadata.labels):
                yield key_of(service)


def services_of_pod(facts: Callable[[Pod], object], informers: Informers, change: Change[Pod]) -> Iterator[Key]:
    """The services that select a pod or did until now, if one of those `facts` has changed that matter to them."""
    before, after = change.before, change.after
    if before is not None and after is not None and facts(before) == facts(after):
        return
    services = informers.get(SERVICES)
    if after is not None:
        yield from services_for(services, after)
    if before is not None and (after is None or before.metadata.labels != after.metadata.labels):
        yield from services_for(services, before)


def _selects(selector: Mapping[str, str], labels: Mapping[str, str] | None) -> bool:
    return labels is not None and selector.items() <= labels.items()


def _node_of(pod: Pod) -> tuple[str, ...]:
    return (pod.spec.node_name,) if pod.spec.node_name else ()


# What a controller that uses the function below declares of its watch of pods.
PODS_BY_NODE: Mapping[str, Callable[[Pod], Iterable[str]]] = MappingProxyType({_NODE: _node_of})


def pods_on(pods: Informer[Pod], node: str) -> list[Pod]:
    """The pods bound to the node of that name, whether there is such a node or not."""
    return pods.by_index(_NODE, node)


TRIGGER_TIME = f"endpoints.{PLATFORM_DOMAIN}/last-change-trigger-time"
HEADLESS = f"service.{PLATFORM_DOMAIN}/headless"
LEADER = f"control-plane.alpha.{PLATFORM_DOMAIN}/leader"


def is_headless(service: Service) -> bool:
    """Return whether the service has no address of its own."""
    return service.spec.cluster_ip in ("", "None")


def addresses_of(pod: Pod, family: str) -> tuple[str, ...]:
    """The addresses of a pod of one family, IPv4 or IPv6."""
    six = family == "IPv6"
    own = [entry.ip for entry in pod.status.pod_ips] or [pod.status.pod_ip]
    return tuple([ip for ip in own if ip and (":" in ip) is six])


def hostname_of(pod: Pod, service: Service) -> str:
    """The name by which DNS knows the pod below the service; empty if it has none there."""
    return pod.spec.hostname if pod.spec.subdomain == service.metadata.name else ""


def offered_ports(pod: Pod) -> Mapping[tuple[str, str], int]:
    """The ports of the containers of a pod, by name and protocol; of several the first counts."""
    sidecars = [c for c in pod.spec.init_containers if c.restart_policy == "Always"]
    offered: dict[tuple[str, str], int] = {}
    for container in (*pod.spec.containers, *sidecars):
        for port in container.ports:
            offered.setdefault((port.name, port.protocol or TCP), port.container_port)
    return offered


def target_port(port: ServicePort, offered: Mapping[tuple[str, str], int]) -> int | None:
    """The number `port` leads to in a pod with these `offered_ports`; None when it offers none of that name."""
    if not isinstance(port.target_port, str):
        return port.target_port or port.port
    return offered.get((port.target_port, port.protocol or TCP))


def trigger_time(
    service: Service, pods: Iterable[Pod], before: Mapping[str, bool] | None, after: Mapping[str, bool]
) -> str | None:
    """The earliest of the changes a write carries: the measure of how late it comes.

    `before` and `after` say by uid which pods are listed, and whether they are ready. Endpoints made anew (`before` is
    None) come of the service's creation, however old the pods are; a pod that is new in the list, or turned, changed
    with its readiness; one that stops, or is gone, tells no time. Times are `Time`s, whose text sorts as they do.
    """
    if before is None:
        return service.metadata.creation_timestamp
    turned = dict(after.items() - before.items())
    times = (_readiness_changed(pod) for pod in pods if pod.metadata.uid in turned)
    return min((time for time in times if time), default=None)


def facts_of(pod: Pod) -> object:
    """Return what of a pod the endpoints of its services depend on."""
    meta, spec, status = pod.metadata, pod.spec, pod.status
    placed = (spec.node_name, spec.hostname, spec.subdomain, status.pod_ip, status.pod_ips)
    return (meta.labels, meta.uid, meta.deletion_timestamp is None, *placed, status.phase, is_pod_ready(pod))


# The services whose endpoints a change of a pod may alter.
services_served_by = partial(services_of_pod, facts_of)


async def is_gone(client: Client, resource: Resource[Any], key: Key) -> bool:
    """Return whether there is no such object, by the word of the server: one local copy may lag behind another."""
    try:
        await client.get(resource, key)
    except NotFound:
        return True
    return False


def _readiness_changed(pod: Pod) -> str | None:
    ready = condition_of(pod.status.conditions, "Ready")
    return ready.last_transition_time if ready is not None else None
