"""Publishes how this server is reached (its service, endpoints, and service IP ranges), its authentication data, and
since when the use of legacy tokens is recorded.
"""

import re
from collections.abc import Mapping
from ipaddress import ip_address

from apiserver_stub.bootstrap.objects import ClusterInfo, Objects, ServerAddress
from controller_manager.common.api.platform import DEFAULT_NAMESPACES, GROUP_DOMAIN, PLATFORM_DOMAIN, SYSTEM_NAMESPACE
from controller_manager.common.api.timestamps import format_time
from controller_manager.common.api.tree import Tree
from controller_manager.common.base.clock import utc_now
from controller_manager.common.base.tasks import all_of

_CONFIG_MAPS = f"/api/v1/namespaces/{SYSTEM_NAMESPACE}/configmaps"
_AUTHENTICATION = "extension-apiserver-authentication"
_TRACKING = "kube-apiserver-legacy-service-account-token-tracking"
_DATE = re.compile(r"\d{4}-\d\d-\d\d")


async def ensure_authorities(objects: Objects, cluster: ClusterInfo) -> None:
    """Publish the authorities, if there are any."""
    if cluster.authentication:
        await objects.ensure(_CONFIG_MAPS, _published(cluster.authentication))


async def ensure_token_tracking(objects: Objects, _: ClusterInfo) -> None:
    """Publish the date (UTC) since when tokens of secrets are labelled with their last use."""
    today = utc_now().date().isoformat()
    wanted = {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": _TRACKING}, "data": {"since": today}}

    def revise(found: Tree) -> Tree | None:
        known = (found.get("data") or {}).get("since", "")
        return None if _DATE.fullmatch(known) else found | {"data": {"since": today}}

    await objects.ensure_revised(_CONFIG_MAPS, wanted, revise)


def _published(authentication: Mapping[str, str]) -> Tree:
    """Return the ConfigMap with the authorities; data of other publishers is kept."""
    return {
        "kind": "ConfigMap",
        "apiVersion": "v1",
        "metadata": {"name": _AUTHENTICATION},
        "data": dict(authentication),
    }


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
    """Create the ServiceCIDR of the service IP ranges and mark it ready; an existing one is not changed."""
    ranges = list(cluster.address.ranges)
    if not ranges:
        return

    def ready(found: Tree) -> Tree | None:
        conditions = (found.get("status") or {}).get("conditions") or []
        is_known = any(each["type"] == "Ready" and each["status"] != "Unknown" for each in conditions)
        if is_known or found["spec"]["cidrs"] != ranges or "deletionTimestamp" in found["metadata"]:
            return None
        others = [each for each in conditions if each["type"] != "Ready"]
        return {**found, "status": {"conditions": [*others, _ready_range()]}}

    await objects.ensure(_RANGES, {"metadata": {"name": _NAME}}, _service_range(ranges))
    await objects.revise(f"{_RANGES}/{_NAME}", "", ready, subresource="status")


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


def _service_range(ranges: list[str]) -> Tree:
    """Return the ranges of addresses as an object."""
    return {
        "kind": "ServiceCIDR",
        "apiVersion": f"networking.{GROUP_DOMAIN}/v1",
        "metadata": {"name": _NAME},
        "spec": {"cidrs": ranges},
    }


def _ready_range() -> Tree:
    """Return the condition Ready of a ServiceCIDR."""
    condition = {"type": "Ready", "status": "True", "reason": "", "message": "Kubernetes Service CIDR is ready"}
    return {**condition, "lastTransitionTime": format_time(utc_now())}


def _endpoints(where: ServerAddress) -> Tree:
    """Return the Endpoints of the service, excluded from mirroring to EndpointSlices."""
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
