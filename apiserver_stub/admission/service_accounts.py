"""The service account of a new pod, and its token for the containers: the usual plug-in ServiceAccount.

| the pod                                           | is given                                                       |
|---------------------------------------------------|----------------------------------------------------------------|
| stands for one of its node (a mirror)             | nothing; it may not name an account                            |
| names no account                                  | `default`; nothing else where that is not there (yet)          |
| names an account that is not there                | is refused                                                     |
| has no pull secrets                               | those of the account                                           |
| wants a token, or says nothing and neither does the account | a volume with a token, mounted where nothing else is |

Upstream refuses pods of namespaces without the account `default` too; here they are let in, so that a server without
controllers takes pods, as one does whose plug-in is turned off.
"""

from typing import Any

import orjson

from apiserver_stub.admission.chain import Attributes
from apiserver_stub.api_request import Tree
from apiserver_stub.kinds.trees import get_in
from apiserver_stub.watch_cache.cache import WatchCache
from controller_manager.api.errors import ApiError, forbidden
from controller_manager.api.platform import PLATFORM_DOMAIN
from controller_manager.base.random import random_source

_ACCOUNTS, _DEFAULT = "serviceaccounts", "default"
_MIRROR = ("metadata", "annotations", f"{PLATFORM_DOMAIN}/config.mirror")
_PREFIX = "kube-api-access-"
_PATH = f"/var/run/secrets/{PLATFORM_DOMAIN}/serviceaccount"
_LIFETIME = 3607  # seconds; the odd number tells the server that a client may use such a token for longer
_CONTAINERS = ("initContainers", "containers")


class PodAccounts:
    """A mutating plugin that reads accounts from the store."""

    def __init__(self, store: WatchCache) -> None:
        self._store = store

    async def admit(self, attributes: Attributes) -> None:
        """Give a new pod its account. Raises `Forbidden`."""
        pod, namespace = attributes.tree, attributes.namespace
        spec = pod.get("spec") or {}
        named = spec.get("serviceAccountName") or ""
        if get_in(pod, _MIRROR) is not None:
            if named:
                raise _refused(attributes, "a mirror pod may not name a service account")
            return
        row = self._store.get(_ACCOUNTS, f"{namespace}/{named or _DEFAULT}")
        if row is not None:
            pod["spec"] = with_account(spec, orjson.loads(row.data), random_source().suffix())
        elif named not in ("", _DEFAULT):
            raise _refused(attributes, f"there is no service account {namespace}/{named}")
        else:
            pod["spec"] = {**spec, **_named(_DEFAULT)}


def with_account(spec: Tree, account: Tree, suffix: str) -> Tree:
    """Return the spec of a pod of that account; `suffix` makes the name of a new volume."""
    new = {**spec, **_named(account["metadata"]["name"])}
    if not new.get("imagePullSecrets") and account.get("imagePullSecrets"):
        new["imagePullSecrets"] = [{"name": each["name"]} for each in account["imagePullSecrets"]]
    wishes = (each.get("automountServiceAccountToken") for each in (spec, account))
    if next((wish for wish in wishes if wish is not None), True):
        _mount(new, suffix)
    return new


def _named(account: str) -> Tree:
    return {"serviceAccountName": account, "serviceAccount": account}


def _mount(spec: Tree, suffix: str) -> None:
    """Mount a token in every container that has nothing at its place, in place of `spec`'s own lists."""
    volumes = spec.get("volumes") or []
    known = next((name for each in volumes if (name := each.get("name", "")).startswith(_PREFIX)), "")
    mount = {"name": known or _PREFIX + suffix, "readOnly": True, "mountPath": _PATH}
    mounted = False
    for field in _CONTAINERS:
        if field not in spec:
            continue
        lacking = [not _is_taken(container) for container in spec[field]]
        pairs = zip(spec[field], lacking, strict=True)
        spec[field] = [_mounting(container, mount) if lacks else container for container, lacks in pairs]
        mounted = mounted or any(lacking)
    if mounted and not known:
        spec["volumes"] = [*volumes, {"name": mount["name"], "projected": _token()}]


def _is_taken(container: Tree) -> bool:
    return any(mount.get("mountPath") == _PATH for mount in container.get("volumeMounts") or ())


def _mounting(container: Tree, mount: Tree) -> Tree:
    return {**container, "volumeMounts": [*(container.get("volumeMounts") or ()), dict(mount)]}


def _token() -> dict[str, Any]:
    """Return a volume with a token, the authority of the server and the namespace of the pod."""
    return {
        "defaultMode": 0o644,
        "sources": [
            {"serviceAccountToken": {"expirationSeconds": _LIFETIME, "path": "token"}},
            {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
            {
                "downwardAPI": {
                    "items": [
                        {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}
                    ]
                }
            },
        ],
    }


def _refused(attributes: Attributes, why: str) -> ApiError:
    return forbidden(attributes.kind.group, attributes.kind.plural, attributes.name, why)
