"""An APIService for each group version this server has itself; its priority orders groups and versions in discovery."""

from collections.abc import Mapping
from types import MappingProxyType

from apiserver_stub.bootstrap.cluster import ClusterInfo
from apiserver_stub.bootstrap.objects import Objects, Tree
from controller_manager.api.platform import GROUP_DOMAIN, PLATFORM_DOMAIN
from controller_manager.base.tasks import all_of

GROUP = f"apiregistration.{GROUP_DOMAIN}"

_COLLECTION = f"/apis/{GROUP}/v1/apiservices"
_LABELS = {f"kube-aggregator.{PLATFORM_DOMAIN}/automanaged": "onstart"}
_GROUPS: Mapping[str, int] = MappingProxyType(
    {
        "": 18000,
        "apps": 17800,
        f"events.{GROUP_DOMAIN}": 17750,
        f"authentication.{GROUP_DOMAIN}": 17700,
        f"authorization.{GROUP_DOMAIN}": 17600,
        "autoscaling": 17500,
        "batch": 17400,
        f"certificates.{GROUP_DOMAIN}": 17300,
        f"networking.{GROUP_DOMAIN}": 17200,
        "policy": 17100,
        f"rbac.authorization.{GROUP_DOMAIN}": 17000,
        f"storage.{GROUP_DOMAIN}": 16800,
        f"apiextensions.{GROUP_DOMAIN}": 16700,
        f"admissionregistration.{GROUP_DOMAIN}": 16700,
        f"scheduling.{GROUP_DOMAIN}": 16600,
        f"coordination.{GROUP_DOMAIN}": 16500,
        f"node.{GROUP_DOMAIN}": 16300,
        f"discovery.{GROUP_DOMAIN}": 16200,
        f"resource.{GROUP_DOMAIN}": 16200,
        f"flowcontrol.apiserver.{GROUP_DOMAIN}": 16100,
    }
)
_VERSIONS: Mapping[tuple[str, str], int] = MappingProxyType(
    {
        ("", "v1"): 1,
        ("autoscaling", "v2"): 30,
        (f"flowcontrol.apiserver.{GROUP_DOMAIN}", "v1"): 21,
        (f"resource.{GROUP_DOMAIN}", "v1"): 21,
    }
)
_AVAILABLE = {
    "type": "Available",
    "status": "True",
    "reason": "Local",
    "message": "what this server has itself is always available",
}
_OTHER_GROUP, _OTHER_VERSION = 1000, 15


async def ensure_api_services(objects: Objects, cluster: ClusterInfo) -> None:
    """Create or correct one for each (group, version), but for the group of APIServices itself."""
    wanted = (api_service(group, version) for group, version in sorted(cluster.versions) if group != GROUP)
    await all_of(*(objects.ensure(_COLLECTION, each, condition=_AVAILABLE) for each in wanted))


def api_service(group: str, version: str) -> Tree:
    """Return the APIService of a group version that this server has itself."""
    spec = {
        "version": version,
        "groupPriorityMinimum": _GROUPS.get(group, _OTHER_GROUP),
        "versionPriority": _VERSIONS.get((group, version), _OTHER_VERSION),
    }
    return {
        "kind": "APIService",
        "apiVersion": f"{GROUP}/v1",
        "metadata": {"name": f"{version}.{group}", "labels": dict(_LABELS)},
        "spec": {"group": group, **spec} if group else spec,
    }
