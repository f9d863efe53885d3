"""Tokens of service accounts that are kept in secrets and never expire, as they were before KEP-1205."""

import hmac
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta

import msgspec

from apiserver_stub.authn.keys import VerifyingKeys
from apiserver_stub.authn.service_accounts import Get, TokenMetrics, verified_payload
from apiserver_stub.authn.tokens import ACCOUNTS, Recognized, TokenRefused, shared, username
from apiserver_stub.watch_cache.row import CorruptRow, Row
from controller_manager.base.clock import utc_now
from controller_manager.serving.authentication import User

LAST_USED = "kubernetes.io/legacy-token-last-used"
_INVALID_SINCE = "kubernetes.io/legacy-token-invalid-since"
_ISSUER = frozenset({"kubernetes/serviceaccount"})
_PREFIX = "kubernetes.io/serviceaccount/"

MarkUsed = Callable[[str, str, str, str], Awaitable[None]]
"""Notes at the secret of a namespace and a name, with this uid, the day its token was used on."""


class _Claims(msgspec.Struct):
    username: str = msgspec.field(name="sub")
    namespace: str = msgspec.field(name=f"{_PREFIX}namespace")
    secret: str = msgspec.field(name=f"{_PREFIX}secret.name")
    account: str = msgspec.field(name=f"{_PREFIX}service-account.name")
    uid: str = msgspec.field(name=f"{_PREFIX}service-account.uid")


class _Named(msgspec.Struct):
    name: str = ""


class _Account(msgspec.Struct):
    secrets: tuple[_Named, ...] | None = None


class _Secret(msgspec.Struct):
    data: Mapping[str, bytes] | None = None


_CLAIMS, _ACCOUNT = msgspec.json.Decoder(_Claims), msgspec.json.Decoder(_Account)
_SECRET = msgspec.json.Decoder(_Secret)


class LegacyTokens:
    """Knows the tokens that a secret holds, as long as it does and its account is there; `get` reads the store, without
    it nothing is looked up. They are meant for this server, which is the `audiences`.

    A secret that is marked as invalid lets nobody in; the day of its last use is noted at each.
    """

    def __init__(
        self, keys: VerifyingKeys, get: Get | None, audiences: Sequence[str], metrics: TokenMetrics, mark: MarkUsed
    ) -> None:
        self._keys = keys
        self._get = get
        self._audiences = tuple(audiences)
        self._metrics = metrics
        self._mark = mark

    async def find(self, token: str, audiences: Sequence[str]) -> Recognized | None:
        """See `FindToken`."""
        payload = await verified_payload(token, _ISSUER, self._keys)
        if payload is None:
            return None
        self._metrics.legacy.add()
        claims, meant = _read(payload), shared(audiences, self._audiences)
        if not meant:
            raise TokenRefused("the service account token is meant for another audience")
        if self._get is not None:
            await self._look_up(self._get, claims, token)
        groups = (ACCOUNTS, f"{ACCOUNTS}:{claims.namespace}")
        return Recognized(User(claims.username, claims.uid, groups), meant)

    async def _look_up(self, get: Get, claims: _Claims, token: str) -> None:
        """Return if secret and account are as the token says. Raises `TokenRefused`."""
        secret = _alive(get("secrets", f"{claims.namespace}/{claims.secret}"))
        account = _alive(get("serviceaccounts", f"{claims.namespace}/{claims.account}"))
        if secret is None:
            raise TokenRefused("the service account token has been invalidated")
        kept = (_SECRET.decode(secret.data).data or {}).get("token", b"")
        if not hmac.compare_digest(kept, token.encode("utf-8", "surrogateescape")):
            raise TokenRefused("the service account token is not the one that is kept")
        if account is None or account.field("metadata.uid") != claims.uid:
            raise TokenRefused("the service account of the token no longer exists")
        is_invalid = bool(secret.labels.get(_INVALID_SINCE))
        self._count(account, claims.secret, is_invalid=is_invalid)
        await self._note_use(secret)
        if is_invalid:
            raise TokenRefused(f"the service account token is marked as invalid by the label {_INVALID_SINCE}")

    def _count(self, account: Row, secret: str, *, is_invalid: bool) -> None:
        if is_invalid:
            self._metrics.invalidated.add()
        elif any(one.name == secret for one in _ACCOUNT.decode(account.data).secrets or ()):
            self._metrics.automatic.add()
        else:
            self._metrics.manual.add()

    async def _note_use(self, secret: Row) -> None:
        now = utc_now()
        today, tomorrow = now.date().isoformat(), (now + timedelta(days=1)).date().isoformat()
        if secret.labels.get(LAST_USED) not in (today, tomorrow):
            await self._mark(secret.namespace, secret.name, secret.field("metadata.uid"), today)


def _read(payload: bytes) -> _Claims:
    try:
        claims = _CLAIMS.decode(payload)
    except msgspec.DecodeError:
        raise TokenRefused("the claims of the service account token cannot be read") from None
    if not all((claims.secret, claims.uid, claims.username == username(claims.namespace, claims.account))):
        raise TokenRefused("the claims of the service account token contradict one another")
    return claims


def _alive(row: Row | None) -> Row | None:
    """Return a row that can be read and is not going."""
    is_gone = row is None or isinstance(row, CorruptRow) or row.field("metadata.deletionTimestamp")
    return None if is_gone else row
