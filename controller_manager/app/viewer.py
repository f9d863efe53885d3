"""A read-only account for /ui, created by cluster-up."""

from controller_manager.app.pages.ui import PATH, SHOWN, STATE_PATH
from controller_manager.app.service_accounts import request_token
from controller_manager.common.api.core import SERVICE_ACCOUNTS
from controller_manager.common.api.platform import SYSTEM_NAMESPACE
from controller_manager.common.api.rbac import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, GROUP
from controller_manager.common.api.resource import Key
from controller_manager.framework.client.client import Client

ACCOUNT = Key(SYSTEM_NAMESPACE, "ui-viewer")
TOKEN_SECONDS = 12 * 3600

_MANAGER = "cluster-up"
_ROLE = Key("", "cluster-up:ui-viewer")
_PAGES = (PATH, STATE_PATH, "/", "/debug/controllers")


async def viewer_token(client: Client) -> str:
    """Create the account and return a token that is valid for twelve hours. Raises ApiError or TransportError."""
    groups = sorted({resource.group for resource in SHOWN})
    reads = [
        {"apiGroups": [group], "resources": [one.plural for one in SHOWN if one.group == group], "verbs": ["list"]}
        for group in groups
    ]
    rules = [*reads, {"nonResourceURLs": list(_PAGES), "verbs": ["get"]}]
    subject = {"kind": "ServiceAccount", "name": ACCOUNT.name, "namespace": ACCOUNT.namespace}
    role = {"apiGroup": GROUP, "kind": CLUSTER_ROLES.kind, "name": _ROLE.name}
    await client.apply(SERVICE_ACCOUNTS, ACCOUNT, {}, _MANAGER)
    await client.apply(CLUSTER_ROLES, _ROLE, {"rules": rules}, _MANAGER)
    await client.apply(CLUSTER_ROLE_BINDINGS, _ROLE, {"roleRef": role, "subjects": [subject]}, _MANAGER)
    return (await request_token(client, ACCOUNT, TOKEN_SECONDS)).status.token
