"""Token secrets of service accounts: fills them with tokens, and deletes those of deleted accounts."""

from collections.abc import Hashable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from msgspec.structs import replace

from controller_manager.common.api.core import SECRETS, SERVICE_ACCOUNTS, Secret, ServiceAccount
from controller_manager.common.api.errors import Conflict, NotFound
from controller_manager.common.base.clock import sleep_for_housekeeping
from controller_manager.framework import (
    STALE_CACHE,
    Add,
    Change,
    ConfigError,
    Context,
    ControllerSpec,
    For,
    Informers,
    Key,
    Mapped,
    PolicyRule,
    Requeue,
    key_of,
    try_write,
)

from .shared.service_accounts import (
    ACCOUNT_NAME,
    ACCOUNT_UID,
    CHECK_PERIOD,
    OF_TYPE,
    RootCAs,
    ServiceAccountOptions,
    account_of,
    read_root_cas,
    uid_of,
)

if TYPE_CHECKING:
    from controller_manager.common.serving.token_keys import SigningKey

BY_ACCOUNT = "account"

_ISSUER = "kubernetes/serviceaccount"
_FLAG = "--service-account-private-key-file"


class Reference(NamedTuple):
    """A deleted secret and its account; the uid may be empty."""

    account: Key
    uid: str
    secret: str


# Observed: a token secret, the account in its annotations, the root CA file.
# Decided:                                              Done:
#   account gone or replaced, confirmed with the        delete the secret, if it has not been replaced
#     server
#   token, namespace or CA missing                      set them, and the uid of the account
#   secret deleted, and its account refers to it        remove the reference
#   account only on the server                          requeue
#   no private key                                      nothing
# An existing token and namespace in a secret are kept.


class ServiceAccountTokens:
    """Reconciles a secret, or the reference to a deleted one."""

    def __init__(self, context: Context, options: ServiceAccountOptions) -> None:
        self._client = context.client
        self._secrets = context.informers.get(SECRETS, fields=OF_TYPE)
        self._accounts = context.informers.get(SERVICE_ACCOUNTS)
        file = options.service_account_private_key_file
        self._key = _signing_key(file) if file else None
        if self._key is None:
            context.log.warning("secrets get no tokens, since no private key is named", flag=_FLAG)
        self._authorities = RootCAs(options.root_ca_file, lambda: context.client.authorities, context.log)

    async def run(self, add: Add) -> None:
        """Enqueue every secret when the root CA file changes."""
        while True:
            await sleep_for_housekeeping(CHECK_PERIOD)
            if self._authorities.changed():
                for secret in self._secrets.list():
                    add(key_of(secret), "the authorities changed")

    async def reconcile(self, key: Key | Reference) -> Requeue | None:
        """Update the secret `key`, or remove the reference of an account to a deleted one."""
        if self._key is None:
            return None
        if isinstance(key, Reference):
            await self._forget(key)
            return None
        secret = self._secrets.get(key)
        name = account_of(secret) if secret is not None else None
        if secret is None or name is None:
            return None
        account = await self._account(name, uid_of(secret))
        if account is None:
            await self._delete(secret)
            return None
        wanted = desired(secret, account, self._authorities.text.encode(), self._key)
        if wanted is not None:
            await try_write(self._client.update(SECRETS, wanted))
        known = self._accounts.get(name)
        is_known = known is not None and known.metadata.uid == account.metadata.uid
        return None if is_known else STALE_CACHE  # an account may come and go unheard

    async def _account(self, key: Key, uid: str) -> ServiceAccount | None:
        """Return the account, from the server if it seems to be gone."""
        known = self._accounts.get(key)
        if known is not None and uid in ("", known.metadata.uid):
            return known
        try:
            found = await self._client.get(SERVICE_ACCOUNTS, key)
        except NotFound:
            return None
        return found if uid in ("", found.metadata.uid) else None

    async def _delete(self, secret: Secret) -> None:
        try:
            await self._client.delete(SECRETS, key_of(secret), uid=secret.metadata.uid)
        except (NotFound, Conflict):
            return  # it is gone, and what may be there by its name is another one

    async def _forget(self, gone: Reference) -> None:
        account = self._accounts.get(gone.account)
        is_other = account is None or gone.uid not in ("", account.metadata.uid)
        if account is None or is_other or self._secrets.get(Key(gone.account.namespace, gone.secret)) is not None:
            return
        kept = tuple(one for one in account.secrets if one.name != gone.secret)
        if len(kept) < len(account.secrets):
            await try_write(self._client.update(SERVICE_ACCOUNTS, replace(account, secrets=kept)))


def desired(secret: Secret, account: ServiceAccount, authorities: bytes, key: "SigningKey") -> Secret | None:
    """Return the secret with missing data added, or None if it is complete."""
    data = dict(secret.data)
    if authorities:
        data["ca.crt"] = authorities
    if not data.get("namespace"):
        data["namespace"] = secret.metadata.namespace.encode()
    if not data.get("token"):
        data["token"] = key.sign(claims(account, secret.metadata.name)).encode()
    if data == secret.data:
        return None
    named = {ACCOUNT_NAME: account.metadata.name, ACCOUNT_UID: account.metadata.uid}
    annotations = {**(secret.metadata.annotations or {}), **named}
    return replace(secret, metadata=replace(secret.metadata, annotations=annotations), data=data)


def claims(account: ServiceAccount, secret: str) -> bytes:
    """Return the claims of a token (JSON): the account and the secret. It does not expire."""
    meta, prefix = account.metadata, "kubernetes.io/serviceaccount"
    return msgspec.json.encode(
        {
            "iss": _ISSUER,
            f"{prefix}/namespace": meta.namespace,
            f"{prefix}/secret.name": secret,
            f"{prefix}/service-account.name": meta.name,
            f"{prefix}/service-account.uid": meta.uid,
            "sub": f"system:serviceaccount:{meta.namespace}:{meta.name}",
        }
    )


def accounts_of(secret: Secret) -> Iterable[str]:
    """Return the keys of a secret in the index `BY_ACCOUNT`."""
    account = account_of(secret)
    return () if account is None else (str(account),)


def _reference(_informers: Informers, change: Change[Secret]) -> Iterator[Hashable]:
    before = change.before
    account = account_of(before) if before is not None and change.after is None else None
    if before is not None and account is not None:
        yield Reference(account, uid_of(before), before.metadata.name)


def _secrets_of(informers: Informers, change: Change[ServiceAccount]) -> Iterator[Hashable]:
    for secret in informers.get(SECRETS, fields=OF_TYPE).by_index(BY_ACCOUNT, str(change.key)):
        yield key_of(secret)


def check(options: ServiceAccountOptions) -> None:
    """Raise `ConfigError` unless the files in the flags are usable."""
    if options.root_ca_file:
        read_root_cas(options.root_ca_file)
    if options.service_account_private_key_file:
        _signing_key(options.service_account_private_key_file)


def _signing_key(file: str) -> "SigningKey":
    from controller_manager.common.serving.token_keys import (
        read_signing_key,  # loads cryptography, which --help does without
    )

    try:
        return read_signing_key(Path(file), _FLAG)
    except OSError as error:
        raise ConfigError(f"{_FLAG}: {file} can't be read: {error.strerror}") from None
    except ValueError as error:
        raise ConfigError(str(error)) from None


SPECS = (
    ControllerSpec(
        name="serviceaccount-token-controller",
        queue="serviceaccount_tokens_secret",
        aliases=("serviceaccount-token",),
        as_process=True,
        reconciler=ServiceAccountTokens,
        options=ServiceAccountOptions,
        workers=lambda options: options.concurrent_serviceaccount_token_syncs,
        check=check,
        watches=(
            For(SECRETS, indexes={BY_ACCOUNT: accounts_of}, fields=OF_TYPE),
            Mapped(SECRETS, _reference, fields=OF_TYPE),
            Mapped(SERVICE_ACCOUNTS, _secrets_of),
        ),
        rbac=(
            PolicyRule(("",), ("secrets", "serviceaccounts"), ("get", "list", "watch", "update")),
            PolicyRule(("",), ("secrets",), ("delete",)),
        ),
    ),
)
