"""Pods as they serve behind a service: readiness, addresses, ports and names of a pod, as both kinds of lists of
endpoints understand them.
"""

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from controller_manager.api.conditions import condition_of
from controller_manager.api.core import TCP, Pod, Service, ServicePort, is_pod_ready
from controller_manager.api.errors import NotFound
from controller_manager.api.platform import PLATFORM_DOMAIN
from controller_manager.api.resource import Resource
from controller_manager.client import Client
from controller_manager.controller import Key

from ._pods import services_of_pod

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
