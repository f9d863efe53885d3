"""The plugin ServiceAccount: new pods get an account and a token of it, and may use only its secrets if it enforces
that.

| the pod                                           | result                                                         |
|---------------------------------------------------|----------------------------------------------------------------|
| is a mirror pod                                   | unchanged; may not name an account, secrets, or tokens         |
| names no account                                  | gets `default`                                                 |
| names an account that does not exist              | rejected                                                       |
| has no pull secrets                               | gets those of the account                                      |
| wants a token, or neither it nor the account      | gets a token volume, mounted in containers without a mount     |
| opts out                                          | at that path                                                   |
| has an account that enforces mountable secrets    | rejected if it uses others, also in ephemeral containers       |

If the namespace has no account `default` yet, the pod waits for a controller to create it, and is rejected after a
while. This holds if the plugin is enabled by name; otherwise such a pod is admitted without a token, so that a server
without controllers accepts pods.
"""

import asyncio
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from typing import Any

import orjson

from apiserver_stub.admission.chain import AdmissionPlugin, Attributes, Rule
from apiserver_stub.admission.parts import AdmissionParts
from apiserver_stub.authz.node.references import MIRROR, SECRET, needs
from apiserver_stub.common.flags.admission import AdmissionOptions
from apiserver_stub.kinds.memo import DRAWN_VOLUME
from apiserver_stub.kinds.values.trees import get_in
from apiserver_stub.watch_cache.cache import WatchCache
from apiserver_stub.watch_cache.row import Row
from controller_manager.common.api.errors import UnknownError
from controller_manager.common.api.platform import PLATFORM_DOMAIN
from controller_manager.common.api.tree import Tree
from controller_manager.common.base.random import random_source

_NAME = "ServiceAccount"
_ACCOUNTS, _DEFAULT, _PODS = "serviceaccounts", "default", ("pods",)
_ANNOTATIONS = ("metadata", "annotations")
_ENFORCED = f"{PLATFORM_DOMAIN}/enforce-mountable-secrets"
_TRUE = frozenset({"1", "t", "T", "true", "TRUE", "True"})
_PATH = f"/var/run/secrets/{PLATFORM_DOMAIN}/serviceaccount"
_LIFETIME = 3607  # seconds; the odd number marks tokens whose lifetime the server may extend
_CONTAINERS = ("initContainers", "containers")
_MOST_READ = 1024  # cached accounts
_WISH = "automountServiceAccountToken"
_ATTEMPTS, _INTERVAL = 10, 0.15  # attempts to find the account `default`, and the seconds between them


def service_account(parts: AdmissionParts) -> AdmissionPlugin:
    """Return the plugin ServiceAccount."""
    options = parts.options[AdmissionOptions]
    named = (*options.enable_admission_plugins, *(options.admission_control or ()))
    accounts = PodAccounts(parts.store, strict=_NAME in named)
    return AdmissionPlugin(
        _NAME,
        mutating=(Rule(accounts.admit, ("create",), _PODS),),
        validating=(
            Rule(accounts.validate, ("create",), _PODS),
            Rule(accounts.validate_ephemeral, ("update",), _PODS, ("ephemeralcontainers",)),
        ),
    )


class PodAccounts:
    """Rules of pods; reads accounts from the store. With `strict`, each pod but mirrors needs an account."""

    def __init__(self, store: WatchCache, *, strict: bool = False) -> None:
        self._store = store
        self._strict = strict
        self._read = lru_cache(_MOST_READ)(_decoded)

    async def admit(self, attributes: Attributes) -> None:
        """Set the account of a new pod. Raises `Forbidden`."""
        pod = attributes.tree
        if _is_mirror(pod):
            _check_mirror(attributes)
            return
        spec = pod.get("spec") or {}
        name = spec.get("serviceAccountName") or _DEFAULT
        if self._strict:
            await self._wait_for(attributes.namespace, name)
        account = self._account(attributes, name)
        if account is None:
            pod["spec"] = {**spec, **_named(_DEFAULT)}
        else:
            pod["spec"] = await attributes.run(partial(with_account, spec, account, random_source().suffix))
            _check_secrets(attributes, account)

    async def validate(self, attributes: Attributes) -> None:
        """Raises `Forbidden` for references that the final pod may not have."""
        pod = attributes.tree
        if _is_mirror(pod):
            _check_mirror(attributes)
            return
        name = get_in(pod, ("spec", "serviceAccountName"))
        if not name:
            raise attributes.refused(_unaccounted(attributes))
        if self._strict:
            await self._wait_for(attributes.namespace, name)
        account = self._account(attributes, name)
        if account is not None:
            _check_secrets(attributes, account)

    async def validate_ephemeral(self, attributes: Attributes) -> None:
        """Hold new ephemeral containers to the secrets of the account. Raises `Forbidden` for a pod without one, and
        `UnknownError` for other secrets.
        """
        spec = attributes.tree.get("spec") or {}
        name = spec.get("serviceAccountName")
        if not name:
            raise attributes.refused(_unaccounted(attributes))
        if self._strict:
            await self._wait_for(attributes.namespace, name)
        account = self._account(attributes, name)
        if account is None or not _is_enforced(account):
            return
        if why := next(_container_problems(spec, "ephemeralContainers", account), ""):
            raise UnknownError(why)

    async def _wait_for(self, namespace: str, name: str) -> None:
        """Wait for the default account, which is created after the namespace, for a limited time."""
        for _ in range(_ATTEMPTS - 1 if name == _DEFAULT else 0):
            if self._store.get(_ACCOUNTS, f"{namespace}/{name}") is not None:
                return
            await asyncio.sleep(_INTERVAL)

    def _account(self, attributes: Attributes, name: str) -> Tree | None:
        """Return an account (read-only), or None if pods can do without it. Raises `Forbidden` if it does not exist."""
        key = f"{attributes.namespace}/{name}"
        row = self._store.get(_ACCOUNTS, key)
        if row is not None:
            return self._read(row)
        if name == _DEFAULT and not self._strict:
            return None
        raise attributes.refused(f'error looking up service account {key}: serviceaccount "{name}" not found')


def _decoded(row: Row) -> Tree:
    return orjson.loads(row.data)  # type: ignore[no-any-return]


def _is_mirror(pod: Tree) -> bool:
    return MIRROR in (get_in(pod, _ANNOTATIONS) or {})


def _unaccounted(attributes: Attributes) -> str:
    return f"no service account specified for pod {attributes.namespace}/{attributes.name}"


def _check_mirror(attributes: Attributes) -> None:
    """Raises `Forbidden` for a mirror pod with references that a node must not create."""
    spec = attributes.tree.get("spec") or {}
    if spec.get("serviceAccountName"):
        raise attributes.refused("a mirror pod may not reference service accounts")
    if any(kind == SECRET for kind, _ in needs(spec, "")):
        raise attributes.refused("a mirror pod may not reference secrets")
    projections = (get_in(volume, ("projected", "sources")) or () for volume in spec.get("volumes") or ())
    if any(source.get("serviceAccountToken") is not None for sources in projections for source in sources):
        raise attributes.refused("a mirror pod may not use ServiceAccountToken volume projections")


def _is_enforced(account: Tree) -> bool:
    return (get_in(account, _ANNOTATIONS) or {}).get(_ENFORCED) in _TRUE


def _check_secrets(attributes: Attributes, account: Tree) -> None:
    if _is_enforced(account) and (why := next(secret_problems(attributes.tree["spec"], account), "")):
        raise attributes.refused(why)


def secret_problems(spec: Tree, account: Tree) -> Iterator[str]:
    """Yield the secret references of a pod that its account does not list."""
    name, known = account["metadata"]["name"], _names(account, "secrets")
    for volume in spec.get("volumes") or ():
        source = volume.get("secret")
        if source is not None and (secret := source.get("secretName", "")) not in known:
            yield f'volume with secret.secretName="{secret}" {_lacking(name)} that secret'
    for field in _CONTAINERS:
        yield from _container_problems(spec, field, account)
    pulled = _names(account, "imagePullSecrets")
    for index, reference in enumerate(spec.get("imagePullSecrets") or ()):
        if reference.get("name", "") not in pulled:
            yield f'imagePullSecrets[{index}].name="{reference.get("name", "")}" {_lacking(name)} that imagePullSecret'


_CALLED = {"initContainers": "init container", "containers": "container", "ephemeralContainers": "ephemeral container"}


def _container_problems(spec: Tree, field: str, account: Tree) -> Iterator[str]:
    known, lacking = _names(account, "secrets"), _lacking(account["metadata"]["name"])
    for container in spec.get(field) or ():
        called = f"{_CALLED[field]} {container.get('name', '')} with"
        for variable in container.get("env") or ():
            reference = get_in(variable, ("valueFrom", "secretKeyRef"))
            if reference is not None and (secret := reference.get("name", "")) not in known:
                named = variable.get("name", "")
                yield f'{called} envVar {named} referencing secret.secretName="{secret}" {lacking} that secret'
        for source in container.get("envFrom") or ():
            reference = source.get("secretRef")
            if reference is not None and (secret := reference.get("name", "")) not in known:
                yield f'{called} envFrom referencing secret.secretName="{secret}" {lacking} that secret'


def _lacking(account: str) -> str:
    return f"is not allowed because service account {account} does not reference"


def _names(account: Tree, field: str) -> set[str]:
    return {each.get("name", "") for each in account.get(field) or ()}


def with_account(spec: Tree, account: Tree, draw: Callable[[], str]) -> Tree:
    """Return the spec of a pod with that account; `draw` returns the suffix of a new volume name."""
    new = {**spec, **_named(account["metadata"]["name"])}
    if not new.get("imagePullSecrets") and account.get("imagePullSecrets"):
        new["imagePullSecrets"] = [{"name": each["name"]} for each in account["imagePullSecrets"]]
    wish = spec.get(_WISH)
    if wish is None:
        wish = account.get(_WISH)
    if wish is not False:
        _mount(new, draw)
    return new


def _named(account: str) -> Tree:
    return {"serviceAccountName": account, "serviceAccount": account}


def _mount(spec: Tree, draw: Callable[[], str]) -> None:
    """Mount a token in every container without a mount at that path. Lists of `spec` are replaced, not changed."""
    volumes, lists = spec.get("volumes") or (), [name for name in _CONTAINERS if spec.get(name)]
    if not any(_lacks_token(container) for name in lists for container in spec[name]):
        return
    known = next((name for each in volumes if (name := each.get("name", "")).startswith(DRAWN_VOLUME)), "")
    mount = {"name": known or DRAWN_VOLUME + draw(), "readOnly": True, "mountPath": _PATH}
    for name in lists:
        spec[name] = [
            {**one, "volumeMounts": [*(one.get("volumeMounts") or ()), dict(mount)]} if _lacks_token(one) else one
            for one in spec[name]
        ]
    if not known:
        spec["volumes"] = [*volumes, {"name": mount["name"], "projected": _token()}]


def _lacks_token(container: Tree) -> bool:
    return not any(mount.get("mountPath") == _PATH for mount in container.get("volumeMounts") or ())


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
