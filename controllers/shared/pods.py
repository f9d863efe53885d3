"""Helpers about pods: indexes, readiness, addresses, ports, DNS names and the DisruptionTarget condition."""

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
from controller_manager.framework import STRATEGIC_MERGE_PATCH, Change, Client, Informer, Informers, Key

# The condition that is set before a pod is deleted, so that its owner can see the reason; pure.

DISRUPTED = "DisruptionTarget"


def disruption(pod: Pod, reason: str, message: str, now: datetime) -> Condition | None:
    """Return the DisruptionTarget condition of the pod (KEP-3329), or None if the pod has it already."""
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
    """Return a strategic merge patch of the pod's status. The server rejects it (409) if the pod has changed
    meanwhile.
    """
    seen = {"uid": pod.metadata.uid, "resourceVersion": pod.metadata.resource_version}
    changes = {name: msgspec.to_builtins(value) for name, value in status.items() if value}
    return {"metadata": seen, "status": changes}


class Eviction(Enum):
    """The result of an attempt to evict a pod."""

    DONE = auto()
    GONE = auto()
    """The pod was deleted by another client."""
    CHANGED = auto()
    """The pod has changed since it was read."""


async def evict(client: Client, pod: Pod, reason: str, message: str) -> Eviction:
    """Set the DisruptionTarget condition and delete the pod, if it has not changed since it was read."""
    key, condition = key_of(pod), disruption(pod, reason, message, clock.utc_now())
    try:
        if condition is not None:
            patch = status_patch(pod, conditions=(condition,))
            pod = await client.patch(PODS, key, patch, STRATEGIC_MERGE_PATCH, subresource="status")
        meta = pod.metadata
        await client.delete(PODS, key, uid=meta.uid, resource_version=meta.resource_version)
    except Conflict:
        return Eviction.CHANGED
    except NotFound:
        return Eviction.GONE
    return Eviction.DONE


# How workload controllers count pods; pure.


def is_active(pod: Pod) -> bool:
    """Return whether a pod counts as a replica: it has not ended and is not being deleted."""
    return pod.metadata.deletion_timestamp is None and not is_pod_terminal(pod)


def is_terminating(pod: Pod) -> bool:
    """Return whether a pod is being deleted and has not ended yet."""
    return pod.metadata.deletion_timestamp is not None and not is_pod_terminal(pod)


def is_available(pod: Pod, min_ready: int, now: datetime) -> bool:
    """Return whether a pod has been ready for at least `min_ready` seconds."""
    return is_pod_ready(pod) and (min_ready <= 0 or until_available(pod, min_ready, now) == 0.0)


def until_available(pod: Pod, min_ready: int, now: datetime) -> float:
    """Return the seconds until a pod has been ready for `min_ready` seconds: 0 if it has, infinite while it is not
    ready.
    """
    ready = condition_of(pod.status.conditions, "Ready")
    since = time_of(nonzero_time(ready.last_transition_time)) if ready is not None and ready.status == "True" else None
    return math.inf if since is None else max(0.0, min_ready - (now - since).total_seconds())


def until_next_available(pods: Iterable[Pod], min_ready: int, now: datetime) -> float | None:
    """Return the seconds until the next ready pod has been ready for `min_ready` seconds, or None if there is no such
    pod.

    The result is at most `min_ready`, even if the clock of a node is ahead.
    """
    if min_ready <= 0:
        return None
    left = (until_available(pod, min_ready, now) for pod in pods)
    return min((min(seconds, float(min_ready)) for seconds in left if 0 < seconds < math.inf), default=None)


def workload_facts(pod: Pod) -> object:
    """Return the facts of a pod that workload controllers depend on, except those that only rank pods."""
    meta = pod.metadata
    ready = condition_of(pod.status.conditions, "Ready")
    since = (ready.status, ready.last_transition_time) if ready is not None else None
    return meta.uid, meta.labels, meta.owner_references, meta.deletion_timestamp, pod.status.phase, since


# Indexes: the pods of a service, the services of a pod, the pods of a node.

_LABEL = "label"
_SELECTOR = "selector"
_NODE = "node"


_MOST_LABELS = 100  # a pod with more is only in the index of its namespace


def _labels_of(pod: Pod) -> Iterable[str]:
    """Return the keys of a pod in the label index; only the namespace if it has too many labels."""
    namespace, labels = pod.metadata.namespace, pod.metadata.labels or {}
    if len(labels) > _MOST_LABELS:
        return (f"{namespace}/",)
    return (f"{namespace}/{name}={value}" for name, value in labels.items())


def _selector_of(service: Service) -> tuple[str, ...]:
    """Return the index key of a service: the one label of its selector with the longest value."""
    selector = service.spec.selector
    if not selector:
        return ()
    name, value = max(selector.items(), key=lambda label: (len(label[1]), label))
    return (f"{service.metadata.namespace}/{name}={value}",)


# The indexes that a controller declares for its watches if it uses the functions below.
PODS_BY_LABEL: Mapping[str, Callable[[Pod], Iterable[str]]] = MappingProxyType({_LABEL: _labels_of})
SERVICES_BY_SELECTOR: Mapping[str, Callable[[Service], Iterable[str]]] = MappingProxyType({_SELECTOR: _selector_of})


def pods_with_label(pods: Informer[Pod], namespace: str, name: str, value: str) -> list[Pod]:
    """Return the pods of a namespace that have a label. The informer needs the index `PODS_BY_LABEL`."""
    found = pods.by_index(_LABEL, f"{namespace}/{name}={value}")
    others = pods.by_index(_LABEL, f"{namespace}/")  # pods with too many labels
    return [*found, *(pod for pod in others if (pod.metadata.labels or {}).get(name) == value)] if others else found


def pods_of(pods: Informer[Pod], service: Service) -> list[Pod]:
    """Return the pods that a service with a selector selects."""
    selector, namespace = service.spec.selector or {}, service.metadata.namespace
    fewest = min((pods_with_label(pods, namespace, name, value) for name, value in selector.items()), key=len)
    return fewest if len(selector) == 1 else [pod for pod in fewest if _selects(selector, pod.metadata.labels)]


def services_for(services: Informer[Service], pod: Pod) -> Iterator[Key]:
    """Yield the services that select a pod."""
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
    """Yield the services that select a pod or selected it before, if one of the `facts` has changed."""
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


# The index that a controller declares for its watch of pods if it uses the function below.
PODS_BY_NODE: Mapping[str, Callable[[Pod], Iterable[str]]] = MappingProxyType({_NODE: _node_of})


def pods_on(pods: Informer[Pod], node: str) -> list[Pod]:
    """Return the pods bound to the node of that name, even if the node does not exist."""
    return pods.by_index(_NODE, node)


TRIGGER_TIME = f"endpoints.{PLATFORM_DOMAIN}/last-change-trigger-time"
HEADLESS = f"service.{PLATFORM_DOMAIN}/headless"
LEADER = f"control-plane.alpha.{PLATFORM_DOMAIN}/leader"


def is_headless(service: Service) -> bool:
    """Return whether the service has no cluster IP."""
    return service.spec.cluster_ip in ("", "None")


def addresses_of(pod: Pod, family: str) -> tuple[str, ...]:
    """Return the addresses of a pod of one family, IPv4 or IPv6."""
    is_ipv6 = family == "IPv6"
    own = [entry.ip for entry in pod.status.pod_ips] or [pod.status.pod_ip]
    return tuple([ip for ip in own if ip and (":" in ip) is is_ipv6])


def hostname_of(pod: Pod, service: Service) -> str:
    """Return the DNS name of the pod below the service, or an empty string."""
    return pod.spec.hostname if pod.spec.subdomain == service.metadata.name else ""


def offered_ports(pod: Pod) -> Mapping[tuple[str, str], int]:
    """Return the ports of the containers of a pod, by name and protocol. The first of several counts."""
    sidecars = [c for c in pod.spec.init_containers if c.restart_policy == "Always"]
    offered: dict[tuple[str, str], int] = {}
    for container in (*pod.spec.containers, *sidecars):
        for port in container.ports:
            offered.setdefault((port.name, port.protocol or TCP), port.container_port)
    return offered


def target_port(port: ServicePort, offered: Mapping[tuple[str, str], int]) -> int | None:
    """Return the number of the target port in a pod with these `offered_ports`, or None if no port has that name."""
    if not isinstance(port.target_port, str):
        return port.target_port or port.port
    return offered.get((port.target_port, port.protocol or TCP))


def trigger_time(
    service: Service, pods: Iterable[Pod], before: Mapping[str, bool] | None, after: Mapping[str, bool]
) -> str | None:
    """Return the earliest time of the changes in a write, from which the programming latency is measured.

    `before` and `after` map the uids of listed pods to their readiness. New endpoints (`before` is None) take the
    creation time of the service. A pod that was added or whose readiness changed takes the time of that change. A pod
    that was removed has no time. Times are RFC 3339 texts, which sort chronologically.
    """
    if before is None:
        return service.metadata.creation_timestamp
    changed = dict(after.items() - before.items())
    times = (_readiness_changed(pod) for pod in pods if pod.metadata.uid in changed)
    return min((time for time in times if time), default=None)


def facts_of(pod: Pod) -> object:
    """Return the facts of a pod that the endpoints of its services depend on."""
    meta, spec, status = pod.metadata, pod.spec, pod.status
    placed = (spec.node_name, spec.hostname, spec.subdomain, status.pod_ip, status.pod_ips)
    return (meta.labels, meta.uid, meta.deletion_timestamp is None, *placed, status.phase, is_pod_ready(pod))


# The services whose endpoints a change of a pod may affect.
services_served_by = partial(services_of_pod, facts_of)


async def is_gone(client: Client, resource: Resource[Any], key: Key) -> bool:
    """Return whether the server has no such object. Caches of different resources may lag behind each other."""
    try:
        await client.get(resource, key)
    except NotFound:
        return True
    return False


def _readiness_changed(pod: Pod) -> str | None:
    ready = condition_of(pod.status.conditions, "Ready")
    return ready.last_transition_time if ready is not None else None
