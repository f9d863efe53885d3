"""What it takes to serve behind a service: readiness, addresses, ports and names of a pod, as both kinds of lists of
endpoints understand them.
"""

from collections.abc import Iterable
from functools import partial
from typing import Any

from controller_manager.api.core import Pod, Service, ServicePort
from controller_manager.api.errors import ApiError, NotFound
from controller_manager.api.platform import PLATFORM_DOMAIN
from controller_manager.api.resource import Resource
from controller_manager.client import Client
from controller_manager.controller import Key
from controllers._selection import services_of_pod

TRIGGER_TIME = f"endpoints.{PLATFORM_DOMAIN}/last-change-trigger-time"
HEADLESS = f"service.{PLATFORM_DOMAIN}/headless"
LEADER = f"control-plane.alpha.{PLATFORM_DOMAIN}/leader"


def is_ready(pod: Pod) -> bool:
    """Whether the pod's Ready condition holds."""
    return any(c.type == "Ready" and c.status == "True" for c in pod.status.conditions)


def is_over(pod: Pod) -> bool:
    """Whether all its containers have ended for good."""
    return pod.status.phase in ("Succeeded", "Failed")


def is_headless(service: Service) -> bool:
    """Whether the service has no address of its own."""
    return service.spec.cluster_ip in ("", "None")


def addresses_of(pod: Pod, family: str) -> tuple[str, ...]:
    """The addresses of a pod of one family, IPv4 or IPv6."""
    six = family == "IPv6"
    own = [entry.ip for entry in pod.status.pod_ips] or [pod.status.pod_ip]
    return tuple(ip for ip in own if ip and (":" in ip) is six)


def hostname_of(pod: Pod, service: Service) -> str:
    """The name by which DNS knows the pod below the service; empty if it has none there."""
    return pod.spec.hostname if pod.spec.subdomain == service.metadata.name else ""


def target_port(pod: Pod, port: ServicePort) -> int | None:
    """The number `port` leads to in this pod; None when the pod has no container port of that name."""
    if not isinstance(port.target_port, str):
        return port.target_port or port.port
    sidecars = (c for c in pod.spec.init_containers if c.restart_policy == "Always")
    for container in (*pod.spec.containers, *sidecars):
        for offered in container.ports:
            if (offered.name, offered.protocol) == (port.target_port, port.protocol):
                return offered.container_port
    return None


def trigger_time(service: Service, pods: Iterable[Pod], changed: set[str] | None) -> str | None:
    """The earliest of the changes a write carries: the measure of how late it comes.

    Endpoints made anew (`changed` is None) come of the service's creation, however old the pods are; a pod that
    appeared or turned, one of the uids in `changed`, changed with its readiness. Times are `Time`s, whose text sorts
    as they do.
    """
    if changed is None:
        return service.metadata.creation_timestamp
    times = (_readiness_changed(pod) for pod in pods if pod.metadata.uid in changed)
    return min((time for time in times if time), default=None)


def facts_of(pod: Pod) -> object:
    """What of a pod the endpoints of its services depend on."""
    meta, spec, status = pod.metadata, pod.spec, pod.status
    placed = (spec.node_name, spec.hostname, spec.subdomain, status.pod_ip, status.pod_ips)
    return (meta.labels, meta.uid, meta.deletion_timestamp is None, *placed, status.phase, is_ready(pod))


# The services whose endpoints a change of a pod may alter.
services_served_by = partial(services_of_pod, facts_of)


async def is_gone(client: Client, resource: Resource[Any], key: Key) -> bool:
    """Whether there is no such object, by the word of the server: one local copy may lag behind another."""
    try:
        await client.get(resource, key)
    except NotFound:
        return True
    return False


def namespace_terminates(error: ApiError) -> bool:
    """Whether the server refused to create something since the namespace is being deleted."""
    return error.details is not None and any(c.reason == "NamespaceTerminating" for c in error.details.causes)


def _readiness_changed(pod: Pod) -> str | None:
    return next((c.last_transition_time for c in pod.status.conditions if c.type == "Ready"), None)
