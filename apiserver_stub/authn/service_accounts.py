"""Authentication by service account tokens: JWTs signed by this cluster (RFC 7519, KEP-1205)."""

import base64
import binascii
import hashlib
import re
from collections.abc import Callable, Container, Sequence

import jwt
import msgspec
from prometheus_client import CollectorRegistry

from apiserver_stub.authn.keys import VerifyingKeys
from apiserver_stub.authn.tokens import (
    LEEWAY,
    Claims,
    Existing,
    Recognized,
    TokenRefused,
    needs,
    shared,
    untimely,
    user_of,
)
from apiserver_stub.request.audit import annotate
from apiserver_stub.watch_cache.row import CorruptRow, Row
from controller_manager.common.api.platform import GROUP_DOMAIN
from controller_manager.common.api.timestamps import parse_time
from controller_manager.common.base.clock import wall_seconds
from controller_manager.common.base.metrics import Counters, Family
from controller_manager.common.serving.authentication import User
from controller_manager.common.serving.token_keys import SigningKey

_JWS = re.compile(r"([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]*)")  # without padding (RFC 7515, section 2)
LONGEST_TOKEN = 32 * 1024
MOST_REMEMBERED = 4096

Get = Callable[[str, str], Row | None]
_CLAIMS = msgspec.json.Decoder(Claims)


_LEGACY = Family("serviceaccount_legacy_tokens_total", "Number of uses of tokens without an audience.", "counter")
_MANUAL = Family(
    "serviceaccount_legacy_manual_token_uses_total", "Number of uses of tokens in manually created secrets.", "counter"
)
_AUTOMATIC = Family(
    "serviceaccount_legacy_auto_token_uses_total",
    "Number of uses of tokens in secrets that the account refers to.",
    "counter",
)
_INVALIDATED = Family(
    "serviceaccount_invalid_legacy_auto_token_uses_total",
    "Number of uses of tokens in secrets marked as invalid.",
    "counter",
)
_STALE = Family(
    "serviceaccount_stale_tokens_total", "Number of uses of tokens that should have been renewed.", "counter"
)
_VALID = Family("serviceaccount_valid_tokens_total", "Number of uses of tokens that are renewed in time.", "counter")


class TokenMetrics:
    """Counts uses of tokens of service accounts."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.legacy, self.manual = Counters(_LEGACY, registry), Counters(_MANUAL, registry)
        self.automatic, self.invalidated = Counters(_AUTOMATIC, registry), Counters(_INVALIDATED, registry)
        self.stale, self.valid = Counters(_STALE, registry), Counters(_VALID, registry)


class _Header(msgspec.Struct):
    key: str = msgspec.field(name="kid", default="")


class _Issued(msgspec.Struct):
    by: str = msgspec.field(name="iss", default="")


class _Verified(msgspec.Struct, frozen=True):
    """A token with a verified signature, and the data derived from its claims."""

    claims: Claims
    user: User
    needs: tuple[Existing, ...]


class Signer:
    """Signs claims with one key."""

    def __init__(self, key: SigningKey) -> None:
        self._key = key

    def sign(self, claims: Claims) -> str:
        """Return a signed token with these claims."""
        return self._key.sign(msgspec.json.encode(claims))


class ServiceAccountTokens:
    """Verifies tokens signed with one of `keys` for one of `issuers`; the objects they name must exist, as read by
    `get`.

    Signatures are verified once: the 4,096 last used tokens are cached by SHA-256 digest. Without `get`, objects are
    not looked up.
    """

    def __init__(self, issuers: Sequence[str], keys: VerifyingKeys, get: Get | None, metrics: TokenMetrics) -> None:
        self._issuers = frozenset(issuers)
        self._keys = keys
        self._get = get
        self._metrics = metrics
        self._remembered: dict[bytes, _Verified] = {}

    async def find(self, token: str, audiences: Sequence[str]) -> Recognized | None:
        """Return the user of the token for one of the audiences; None for a token of another issuer. Raises
        `TokenRefused`.
        """
        digest = hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
        verified = self._remembered.pop(digest, None) or await self._verify(token)
        if verified is None:
            return None
        now = wall_seconds()
        why = untimely(verified.claims, now)
        if why:
            raise TokenRefused(why)
        self._remember(digest, verified)
        meant = shared(audiences, verified.claims.audiences)
        if not meant:
            raise TokenRefused("the service account token is for another audience")
        if self._get is not None and not all(_exists(self._get, one, now) for one in verified.needs):
            raise TokenRefused(
                "the service account of the token, or the object that the token is bound to, no longer exists"
            )
        if warn_after := verified.claims.subject.warn_after:
            self._note_age(verified.claims.username, now - warn_after)
        return Recognized(verified.user, meant)

    def _note_age(self, subject: str, late: float) -> None:
        """Count the use of a token with extended lifetime; record a use `late` seconds after the requested expiry."""
        if late <= 0:
            self._metrics.valid.add()
            return
        self._metrics.stale.add()
        annotation = f"subject: {subject}, seconds after warning threshold: {int(late)}"
        annotate(f"authentication.{GROUP_DOMAIN}/stale-token", annotation)

    def _remember(self, digest: bytes, verified: _Verified) -> None:
        self._remembered[digest] = verified
        if len(self._remembered) > MOST_REMEMBERED:
            del self._remembered[next(iter(self._remembered))]

    async def _verify(self, token: str) -> _Verified | None:
        payload = await verified_payload(token, self._issuers, self._keys)
        if payload is None:
            return None
        try:
            claims = _CLAIMS.decode(payload)
        except msgspec.DecodeError:
            raise TokenRefused("failed to decode the claims of the service account token") from None
        return _Verified(claims, user_of(claims), needs(claims.subject))


async def verified_payload(token: str, issuers: Container[str], keys: VerifyingKeys) -> bytes | None:
    """Return the payload of a token with a valid signature; None if it is not a token of these issuers.

    Raises `TokenRefused` for an invalid signature, and for an unknown key id.
    """
    header, issued = _peek(token)
    if issued.by not in issuers:
        return None
    for key in await keys.named(header.key):
        try:
            return bytes(jwt.PyJWS().decode(token, key.public, algorithms=[key.algorithm]))
        except jwt.InvalidTokenError:
            continue
    raise TokenRefused("the signature of the service account token is not valid")


def _peek(token: str) -> tuple[_Header, _Issued]:
    """Return the unverified key id and issuer of a JWT; empty values for other text."""
    parts = _JWS.fullmatch(token) if len(token) <= LONGEST_TOKEN else None
    if parts is None:
        return _Header(), _Issued()
    try:
        header, payload = (base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)) for part in parts.groups()[:2])
        return msgspec.json.decode(header, type=_Header), msgspec.json.decode(payload, type=_Issued)
    except (binascii.Error, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _Header(), _Issued()


def _exists(get: Get, wanted: Existing, now: float) -> bool:
    row = get(wanted.storage, wanted.key)
    if row is None or isinstance(row, CorruptRow) or row.field("metadata.uid") != wanted.uid:
        return False
    going = row.field("metadata.deletionTimestamp")
    return not going or parse_time(going).timestamp() >= now - LEEWAY
