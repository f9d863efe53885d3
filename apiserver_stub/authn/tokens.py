"""Bearer tokens: the chain of token authenticators, the static tokens of `--token-auth-file`, the claims of service
account tokens, and the checks of their validity.
"""

import csv
import hashlib
import math
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from apiserver_stub.authz.reviews import Review, read
from apiserver_stub.request.api_request import APIRequest
from controller_manager.common.api.errors import BadRequest
from controller_manager.common.api.model import Model
from controller_manager.common.api.platform import GROUP_DOMAIN
from controller_manager.common.api.tree import Tree
from controller_manager.common.serving.authentication import AUTHENTICATED, User, authenticated

LEEWAY = 60.0
"""Seconds of allowed clock skew, and during which deleted objects are still accepted."""
ACCOUNTS = "system:serviceaccounts"
_EXTRA = "authentication.kubernetes.io"


class Reference(Struct, frozen=True, omit_defaults=True):
    """An object, and which of its name."""

    name: str
    uid: str = ""


class TokenSubject(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The service account that a token is for, the objects it is bound to, and the moment after which its use is worth
    a warning (seconds since the epoch).
    """

    namespace: str
    node: Reference | None = None
    pod: Reference | None = None
    secret: Reference | None = None
    account: Reference = field(name="serviceaccount")
    warn_after: int | None = field(name="warnafter", default=None)


class Claims(Struct, frozen=True, kw_only=True):
    """The registered claims (RFC 7519, section 4.1) and those of Kubernetes; times are seconds since the epoch."""

    audiences: str | tuple[str, ...] = field(name="aud")
    expires: int = field(name="exp")
    issued: int = field(name="iat", default=0)
    issuer: str = field(name="iss")
    identifier: str = field(name="jti", default="")
    subject: TokenSubject = field(name="kubernetes.io")
    not_before: int = field(name="nbf", default=0)
    username: str = field(name="sub")


class Existing(Struct, frozen=True):
    """An object that must exist for a token to be valid: a stored row with this uid."""

    storage: str
    key: str
    uid: str


def username(namespace: str, name: str) -> str:
    """Return the user that a service account is."""
    return f"system:serviceaccount:{namespace}:{name}"


def user_of(claims: Claims) -> User:
    """Return the user in the claims, with the data of the token as extra."""
    subject, extra = claims.subject, {}
    if claims.identifier:
        extra["credential-id"] = f"JTI={claims.identifier}"
    if subject.pod:
        extra |= {"pod-name": subject.pod.name, "pod-uid": subject.pod.uid}
    if subject.node:
        extra |= {"node-name": subject.node.name, "node-uid": subject.node.uid}
    return User(
        username(subject.namespace, subject.account.name),
        subject.account.uid,
        (ACCOUNTS, f"{ACCOUNTS}:{subject.namespace}", AUTHENTICATED),
        {f"{_EXTRA}/{name}": (value,) for name, value in extra.items() if value},
    )


def needs(subject: TokenSubject) -> tuple[Existing, ...]:
    """Return the objects that must exist: the account and the bound object. The node of a bound pod is not checked."""
    named = (
        ("serviceaccounts", subject.namespace, subject.account),
        ("secrets", subject.namespace, subject.secret),
        ("pods", subject.namespace, subject.pod),
        ("nodes", "", None if subject.pod else subject.node),
    )
    return tuple(
        Existing(storage, f"{namespace}/{one.name}" if namespace else one.name, one.uid)
        for storage, namespace, one in named
        if one is not None
    )


def untimely(claims: Claims, now: float) -> str:
    """Return why a token is not valid at this time; empty if it is."""
    if now - LEEWAY > claims.expires:
        return "the service account token has expired"
    if now + LEEWAY < max(claims.not_before, claims.issued):
        return "the service account token is not valid yet"
    return ""


def shared(wanted: Sequence[str], offered: str | Sequence[str]) -> tuple[str, ...]:
    """Return the audiences that are both wanted and offered."""
    offered = (offered,) if isinstance(offered, str) else offered
    return tuple(one for one in wanted if one in offered)


class TokenRefused(Exception):
    """A known token was rejected; the message is the reason, for users who may create TokenReviews."""


class Recognized(Struct, frozen=True):
    """The user of a token, the requested audiences that it is valid for, and its expiry (seconds since the epoch) for
    caches.
    """

    user: User
    audiences: tuple[str, ...]
    expires: float = math.inf


FindToken = Callable[[str, Sequence[str]], Awaitable[Recognized | None]]
"""Returns the user of a token for one of these audiences, None for an unknown token; may raise `TokenRefused`."""


class TokenAuthenticatorChain:
    """Tries the token authenticators in order; this server is the `audiences`. After a rejection, the next one is
    tried.
    """

    def __init__(self, sources: Sequence[FindToken], audiences: Sequence[str]) -> None:
        self._sources = tuple(sources)
        self._audiences = tuple(audiences)

    async def authenticate_token(self, token: str) -> User | None:
        """Return the user of a token for this server. Reasons of rejections are not reported."""
        try:
            found = await self.find(token, ())
        except TokenRefused:
            return None
        return found.user if found else None

    async def find(self, token: str, audiences: Sequence[str]) -> Recognized | None:
        """Return the user of a token for these audiences or, without any, for this server. Raises `TokenRefused` with
        all reasons if it is rejected.
        """
        wanted = audiences or self._audiences
        refusals: list[str] = []
        for source in self._sources:
            try:
                found = await source(token, wanted)
            except TokenRefused as refused:
                refusals.append(str(refused))
                continue
            if found is not None:
                return found
        if refusals:
            raise TokenRefused(refusals[0] if len(refusals) == 1 else f"[{', '.join(dict.fromkeys(refusals))}]")
        return None


class StaticTokens:
    """Static tokens, stored and looked up as SHA-256 digests, so that timing reveals nothing.

    They are valid for this server, the `audiences`.
    """

    def __init__(self, users: Mapping[str, User], audiences: Sequence[str]) -> None:
        self._audiences = tuple(audiences)
        self._known = {
            _digest(token): Recognized(authenticated(user), self._audiences) for token, user in users.items()
        }

    async def find(self, token: str, audiences: Sequence[str]) -> Recognized | None:
        """See `FindToken`."""
        known = self._known.get(_digest(token))
        if known is None or audiences == self._audiences:
            return known
        meant = shared(audiences, self._audiences)
        return Recognized(known.user, meant) if meant else None


def read_token_file(path: Path) -> dict[str, User]:
    """Read lines of `token,user,uid[,"group1,group2"]`. Raises `ValueError` naming the invalid line."""
    with path.open(encoding="utf-8", newline="") as lines:
        return parse_tokens(lines, str(path))


def parse_tokens(lines: Iterable[str], source: str) -> dict[str, User]:
    """Return the users by token; `source` names the file in errors."""
    users: dict[str, User] = {}
    rows = csv.reader(lines)
    for row in rows:
        fields = [field.strip() for field in row]
        if not any(fields):
            continue
        where = f"{source}, line {rows.line_num}"
        if len(fields) < 3 or not fields[0] or not fields[1]:
            raise ValueError(f"{where}: expected token,user,uid and optionally quoted groups")
        if fields[0] in users:
            raise ValueError(f"{where}: the token was given before")
        groups = tuple(group.strip() for group in fields[3].split(",") if group.strip()) if len(fields) > 3 else ()
        users[fields[0]] = User(fields[1], fields[2], groups)
    return users


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


# The virtual resources of authentication: TokenReview and SelfSubjectReview.

_GROUP = f"authentication.{GROUP_DOMAIN}"


class _TokenSpec(Model):
    token: str = ""
    audiences: tuple[str, ...] = ()


def authentication_reviews(find: FindToken) -> Mapping[tuple[str, str], Review]:
    """Return the reviews by group and plural; `find` returns the user of a token, for this server if no audience is
    given.
    """

    async def token_review(_request: APIRequest, tree: Tree) -> Tree:
        spec = read(tree, _TokenSpec)
        if not spec.token:
            raise BadRequest("token is required for TokenReview in authentication")
        try:
            found = await find(spec.token, spec.audiences)
        except TokenRefused as refusal:
            return {"user": {}, "error": str(refusal)}
        if found is None:
            return {"user": {}, "error": "invalid bearer token"}
        user = _user_info(authenticated(found.user))
        return {"authenticated": True, "user": user, "audiences": list(found.audiences)}

    return {(_GROUP, "tokenreviews"): token_review, (_GROUP, "selfsubjectreviews"): _self_subject_review}


def _user_info(user: User) -> dict[str, Any]:
    """Return a user as the API shows it."""
    extra = {name: list(values) for name, values in user.extra.items()}
    shown = {"username": user.name, "uid": user.uid, "groups": list(user.groups), "extra": extra}
    return {name: value for name, value in shown.items() if value}


async def _self_subject_review(request: APIRequest, _tree: Tree) -> Tree:
    return {"userInfo": _user_info(request.user)}
