"""Publish the network of this server within the cluster: its service, the endpoints behind it, ranges of addresses."""

from ipaddress import ip_address

from apiserver_stub.bootstrap.cluster import ClusterInfo, ServerAddress
from apiserver_stub.bootstrap.objects import Objects, Tree
from controller_manager.api.platform import DEFAULT_NAMESPACES, GROUP_DOMAIN, PLATFORM_DOMAIN
from controller_manager.api.timestamps import format_time
from controller_manager.base.clock import utc_now
from controller_manager.base.tasks import all_of

_NAME = "kubernetes"
_NAMESPACES = "/api/v1/namespaces"
_IN_DEFAULT = f"{_NAMESPACES}/default"
_SLICES = f"/apis/discovery.{GROUP_DOMAIN}/v1/namespaces/default/endpointslices"
_RANGES = f"/apis/networking.{GROUP_DOMAIN}/v1/servicecidrs"


async def ensure_namespaces(objects: Objects, _: ClusterInfo) -> None:
    """Create the namespaces that every cluster has."""
    wanted = ({"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": name}} for name in DEFAULT_NAMESPACES)
    await all_of(*(objects.ensure(_NAMESPACES, each) for each in wanted))


async def ensure_service_ranges(objects: Objects, cluster: ClusterInfo) -> None:
    """Create the ServiceCIDR of the ranges of addresses; later ranges leave it as it is."""
    if cluster.address.ranges:
        await objects.ensure(_RANGES, {"metadata": {"name": _NAME}}, _service_range(cluster.address))


async def ensure_service(objects: Objects, cluster: ClusterInfo) -> None:
    """Create or correct the service of this server, and its only endpoint."""
    where = cluster.address
    await objects.ensure(f"{_IN_DEFAULT}/services", _service(where), _given(where))
    await objects.ensure(f"{_IN_DEFAULT}/endpoints", _endpoints(where))
    await objects.ensure(_SLICES, _endpoint_slice(where))


def _service(where: ServerAddress) -> Tree:
    """Return the service `kubernetes` of the namespace `default`."""
    return {
        "kind": "Service",
        "apiVersion": "v1",
        "metadata": {"name": _NAME, "labels": {"component": "apiserver", "provider": _NAME}},
        "spec": {
            "type": "ClusterIP",
            "internalTrafficPolicy": "Cluster",
            "sessionAffinity": "None",
            "ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": where.port}],
        },
    }


def _given(where: ServerAddress) -> Tree:
    """Return the address of that service, which it keeps if the range of addresses changes."""
    family = f"IPv{ip_address(where.cluster_ip).version}"
    addresses = {"clusterIP": where.cluster_ip, "clusterIPs": [where.cluster_ip]}
    return {"spec": {**addresses, "ipFamilies": [family], "ipFamilyPolicy": "SingleStack"}}


def _service_range(where: ServerAddress) -> Tree:
    """Return the ranges of addresses as an object."""
    ready = {"type": "Ready", "status": "True", "reason": "", "message": "Kubernetes Service CIDR is ready"}
    return {
        "kind": "ServiceCIDR",
        "apiVersion": f"networking.{GROUP_DOMAIN}/v1",
        "metadata": {"name": _NAME},
        "spec": {"cidrs": list(where.ranges)},
        "status": {"conditions": [{**ready, "lastTransitionTime": format_time(utc_now())}]},
    }


def _endpoints(where: ServerAddress) -> Tree:
    """Return the Endpoints of that service; nobody need mirror them into slices."""
    return {
        "kind": "Endpoints",
        "apiVersion": "v1",
        "metadata": {"name": _NAME, "labels": {f"endpointslice.{PLATFORM_DOMAIN}/skip-mirror": "true"}},
        "subsets": [
            {
                "addresses": [{"ip": where.address}],
                "ports": [{"name": "https", "port": where.port, "protocol": "TCP"}],
            }
        ],
    }


def _endpoint_slice(where: ServerAddress) -> Tree:
    """Return the slice of that service."""
    return {
        "kind": "EndpointSlice",
        "apiVersion": f"discovery.{GROUP_DOMAIN}/v1",
        "metadata": {"name": _NAME, "labels": {f"{PLATFORM_DOMAIN}/service-name": _NAME}},
        "addressType": f"IPv{ip_address(where.address).version}",
        "endpoints": [{"addresses": [where.address], "conditions": {"ready": True}}],
        "ports": [{"name": "https", "port": where.port, "protocol": "TCP"}],
    }
