"""Callers known by a service account token: a JWT that this cluster signed (RFC 7519, KEP-1205)."""

import base64
import binascii
import hashlib
from collections.abc import Callable, Sequence

import jwt
import msgspec

from apiserver_stub.authn.keys import SigningKey, VerifyingKey
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
from apiserver_stub.watch_cache.row import CorruptRow, Row
from controller_manager.api.timestamps import parse_time
from controller_manager.base.clock import wall_seconds
from controller_manager.serving.authentication import User

LONGEST_TOKEN = 32 * 1024
MOST_REMEMBERED = 4096

Get = Callable[[str, str], Row | None]
_CLAIMS = msgspec.json.Decoder(Claims)


class _Header(msgspec.Struct):
    key: str = msgspec.field(name="kid", default="")


class _Issued(msgspec.Struct):
    by: str = msgspec.field(name="iss", default="")


class _Verified(msgspec.Struct, frozen=True):
    """A token whose signature was found good, and what follows from its claims whenever it is used."""

    claims: Claims
    user: User
    needs: tuple[Existing, ...]


class Signer:
    """Signs claims with one key."""

    def __init__(self, key: SigningKey) -> None:
        self._key = key

    def sign(self, claims: Claims) -> str:
        """Return the token that says this."""
        headers = {"kid": self._key.verifying.name, "typ": ""}
        payload = msgspec.json.encode(claims)
        return jwt.PyJWS().encode(payload, self._key.private, self._key.verifying.algorithm, headers)


class ServiceAccountTokens:
    """Knows the tokens signed with one of `keys` for one of `issuers`; what they name must exist, as `get` tells.

    A signature is looked at once: tokens are remembered by their SHA-256 digests, the last used 4,096 of them. Without
    `get` nothing is looked up.
    """

    def __init__(self, issuers: Sequence[str], keys: Sequence[VerifyingKey], get: Get | None) -> None:
        self._issuers = frozenset(issuers)
        self._keys = {key.name: key for key in keys}
        self._get = get
        self._remembered: dict[bytes, _Verified] = {}

    async def find(self, token: str, audiences: Sequence[str]) -> Recognized | None:
        """Return who shows the token to one of the audiences; None if it is none of ours. Raises `TokenRefused`."""
        digest = hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
        verified = self._remembered.pop(digest, None) or self._verify(token)
        if verified is None:
            return None
        now = wall_seconds()
        why = untimely(verified.claims, now)
        if why:
            raise TokenRefused(why)
        self._remember(digest, verified)
        meant = shared(audiences, verified.claims.audiences)
        if not meant:
            raise TokenRefused("the service account token is meant for another audience")
        if self._get is not None and not all(_exists(self._get, one, now) for one in verified.needs):
            raise TokenRefused("the service account of the token, or what the token is bound to, no longer exists")
        return Recognized(verified.user, meant)

    def _remember(self, digest: bytes, verified: _Verified) -> None:
        self._remembered[digest] = verified
        if len(self._remembered) > MOST_REMEMBERED:
            del self._remembered[next(iter(self._remembered))]

    def _verify(self, token: str) -> _Verified | None:
        header, issued = _peek(token)
        if issued.by not in self._issuers:
            return None
        for key in self._candidates(header.key):
            try:
                payload = jwt.PyJWS().decode(token, key.public, algorithms=[key.algorithm])
                claims = _CLAIMS.decode(payload)
            except (jwt.InvalidTokenError, msgspec.DecodeError):
                continue
            return _Verified(claims, user_of(claims), needs(claims.subject))
        raise TokenRefused("the signature of the service account token is not valid")

    def _candidates(self, name: str) -> Sequence[VerifyingKey]:
        """Return the key a token names, or all: whoever signed it may call the key otherwise."""
        named = self._keys.get(name)
        return (named,) if named else tuple(self._keys.values())


def _peek(token: str) -> tuple[_Header, _Issued]:
    """Return what a JWT says of its key and its issuer, not verified; nothing of what is no JWT."""
    parts = token.split(".") if token.isascii() and len(token) <= LONGEST_TOKEN else ()
    if len(parts) != 3:
        return _Header(), _Issued()
    try:
        header, payload = (base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)) for part in parts[:2])
        return msgspec.json.decode(header, type=_Header), msgspec.json.decode(payload, type=_Issued)
    except (binascii.Error, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _Header(), _Issued()


def _exists(get: Get, wanted: Existing, now: float) -> bool:
    row = get(wanted.storage, wanted.key)
    if row is None or isinstance(row, CorruptRow) or row.field("metadata.uid") != wanted.uid:
        return False
    going = row.field("metadata.deletionTimestamp")
    return not going or parse_time(going).timestamp() >= now - LEEWAY
