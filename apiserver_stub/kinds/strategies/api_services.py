"""APIServices that the server creates for itself: their group versions and priorities.

Groups are sorted by the highest priority of their versions, and the versions of a group by their own priority.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from apiserver_stub.kinds.values.trees import get_in
from controller_manager.common.api.platform import GROUP_DOMAIN
from controller_manager.common.api.tree import Tree

GROUP = f"apiregistration.{GROUP_DOMAIN}"
RESOURCE = f"apiservices.{GROUP}"
LOCAL: Mapping[str, str] = MappingProxyType({
    "type": "Available",
    "status": "True",
    "reason": "Local",
    "message": "Local APIServices are always available",
})  # fmt: skip
"""The condition of a group version that this server serves itself."""


class Priority(NamedTuple):
    """The priorities of a group version: of its group among the groups and of the version within the group. Higher
    comes first.
    """

    group: int
    version: int


CUSTOM = Priority(1000, 100)
"""The priorities of versions of custom resources."""
_FIRST = 20_001  # higher than an APIService may set
_USUAL_VERSION = 15
_GROUPS: Mapping[str, int] = MappingProxyType({
    GROUP: _FIRST,
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
    f"internal.apiserver.{GROUP_DOMAIN}": 16000,
    f"storagemigration.{GROUP_DOMAIN}": 15800,
})  # fmt: skip
_VERSIONS: Mapping[tuple[str, str], int] = MappingProxyType({
    ("", "v1"): 1,
    ("autoscaling", "v2"): 30,
    (f"certificates.{GROUP_DOMAIN}", "v1alpha1"): 1,
    (f"certificates.{GROUP_DOMAIN}", "v1beta1"): 9,
    (f"flowcontrol.apiserver.{GROUP_DOMAIN}", "v1"): 21,
    (f"internal.apiserver.{GROUP_DOMAIN}", "v1alpha1"): 9,
    (f"resource.{GROUP_DOMAIN}", "v1"): 21,
    (f"storagemigration.{GROUP_DOMAIN}", "v1beta1"): 9,
})  # fmt: skip


def priority_of(group: str, version: str) -> Priority:
    """Return the default priorities of a group version. An APIService may override them."""
    if group not in _GROUPS:
        return CUSTOM
    return Priority(_GROUPS[group], _VERSIONS.get((group, version), _USUAL_VERSION))


def version_rank(version: str) -> tuple[int, int, int, str]:
    """Return a sort key for versions in the order clients expect: stable, beta, alpha, then the higher number first."""
    number, _, rest = version.removeprefix("v").partition("beta" if "beta" in version else "alpha")
    if not version.startswith("v") or not number.isdigit() or not (rest.isdigit() or rest == ""):
        return (3, 0, 0, version)
    stage = 0 if version[1:].isdigit() else 1 if "beta" in version else 2
    return (stage, -int(number), -int(rest or 0), version)


def api_service_on_create(service: Tree) -> None:
    """Mark a new APIService without a backing service as available."""
    if get_in(service, ("spec", "service")) is None:
        created = service["metadata"].get("creationTimestamp")
        service["status"] = {"conditions": [{**LOCAL, "lastTransitionTime": created}]}
