"""Publish how callers are authenticated: the authorities this server believes, the role to read them, and the date
since when the use of tokens kept in secrets is recorded.
"""

import re
from collections.abc import Mapping

from apiserver_stub.bootstrap.cluster import ClusterInfo
from apiserver_stub.bootstrap.objects import Objects, Tree
from controller_manager.api.platform import GROUP_DOMAIN, PLATFORM_DOMAIN, SYSTEM_NAMESPACE
from controller_manager.base.clock import utc_now

_CONFIG_MAPS = f"/api/v1/namespaces/{SYSTEM_NAMESPACE}/configmaps"
_ROLES = f"/apis/rbac.authorization.{GROUP_DOMAIN}/v1/namespaces/{SYSTEM_NAMESPACE}/roles"
_AUTHENTICATION = "extension-apiserver-authentication"
_READER = f"{_AUTHENTICATION}-reader"
_TRACKING = "kube-apiserver-legacy-service-account-token-tracking"
_DATE = re.compile(r"\d{4}-\d\d-\d\d")


async def ensure_reader_role(objects: Objects, _: ClusterInfo) -> None:
    """Create or correct the role that may read the authorities."""
    await objects.ensure(_ROLES, _reader_role())


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
    """Return the ConfigMap of the authorities; what others publish in it stays."""
    return {
        "kind": "ConfigMap",
        "apiVersion": "v1",
        "metadata": {"name": _AUTHENTICATION},
        "data": dict(authentication),
    }


def _reader_role() -> Tree:
    """Return the role that may read that ConfigMap."""
    rule = {"apiGroups": [""], "resources": ["configmaps"], "resourceNames": [_AUTHENTICATION]}
    return {
        "kind": "Role",
        "apiVersion": f"rbac.authorization.{GROUP_DOMAIN}/v1",
        "metadata": {"name": _READER, "labels": {f"{PLATFORM_DOMAIN}/bootstrapping": "rbac-defaults"}},
        "rules": [{**rule, "verbs": ["get", "list", "watch"]}],
    }
