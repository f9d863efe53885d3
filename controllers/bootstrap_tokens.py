"""Bootstrap tokens: signs the cluster-info config map with each of them, and deletes expired ones."""

import hmac
import json
import re
from base64 import urlsafe_b64encode
from collections.abc import Iterable
from datetime import datetime
from typing import ClassVar, NamedTuple

from msgspec.structs import replace

from controller_manager.common.api.core import CONFIG_MAPS, SECRETS, ConfigMap, Secret
from controller_manager.common.api.errors import Conflict, NotFound
from controller_manager.common.api.platform import SYSTEM_NAMESPACE
from controller_manager.common.api.timestamps import parse_time
from controller_manager.common.base.clock import utc_now
from controller_manager.framework import (
    Change,
    Context,
    ControllerSpec,
    For,
    Informers,
    Key,
    Mapped,
    Options,
    PolicyRule,
    Requeue,
    try_write,
)

CLUSTER_INFO = Key("kube-public", "cluster-info")
CONTENT = "kubeconfig"
SIGNATURE = "jws-kubeconfig-"

_TYPE = "bootstrap.kubernetes.io/token"
_NAME = re.compile(r"bootstrap-token-([a-z0-9]{6})")
_TOKENS = f"type={_TYPE},metadata.namespace={SYSTEM_NAMESPACE}"
_PUBLISHED = f"metadata.name={CLUSTER_INFO.name},metadata.namespace={CLUSTER_INFO.namespace}"


class BootstrapSignerOptions(Options):
    """Bootstrap signer"""

    title: ClassVar[str] = "Bootstrap signer"


class TokenCleanerOptions(Options):
    """Bootstrap token cleaner"""

    title: ClassVar[str] = "Bootstrap token cleaner"


class SigningKey(NamedTuple):
    """A token that signs: its identifier, its secret, and its expiry (None: never)."""

    identifier: str
    secret: bytes
    ends: datetime | None


# Observed: the config map `kube-public/cluster-info` and the bootstrap token secrets.
# Decided:                                                Done:
#   no config map, or no `kubeconfig` in it               nothing
#   valid token with usage `signing`                      add its signature of the `kubeconfig`
#   signature without such a token, or of other content   remove it
# A signature is a JWS with detached content (RFC 7515, appendix F), with HS256 and the secret of the token.


class BootstrapSigner:
    """Reconciles the cluster-info config map."""

    def __init__(self, context: Context, _options: BootstrapSignerOptions) -> None:
        self._client = context.client
        self._published = context.informers.get(CONFIG_MAPS, fields=_PUBLISHED)
        self._tokens = context.informers.get(SECRETS, fields=_TOKENS)

    async def reconcile(self, key: Key) -> Requeue | None:
        """Update the signatures. Requeue when the next token expires."""
        current = self._published.get(key)
        if current is None:
            return None
        now = utc_now()
        keys = [found for secret in self._tokens.list() if (found := signing_key(secret, now)) is not None]
        wanted = signed(current, keys)
        if wanted is not None:
            await try_write(self._client.update(CONFIG_MAPS, wanted))
        ends = min((one.ends for one in keys if one.ends is not None), default=None)
        return None if ends is None else Requeue((ends - now).total_seconds())


# Observed: a bootstrap token secret and its `expiration`.
# Decided:                   Done:
#   no expiration            nothing
#   in the future            requeue
#   past or invalid          delete the secret, if it has not been replaced


class TokenCleaner:
    """Reconciles bootstrap token secrets."""

    def __init__(self, context: Context, _options: TokenCleanerOptions) -> None:
        self._client = context.client
        self._tokens = context.informers.get(SECRETS, fields=_TOKENS)

    async def reconcile(self, key: Key) -> Requeue | None:
        """Delete an expired token, or requeue at its expiry."""
        secret = self._tokens.get(key)
        ends = ends_at(secret) if secret is not None else None
        if secret is None or ends is None:
            return None
        left = (ends - utc_now()).total_seconds()
        if left > 0:
            return Requeue(left)
        try:
            await self._client.delete(SECRETS, key, uid=secret.metadata.uid)
        except (NotFound, Conflict):
            return None  # it is gone, and what may be there by its name is another one
        return None


def signed(current: ConfigMap, keys: Iterable[SigningKey]) -> ConfigMap | None:
    """Return the config map with the signatures of these keys, or None if it is up to date.

    The first of several keys with the same identifier counts.
    """
    content = current.data.get(CONTENT)
    if content is None:
        return None
    kept = {name: value for name, value in current.data.items() if not name.startswith(SIGNATURE)}
    signatures: dict[str, str] = {}
    for key in keys:
        signatures.setdefault(SIGNATURE + key.identifier, detached_signature(content, key))
    wanted = {**kept, **signatures}
    return None if wanted == current.data else replace(current, data=wanted)


def detached_signature(content: str, key: SigningKey) -> str:
    """Return the compact JWS signature of a text without its payload."""
    header = _base64url(json.dumps({"alg": "HS256", "kid": key.identifier}, separators=(",", ":")).encode())
    payload = _base64url(content.encode())
    signature = _base64url(hmac.digest(key.secret, f"{header}.{payload}".encode(), "sha256"))
    return f"{header}..{signature}"


def signing_key(secret: Secret, now: datetime) -> SigningKey | None:
    """Return the signing key of a token, or None if it does not sign."""
    name, data = _NAME.fullmatch(secret.metadata.name), secret.data
    identifier, value = data.get("token-id", b""), data.get("token-secret", b"")
    if name is None or identifier != name[1].encode() or not value or data.get("usage-bootstrap-signing") != b"true":
        return None
    ends = ends_at(secret)
    return None if ends is not None and ends <= now else SigningKey(name[1], value, ends)


def ends_at(secret: Secret) -> datetime | None:
    """Return the expiry of a token (None: never). An invalid time counts as past."""
    text = secret.data.get("expiration")
    if not text:
        return None
    try:
        return parse_time(text.decode())
    except ValueError:
        return parse_time("1970-01-01T00:00:00Z")


def _base64url(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def _the_config_map(_informers: Informers, _change: Change[Secret]) -> Iterable[Key]:
    return (CLUSTER_INFO,)


_READ = ("get", "list", "watch")

SPECS = (
    ControllerSpec(
        name="bootstrap-signer-controller",
        queue="bootstrap_signer_queue",
        aliases=("bootstrapsigner",),
        service_account="bootstrap-signer",
        default_on=False,
        reconciler=BootstrapSigner,
        options=BootstrapSignerOptions,
        watches=(For(CONFIG_MAPS, fields=_PUBLISHED), Mapped(SECRETS, _the_config_map, fields=_TOKENS)),
        rbac=(
            PolicyRule(("",), ("secrets",), _READ, namespace=SYSTEM_NAMESPACE),
            PolicyRule(("",), ("configmaps",), _READ, namespace=CLUSTER_INFO.namespace),
            PolicyRule(("",), ("configmaps",), ("update",), (CLUSTER_INFO.name,), CLUSTER_INFO.namespace),
        ),
    ),
    ControllerSpec(
        name="token-cleaner-controller",
        queue="token_cleaner",
        aliases=("tokencleaner",),
        service_account="token-cleaner",
        default_on=False,
        reconciler=TokenCleaner,
        options=TokenCleanerOptions,
        watches=(For(SECRETS, fields=_TOKENS),),
        rbac=(PolicyRule(("",), ("secrets",), (*_READ, "delete"), namespace=SYSTEM_NAMESPACE),),
    ),
)
