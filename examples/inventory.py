"""One line about each object of a namespace: the kinds that have a type, and some of their fields."""

from collections.abc import AsyncIterator
from typing import Any

from controller_manager.framework import (
    CERTIFICATE_SIGNING_REQUESTS,
    CONFIG_MAPS,
    CONTROLLER_REVISIONS,
    DEPLOYMENTS,
    ENDPOINT_SLICES,
    ENDPOINTS,
    EVENTS,
    HORIZONTAL_POD_AUTOSCALERS,
    LEASES,
    NAMESPACES,
    NODES,
    PODS,
    SERVICE_ACCOUNTS,
    SERVICES,
    CertificateSigningRequest,
    Client,
    ConfigMap,
    ControllerRevision,
    Deployment,
    Endpoints,
    EndpointSlice,
    Event,
    HorizontalPodAutoscaler,
    Lease,
    Namespace,
    Node,
    Object,
    Pod,
    Resource,
    Service,
    ServiceAccount,
    is_pod_ready,
)

KINDS: tuple[Resource[Any], ...] = (
    *(PODS, DEPLOYMENTS, CONTROLLER_REVISIONS, HORIZONTAL_POD_AUTOSCALERS),
    *(SERVICES, ENDPOINTS, ENDPOINT_SLICES),
    *(CONFIG_MAPS, SERVICE_ACCOUNTS, LEASES, EVENTS),
    *(NAMESPACES, NODES, CERTIFICATE_SIGNING_REQUESTS),
)


def describe(obj: Object) -> str:
    match obj:
        case Pod():
            return f"{'ready' if is_pod_ready(obj) else obj.status.phase} on {obj.spec.node_name or 'no node'}"
        case Deployment():
            return f"{obj.status.ready_replicas} of {obj.spec.replicas} pods are ready"
        case ControllerRevision():
            return f"revision {obj.revision}"
        case HorizontalPodAutoscaler():
            return f"at most {obj.spec.max_replicas} pods"
        case Service():
            return f"{obj.spec.type} {obj.spec.cluster_ip}"
        case Endpoints():
            return f"{sum(len(subset.addresses) for subset in obj.subsets)} addresses"
        case EndpointSlice():
            return f"{len(obj.endpoints or ())} endpoints"
        case ConfigMap():
            return f"keys {', '.join(obj.data) or 'none'}"
        case ServiceAccount():
            return f"{len(obj.secrets)} secrets"
        case Lease():
            return f"held by {obj.spec.holder_identity}"
        case Event():
            return f"{obj.reason}: {obj.message}"
        case Namespace():
            return obj.status.phase
        case Node():
            return "unschedulable" if obj.spec.unschedulable else "schedulable"
        case CertificateSigningRequest():
            return f"for {obj.spec.signer_name}"
    return ""


async def inventory(client: Client, namespace: str) -> AsyncIterator[str]:
    """Yield a line per object of the namespace, and per cluster-scoped object."""
    for resource in KINDS:
        for obj in (await client.list(resource, namespace if resource.namespaced else "")).items:
            yield f"{resource.kind} {obj.metadata.name}: {describe(obj)}"
