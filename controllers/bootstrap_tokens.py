"""Bootstrap tokens: signs what is published for those who join a cluster with each of them, and deletes those whose
time is over.
"""

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
from controller_manager.common.options import Options
from controller_manager.framework.cache import Change, Informers
from controller_manager.framework.controller import (
    Context,
    ControllerSpec,
    For,
    Key,
    Mapped,
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
    """A token that signs: its identifier, its secret, and when it is over; None is never."""

    identifier: str
    secret: bytes
    ends: datetime | None


# Observed: the config map `cluster-info` of `kube-public`, and the secrets that are bootstrap tokens.
# Decided:                                                     Done:
#   there is no config map, or no `kubeconfig` in it             nothing
#   a token has its identifier in its name, a secret, the        its signature of the `kubeconfig` stands beside it
#     usage `signing`, and is not over
#   a signature is of no such token, or of another content       it goes
# A signature is a JWS with detached content (RFC 7515, appendix F), made by HS256 with the secret of the token.


class BootstrapSigner:
    """Reconciles the one config map."""

    def __init__(self, context: Context, _options: BootstrapSignerOptions) -> None:
        self._client = context.client
        self._published = context.informers.get(CONFIG_MAPS, fields=_PUBLISHED)
        self._tokens = context.informers.get(SECRETS, fields=_TOKENS)

    async def reconcile(self, key: Key) -> Requeue | None:
        """Have the signatures be those of the tokens there are; come back when one of these is over."""
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


# Observed: a secret that is a bootstrap token, and the `expiration` in it.
# Decided:                                    Done:
#   there is none                               nothing
#   it lies ahead                               looked at again then
#   it is over, or cannot be read               the secret is deleted, if it is still the same one


class TokenCleaner:
    """Reconciles one token, the secret named by the key."""

    def __init__(self, context: Context, _options: TokenCleanerOptions) -> None:
        self._client = context.client
        self._tokens = context.informers.get(SECRETS, fields=_TOKENS)

    async def reconcile(self, key: Key) -> Requeue | None:
        """Delete the token if it is over, or come back when it is."""
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
    """Return the config map with the signatures of these keys; None if it is as it should be. Of keys with one
    identifier the first counts.
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
    """Return the signature of a text in the compact form of a JWS, whose middle is left out."""
    header = _base64url(json.dumps({"alg": "HS256", "kid": key.identifier}, separators=(",", ":")).encode())
    payload = _base64url(content.encode())
    signature = _base64url(hmac.digest(key.secret, f"{header}.{payload}".encode(), "sha256"))
    return f"{header}..{signature}"


def signing_key(secret: Secret, now: datetime) -> SigningKey | None:
    """Return what a token signs with; None for one that does not."""
    name, data = _NAME.fullmatch(secret.metadata.name), secret.data
    identifier, value = data.get("token-id", b""), data.get("token-secret", b"")
    if name is None or identifier != name[1].encode() or not value or data.get("usage-bootstrap-signing") != b"true":
        return None
    ends = ends_at(secret)
    return None if ends is not None and ends <= now else SigningKey(name[1], value, ends)


def ends_at(secret: Secret) -> datetime | None:
    """Return when a token is over; None is never. A time that cannot be read has been."""
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
